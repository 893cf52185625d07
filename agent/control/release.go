package control

import (
	"context"
	"net/http"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// released is the answer of POST /release.
type released struct {
	Released []string `json:"released"` // one line for each thing that was held
}

// serveRelease carries out what the agent holds. Only the agent's unix socket serves it.
func (s *Server) serveRelease(w http.ResponseWriter, _ *http.Request) {
	out := released{Released: []string{}}
	if s.Release != nil {
		out.Released = append(out.Released, s.Release()...)
	}
	httpserver.JSON(w, http.StatusOK, out)
}

// Release carries out what the agent at a unix socket holds, and returns what it was.
func Release(ctx context.Context, socket string) ([]string, error) {
	var out released
	err := request(ctx, socket, http.MethodPost, "/release", nil, &out)
	return out.Released, err
}
