// Package cleanup turns a VPP, or a whole node, whose agents have ended into one without their objects.
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
	"path/filepath"
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
	Files []string
	// SettleNIC gives the node's NIC back to the kernel before anything else; finish is called when VPP has nothing of it any more. nil: VPP has none.
	SettleNIC func() (finish func() error, err error)
	Node      *Node        // nil: Files and VPP only
	Logger    *slog.Logger // nil: silent
}

// Report is the result of a cleanup.
type Report struct {
	Removed int            `json:"removed"`           // values
	Files   []string       `json:"files,omitempty"`   // files of the node that were removed
	Writes  int            `json:"writes"`            // messages to VPP
	Left    []status.Value `json:"left,omitempty"`    // values that could not be removed, with the reason
	Kernel  []string       `json:"kernel,omitempty"`  // objects of the kernel that were removed by their marks
	Failed  []string       `json:"failed,omitempty"`  // what else could not be removed, with the reason
	Away    string         `json:"away,omitempty"`    // why VPP's objects were not looked at; "": they were
	Foreign []string       `json:"foreign,omitempty"` // foreign objects in VPP; they stay
	// NoJournal means that no journal was found: objects that VPP keeps without a tag stay.
	NoJournal bool `json:"noJournal,omitempty"`
}

// Whole reports that everything was removed.
func (r *Report) Whole() bool { return len(r.Left)+len(r.Failed) == 0 }

// ErrInUse means that cleanup refuses to run, because an agent runs on that VPP.
var ErrInUse = errors.New("an agent is running on this VPP: stop it first")

const (
	// clientName is the Cleaner's name in VPP's list of clients.
	clientName = "contiv-cleanup"
	// goneWithin bounds how long VPP may take to notice that an agent has closed its connection.
	goneWithin = 3 * time.Second
	// answersWithin bounds how long the cleanup of a node waits for a VPP that listens.
	answersWithin = 20 * time.Second
	// maxRounds bounds the retries of refused removals.
	maxRounds = 3
)

// Cleaner is a connection to a VPP without an agent. It is not safe for concurrent use.
type Cleaner struct {
	cfg       Config
	conn      *vpp.Conn
	vppagent  *vppagent.Agent // nil: VPP is away, and the journal names nothing
	noJournal bool
	gone      error // why VPP has nothing of an agent: it does not run
	silent    error // VPP runs and does not answer
	cleaned   bool  // nothing of agents is on the node any more
	stop      []func()
}

// New connects to VPP, until ctx ends. The error wraps ErrInUse if an agent is connected. The caller must Close it.
func New(ctx context.Context, cfg Config) (*Cleaner, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cleaner{cfg: cfg}
	for _, step := range []func(context.Context) error{c.lock, c.idle, c.reach, c.know} {
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
	if c.cleaned {
		c.forgetNode()
	}
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
	if dir := filepath.Dir(c.cfg.StatusSocket); !exists(dir) {
		c.stop = append(c.stop, func() { _ = os.Remove(dir) }) // a dry run leaves nothing; what is in it stays
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

// reach connects to VPP, and checks that no agent is. For a whole node VPP may be away.
func (c *Cleaner) reach(ctx context.Context) error {
	if c.cfg.Node != nil {
		if c.gone = c.ended(ctx); c.gone != nil {
			return nil
		}
		limited, cancel := context.WithTimeout(ctx, answersWithin)
		defer cancel()
		ctx = limited
	}
	err := c.connect(ctx)
	if err == nil {
		err = c.alone(ctx)
	}
	if c.cfg.Node != nil && err != nil && !errors.Is(err, ErrInUse) {
		c.silent, err = err, nil
	}
	return err
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

// know reads the journal. It adds the kinds of the host's own objects only if the journal has some. Without VPP it has only these.
func (c *Cleaner) know(context.Context) error {
	cfg := vppagent.Config{Caller: c.conn, Logger: c.cfg.Logger, Journal: c.cfg.Journal}
	text, err := os.ReadFile(c.cfg.Journal)
	if c.cfg.Journal == "" || errors.Is(err, fs.ErrNotExist) {
		cfg.Journal, c.noJournal = "", true
	} else if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	own := bytes.Contains(text, []byte(" config/linux/"))
	hosts := slices.Concat(linux.All(), nodeports.All())
	switch {
	case c.silent != nil, c.gone != nil && !own:
		return nil
	case c.gone != nil:
		cfg.Caller, cfg.Descriptors, cfg.Logger = &linux.Caller{VPP: nobody{}, Own: c.cfg.Node.Own}, hosts, slog.New(slog.DiscardHandler) // it left out VPP's objects
	case own:
		cfg.Caller, cfg.Descriptors = &linux.Caller{VPP: c.conn, Own: c.cfg.Node.namespace()}, slices.Concat(all.All(), hosts)
	}
	c.vppagent = vppagent.New(cfg)
	return nil
}

// nothing is the empty desired state.
func nothing() *event.Txn { return &event.Txn{Cause: "cleanup", Resync: event.Full} }

// Plan is what Clean would do.
type Plan struct {
	Files  []string `json:"files,omitempty"`  // of the node, to be removed
	Kernel []string `json:"kernel,omitempty"` // objects of the kernel, to be removed by their marks
	Away   string   `json:"away,omitempty"`   // why VPP's objects are not looked at; "": they are
	*vppagent.Plan
}

// Empty reports that there is nothing to do.
func (p *Plan) Empty() bool { return len(p.Files) == 0 && len(p.Kernel) == 0 && p.Plan.Empty() }

// String is one line per file and object of the kernel, and then the plan of VPP.
func (p *Plan) String() string {
	out := ""
	for _, f := range p.Files {
		out += "delete file " + f + "\n"
	}
	for _, o := range p.Kernel {
		out += "delete " + o + "\n"
	}
	if p.Away != "" {
		out += "VPP is not looked at: " + p.Away + "\n"
	}
	if len(p.Files)+len(p.Kernel) > 0 && p.Plan.Empty() {
		return out
	}
	return out + p.Plan.String()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// away returns why VPP's objects are not looked at; "": they are.
func (c *Cleaner) away() string {
	if err := errors.Join(c.gone, c.silent); err != nil {
		return err.Error()
	}
	return ""
}

// Plan returns what Clean would do. It only reads.
func (c *Cleaner) Plan(ctx context.Context) (*Plan, error) {
	out := &Plan{Plan: &vppagent.Plan{}, Away: c.away()}
	var err error
	if c.vppagent != nil {
		if out.Plan, err = c.vppagent.Plan(ctx, nothing()); err != nil {
			return nil, err
		}
	}
	for _, f := range append(slices.Clone(c.cfg.Files), c.cfg.Node.files()...) {
		if exists(f) {
			out.Files = append(out.Files, f)
		}
	}
	out.Kernel, err = c.cfg.Node.kernel()
	return out, err
}

// NoJournal reports that VPP runs and no journal was found. Then the Cleaner treats objects that VPP keeps without a tag as foreign.
func (c *Cleaner) NoJournal() bool { return c.noJournal && c.away() == "" }

// Clean removes the agents' objects: those with their tag, and those in the journal; of a whole node also those with a mark in the kernel, and files. An
// object that is already gone is not an error. Clean deletes the journal when it is empty. The error means that Clean ended early.
//
// The order lets a node regain its network by itself: the kernel gets its NIC back; runtimes find no plugin any more; links are removed before the
// rules that keep pods' packets from the kernel; what the next agent would need is removed last.
func (c *Cleaner) Clean(ctx context.Context) (*Report, error) {
	r := &Report{NoJournal: c.NoJournal(), Away: c.away()}
	finish, err := c.cfg.settleNIC()
	if err != nil {
		return r, err
	}
	for _, f := range c.cfg.Files {
		if err := r.removeFile(f); err != nil {
			return r, fmt.Errorf("file of the agent: %w", err)
		}
	}
	if c.vppagent != nil {
		if err := c.cleanVPP(ctx, r); err != nil {
			return nil, errors.Join(err, finish())
		}
	}
	if c.silent != nil {
		r.Failed = append(r.Failed, "VPP's objects: "+c.silent.Error())
	}
	c.cfg.Node.cleanKernel(r)
	if err := finish(); err != nil {
		return r, err
	}
	if len(r.Left) == 0 && !c.noJournal && c.silent == nil {
		if err := os.Remove(c.cfg.Journal); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return r, fmt.Errorf("journal: %w", err)
		}
	}
	c.cfg.Node.cleanFiles(r)
	c.cleaned = c.cfg.Node != nil && r.Whole()
	return r, nil
}

// settleNIC gives the NIC back to the kernel.
func (c *Config) settleNIC() (finish func() error, err error) {
	if c.SettleNIC == nil {
		return func() error { return nil }, nil
	}
	return c.SettleNIC()
}

// GiveBackNIC gives the NIC back to the kernel, where VPP cannot be cleaned.
func (c *Config) GiveBackNIC() error {
	finish, err := c.settleNIC()
	if err != nil {
		return err
	}
	return finish()
}

// removeFile removes a file, and reports it.
func (r *Report) removeFile(path string) error {
	switch err := os.Remove(path); {
	case err == nil:
		r.Files = append(r.Files, path)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

func (c *Cleaner) cleanVPP(ctx context.Context, r *Report) error {
	for range maxRounds {
		done := c.vppagent.Commit(ctx, nothing())
		if done.Err != nil {
			return done.Err
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
	return nil
}
