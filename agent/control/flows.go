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
	ask := s.Flows
	if r.URL.Query().Get("all") == "true" {
		ask = func(ctx context.Context, after uint64, _ *flows.Filter) (*agentflows.Answer, error) {
			return s.AllFlows(ctx, after)
		}
	}
	answer, err := ask(ctx, after, filter)
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

// FetchAllFlows fetches all flows that changed after a number, however many, from the agent at a unix socket.
func FetchAllFlows(ctx context.Context, socket string, after uint64) (*agentflows.Answer, error) {
	answer := &agentflows.Answer{}
	return answer, fetch(ctx, socket, "/flows?all=true&after="+strconv.FormatUint(after, 10), answer)
}
