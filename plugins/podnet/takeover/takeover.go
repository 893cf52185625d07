// Package takeover gives a node's NIC to VPP, and takes it back unless the node then reaches its API server.
//
//	         VPP carries the NIC's frames            the API server answers
//	kernel ─────────── Take ──────────▶ trial ───────────────────────────▶ taken
//	  ▲ │                                 │ no answer within Within,         │
//	  │ ▼ only by hand                    │ or the agent ended               │
//	refused ◀───────── Release ───────────┘                                  │
//	kernel ◀────────── Release ────────── VPP is away or does not carry, ────┘
//	                                      or the agent is stopped
//
// Invariant: the file has the phase, and what the NIC had, before the kernel's addresses change. So a process that starts finds what to undo.
package takeover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// Mover moves a NIC's addresses and routes. Each call may be repeated.
type Mover interface {
	Look() (record []byte, err error)
	Take(record []byte) error
	Release(record []byte) error
	Made() bool               // the link to VPP exists; false after a restart of the node
	Holds(record []byte) bool // that link has addresses of the record; no record: any
	Up(record []byte) bool    // the NIC is up; no record: the NIC that Look looks at
	Deafen() error
}

// Config configures a Takeover.
type Config struct {
	File  string
	Mover Mover
	// Away returns why VPP is not connected, Unready why it does not carry the NIC's frames; "": it is, it does.
	Away, Unready func() string
	// Check returns nil if the node reaches its API server, by a new connection.
	Check  func(ctx context.Context) error
	Within time.Duration // of Take, for Check
	// Leave: VPP does not get the NIC. Unready is then about the removal of what VPP has of it.
	Leave  bool
	Logger *slog.Logger
}

// Periods of Run.
const (
	every      = 50 * time.Millisecond
	checkLimit = time.Second
	// A process that starts finds VPP within this time, if VPP runs.
	startLimit = 2 * time.Second
	lookEvery  = time.Second
	leaveAfter = 5 * time.Second // VPP has removed what it had of the NIC
)

// Phase is where the NIC is.
type Phase string

// The phases.
const (
	Kernel  Phase = ""        // the kernel has the NIC
	Trial   Phase = "trial"   // VPP has it, and the API server has not answered yet
	Taken   Phase = "taken"   // VPP has it
	Refused Phase = "refused" // the kernel has it, since a trial failed: nobody tries again
	Leaving Phase = "leaving" // the kernel has it, and VPP removes what it had of it
)

// state is the content of the file.
type state struct {
	Phase  Phase           `json:"phase"`
	Record json.RawMessage `json:"record,omitempty"`
	Reason string          `json:"reason,omitempty"` // of Refused
}

// Takeover is the NIC of a node. Only the goroutine of Run changes it; Refusal is safe for concurrent use.
type Takeover struct {
	cfg     Config
	state   state
	started time.Time
	since   time.Time // of the phase in this process
	ready   bool      // VPP carried the NIC's frames in this phase
	last    []byte    // what the kernel's NIC had when it was looked at; nil: not known
	looked  time.Time
	said    string
	refusal atomic.Pointer[string] // what Refusal returns; nil: nothing
}

// New reads the file. A trial of an earlier process has failed, because that process ended: the NIC is the kernel's when New returns.
func New(cfg Config, now time.Time) (*Takeover, error) {
	t := &Takeover{cfg: cfg, started: now, since: now}
	text, err := os.ReadFile(cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return t, nil
	case err != nil:
		return nil, fmt.Errorf("take-over of the NIC: %w", err)
	}
	if err := json.Unmarshal(text, &t.state); err != nil {
		return nil, fmt.Errorf("take-over of the NIC: %s: %w", cfg.File, err)
	}
	return t, t.resume(now)
}

// resume continues or undoes what an earlier process began. It may have been killed within a move.
func (t *Takeover) resume(now time.Time) error {
	record := t.state.Record
	moved := t.state.Phase == Trial || t.state.Phase == Taken || t.state.Phase == Leaving
	switch {
	case moved && !t.cfg.Mover.Made(): // the node was started again
		return t.enter(state{Record: record}, now)
	case t.cfg.Leave:
		return t.release(Leaving, "no agent asks for it", now)
	case t.state.Phase == Trial:
		return t.release(Refused, "the agent ended before the API server had answered", now)
	case t.state.Phase == Leaving, t.state.Phase == Taken && !t.cfg.Mover.Holds(record):
		return t.release(Kernel, "an earlier agent gave it back", now)
	case t.state.Phase == Taken:
		return t.cfg.Mover.Take(record)
	case t.state.Phase == Refused:
		t.report()
	}
	return nil
}

// Exists reports that the file of an earlier process exists.
func Exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Settle gives the NIC back to the kernel, if an earlier process gave it away. The caller calls finish when VPP has nothing of it any more. It is an error
// if the link to VPP has the NIC's addresses and the file is lost: the node has its network by that link, which must then stay.
func Settle(file string, m Mover) (finish func() error, err error) {
	if !Exists(file) {
		if m.Holds(nil) {
			return nil, fmt.Errorf("the link to VPP has the node's addresses, and %s, which says what the NIC had, does not exist: move the addresses and routes to the NIC by hand", file)
		}
		return func() error { return nil }, nil
	}
	t, err := New(Config{File: file, Mover: m, Leave: true, Logger: slog.New(slog.DiscardHandler)}, time.Now())
	if err != nil {
		return nil, err
	}
	return t.forgetNIC, nil
}

// forgetNIC undoes what VPP did to the NIC when it gave it up, and forgets the NIC.
func (t *Takeover) forgetNIC() error {
	if err := t.giveBack(t.state.Record); err != nil {
		return err
	}
	return os.Remove(t.cfg.File)
}

// giveBack gives the kernel what the NIC had; no record: nothing was ever taken.
func (t *Takeover) giveBack(record []byte) error {
	if len(record) == 0 {
		return nil
	}
	return t.cfg.Mover.Release(record)
}

// Run gives the NIC to VPP when VPP carries its frames, and takes it back when VPP does not, and when ctx ends: VPP may be in the same pod and end, too, and
// nobody else would give the NIC back. Without it the kubelet would not learn of the next pod.
func (t *Takeover) Run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := t.Step(ctx, time.Now()); err != nil && err.Error() != t.said {
			t.said = err.Error()
			t.cfg.Logger.Error("NIC", "phase", string(t.state.Phase), "err", err)
		}
		select {
		case <-ctx.Done():
			if t.state.Phase == Trial || t.state.Phase == Taken {
				if err := t.release(Kernel, "the agent ends", time.Now()); err != nil {
					t.cfg.Logger.Error("NIC", "err", err)
				}
			}
			return
		case <-tick.C:
		}
	}
}

// Step does what is due.
func (t *Takeover) Step(ctx context.Context, now time.Time) error {
	switch t.state.Phase {
	case Kernel:
		if err := t.keep(now); err != nil || t.cfg.Leave || t.cfg.Unready() != "" {
			return err
		}
		return t.try(now)
	case Refused:
		return t.keep(now)
	case Leaving:
		return errors.Join(t.keep(now), t.leave(now))
	case Trial:
		return t.confirm(ctx, now)
	case Taken:
		if why := t.lost(now); why != "" {
			return t.release(Kernel, why, now)
		}
	}
	return nil
}

// keep restores what the kernel's NIC had. VPP sets a NIC down when it gives it up (af_packet_interface_admin_up_down, VPP 25.10), and the kernel then
// forgets its routes and IPv6 addresses.
func (t *Takeover) keep(now time.Time) error {
	if t.last == nil {
		t.last = t.state.Record
	}
	switch up := t.cfg.Mover.Up(t.last); {
	case !up:
		return t.giveBack(t.last)
	case !t.cfg.Leave && now.Sub(t.looked) >= lookEvery:
		t.looked = now
		if record, err := t.cfg.Mover.Look(); err == nil {
			t.last = record
		}
	}
	return nil
}

// leave forgets the NIC when VPP has had nothing of it for some time.
func (t *Takeover) leave(now time.Time) error {
	if t.cfg.Unready() != "" {
		t.since = now
	}
	if now.Sub(t.since) < leaveAfter {
		return nil
	}
	t.state.Phase = Kernel
	t.last = nil
	return t.forgetNIC()
}

// try gives the NIC to VPP.
func (t *Takeover) try(now time.Time) error {
	record, err := t.cfg.Mover.Look()
	if err == nil {
		err = t.cfg.Mover.Deafen()
	}
	if err == nil {
		err = t.enter(state{Phase: Trial, Record: record}, now)
	}
	if err != nil {
		return err
	}
	if err := t.cfg.Mover.Take(record); err != nil {
		return errors.Join(err, t.release(Refused, err.Error(), now))
	}
	return nil
}

// confirm ends a trial if the API server answers, or if it did not for too long.
func (t *Takeover) confirm(ctx context.Context, now time.Time) error {
	if why := t.cfg.Away(); why != "" {
		return t.release(Refused, why, now)
	}
	ctx, stop := context.WithTimeout(ctx, checkLimit)
	defer stop()
	err := t.cfg.Check(ctx)
	switch {
	case err == nil:
		return t.enter(state{Phase: Taken, Record: t.state.Record}, now)
	case now.Sub(t.since) >= t.cfg.Within:
		return t.release(Refused, fmt.Sprintf("the API server has not answered for %s: %v", t.cfg.Within, err), now)
	}
	return nil
}

// lost returns why VPP no longer carries the NIC's frames. A process that starts waits for VPP, and for the values that VPP has.
func (t *Takeover) lost(now time.Time) string {
	away, unready := t.cfg.Away(), t.cfg.Unready()
	t.ready = t.ready || unready == ""
	switch {
	case t.ready || now.Sub(t.started) >= startLimit && away != "":
		return away
	case now.Sub(t.started) >= t.cfg.Within:
		return unready
	}
	return ""
}

// release gives the NIC back to the kernel.
func (t *Takeover) release(to Phase, reason string, now time.Time) error {
	if err := t.giveBack(t.state.Record); err != nil {
		return err
	}
	next := state{Phase: to, Record: t.state.Record}
	if to == Refused {
		next.Reason = reason
	}
	t.cfg.Logger.Warn("NIC is the kernel's again", "phase", string(to), "reason", reason)
	return t.enter(next, now)
}

// enter writes the file and then begins a phase.
func (t *Takeover) enter(next state, now time.Time) error {
	text, err := json.Marshal(next)
	if err == nil {
		err = atomicfile.Write(t.cfg.File, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("take-over of the NIC: %w", err)
	}
	t.state, t.since, t.ready, t.last = next, now, false, nil
	t.report()
	return nil
}

// report writes the phase to the log, and why VPP does not have the NIC if it does not get it any more. Refusal returns that, too.
func (t *Takeover) report() {
	if t.state.Phase != Refused {
		t.refusal.Store(nil)
		t.cfg.Logger.Info("NIC", "phase", string(t.state.Phase))
		return
	}
	why := t.status()
	t.refusal.Store(&why)
	t.cfg.Logger.Warn("NIC", "phase", string(t.state.Phase), "reason", why)
}

// Refusal returns why VPP does not get the NIC any more, and what to do; "": it may get it, or nobody asks for it.
func (t *Takeover) Refusal() string {
	if t == nil {
		return ""
	}
	if why := t.refusal.Load(); why != nil {
		return *why
	}
	return ""
}

// status returns why VPP does not have the NIC for good; "": it has it.
func (t *Takeover) status() string {
	switch t.state.Phase {
	case Taken:
		return ""
	case Refused:
		return fmt.Sprintf("the NIC is the kernel's, because %s; remove %s to try again", t.state.Reason, t.cfg.File)
	}
	return "the NIC is the kernel's"
}
