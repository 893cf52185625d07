package control

import (
	"context"
	"net/http"
	"strconv"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/httpserver"
)

// serveFlows answers with flows.
func (s *Server) serveFlows(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, err error) { httpserver.JSON(w, code, map[string]string{"error": err.Error()}) }
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	filter, err := flows.ParseFilter(r.URL.Query())
	if err != nil {
		fail(http.StatusBadRequest, err)
		return
	}
	after, err := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		fail(http.StatusBadRequest, err)
		return
	}
	answer, err := s.Flows(ctx, after, filter)
	if err != nil {
		fail(http.StatusServiceUnavailable, err)
		return
	}
	httpserver.JSON(w, http.StatusOK, answer)
}

// FetchFlows fetches the flows that changed after a number and match the filter from the agent at a unix socket.
func FetchFlows(ctx context.Context, socket string, after uint64, filter *flows.Filter) (*agentflows.Answer, error) {
	q := filter.Query()
	q.Set("after", strconv.FormatUint(after, 10))
	answer := &agentflows.Answer{}
	return answer, fetch(ctx, socket, "/flows?"+q.Encode(), answer)
}
