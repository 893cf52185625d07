package control

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// logLevel is the body of /loglevel.
type logLevel struct {
	Level string `json:"level"` // debug, info, warn, error, or one of them with an offset: info+1
}

// serveLogLevel answers GET with the log level, and sets the level by PUT. Only the agent's unix socket serves it: a client
// that may set it can fill a disk.
func (s *Server) serveLogLevel(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, err error) { httpserver.JSON(w, code, map[string]string{"error": err.Error()}) }
	current := s.LogLevel
	if current == nil {
		fail(http.StatusNotFound, errors.New("this agent cannot change its log level"))
		return
	}
	if r.Method == http.MethodPut {
		var to slog.Level
		var body logLevel
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&body)
		if err == nil {
			err = to.UnmarshalText([]byte(body.Level))
		}
		if err != nil {
			fail(http.StatusBadRequest, err)
			return
		}
		was := current.Level()
		current.Set(to)
		s.Logger.Log(r.Context(), to, "log level", "was", was.String(), "is", to.String()) // at the new level, so that it is visible
	}
	httpserver.JSON(w, http.StatusOK, logLevel{current.Level().String()})
}
