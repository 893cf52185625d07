package vppagent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/pace"
)

// A large access list that many interfaces have is replaced beside: one request for each interface, with pauses, takes seconds in total. So
// do thousands of NAT mappings. Other owners do not wait for that long. Run ends a transaction early, when VPP has acknowledged the first portion
// of such requests:
//
//	transaction ─▶ all that is not such a request ─▶ a portion of them ─▶ Committed, Left has the keys of the others
//	pause       ─▶ another transaction, if one waits
//	            ─▶ the next portion of the rest, planned anew ─▶ pause ─▶ … ─▶ Committed (Seq 0), Left is empty
//
// Each state in between also occurs in the undivided transaction: the plan is only cut (ADR 20). A value may be cut as well
// (descriptor.Gradual).

// pausing is the remark on a value whose requests wait for a later portion.
const pausing = "the agent pauses before the request, so that VPP forwards"

// rest has the remaining work of divided transactions.
type rest struct {
	on     bool            // transactions may be divided
	values map[*value]bool // false: only the objects that it replaced beside remain to be removed
	x      *execution      // of all portions of the present rest; nil: no rest
	at     time.Time       // time of the last portion
}

// maxPutOffRest bounds the time for which consecutive transactions may delay a portion.
const maxPutOffRest = 100 * time.Millisecond

func (r *rest) overdue(now time.Time) bool { return len(r.values) > 0 && now.Sub(r.at) > maxPutOffRest }

// touch moves the rest into a plan.
func (r *rest) touch(p *planner) {
	for _, v := range r.sorted() {
		if p.g.values[v.key] == v { // the key may have been removed meanwhile
			p.touch(v)
		}
	}
	r.values = nil
}

func (r *rest) sorted() []*value {
	return slices.SortedFunc(maps.Keys(r.values), func(a, b *value) int { return strings.Compare(a.key, b.key) })
}

// keys are the keys of the rest and of its access lists, before and after; nil: no rest.
func (r *rest) keys() []string {
	if len(r.values) == 0 {
		return nil
	}
	set := map[string]struct{}{}
	for v := range r.values {
		set[v.key] = struct{}{}
		if v.kind == nil || v.kind.Stands == nil {
			continue
		}
		for _, on := range [2][]*value{v.uses, v.deps[v.hard:]} {
			for _, u := range on {
				set[u.key] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// withRest is the plan of x. It includes the rest if the rest may conflict with it.
func (x *execution) withRest() *planner {
	r := &x.a.rest
	if len(r.values) == 0 || !r.inTheWay(x.p) {
		return x.p
	}
	was := x.p
	x.p = x.a.newPlanner()
	x.p.drift = was.drift
	for _, v := range was.touched {
		x.p.touch(v)
	}
	x.before = r.values
	r.touch(x.p)
	x.p.settleValues()
	x.p.decide()
	return x.p
}

// inTheWay reports that a step of the plan needs the rest, or takes an object or claim that the rest frees.
func (r *rest) inTheWay(p *planner) bool {
	freed := map[string]bool{}
	for v := range r.values {
		if v.kind != nil && v.kind.Claims != nil && v.have != nil {
			for _, c := range v.kind.Claims(v.have) {
				freed[c] = true
			}
		}
	}
	waits := func(d *value) bool { return r.values[d] && (d.have == nil || d.want == nil) }
	for _, v := range p.touched {
		if v.plan.action == None {
			continue
		}
		if slices.ContainsFunc(v.deps, waits) || v.base != nil && waits(v.base) {
			return true
		}
		for u := range v.users { // VPP cannot remove it while the rest stands on it
			if _, left := r.values[u]; left && p.isRemoved(v) {
				return true
			}
		}
		for _, claims := range []func(any) []string{v.kind.Claims, v.kind.Waits} {
			if claims != nil && v.want != nil && slices.ContainsFunc(claims(v.want), func(c string) bool { return freed[c] }) {
				return true
			}
		}
	}
	return false
}

// portion executes a level, but of the interfaces that get other access lists only as many as VPP has time for at once. It returns the
// steps of the remaining interfaces.
func (x *execution) portion(ctx context.Context, level []Step) (others []Step, lost error) {
	if !x.divisible {
		return nil, x.whole(ctx, level)
	}
	first, switches := x.divide(level)
	if len(switches) < 2 && !slices.ContainsFunc(switches, func(s Step) bool { return s.gradual() }) {
		return nil, x.whole(ctx, level)
	}
	if len(first) > 0 {
		if lost = x.whole(ctx, first); lost != nil {
			return nil, lost
		}
	}
	b := &bunch{p: x.p}
	var sum time.Duration
	var unfinished []Step
	for len(switches) > 0 {
		s := x.staged(switches[0])
		next := x.prepare([]Step{s})
		took := x.a.pace.Total(x.a.costs(next.requests)) + x.a.pace.Total(costOfFollowing(next.requests))
		if sum > 0 && sum+took > x.a.cfg.Stall {
			break // the step is prepared again
		}
		sum += took
		b.tried, b.requests = append(b.tried, next.tried...), append(b.requests, next.requests...)
		if s.stage != nil {
			unfinished = append(unfinished, switches[0])
		}
		switches = switches[1:]
	}
	x.a.rest.at = x.a.cfg.Now()
	lost = x.sendRequests(ctx, b.requests)
	x.finishAll(b, lost)
	for _, s := range unfinished {
		if s.v.plan.err == nil {
			switches = append(switches, s)
		}
	}
	return switches, lost
}

// staged returns the step, or one that makes a part of its change if all of it would take too long.
func (x *execution) staged(s Step) Step {
	state, want := s.v.want, s.v.want
	if s.Action == Delete {
		state, want = s.v.have, nil
	}
	g, gradual := state.(descriptor.Gradual)
	if !gradual {
		return s
	}
	s.stage = g.Toward(x.a.g.world, s.v.have, want, x.a.cfg.Stall)
	return s
}

// toStage are the requests of a step that makes a part of its change.
func (x *execution) toStage(s Step) (ops []descriptor.Op, after any, err error) {
	if s.v.have == nil {
		ops, err = s.v.kind.Create(x.a.g.world, s.stage)
	} else {
		ops, err = s.v.kind.Update(x.a.g.world, s.v.have, s.stage)
	}
	return ops, s.stage, err
}

// costOfFollowing is the cost of the requests that follow from the replies.
func costOfFollowing(batch []request) (out []pace.Estimate) {
	for i := range batch {
		if op := &batch[i].op; op.Follows > 0 {
			out = append(out, pace.Estimate{Name: op.Preview.GetMessageName(), Cost: op.Follows, Known: true})
		}
	}
	return out
}

// divide finds the steps of a level after which VPP may get a pause of any length; steps of earlier transactions come last.
func (x *execution) divide(level []Step) (first, switches []Step) {
	var old []Step
	linked := claimed(level)
	for _, s := range level {
		_, before := x.before[s.v]
		switch {
		case s.shut || s.sweep || !s.switches() && (!s.gradual() || linked[s.v]):
			first = append(first, s)
		case before:
			old = append(old, s)
		default:
			switches = append(switches, s)
		}
	}
	return first, append(switches, old...)
}

// switches reports that the step gives an interface other access lists.
func (s *Step) switches() bool { return s.Action == Update && s.v.kind.Stands != nil }

// gradual reports that VPP may have a part of the step's value, for any time.
func (s *Step) gradual() bool {
	state := s.v.want
	if s.Action == Delete {
		state = s.v.have
	}
	_, gradual := state.(descriptor.Gradual)
	return gradual && s.v.plan.action != Recreate && !s.v.rebind && !s.v.unsure
}

// claimed are the values of steps of which one frees a claim that another one takes: their requests stay together.
func claimed(level []Step) map[*value]bool {
	freed, out := map[string]*value{}, map[*value]bool{}
	each := func(f func(v *value, had, has []string)) {
		for i := range level {
			s := &level[i]
			if v := s.v; s.gradual() && v.kind.Claims != nil && len(level) > 1 {
				var had, has []string
				if v.have != nil {
					had = v.kind.Claims(v.have)
				}
				if s.Action != Delete {
					has = v.kind.Claims(v.want)
				}
				f(v, had, has)
			}
		}
	}
	each(func(v *value, had, has []string) {
		keep := map[string]bool{}
		for _, c := range has {
			keep[c] = true
		}
		for _, c := range had {
			if !keep[c] {
				freed[c] = v
			}
		}
	})
	if len(freed) > 0 {
		each(func(v *value, _, has []string) {
			for _, c := range has {
				if from := freed[c]; from != nil && from != v {
					out[v], out[from] = true, true
				}
			}
		})
	}
	return out
}

// leaveSteps adds steps to the rest.
func (x *execution) leaveSteps(steps []Step, levels [][]Step) {
	r := &x.a.rest
	if r.values == nil {
		r.values = map[*value]bool{}
	}
	for _, s := range slices.Concat(append([][]Step{steps}, levels...)...) {
		r.values[s.v] = r.values[s.v] || !s.sweep
	}
	if r.x == nil {
		r.x = &execution{a: x.a, c: &event.Committed{Cause: x.c.Cause}, began: x.began}
	}
	if x != r.x { // values that wait for its result wait for the rest
		r.x.c.Triggered = append(r.x.c.Triggered, x.c.Triggered...)
		x.c.Triggered = nil
	}
}

// proceed executes the next portion of the rest. It returns nil if no rest exists, or if more portions follow.
func (a *Agent) proceed(ctx context.Context) *event.Committed {
	if len(a.rest.values) == 0 || a.stale || a.away() != nil {
		return nil
	}
	x, p := a.rest.x, a.newPlanner()
	x.divisible, x.calls = a.rest.on, nil
	a.rest.touch(p)
	if a.carryOut(ctx, x, p); len(a.rest.values) > 0 {
		return nil
	}
	return x.c
}

// finished ends the rest if nothing of it remains. The result of the last portion then has the results of all portions.
func (x *execution) finished() {
	r := &x.a.rest
	if len(r.values) > 0 || r.x == nil {
		return
	}
	if x != r.x {
		for _, list := range x.statuses {
			r.x.statuses.AddList(list)
		}
		x.statuses, x.c.Triggered = r.x.statuses, append(r.x.c.Triggered, x.c.Triggered...)
	}
	r.x = nil
}

func (a *Agent) proceedAndEmit(ctx context.Context, emit func(event.Event)) {
	if c := a.proceed(ctx); c != nil {
		emit(c)
	}
}

// nextPortion is the due time of the next portion; zero: none.
func (a *Agent) nextPortion() time.Time {
	if len(a.rest.values) == 0 || a.stale {
		return time.Time{}
	}
	return a.pace.Free()
}

// Unfinished reports that a rest exists for proceed. Only the goroutine of Step may call it.
func (a *Agent) Unfinished() bool { return len(a.rest.values) > 0 && !a.stale && a.away() == nil }
