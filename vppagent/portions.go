package vppagent

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// A resync that arrives in portions is executed ahead: while VPP works on one portion, the agent renders, compiles and plans the
// next.
//
//	portions ─▶ compared with what VPP had ─▶ creations ─▶ stream ─▶ VPP     as long as there is nothing else to do
//	the end  ─▶ all that is left: changes, removals, and creations after them   as in any other transaction
//
// The agent changes and removes nothing before the end: a later portion may want an object in VPP that no portion has named yet.
// As soon as such an object exists, creations wait for the end as well, because their order then matters. Interfaces that the agent has
// closed are no such objects: the values that open them are last in any plan, so all else is carried out ahead of them.

// ahead is the state of a resync that is executed before all portions have arrived.
type ahead struct {
	stream
	a    *Agent
	on   bool     // the values of all portions so far are in VPP, or their requests are sent
	err  error    // VPP cannot be reached
	held []*value // the values that are put after all others
	// known has the first dump of the kinds with thousands of values.
	known *descriptor.Dump
}

// commitPortions commits a full resync with a Rest.
func (a *Agent) commitPortions(ctx context.Context, t *event.Txn) *event.Committed {
	x := &execution{a: a, c: &event.Committed{Seq: t.Seq, Cause: t.Cause, Resync: t.Resync, Triggered: t.Triggered}, began: a.cfg.Now()}
	unsaid := map[string]struct{}{}
	for key, v := range a.g.values {
		if v.msg != nil {
			unsaid[key] = struct{}{}
		}
	}
	h := &ahead{a: a, stream: stream{x: x}}
	h.beginPortions(ctx, t.Values)
	say(unsaid, t.Values)
	for portion := range t.Rest {
		h.portion(ctx, portion)
		say(unsaid, portion)
	}
	h.endPortions(ctx, unsaid)
	return x.c
}

// say records the keys of a portion.
func say(unsaid map[string]struct{}, values map[string]proto.Message) {
	if len(unsaid) == 0 {
		return
	}
	for key := range values {
		delete(unsaid, key)
	}
}

// beginPortions dumps VPP and executes the first portion.
func (h *ahead) beginPortions(ctx context.Context, values map[string]proto.Message) {
	p := h.plan()
	h.a.informed = true
	h.a.want(values, p.touch)
	h.a.notice()
	if h.err = h.a.away(); h.err != nil {
		return
	}
	known, err := h.a.lookAll(ctx, p, nil)
	if h.err = err; err != nil {
		return
	}
	_, many := partition(h.a.g.kinds)
	h.known = known.Some(h.a.dumps(many, nil))
	h.on = true
	h.carryOut(ctx)
}

// portion takes the values of a later portion into the desired state and executes it, unless it has to wait.
func (h *ahead) portion(ctx context.Context, values map[string]proto.Message) {
	if h.on {
		h.plan()
	}
	p := h.x.p
	h.a.want(values, p.touch)
	switch {
	case !h.on:
	case p.collided || !h.compareObjects(p):
		h.off(ctx)
	default:
		h.carryOut(ctx)
	}
}

// plan starts the plan of a portion.
func (h *ahead) plan() *planner {
	p := h.a.newPlanner()
	if h.out != nil {
		p.onWay = h.out.p.epoch
	}
	h.x.p = p
	return p
}

// carryOut sends the creations of the current plan, unless the plan has other steps too.
func (h *ahead) carryOut(ctx context.Context) {
	p := h.x.p
	h.a.giveParts(p.touch)
	p.settleValues()
	p.decide()
	p.ahead = true
	if p.collided || !p.onlyCreates() {
		h.off(ctx)
		return
	}
	levels := p.order()
	h.held = append(h.held, p.held...)
	for _, level := range levels {
		if h.err = h.push(ctx, level); h.err != nil {
			h.off(ctx)
			return
		}
	}
	if h.out != nil && h.out.p == p {
		h.out.ends = true
	} else { // the plan was empty
		h.a.observe(p, h.x)
	}
}

// onlyCreates reports that the plan changes and removes nothing, but for openings of closed interfaces: they are held until the end.
func (p *planner) onlyCreates() bool {
	for _, v := range p.touched {
		switch {
		case v.plan.action == Create && !v.rebind:
		case v.plan.action == Update && !v.unsure && v.last():
		case v.plan.action != None || v.unsure || v.have != nil && v.ours && v.want == nil:
			return false
		}
	}
	return true
}

// releaseHeld adds the held values to the current plan.
func (h *ahead) releaseHeld() {
	for _, v := range h.held {
		h.x.p.touch(v)
	}
	h.held = nil
}

// off defers all further work to the end.
func (h *ahead) off(ctx context.Context) {
	if err := h.drain(ctx); err != nil {
		h.err = err
	}
	was := h.x.p
	h.on, h.x.p = false, h.a.newPlanner()
	for _, v := range was.touched {
		h.x.p.touch(v)
	}
	h.releaseHeld()
}

// compareObjects finds the objects that VPP had of the plan's values at the start; nobody added to them since. It reports whether they
// are known: a dump of a kind with few values is handled only once.
func (h *ahead) compareObjects(p *planner) bool {
	of := map[*kind][]*value{}
	for _, v := range p.touched {
		if v.kind != nil && v.want != nil && v.have == nil {
			of[v.kind] = append(of[v.kind], v)
		}
	}
	for k, values := range of {
		if !k.Many {
			return false
		}
		c := some{candidates{h.a.g, k}, values}
		for _, r := range k.Dumps(h.a.g.world, c, h.known) {
			if !h.known.Has(r.ID) {
				return false
			}
		}
		found, err := k.Retrieve(h.a.g.world, h.known, c)
		if err != nil {
			return false
		}
		for i := range found {
			f := &found[i]
			if v := h.a.g.values[f.Key]; !f.Foreign && v != nil && v.want != nil && v.have == nil {
				h.a.takeFound(h.x.p, k, f, v)
			}
		}
	}
	return true
}

// some passes a few values of a kind to its descriptor.
type some struct {
	candidates
	values []*value
}

func (s some) Each(f func(key string, state any, wanted bool)) {
	for _, v := range s.values {
		f(v.key, v.want, true)
	}
}

// endPortions executes the steps that had to wait for the last portion.
func (h *ahead) endPortions(ctx context.Context, unsaid map[string]struct{}) {
	a := h.a
	if h.on {
		if h.err = h.drain(ctx); h.err != nil {
			h.off(ctx)
		} else {
			h.plan()
			h.releaseHeld()
		}
	}
	p := h.x.p
	for key := range unsaid {
		if v := a.g.values[key]; v != nil && v.msg != nil {
			a.putDesired(v, nil, p.touch)
		}
	}
	a.g.world.Stated = true
	touchSuspects(p)
	switch {
	case h.err != nil:
	case h.on: // VPP may have refused a creation
		h.err = a.refreshUnsure(ctx, p)
	default: // some values are not compared yet
		if h.x.c.Writes > 0 {
			h.known = nil // outdated
		}
		_, h.err = a.lookAll(ctx, p, h.known)
	}
	if h.err != nil {
		for _, k := range a.g.kinds {
			for _, v := range k.values {
				if !v.steady() {
					p.touch(v)
				}
			}
		}
	}
	a.complete(ctx, h.x, h.err)
}
