package felix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/calico/felix/message"
	"github.com/contiv-agent/contiv-agent/event"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// SourceName is the driver's name as a source of events.
const SourceName = "felix"

// ErrGone means that Felix closed a pipe, which ends the session. VPP keeps its configuration, and the next driver takes it
// over.
var ErrGone = errors.New("felix is gone")

// Config holds a driver's pipes and settings; In and Out are required. The driver closes both when Run ends.
type Config struct {
	In    io.ReadCloser  // from Felix: file descriptor 3
	Out   io.WriteCloser // to Felix: file descriptor 4
	Limit int            // longest frame in bytes; 0: DefaultLimit

	Alive  time.Duration    // interval between status messages; 0: 10 s, as Felix expects
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent
}

// Driver is one session of Felix with its dataplane driver: a source of events. Report gives it the endpoints' states to
// send.
type Driver struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	reports chan Report // the latest only
	state   atomic.Pointer[State]

	// Owned by the reading goroutine.
	decoder *message.Decoder
	warned  map[string]struct{}
	config  bool // a ConfigUpdate was received
	inSync  bool // an InSync was received
	now     State
}

// State is the progress of a session.
type State struct {
	Config   bool            // Felix has sent its configuration
	InSync   bool            // and in_sync: it has sent everything that exists
	Dialect  message.Dialect // the form of policy names
	Sequence uint64          // number of the last message passed on
	Messages map[string]uint64
	Skipped  uint64 // unknown messages among them
	Version  uint64 // increases with each change
}

// NewDriver returns a session; Run begins it.
func NewDriver(cfg Config) *Driver {
	if cfg.Alive == 0 {
		cfg.Alive = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Driver{
		cfg: cfg, log: cfg.Logger, started: cfg.Now(), reports: make(chan Report, 1), decoder: message.NewDecoder(),
		warned: map[string]struct{}{}, now: State{Messages: map[string]uint64{}},
	}
	d.state.Store(&State{})
	return d
}

// State returns the session's progress. It is safe for concurrent use; the result must not be changed.
func (d *Driver) State() *State { return d.state.Load() }

// Report replaces the report of endpoints to send to Felix. It never blocks; one goroutine only may call it.
func (d *Driver) Report(r Report) {
	select {
	case <-d.reports:
	default:
	}
	d.reports <- r
}

// Run reads Felix's messages and emits them, and sends reports to Felix. It returns when ctx ends, when Felix closes a pipe
// (ErrGone), or at bytes that are not a message (*FrameError). A driver runs once.
func (d *Driver) Run(ctx context.Context, emit func(event.Event)) error {
	emit(&event.SyncStatus{Source: SourceName, Status: event.WaitForReady})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.readMessages(ctx, emit) })
	g.Go(func() error { return d.writeReports(ctx) })
	g.Go(func() error { // both goroutines may be blocked on the pipes
		<-ctx.Done()
		return errors.Join(d.cfg.In.Close(), d.cfg.Out.Close())
	})
	err := g.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		err = fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// mostTogether bounds how many messages one event holds.
const mostTogether = 1 << 16

// readMessages emits messages as they arrive: all that can be read without blocking in one event.
func (d *Driver) readMessages(ctx context.Context, emit func(event.Event)) error {
	widen(d.cfg.In)
	in := NewReader(d.cfg.In, d.cfg.Limit)
	var batch []*pb.ToDataplane
	var last uint64
	for {
		frame, offset := in.frame, in.offset
		payload, err := in.Next()
		if err != nil {
			return ended(ctx, err)
		}
		messages, err := d.decoder.Decode(payload)
		if err != nil {
			return &FrameError{frame, offset, uint64(len(payload)), fmt.Errorf("%w felix.ToDataplane: %w", ErrGarbage, err)}
		}
		for _, m := range messages {
			if d.accept(frame, m) {
				batch = append(batch, m)
			}
		}
		last = frame
		if len(messages) > 0 {
			last = messages[0].SequenceNumber
		}
		if len(batch) < mostTogether && (in.in.Buffered() > 0 || readable(d.cfg.In)) {
			continue
		}
		d.emit(emit, batch, last)
		batch = nil
	}
}

// widest is the pipe size to request: the most that Linux permits an unprivileged process (fs.pipe-max-size). Felix's pipes
// have 64 KiB, which would make reader and writer alternate.
const widest = 1 << 20

// widen enlarges a pipe's buffer, if in is a pipe and it is permitted.
func widen(in io.Reader) {
	conn, ok := in.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widest) })
	}
}

// ended returns the error of a pipe: ctx's error if the pipe was closed because ctx ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// accept counts a message, and reports whether it has known content. It warns of the first unknown message of each kind.
func (d *Driver) accept(frame uint64, m *pb.ToDataplane) bool {
	name := message.Name(m)
	switch {
	case name == "":
		name = message.UnknownFields(m)
		d.warn(frame, name, "unknown message skipped")
	case !message.Complete(m):
		d.warn(frame, name+" without an id", "message without the name of its object skipped")
	default:
		d.now.Messages[name]++
		if what := message.UnknownValue(m); what != "" {
			d.warn(frame, what, "unknown value kept")
		}
		d.config = d.config || m.GetConfigUpdate() != nil
		d.inSync = d.inSync || m.GetInSync() != nil
		return true
	}
	d.now.Messages["unknown"]++
	d.now.Skipped++
	return false
}

// warn logs a warning once.
func (d *Driver) warn(frame uint64, what, text string) {
	if _, said := d.warned[what]; said {
		return
	}
	d.warned[what] = struct{}{}
	d.log.Warn("felix: "+text, "what", what, "frame", frame)
}

// emit passes messages on, and emits in-sync at the end of the handshake: nothing is programmed before. It publishes the
// number of the last message after passing it on: a reader of that number can rely on the receiver having the message.
func (d *Driver) emit(emit func(event.Event), batch []*pb.ToDataplane, last uint64) {
	before := d.now
	d.now.Config, d.now.InSync, d.now.Dialect = d.config, d.config && d.inSync, d.decoder.Dialect
	d.publishState()
	if len(batch) > 0 {
		emit(&event.Dataplane{Source: SourceName, Messages: batch})
	}
	switch {
	case d.now.InSync && !before.InSync:
		d.log.Info("felix: in sync", "dialect", d.now.Dialect.String(), "sequence", last)
		emit(&event.SyncStatus{Source: SourceName, Status: event.InSync})
	case d.now.Config && !before.Config:
		emit(&event.SyncStatus{Source: SourceName, Status: event.ResyncInProgress})
	}
	if d.inSync && !d.config {
		d.warn(last, "in_sync", "in sync without a configuration: waiting for one")
	}
	d.now.Sequence = last
	d.publishState()
}

// publishState makes the state visible to State.
func (d *Driver) publishState() {
	d.now.Version++
	now := d.now
	now.Messages = make(map[string]uint64, len(d.now.Messages))
	for name, n := range d.now.Messages {
		now.Messages[name] = n
	}
	d.state.Store(&now)
}

// readable reports whether a pipe can be read without blocking; false if that is unknown.
func readable(in io.Reader) bool {
	conn, ok := in.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ready := false
	_ = raw.Control(func(fd uintptr) { // on a closed pipe: not ready
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		ready = err == nil && n == 1 && fds[0].Revents&unix.POLLIN != 0
	})
	return ready
}
