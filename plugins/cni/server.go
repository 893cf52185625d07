package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// Config is the configuration of a Server.
type Config struct {
	Network Network
	Spool   string // folder with the DELs that found no agent; "": none
	// AddLimit and DeleteLimit bound the time of an ADD, and of a DEL, CHECK or GC. 0: 60 s and 30 s.
	AddLimit, DeleteLimit time.Duration
	Calls                 int          // in progress at a time; 0: 128. A quarter of them are never ADDs.
	Logger                *slog.Logger // nil: silent
}

const (
	defaultAddLimit    = time.Minute
	defaultDeleteLimit = 30 * time.Second
	defaultCalls       = 128
	statusLimit        = 3 * time.Second
	maxBody            = 64 << 10
	maxValid           = 4 << 20 // body of a GC
)

// Server is the handler for protocol.Prefix on the agent's socket.
type Server struct {
	cfg     Config
	mux     *http.ServeMux
	turns   *turns
	calls   chan struct{} // a place for each call in progress
	adds    chan struct{} // a place for each ADD in progress
	started chan struct{} // closed when the recorded DELs are carried out
	owed    chan struct{} // wakes Run when a DEL was recorded
	metrics *metrics
}

// New returns a server. It refuses ADDs until Run has carried out the recorded DELs.
func New(cfg Config) *Server {
	if cfg.AddLimit == 0 {
		cfg.AddLimit = defaultAddLimit
	}
	if cfg.DeleteLimit == 0 {
		cfg.DeleteLimit = defaultDeleteLimit
	}
	if cfg.Calls == 0 {
		cfg.Calls = defaultCalls
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, mux: http.NewServeMux(), turns: newTurns(), started: make(chan struct{}), owed: make(chan struct{}, 1),
		calls: make(chan struct{}, cfg.Calls), adds: make(chan struct{}, max(1, cfg.Calls*3/4)), metrics: newMetrics(),
	}
	s.mux.HandleFunc("POST "+protocol.PathAdd, s.serveAdd)
	s.mux.HandleFunc("POST "+protocol.PathDelete, s.serveDelete)
	s.mux.HandleFunc("POST "+protocol.PathCheck, s.serveCheck)
	s.mux.HandleFunc("POST "+protocol.PathStatus, s.serveStatus)
	s.mux.HandleFunc("POST "+protocol.PathCollect, s.serveCollect)
	return s
}

// Metrics returns the metrics of the server.
func (s *Server) Metrics() prometheus.Collector { return s.metrics }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// serveAdd adds an attachment. If the client does not get the result, nobody will use the attachment, and it is deleted again. The result
// is written inside of the turn, so that no later call sees an attachment that is about to be deleted.
func (s *Server) serveAdd(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	var req protocol.Request
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.AddLimit)
	defer cancel()
	err := readBody(w, r, maxBody, &req)
	if err == nil {
		err = validAdd(req)
	}
	if err == nil {
		err = s.admitted(s.adds, func() error {
			return s.inTurn(ctx, req.Attachment, true, false, func(ctx context.Context) error { return s.add(ctx, w, req) })
		})
	}
	if err != nil && !errors.Is(err, errGone) {
		fail(w, asError(err))
	}
	s.finish("ADD", req, begin, err)
}

// validAdd checks the request of an ADD, which needs a network namespace.
func validAdd(r protocol.Request) error {
	if r.Netns == "" {
		return protocol.Errorf(protocol.CodeInvalidEnvironment, "CNI_NETNS is empty")
	}
	return r.Validate()
}

// add is the part of serveAdd inside of the turn.
func (s *Server) add(ctx context.Context, w http.ResponseWriter, r protocol.Request) error {
	select {
	case <-s.started:
	case <-ctx.Done():
		return fmt.Errorf("contiv-agent starts: it still carries out DELs from before its start: %w", context.Cause(ctx))
	}
	if err := s.settle(ctx, r.Attachment); err != nil {
		return err
	}
	var res *protocol.Result
	err := guard(func() (err error) {
		res, err = s.cfg.Network.Add(ctx, r)
		return err
	})
	if err == nil && res == nil {
		err = errors.New("the network returned no result")
	}
	if err == nil {
		err = context.Cause(ctx) // a DEL arrived, or the client ended, too late for the network to see it
	}
	if err == nil {
		if err = answer(w, res); err == nil {
			return nil
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	s.undo(ctx, r)
	return err
}

// settle carries out a recorded DEL of an attachment that a new ADD uses again.
func (s *Server) settle(ctx context.Context, a protocol.Attachment) error {
	spool := protocol.Spool{Dir: s.cfg.Spool}
	if s.cfg.Spool == "" || !spool.Has(a) {
		return nil
	}
	if err := s.remove(ctx, protocol.Request{Attachment: a}); err != nil {
		return protocol.Errorf(protocol.CodeTryAgainLater, "an earlier DEL of this container has not succeeded yet: %v", err)
	}
	return spool.Remove(a)
}

// undo deletes what an ADD left that failed or whose result nobody got. A failure is recorded as a DEL, which Run repeats.
func (s *Server) undo(ctx context.Context, r protocol.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DeleteLimit)
	defer cancel()
	if err := s.remove(ctx, r); err != nil {
		s.owe(r, err)
	}
}

// remove deletes an attachment.
func (s *Server) remove(ctx context.Context, r protocol.Request) error {
	return guard(func() error { return s.cfg.Network.Delete(ctx, r) })
}

// serveDelete deletes an attachment. It continues when the client ends.
func (s *Server) serveDelete(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	var req protocol.Request
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.cfg.DeleteLimit)
	defer cancel()
	err := readBody(w, r, maxBody, &req)
	if err == nil {
		err = req.Validate()
	}
	if err == nil {
		err = s.admitted(nil, func() error {
			return s.inTurn(ctx, req.Attachment, false, true, func(ctx context.Context) error { return s.delete(ctx, req) })
		})
		if err != nil && r.Context().Err() != nil {
			s.owe(req, err) // nobody else repeats it
		}
	}
	if err != nil {
		fail(w, asError(err))
	} else {
		httpserver.JSON(w, http.StatusOK, struct{}{})
	}
	s.finish("DEL", req, begin, err)
}

// delete deletes an attachment, and a record that the DEL was not carried out.
func (s *Server) delete(ctx context.Context, r protocol.Request) error {
	if err := s.remove(ctx, r); err != nil {
		return err
	}
	if s.cfg.Spool == "" {
		return nil
	}
	return protocol.Spool{Dir: s.cfg.Spool}.Remove(r.Attachment)
}

func (s *Server) serveCheck(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	var req protocol.CheckRequest
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.DeleteLimit)
	defer cancel()
	err := readBody(w, r, maxBody, &req)
	if err == nil {
		err = req.Validate()
	}
	if err == nil {
		err = s.admitted(nil, func() error {
			return s.inTurn(ctx, req.Attachment, false, false, func(ctx context.Context) error {
				return guard(func() error { return s.cfg.Network.Check(ctx, req.Request, req.Previous) })
			})
		})
	}
	if err != nil {
		fail(w, asError(err))
	} else {
		httpserver.JSON(w, http.StatusOK, struct{}{})
	}
	s.finish("CHECK", req.Request, begin, err)
}

// serveStatus needs no place among the calls in progress: runtimes ask every few seconds, also when the node is busy.
func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), statusLimit)
	defer cancel()
	err := s.Status(ctx)
	if err != nil {
		e := asError(err)
		if e.Code != protocol.CodeLimited {
			e = &protocol.Error{Code: protocol.CodeNotAvailable, Msg: e.Msg, Details: e.Details}
		}
		fail(w, e)
	} else {
		httpserver.JSON(w, http.StatusOK, struct{}{})
	}
	s.metrics.count("STATUS", begin, err)
}

// Status returns why the server cannot carry out an ADD; nil: it can.
func (s *Server) Status(ctx context.Context) error {
	select {
	case <-s.started:
	default:
		return protocol.Errorf(protocol.CodeNotAvailable, "contiv-agent starts: it still carries out DELs from before its start")
	}
	return guard(func() error { return s.cfg.Network.Status(ctx) })
}

func (s *Server) serveCollect(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	var req protocol.CollectRequest
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.DeleteLimit)
	defer cancel()
	err := readBody(w, r, maxValid, &req)
	for i := 0; i < len(req.Valid) && err == nil; i++ {
		err = req.Valid[i].Validate()
	}
	if err == nil && req.Valid == nil {
		err = protocol.Errorf(protocol.CodeInvalidConfig, "the list of valid attachments is missing")
	}
	if err == nil {
		err = s.admitted(nil, func() error { return s.collectAlone(ctx, req.Valid) })
	}
	if err != nil {
		fail(w, asError(err))
	} else {
		httpserver.JSON(w, http.StatusOK, struct{}{})
	}
	s.finish("GC", protocol.Request{}, begin, err)
}

func (s *Server) collectAlone(ctx context.Context, valid []protocol.Attachment) error {
	adding, leave, err := s.turns.enterAlone(ctx)
	if err != nil {
		return fmt.Errorf("other calls are in progress: %w", err)
	}
	defer leave()
	return guard(func() error { return s.cfg.Network.Collect(ctx, append(valid, adding...)) })
}

// admitted runs a call if there is a place for it; more may be nil.
func (s *Server) admitted(more chan struct{}, call func() error) error {
	for _, places := range []chan struct{}{s.calls, more} {
		if places == nil {
			continue
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			return protocol.Errorf(protocol.CodeTryAgainLater, "contiv-agent has %d calls in progress", cap(places))
		}
	}
	return call()
}

// inTurn runs a call when no earlier call works on its container.
func (s *Server) inTurn(ctx context.Context, a protocol.Attachment, adds, deletes bool, call func(context.Context) error) error {
	ctx, leave, err := s.turns.enter(ctx, a, adds, deletes)
	if err != nil {
		return fmt.Errorf("an earlier call for the same container is in progress: %w", err)
	}
	defer leave()
	return call(ctx)
}

// finish logs and counts a call that changes something.
func (s *Server) finish(verb string, r protocol.Request, begin time.Time, err error) {
	s.metrics.count(verb, begin, err)
	log := s.cfg.Logger.With("verb", verb, "pod", r.Pod.Namespace+"/"+r.Pod.Name, "attachment", r.Attachment.String(), "took", time.Since(begin))
	if err != nil {
		log.Warn("cni call failed", "error", err)
		return
	}
	log.Info("cni call")
}

// errPanic is wrapped by errors of calls that ended in a panic.
var errPanic = errors.New("internal error")

// guard turns a panic into an error, so that one call cannot end the agent, and the turn ends.
func guard(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
	}()
	return call()
}

// asError returns the error that a client gets.
func asError(err error) *protocol.Error {
	var e *protocol.Error
	switch {
	case errors.Is(err, errPanic):
		return protocol.Errorf(protocol.CodeInternal, "internal error of contiv-agent; its log has the cause")
	case errors.As(err, &e):
		return e
	case errors.Is(err, errOvertaken), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return protocol.Errorf(protocol.CodeTryAgainLater, "%v", err)
	}
	return protocol.Errorf(protocol.CodeInternal, "%v", err)
}

// readBody decodes the body of a request.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, into any) error {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit)).Decode(into); err != nil {
		return protocol.Errorf(protocol.CodeDecoding, "request of the plugin: %v", err)
	}
	return nil
}

// errGone means that the plugin ended before it got its result.
var errGone = errors.New("the plugin ended before it got its result")

// answer sends a result. It returns an error if the client has ended.
func answer(w http.ResponseWriter, res *protocol.Result) error {
	text, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err = w.Write(text); err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w: %w", errGone, context.Canceled, err)
	}
	return nil
}

func fail(w http.ResponseWriter, e *protocol.Error) {
	code := http.StatusInternalServerError
	switch e.Code {
	case protocol.CodeInvalidEnvironment, protocol.CodeDecoding, protocol.CodeInvalidConfig:
		code = http.StatusBadRequest
	case protocol.CodeTryAgainLater, protocol.CodeNotAvailable, protocol.CodeLimited:
		code = http.StatusServiceUnavailable
	}
	httpserver.JSON(w, code, protocol.Failure{Error: e})
}
