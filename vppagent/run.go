package vppagent

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/l3"
)

// Run commits transactions one after the other. It emits the result of each, and of the agent's retries and repairs (Seq 0), as
// *event.Committed, and answers to Locate as *event.Located. It ends with ctx, whose error it returns, or when the channel of
// transactions closes.
func (a *Agent) Run(ctx context.Context, txns <-chan *event.Txn, emit func(event.Event)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	a.rest.on = a.cfg.Pause != nil
	for {
		a.arm(timer)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case t, ok := <-txns:
			if !ok {
				return nil
			}
			a.commit(ctx, t, emit)
		case <-a.wake:
			if c := a.attend(ctx); c != nil {
				emit(c)
			}
		case q := <-a.questions:
			q()
			for _, c := range a.unsaid {
				emit(c)
			}
			a.unsaid = nil
		case <-timer.C:
			select {
			case t, ok := <-txns: // a transaction, which a caller waits for, precedes the agent's retries and rechecks
				if !ok {
					return nil
				}
				a.commit(ctx, t, emit)
			default:
				a.tend(ctx, emit)
			}
		}
		if l := a.answerLocate(ctx); l != nil {
			emit(l)
		}
	}
}

// commit commits a transaction and emits its result.
func (a *Agent) commit(ctx context.Context, t *event.Txn, emit func(event.Event)) {
	emit(a.Commit(ctx, t))
	if a.rest.overdue(a.cfg.Now()) {
		a.proceedAndEmit(ctx, emit)
	}
	if t.Locate != nil {
		a.locate, a.located = t.Locate, nil
	}
}

// tend runs the work that is due by the clock.
func (a *Agent) tend(ctx context.Context, emit func(event.Event)) {
	if c := a.Retry(ctx); c != nil {
		emit(c)
	}
	if c := a.Recheck(ctx); c != nil {
		emit(c)
	}
	if !a.nextPortion().After(a.cfg.Now()) {
		a.proceedAndEmit(ctx, emit)
	}
	if a.journal.Due(a.cfg.Now()) {
		a.saveJournal()
	}
}

// arm sets the timer to the next retry, recheck, portion or write of the journal. While VPP is away the timer is off: the next connection repairs everything.
func (a *Agent) arm(timer *time.Timer) {
	next := soonest(a.nextRetry(), a.nextCheck(), a.nextPortion(), a.journal.Again)
	if next.IsZero() || a.away() != nil {
		timer.Stop()
		return
	}
	timer.Reset(max(next.Sub(a.cfg.Now()), time.Millisecond))
}

// soonest is the first of these moments that are set; zero: none is.
func soonest(moments ...time.Time) (next time.Time) {
	for _, t := range moments {
		if next.IsZero() || !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// attend handles the signals that woke Run: a new connection, changed interfaces, or other roles of interfaces.
func (a *Agent) attend(ctx context.Context) *event.Committed {
	if a.notice() {
		a.changed.Store(false)
		return a.runTxn(ctx, a.newPlanner(), event.Downstream, "connected", 0)
	}
	if a.away() != nil {
		a.publishSnapshot()
		return nil
	}
	if a.changed.Swap(false) {
		return a.Interfaces(ctx)
	}
	if a.closing.moved { // the interfaces are the same: no address has to be located again
		return a.runTxn(ctx, a.newPlanner(), event.NoResync, "interfaces", 0)
	}
	return nil
}

// Interfaces dumps VPP's interfaces. It configures values that waited for a new interface, and repairs values that a deleted interface took along.
func (a *Agent) Interfaces(ctx context.Context) *event.Committed {
	a.located = nil // addresses may have moved
	if a.stale {
		return a.runTxn(ctx, a.newPlanner(), event.Downstream, "interfaces", 0)
	}
	before := a.g.world.Names()
	p := a.newPlanner()
	if a.away() == nil && a.learnInterfaces(ctx, p) != nil {
		a.stale = true
	}
	gone := a.takeGone() // events that VPP sent before its answers have arrived before them
	after := a.g.world.Names()
	for v := range a.g.ifaces() {
		was, existed := before[v.ifname]
		is, exists := after[v.ifname]
		_, deleted := gone[was]
		if !existed || exists && is == was && !deleted {
			continue
		}
		// The interface is deleted, or replaced by another one of the same name: VPP deleted what was on it.
		if v.have != nil {
			v.unsure = true
		}
		for d := range v.dependents {
			d.unsure = d.unsure || d.have != nil
			d.rebind = d.rebind || d.have != nil && d.dies(v)
			p.touch(d)
		}
		for _, d := range v.derived {
			d.unsure = d.unsure || d.have != nil
			p.touch(d)
		}
	}
	touchSuspects(p)
	return a.runTxn(ctx, p, event.NoResync, "interfaces", 0)
}

// touchSuspects makes the plan dump the kinds of which VPP may have an object that nothing wants.
func touchSuspects(p *planner) {
	for _, k := range p.g.kinds {
		if k.Rest != nil && k.Rest.Suspect(p.g.world) {
			rest := p.g.nodeOf(k.Rest.Key)
			rest.unsure = true
			p.touch(rest)
		}
	}
}

// dies reports that VPP keeps a dead object of v when it deletes v's interface.
func (v *value) dies(iface *value) bool {
	return v.kind.Bound(v.have, iface.key, descriptor.Dies) || v.kind.Bound(v.want, iface.key, descriptor.Dies)
}

// takeGone takes the indices of the interfaces deleted since the last call.
func (a *Agent) takeGone() map[uint32]struct{} {
	out := map[uint32]struct{}{}
	a.gone.Range(func(index, _ any) bool {
		out[index.(uint32)] = struct{}{}
		a.gone.Delete(index)
		return true
	})
	return out
}

// ifaces yields the values whose key names an interface.
func (g *graph) ifaces() func(func(*value) bool) {
	return func(yield func(*value) bool) {
		for _, k := range g.kinds {
			if !k.Has(interfacePrefix + "x") {
				continue
			}
			for _, v := range k.values {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// answerLocate looks up the question of a transaction when VPP is reachable; nil if there is no question, or nothing changed since the last
// answer.
func (a *Agent) answerLocate(ctx context.Context) *event.Located {
	if a.locate == nil || a.located != nil || a.stale || a.away() != nil {
		return nil
	}
	l, err := a.Locate(ctx, a.locate)
	if err != nil {
		a.cfg.Logger.Warn("locate", "err", err)
		return nil
	}
	a.located = l
	a.learnRoles(l)
	return l
}

// Locate finds where addresses are in VPP. An agent with an unknown actual state dumps VPP for it, and keeps nothing of the dump.
func (a *Agent) Locate(ctx context.Context, l *event.Locate) (*event.Located, error) {
	if a.stale {
		c := a.clone()
		if err := c.lookAtVPP(ctx, c.newPlanner(), event.Downstream); err != nil {
			return nil, err
		}
		a = c
	}
	return l3.Locate(ctx, a.cfg.Caller.Do, a.g.world, l)
}
