// Package cleanup removes the objects of ended agents from a VPP.
//
// Invariant: a Cleaner works only while no agent is connected, keeps agents away until Close, and removes only what agents made.
package cleanup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// Config selects the VPP from which agents' objects are removed.
type Config struct {
	Socket string                                      // VPP's binary-API socket
	Dial   func(ctx context.Context) (net.Conn, error) // instead of Socket, for tests and simulations
	// Journal is the journal of the ended agent: it lists its objects that VPP keeps no tag for. "": none.
	Journal string
	// Lock is the path of the agents' locks; the Cleaner holds it. "": none.
	Lock string
	// StatusSocket is the agent's status socket; the Cleaner occupies it, so that no agent starts. "": none.
	StatusSocket string
	// Files are the agent's files on the node, which are removed before anything in VPP: a container runtime that finds none starts no pods.
	Files  []string
	Logger *slog.Logger // nil: silent
}

// Report is the result of a cleanup.
type Report struct {
	Removed int            `json:"removed"`           // values
	Files   []string       `json:"files,omitempty"`   // files of the node that were removed
	Writes  int            `json:"writes"`            // messages to VPP
	Left    []status.Value `json:"left,omitempty"`    // values that could not be removed, with the reason
	Foreign []string       `json:"foreign,omitempty"` // foreign objects in VPP; they stay
	// NoJournal means that no journal was found: objects that VPP keeps without a tag stay.
	NoJournal bool `json:"noJournal,omitempty"`
}

// ErrInUse means that cleanup refuses to run, because an agent runs on that VPP.
var ErrInUse = errors.New("an agent is running on this VPP: stop it first")

const (
	// clientName is the Cleaner's name in VPP's list of clients.
	clientName = "contiv-cleanup"
	// goneWithin bounds how long VPP may take to notice that an agent has closed its connection.
	goneWithin = 3 * time.Second
	// maxRounds bounds the retries of refused removals.
	maxRounds = 3
)

// Cleaner is a connection to a VPP without an agent. It is not safe for concurrent use.
type Cleaner struct {
	cfg       Config
	conn      *vpp.Conn
	vppagent  *vppagent.Agent
	noJournal bool
	stop      []func()
}

// New connects to VPP, until ctx ends. The error wraps ErrInUse if an agent is connected. The caller must Close it.
func New(ctx context.Context, cfg Config) (*Cleaner, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cleaner{cfg: cfg}
	for _, step := range []func(context.Context) error{c.lock, c.connect, c.alone, c.know} {
		if err := step(ctx); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Close ends the connection.
func (c *Cleaner) Close() {
	for _, stop := range slices.Backward(c.stop) {
		stop()
	}
	c.stop = nil
}

// background runs f until Close.
func (c *Cleaner) background(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	c.stop = append(c.stop, func() { cancel(); <-ended })
}

// lock occupies the agent's status socket.
func (c *Cleaner) lock(ctx context.Context) error {
	if c.cfg.StatusSocket == "" {
		return nil
	}
	l, err := httpserver.Unix(ctx, c.cfg.StatusSocket)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w (%w)", ErrInUse, err)
	}
	if err != nil {
		return fmt.Errorf("status socket: %w", err)
	}
	c.background(ctx, func(ctx context.Context) {
		_ = httpserver.HTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": "no agent runs: a cleanup is running"})
		}), nil) // ends with ctx
	})
	return nil
}

func (c *Cleaner) connect(ctx context.Context) error {
	states := make(chan vpp.State, 1)
	c.conn = vpp.New(vpp.Config{
		Socket: c.cfg.Socket, Dial: c.cfg.Dial, ClientName: clientName, Logger: c.cfg.Logger, Needs: all.Needs(),
		Lock: owner.All.Lock(c.cfg.Lock, ""),
		OnState: func(st vpp.State) {
			select {
			case <-states: // only the latest counts
			default:
			}
			states <- st
		},
	})
	c.background(ctx, func(ctx context.Context) { _ = c.conn.Run(ctx) }) // ends with ctx
	var last vpp.State
	for {
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("vpp is not connected: %w", ctx.Err()), last.Err)
		case last = <-states:
			if last.Connected {
				return nil
			}
			if errors.Is(last.Err, vpp.ErrOwned) {
				return fmt.Errorf("%w (%w)", ErrInUse, last.Err)
			}
		}
	}
}

// alone checks that no client of VPP is an agent. VPP may list an agent for a moment after its end.
func (c *Cleaner) alone(ctx context.Context) error {
	patience := time.NewTimer(goneWithin)
	defer patience.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		names, err := descriptor.ClientNames(c.conn.Do(ctx, descriptor.Clients())[0])
		if err != nil {
			return fmt.Errorf("list the clients of VPP: %w", err)
		}
		at := slices.IndexFunc(names, owner.IsAgent)
		if at < 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return fmt.Errorf("%w (VPP has a client with the name %s)", ErrInUse, names[at])
		case <-again.C:
		}
	}
}

// know reads the journal. It adds the kinds of the host's own objects only if the journal has some.
func (c *Cleaner) know(context.Context) error {
	cfg := vppagent.Config{Caller: c.conn, Logger: c.cfg.Logger, Journal: c.cfg.Journal}
	text, err := os.ReadFile(c.cfg.Journal)
	switch {
	case c.cfg.Journal == "" || errors.Is(err, fs.ErrNotExist):
		cfg.Journal, c.noJournal = "", true
	case err != nil:
		return fmt.Errorf("journal: %w", err)
	case bytes.Contains(text, []byte(" config/linux/")):
		cfg.Caller, cfg.Descriptors = &linux.Caller{VPP: c.conn}, slices.Concat(all.All(), linux.All(), nodeports.All())
	}
	c.vppagent = vppagent.New(cfg)
	return nil
}

// nothing is the empty desired state.
func nothing() *event.Txn { return &event.Txn{Cause: "cleanup", Resync: event.Full} }

// Plan is what Clean would do.
type Plan struct {
	Files []string `json:"files,omitempty"` // of the node, to be removed
	*vppagent.Plan
}

// Empty reports that there is nothing to do.
func (p *Plan) Empty() bool { return len(p.Files) == 0 && p.Plan.Empty() }

// String is one line per file, and then the plan of VPP.
func (p *Plan) String() string {
	out := ""
	for _, f := range p.Files {
		out += "delete file " + f + "\n"
	}
	return out + p.Plan.String()
}

// Plan returns what Clean would do. It only reads VPP.
func (c *Cleaner) Plan(ctx context.Context) (*Plan, error) {
	plan, err := c.vppagent.Plan(ctx, nothing())
	if err != nil {
		return nil, err
	}
	out := &Plan{Plan: plan}
	for _, f := range c.cfg.Files {
		if _, err := os.Lstat(f); err == nil {
			out.Files = append(out.Files, f)
		}
	}
	return out, nil
}

// NoJournal reports that no journal was found. Then the Cleaner treats objects that VPP keeps without a tag as foreign.
func (c *Cleaner) NoJournal() bool { return c.noJournal }

// Clean removes the agents' objects from VPP: those with their tag, and those in the journal. An object that is already gone
// is not an error. Clean deletes the journal when it is empty. The error means that VPP could not be reached.
func (c *Cleaner) Clean(ctx context.Context) (*Report, error) {
	r := &Report{NoJournal: c.noJournal}
	for _, f := range c.cfg.Files {
		switch err := os.Remove(f); {
		case err == nil:
			r.Files = append(r.Files, f)
		case !errors.Is(err, fs.ErrNotExist):
			return r, fmt.Errorf("file of the agent: %w", err)
		}
	}
	for range maxRounds {
		done := c.vppagent.Commit(ctx, nothing())
		if done.Err != nil {
			return nil, done.Err
		}
		r.Removed, r.Writes, r.Left = r.Removed+done.Del, r.Writes+done.Writes, nil
		for _, v := range c.vppagent.Snapshot().Values() {
			if v.State != event.Removed && v.State != event.Nonexistent {
				r.Left = append(r.Left, status.Value{Key: v.Key, State: v.State.String(), Error: v.Err, Waiting: v.Wait})
			}
		}
		if len(r.Left) == 0 {
			break
		}
	}
	r.Foreign = c.vppagent.Snapshot().Foreign
	if len(r.Left) == 0 && !c.noJournal {
		if err := os.Remove(c.cfg.Journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, fmt.Errorf("journal: %w", err)
		}
	}
	return r, nil
}
