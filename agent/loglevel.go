package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// logLevel is what /loglevel takes and answers.
type logLevel struct {
	Level string `json:"level"` // debug, info, warn, error, or one of them and a number: info+1
}

// serveLogLevel answers GET with the level of the log, and sets it by PUT. It is on the agent's own socket alone: whoever may set it
// can fill a disk.
func (a *Agent) serveLogLevel(w http.ResponseWriter, r *http.Request) {
	fail := func(code int, err error) { httpserver.JSON(w, code, map[string]string{"error": err.Error()}) }
	current := a.cfg.LogLevel
	if current == nil {
		fail(http.StatusNotFound, errors.New("the level of this agent's log cannot be changed"))
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
		a.log.Log(r.Context(), to, "log level", "was", was.String(), "is", to.String()) // at a level that is seen
	}
	httpserver.JSON(w, http.StatusOK, logLevel{current.Level().String()})
}

// FetchLogLevel asks the agent behind a unix socket for the level of its log: "INFO".
func FetchLogLevel(ctx context.Context, socket string) (string, error) {
	var l logLevel
	err := fetch(ctx, socket, "/loglevel", &l)
	return l.Level, err
}

// SetLogLevel sets it, until the agent ends or somebody sets another one.
func SetLogLevel(ctx context.Context, socket, level string) error {
	body, err := json.Marshal(logLevel{level})
	if err != nil {
		return fmt.Errorf("log level: %w", err)
	}
	return call(ctx, socket, http.MethodPut, "/loglevel", bytes.NewReader(body), &logLevel{})
}
