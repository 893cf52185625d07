package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// serveMetrics answers with the metrics, also if the agent has no listener for them.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	if s.Registry == nil {
		httpserver.JSON(w, http.StatusNotFound, map[string]string{"error": "this agent has no metrics"})
		return
	}
	httpserver.Mux(s.Registry, nil, false).ServeHTTP(w, r)
}

// serveJournal answers with a tar archive. Only the agent's unix socket serves it: the journal has objects of the cluster. The answer ends early if the
// journal cannot be read, and then the archive has no end.
func (s *Server) serveJournal(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, err error) { httpserver.JSON(w, code, map[string]string{"error": err.Error()}) }
	most, err := strconv.ParseInt(r.URL.Query().Get("most"), 10, 64)
	switch {
	case err != nil || most <= 0:
		fail(http.StatusBadRequest, errors.New("most: must be a number of bytes"))
		return
	case s.Journal == nil:
		fail(http.StatusNotFound, errors.New("this agent keeps no journal (run --flight-recorder)"))
		return
	}
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		fail(http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if err := s.Journal(w, most); err != nil {
		s.Logger.Warn("the journal is not sent", "err", err)
	}
}

// FetchMetrics writes the metrics of the agent at a unix socket.
func FetchMetrics(ctx context.Context, socket string, to io.Writer) error {
	return request(ctx, socket, http.MethodGet, "/metrics", nil, to)
}

// FetchJournal writes a tar archive of the newest files of the agent's journal, at most that many bytes of them.
func FetchJournal(ctx context.Context, socket string, most int64, to io.Writer) error {
	return request(ctx, socket, http.MethodGet, "/journal?most="+strconv.FormatInt(most, 10), nil, to)
}
