package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/tracer"
)

// serveTrace answers with the path of a real packet. A client that disconnects ends the trace.
func (s *Server) serveTrace(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, err error) { httpserver.JSON(w, code, map[string]string{"error": err.Error()}) }
	q := r.URL.Query()
	most, err := time.ParseDuration(q.Get("time"))
	if err != nil {
		fail(http.StatusBadRequest, err)
		return
	}
	conn := http.NewResponseController(w)
	if err := errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Now().Add(most+answerTime))); err != nil {
		fail(http.StatusInternalServerError, err)
		return
	}
	pod := model.PodID{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	question := live.Question{From: pod, To: q.Get("to"), Protocol: q.Get("protocol"), Time: most, Inject: q.Get("inject") == "true"}
	if port := q.Get("sourcePort"); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			fail(http.StatusBadRequest, fmt.Errorf("sourcePort: %w", err))
			return
		}
		question.SourcePort = uint16(n)
	}
	if question.Inject {
		s.Logger.Info("a client of the status socket lets a pod send a packet", "pod", pod, "to", question.To, "protocol", question.Protocol)
	}
	answer, err := s.Trace(r.Context(), question)
	switch {
	case errors.Is(err, tracer.ErrBusy) || errors.Is(err, tracer.ErrForeign):
		fail(http.StatusConflict, err)
	case err != nil:
		fail(http.StatusServiceUnavailable, err)
	default:
		httpserver.JSON(w, http.StatusOK, answer)
	}
}

// FetchTrace returns the path of a real packet through VPP, from the agent at a unix socket. The agent ends the trace, too, when ctx ends.
func FetchTrace(ctx context.Context, socket string, q live.Question) (*live.Answer, error) {
	values := url.Values{"to": {q.To}, "protocol": {q.Protocol}, "time": {q.Time.String()}}
	a := &live.Answer{}
	if q.Inject {
		values.Set("inject", "true")
		values.Set("sourcePort", strconv.Itoa(int(q.SourcePort)))
	}
	path := "/trace/" + url.PathEscape(q.From.Namespace) + "/" + url.PathEscape(q.From.Name) + "?" + values.Encode()
	return a, request(ctx, socket, http.MethodPost, path, nil, a)
}
