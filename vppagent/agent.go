package vppagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/parallel"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/expand"
	"github.com/contiv-agent/contiv-agent/vppagent/history"
	"github.com/contiv-agent/contiv-agent/vppagent/journal"
	"github.com/contiv-agent/contiv-agent/vppagent/pace"
	"github.com/contiv-agent/contiv-agent/vppagent/quarantine"
)

// Caller sends requests to VPP in order and returns one reply per request. *vpp.Conn is one.
type Caller = pace.Caller

// Options are facts about VPP that the agent cannot ask VPP for.
type Options = descriptor.Options

// Config configures an Agent. Only Caller has no useful zero value.
type Config struct {
	Caller  Caller
	Options Options
	Logger  *slog.Logger  // nil: silent
	Backoff backoff.Range // pauses before a refused value is retried; a zero field: 1 s, and 1 min
	// History bounds the memory of past transactions, in bytes. 0: 1 MiB; negative: none are kept.
	History int
	// Journal is a file that records the objects without a tag that the agent made; "": none. Without a journal, such objects
	// from before a restart stay in VPP as foreign if the first resync does not want them.
	Journal string
	// Recheck is the period in which the agent compares all of VPP with the desired state once: see recheck. 0: only after a reconnect.
	Recheck time.Duration
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// DenyUnknown denies everything on interfaces that a CNI may have made for a pod and that no value names: see giveParts.
	DenyUnknown bool
	// DenyEarly denies everything before the first transaction, on interfaces whose tags name pods and that have no access lists of
	// ours: every interface that was evaluated before has some. It needs DenyUnknown.
	DenyEarly bool
	// Pause waits for the duration, or until ctx ends: VPP forwards between two long requests. nil: no pauses.
	Pause func(ctx context.Context, d time.Duration)
	// Stall is the longest time without forwarding that the agent accepts where it can choose. 0: cost.Stall.
	Stall time.Duration
	// Descriptors are the kinds of values; nil: all.All.
	Descriptors []*descriptor.Descriptor
	Quarantine  *quarantine.Ward // keeps values out whose requests end VPP; nil: none is kept out
}

// Agent makes VPP equal to its values. One goroutine may call Commit, Plan, Retry, Recheck and Interfaces: Run's, if Run runs.
// Any goroutine may call Connected, InterfacesChanged, InterfaceGone, Snapshot, Lists and Drift.
type Agent struct {
	cfg     Config
	g       *graph
	epoch   uint64
	journal *journal.Journal
	history history.List
	check   recheck
	pace    pace.Pacer
	rest    rest
	// reclassify is VPP's setting as of the last complete dump.
	reclassify acl.Reclassify

	// informed: a transaction has stated the desired state. Before that the agent cannot know that a value is unwanted, so it removes
	// nothing.
	informed bool
	// stale: the actual state is not known (at the start, and after the connection was lost); the next transaction dumps it first.
	stale    bool
	retrying map[*value]struct{}
	locate   *event.Locate // the last question, answered again when interfaces change
	closing  closing
	located  *event.Located

	state   atomic.Pointer[vpp.State] // nil: Connected was never called
	handled uint64                    // generation of the connection of the last resync
	changed atomic.Bool               // interfaces
	gone    sync.Map                  // indices (uint32) of interfaces deleted since the last call of Interfaces
	wake    chan struct{}
	// questions: Run answers them between two transactions.
	questions chan func()
	unsaid    []*event.Committed // results of questions, not emitted yet
	board     board
	snapshot  atomic.Pointer[Snapshot]
}

// New returns an agent with an unknown actual state: its first transaction dumps VPP. New panics without a Caller.
func New(cfg Config) *Agent {
	if cfg.Caller == nil {
		panic("vppagent: no Caller")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Backoff.Min <= 0 {
		cfg.Backoff.Min = time.Second
	}
	if cfg.Backoff.Max <= 0 {
		cfg.Backoff.Max = time.Minute
	}
	if cfg.History == 0 {
		cfg.History = 1 << 20
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Descriptors == nil {
		cfg.Descriptors = all.All()
	}
	if cfg.Stall <= 0 {
		cfg.Stall = cost.Stall
	}
	a := &Agent{
		cfg: cfg, g: newGraph(cfg.Descriptors, cfg.Options), stale: true, retrying: map[*value]struct{}{},
		wake: make(chan struct{}, 1), questions: make(chan func()),
	}
	a.history.Limit, a.check = max(cfg.History, 0), newRecheck(cfg.Recheck, a.g.kinds)
	a.check.answers.Caller = cfg.Caller
	a.pace = pace.Pacer{Caller: cfg.Quarantine.Around(cfg.Caller), Pause: cfg.Pause, Now: cfg.Now, Stall: cfg.Stall}
	a.g.stall = cfg.Stall
	a.openJournal()
	a.publishSnapshot()
	return a
}

// Connected reports the state of the connection to the agent, which dumps and repairs VPP on every new connection. Pass it as
// vpp.Config.OnState. Without a call of Connected the agent tries VPP at every transaction.
func (a *Agent) Connected(s vpp.State) {
	a.state.Store(&s)
	a.poke()
}

// InterfacesChanged reports to the agent that interfaces were added or deleted: see descriptor.WatchInterfaces.
func (a *Agent) InterfacesChanged() {
	a.changed.Store(true)
	a.poke()
}

// InterfaceGone reports to the agent that VPP deleted the interface with that index. A later interface with the same index is
// another one, even if it has the same name.
func (a *Agent) InterfaceGone(swIfIndex uint32) {
	a.gone.Store(swIfIndex, nil)
	a.InterfacesChanged()
}

func (a *Agent) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// notice marks the actual state as stale if the connection is new. It reports whether VPP must be dumped.
func (a *Agent) notice() bool {
	s := a.state.Load()
	if s == nil || s.Connected && s.Generation == a.handled {
		return false
	}
	a.stale = true
	if s.Connected {
		a.handled, a.g.world.Cost = s.Generation, cost.For(s.Version)
	}
	return s.Connected
}

// away returns why VPP cannot be reached; nil if it may be reachable.
func (a *Agent) away() error {
	s := a.state.Load()
	if s == nil || s.Connected {
		return nil
	}
	if s.Err != nil && !errors.Is(s.Err, vpp.ErrDisconnected) {
		return fmt.Errorf("%w: %w", vpp.ErrDisconnected, s.Err)
	}
	return vpp.ErrDisconnected
}

// Commit takes the values of a transaction into the desired state and makes VPP equal to it. While VPP is away Commit keeps the
// values and sets Err; the next Commit, or Run on the next connection, programs them.
func (a *Agent) Commit(ctx context.Context, t *event.Txn) *event.Committed {
	a.check.answers.Forget()
	if t.Rest != nil && t.Resync == event.Full {
		return a.commitPortions(ctx, t)
	}
	t = t.Whole()
	p := a.newPlanner()
	p.touched, p.queue = make([]*value, 0, len(t.Values)), make([]*value, 0, len(t.Values))
	a.accept(t, p.touch)
	x := a.execution(t.Cause, t.Resync)
	x.c.Seq, x.c.Triggered = t.Seq, t.Triggered
	x.divisible = x.divisible && !t.Awaited
	a.carryOut(ctx, x, p)
	return x.c
}

func (a *Agent) newPlanner() *planner {
	a.epoch++
	return &planner{g: a.g, epoch: a.epoch}
}

// accept takes the values of a transaction into the desired state.
func (a *Agent) accept(t *event.Txn, touch func(*value)) {
	if t.Resync == event.Downstream {
		return
	}
	a.informed = a.informed || t.Resync != event.NoResync || len(t.Values) > 0
	if t.Resync == event.Full || t.Resync == event.Upstream {
		for key, v := range a.g.values {
			if _, stays := t.Values[key]; !stays && v.msg != nil {
				a.putDesired(v, nil, touch)
			}
		}
	}
	a.want(t.Values, touch)
	a.g.world.Stated = a.informed
}

// want takes values into the desired state; nil removes one.
func (a *Agent) want(values map[string]proto.Message, touch func(*value)) {
	fresh := make([]compiled, 0, len(values))
	for key, m := range values {
		v := a.g.values[key]
		switch {
		case m != nil && (v == nil || v.msg == nil || !kv.Equal(v.msg, m)):
			fresh = append(fresh, compiled{key: key, msg: m, kind: a.g.kindOf(key)})
		case m == nil && v != nil && v.msg != nil:
			a.putDesired(v, nil, touch)
		case m != nil && !v.steady():
			touch(v)
		}
	}
	// Sorted: the nodes of a kind then have the order in which VPP receives and shows the values; see kind.nextValue.
	parallel.Sort(fresh, func(a, b compiled) int { return strings.Compare(a.key, b.key) })
	a.g.expect(fresh)
	parallel.Ordered(len(fresh), func(i int) { fresh[i].compile() }, func(i int) {
		// Nodes are made only here: collect would remove an unused node in the meantime.
		a.putDesired(a.g.nodeOf(fresh[i].key), &fresh[i], touch)
	})
}

// compiled is a value on its path into the desired state. A state beside bad is no value: see Descriptor.Compile.
type compiled struct {
	key   string
	msg   proto.Message
	kind  *kind // nil: there is none
	state any
	bad   error
}

// putDesired makes c the desired state of v; nil: none. A value that does not compile is not wanted: its old version is removed, because
// the new one replaced it.
func (a *Agent) putDesired(v *value, c *compiled, touch func(*value)) {
	if c == nil {
		c = &compiled{}
	}
	v.msg, v.bad = c.msg, c.bad
	v.backoff, v.retryAt = 0, time.Time{}
	if c.bad == nil && c.state != nil && v.want != nil && expand.Plain(v.kind.Descriptor) && v.kind.Equal(v.want, c.state) {
		touch(v)
		return
	}
	a.g.putState(v, c.state, touch)
}

// errUnimplemented: the value stays in the desired state and its status is shown, but no descriptor puts it into VPP.
var errUnimplemented = errors.New("not implemented: nothing puts this kind of value into VPP")

func (c *compiled) compile() {
	if !strings.HasPrefix(c.key, "config/") {
		c.bad = errors.New("no such kind of value")
		return
	}
	if c.bad = kv.Check(c.key, c.msg); c.bad != nil {
		return
	}
	if c.kind == nil {
		c.bad = errUnimplemented
		return
	}
	c.state, c.bad = c.kind.Compile(c.key, c.msg)
}

// runTxn is the common path of Commit, Retry and repairs: look, plan, execute, observe.
func (a *Agent) runTxn(ctx context.Context, p *planner, resync event.ResyncKind, cause string, seq uint64) *event.Committed {
	x := a.execution(cause, resync)
	x.c.Seq = seq
	a.carryOut(ctx, x, p)
	return x.c
}

func (a *Agent) execution(cause string, resync event.ResyncKind) *execution {
	return &execution{a: a, c: &event.Committed{Cause: cause, Resync: resync}, began: a.cfg.Now(), balance: a.pace.Balance, divisible: a.rest.on && resync == event.NoResync}
}

// carryOut executes a plan.
func (a *Agent) carryOut(ctx context.Context, x *execution, p *planner) {
	x.p = p
	a.check.answers.Forget()
	a.notice()
	if a.stale || x.c.Resync != event.NoResync {
		a.rest.touch(p)
		x.divisible = false
	}
	err := a.away()
	if err == nil {
		err = a.lookAtVPP(ctx, p, x.c.Resync)
	}
	a.complete(ctx, x, err)
}

// complete plans, executes and observes; err is why VPP cannot be reached.
func (a *Agent) complete(ctx context.Context, x *execution, err error) {
	p, c := x.p, x.c
	a.giveParts(p.touch)
	if err == nil && !a.informed && a.cfg.DenyEarly {
		err = x.closeEarly(ctx)
	}
	p.settleValues() // even if VPP is away: dependents of a name that observe removes must learn of the removal
	if err == nil && a.informed {
		p.decide()
		p = x.withRest()
		err = x.execute(ctx, p.order())
	}
	if err != nil {
		a.stale = true
		c.Err = err
	}
	if a.informed {
		a.observe(p, x)
	}
	x.finished()
	if a.informed {
		c.Statuses = x.statuses.MergeAll()
	}
	a.saveJournal()
	c.Took, c.Cost = a.cfg.Now().Sub(x.began), a.cfg.Now().Sub(x.began)+a.pace.Balance-x.balance
	if c.Left = a.rest.keys(); x == a.rest.x {
		a.publishSnapshot() // more portions follow
		return
	}
	a.record(x.began, c, x)
	a.publishSnapshot()
	if p.drift == nil || err != nil { // the log line of the round has the repairs of a recheck
		a.logLine(c)
	}
}

func (a *Agent) logLine(c *event.Committed) {
	if c.Add+c.Mod+c.Del+c.Writes == 0 && c.Err == nil && c.Resync == event.NoResync {
		return
	}
	attrs := []any{"txn", c.Seq, "cause", c.Cause, "add", c.Add, "mod", c.Mod, "del", c.Del, "writes", c.Writes, "took", c.Took}
	if c.Resync != event.NoResync {
		attrs = append(attrs, "resync", c.Resync.String())
	}
	if c.Err != nil {
		a.cfg.Logger.Warn("not committed", append(attrs, "err", c.Err)...)
		return
	}
	a.cfg.Logger.Info("committed", attrs...)
}

// Retry retries the values that are due. It returns nil if none is due.
func (a *Agent) Retry(ctx context.Context) *event.Committed {
	now := a.cfg.Now()
	p := a.newPlanner()
	for v := range a.retrying {
		if !v.retryAt.After(now) {
			p.touch(v)
		}
	}
	if len(p.touched) == 0 {
		return nil
	}
	slices.SortFunc(p.touched, func(x, y *value) int { return strings.Compare(x.key, y.key) })
	return a.runTxn(ctx, p, event.NoResync, "retry", 0)
}

// nextRetry is the time of the next retry; zero: none.
func (a *Agent) nextRetry() (next time.Time) {
	for v := range a.retrying {
		next = soonest(next, v.retryAt)
	}
	return next
}
