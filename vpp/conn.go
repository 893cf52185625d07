package vpp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"
	"github.com/contiv-agent/contiv-agent/vpp/events"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vpe"
)

const (
	defaultSocket = "/run/vpp/api.sock" // startup.conf socksvr { default }
	// DefaultClientName is the agent's name in VPP's list of API clients.
	DefaultClientName = "contiv-agent"

	defaultWindow     = 256
	minWindow         = 1
	maxWindow         = 4096 // a slot number is 12 bits of the context
	defaultMaxBackoff = 5 * time.Second
	minBackoff        = 20 * time.Millisecond
	ownedPause        = 200 * time.Millisecond // between checks whether another agent still owns VPP
	lockPeriod        = time.Second            // between checks whether a held lock file is still at its path
	defaultProbe      = time.Second
	defaultLate       = 1250 * time.Millisecond
	defaultSilence    = time.Minute
)

// Config configures a connection. The zero value connects to /run/vpp/api.sock.
type Config struct {
	// Socket is the path of VPP's binary-API socket; "": /run/vpp/api.sock. Dial replaces it.
	Socket string
	// Dial makes the connection instead of dialling Socket: tests and offline tools use a net.Pipe.
	Dial func(context.Context) (net.Conn, error)
	// ClientName is this client's name in "show api clients"; at most 63 bytes; "": DefaultClientName.
	ClientName string
	// Window is how many calls may be unanswered at once, 1..4096; 0: 256. Below 64 the socket idles; more than 512 gains
	// nothing.
	Window int
	// MaxBackoff bounds the pause after a connection that VPP accepted and soon closed. The pause starts at 20 ms and
	// doubles; 0: 5 s. While nothing listens on the socket the pause stays at 20 ms, and a replaced socket ends it: packets
	// pass unfiltered until the agent is back.
	MaxBackoff time.Duration
	// Probe is how long an idle connection may be silent before the client sends a control_ping; 0: 1 s; negative: never.
	Probe time.Duration
	// Late is how long VPP may owe an answer without sending a byte before State.Silent reports it; 0: 1.25 s, which with
	// Probe is less than 3 s after VPP stopped; negative: for ever. The connection stays: VPP may be busy.
	Late time.Duration
	// Silence is how long VPP may owe an answer without sending a byte before the client closes the connection; 0: 1 min;
	// negative: for ever. VPP's main thread may stall for seconds. Silence does not apply while a caller waits for a dump.
	Silence time.Duration
	// Lock is held before and during a connection. An agent that does not get it waits, and State.Err wraps ErrOwned. nil:
	// no lock.
	Lock *Lock
	// Guard checks every message before it is sent; nil: a new one.
	Guard *Guard
	// Needs are the requests that will be used. State.Missing lists those that VPP lacks, or has with another CRC (of the
	// request or its replies); the rest works.
	Needs []api.Message
	// OnConnect runs on each new connection before it is announced: the want_* requests that make VPP send events.
	// State.Err carries a failure, and the connection is used nevertheless.
	OnConnect []Call
	// Logger logs a line per change of state; nil: silent.
	Logger *slog.Logger
	// OnState is called with each change of state, in order, from the goroutine of Run; it may call Do. nil: not called.
	OnState func(State)
	// Observe is called for each answered call: message name, time from Do's send to the answer, error. It runs on the
	// reader and must be quick. nil: not called.
	Observe func(message string, took time.Duration, err error)
}

// Validate returns all problems of the configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Window < 0 || c.Window > maxWindow {
		errs = append(errs, fmt.Errorf("vpp: window %d, want %d..%d", c.Window, minWindow, maxWindow))
	}
	if len(c.ClientName) > 63 {
		errs = append(errs, fmt.Errorf("vpp: client name of %d bytes, want at most 63", len(c.ClientName)))
	}
	if c.MaxBackoff < 0 {
		errs = append(errs, fmt.Errorf("vpp: max back-off %s is negative", c.MaxBackoff))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Socket == "" {
		c.Socket = defaultSocket
	}
	if c.Dial == nil {
		path := c.Socket
		c.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}
	}
	if c.ClientName == "" {
		c.ClientName = DefaultClientName
	}
	if c.Window <= 0 {
		c.Window = defaultWindow
	}
	c.Window = min(c.Window, maxWindow)
	if c.MaxBackoff <= 0 {
		c.MaxBackoff = defaultMaxBackoff
	}
	if c.Probe == 0 {
		c.Probe = defaultProbe
	}
	if c.Late == 0 {
		c.Late = defaultLate
	}
	if c.Silence == 0 {
		c.Silence = defaultSilence
	}
	if c.Guard == nil {
		c.Guard = NewGuard()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// errDial means that nothing listens on the socket.
var errDial = errors.New("dial vpp")

// State is the state of the connection. The zero value: never connected.
type State struct {
	// Connected means that Do reaches VPP.
	Connected bool
	// Generation counts connections, from 1. VPP may have lost all configuration between two of them.
	Generation uint64
	Version    string // of VPP (show_version, VPP 24.06), e.g. v24.06-release
	Simulated  bool   // VPP is a package sim: it says so where others name the folder of their build
	// PID is VPP's process id (control_ping_reply.vpe_pid): the same PID after a reconnect means that VPP did not restart.
	PID uint32
	// Missing lists the messages in Needs that VPP lacks, as name_crc, sorted.
	Missing []string
	// Err is the reason why the connection is down, or the error of OnConnect.
	Err error
	// Silent describes a VPP that does not answer while the connection is up. When VPP answers again, connection and
	// configuration are unchanged.
	Silent Silence
}

// Conn is a connection to VPP that reconnects. Its methods are safe for concurrent use.
type Conn struct {
	cfg      Config
	dials    bool // by cfg.Socket, not by a given Dial
	registry *registry
	session  atomic.Pointer[session]
	state    atomic.Pointer[State]
	events   *events.Dispatcher
}

// New returns a connection that is down until Run. It panics on an invalid cfg: call Validate first.
func New(cfg Config) *Conn {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	c := &Conn{cfg: cfg.withDefaults(), dials: cfg.Dial == nil, registry: newRegistry(), events: events.New()}
	c.state.Store(&State{})
	return c
}

// State returns the current state. It is not connected as soon as a call was answered with ErrDisconnected, which may be earlier than
// Config.OnState hears of it.
func (c *Conn) State() State {
	st := *c.state.Load()
	if !st.Connected {
		return st
	}
	if s := c.session.Load(); s == nil || s.cause() != nil {
		return State{Generation: st.Generation, Err: ErrDisconnected}
	}
	return st
}

// Guard returns the guard of this connection.
func (c *Conn) Guard() *Guard { return c.cfg.Guard }

// Run keeps the connection until ctx ends, and returns ctx's error. Only one Run at a time.
func (c *Conn) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.events.RunCallbacks(ctx) })
	defer c.cfg.Lock.unlockFiles()
	pause := minBackoff
	for generation := uint64(1); ; {
		dialled := c.endpoint()
		s, err := c.connect(ctx)
		began := time.Now()
		if err == nil {
			generation, err = c.live(ctx, s, generation)
		}
		if ctx.Err() != nil {
			c.announce(State{Generation: generation - 1, Err: context.Cause(ctx)})
			return ctx.Err()
		}
		switch {
		case errors.Is(err, ErrOwned):
			pause = ownedPause
		case errors.Is(err, errDial) || time.Since(began) > pause: // nothing listens, or the connection lived: no crash loop
			pause = minBackoff
		}
		c.down(State{Generation: generation - 1, Err: err}, pause)
		replaced := c.rest(ctx, pause, dialled)
		if ctx.Err() != nil {
			c.announce(State{Generation: generation - 1, Err: context.Cause(ctx)})
			return ctx.Err()
		}
		if pause = c.pauses().Next(pause); replaced {
			pause = minBackoff
		}
	}
}

// pauses returns the bounds of the pause after a connection that ended.
func (c *Conn) pauses() backoff.Range {
	return backoff.Range{Min: min(minBackoff, c.cfg.MaxBackoff), Max: c.cfg.MaxBackoff}
}

// endpoint returns the socket file's info; nil if it is unreadable or Config.Dial makes the connections.
func (c *Conn) endpoint() os.FileInfo {
	if !c.dials {
		return nil
	}
	fi, err := os.Stat(c.cfg.Socket)
	if err != nil {
		return nil
	}
	return fi
}

// rest waits for pause, or until the socket file differs from was: then a new VPP listens, and rest returns true. It polls,
// because a watch of the directory needs an existing directory, which VPP may still have to create, and does not see bind
// mounts.
func (c *Conn) rest(ctx context.Context, pause time.Duration, was os.FileInfo) (replaced bool) {
	step := minBackoff
	if !c.dials { // there is no file to look at
		step = pause
	}
	for ; pause > 0; pause -= step {
		if !wait(ctx, min(pause, step)) {
			return false
		}
		is := c.endpoint()
		if is != nil && (was == nil || !os.SameFile(was, is) || !was.ModTime().Equal(is.ModTime())) {
			return true
		}
	}
	return false
}

// live serves one connection from its announcement to its end, and returns the next generation's number.
func (c *Conn) live(ctx context.Context, s *session, generation uint64) (uint64, error) {
	defer s.stop(nil)
	st, err := c.greet(ctx, s)
	if err != nil {
		return generation, err
	}
	st.Generation = generation
	c.session.Store(s)
	c.announce(st)
	c.cfg.Logger.Info("vpp connected", "version", st.Version, "pid", st.PID, "generation", generation, "missing", len(st.Missing))
	look := time.NewTicker(lockPeriod)
	defer look.Stop()
	if c.cfg.Lock == nil {
		look.Stop()
	}
	for lives := true; lives; {
		select {
		case <-look.C:
			if err := c.cfg.Lock.lockFiles(); err != nil {
				s.endWith(err)
			}
		case <-s.gone:
			lives = false
		case <-ctx.Done():
			s.endWith(context.Cause(ctx))
			lives = false
		case <-s.silentChanged:
			st.Silent = s.silence()
			c.announce(st)
			c.cfg.Logger.Warn(cmp.Or(st.Silent.Text(time.Now()), "VPP answers again"), "generation", generation)
		}
	}
	c.session.Store(nil)
	return generation + 1, s.cause()
}

// connect dials and performs the handshake.
func (c *Conn) connect(ctx context.Context) (*session, error) {
	if err := c.cfg.Lock.lockFiles(); err != nil {
		return nil, err
	}
	nc, err := c.cfg.Dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDial, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	if c.cfg.Silence > 0 {
		_ = nc.SetDeadline(time.Now().Add(c.cfg.Silence)) // a transport without deadlines relies on ctx
	}
	w := newWire(nc)
	table, index, err := w.handshake(c.cfg.ClientName)
	if err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("vpp handshake: %w", err)
	}
	_ = nc.SetDeadline(time.Time{})
	c.cfg.Guard.Reset()
	s := newSession(&c.cfg, w, index, c.registry.bind(table), c.events)
	s.start()
	return s, nil
}

// greet asks for VPP's version and PID, and runs OnConnect.
func (c *Conn) greet(ctx context.Context, s *session) (State, error) {
	st := State{Connected: true, Missing: s.api.missing(c.cfg.Needs)}
	calls := append([]Call{{Msg: &memclnt.ControlPing{}}, {Msg: &vpe.ShowVersion{}}}, c.cfg.OnConnect...)
	replies := s.do(ctx, calls)
	if err := replies[0].Err; err != nil {
		return st, fmt.Errorf("first control_ping: %w", err)
	}
	st.PID = replies[0].Msg.(*memclnt.ControlPingReply).VpePID
	if v, ok := replies[1].Msg.(*vpe.ShowVersionReply); ok {
		st.Version, st.Simulated = v.Version, v.BuildDirectory == "/sim"
	}
	var errs []error
	for i, r := range replies[1:] {
		if errors.Is(r.Err, ErrDisconnected) {
			return st, r.Err
		}
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("on connect: %s: %w", calls[i+1].Msg.GetMessageName(), r.Err))
		}
	}
	st.Err = errors.Join(errs...)
	return st, nil
}

// down announces a lost or refused connection; a repeated equal failure is not announced.
func (c *Conn) down(st State, pause time.Duration) {
	was := c.state.Load()
	if !was.Connected && was.Err != nil && st.Err != nil && was.Err.Error() == st.Err.Error() {
		return
	}
	c.announce(st)
	c.cfg.Logger.Warn("vpp disconnected", "err", st.Err, "retry", pause)
}

func (c *Conn) announce(st State) {
	c.state.Store(&st)
	if c.cfg.OnState != nil {
		c.cfg.OnState(st)
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Do sends calls in order and returns one Reply per Call, in the same order. A call that cannot be sent (guard, missing
// message) fails alone; the others are sent. Concurrent Do calls interleave, and each keeps its order. Do returns when all
// calls are answered, the connection is lost, or ctx ends. In the last case sent calls take effect in VPP, and their late
// replies are dropped. While VPP is away every Reply is ErrDisconnected at once: Do queues nothing for a VPP that may have
// lost its configuration.
func (c *Conn) Do(ctx context.Context, calls ...Call) []Reply {
	s := c.session.Load()
	if s == nil {
		return failed(len(calls), c.away())
	}
	return s.do(ctx, calls)
}

func (c *Conn) away() error {
	if err := c.State().Err; err != nil && !errors.Is(err, ErrDisconnected) {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return ErrDisconnected
}

// Events calls fn, in VPP's order, for every unsolicited message of the type of m, on this connection and all later ones.
// VPP sends events only on request: put the want_* request into Config.OnConnect. fn runs on a goroutine of Run; it may
// call Do. It cannot be removed.
func (c *Conn) Events(m api.Message, fn func(api.Message)) { c.events.AddFunc(m.GetMessageName(), fn) }
