package vppagent

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// A resync that comes in portions is carried out ahead: while VPP is at work on one portion, the next is rendered, compiled
// and planned.
//
//	portions ─▶ compared with what VPP had ─▶ creations ─▶ stream ─▶ VPP     as long as there is nothing else to do
//	the end  ─▶ all that is left: changes, removals, and creations after them   as in any other transaction
//
// Nothing is changed or removed before the end: what VPP has and nobody spoke of yet may be wanted by a later portion. And
// as soon as there is such a thing, creations wait for the end as well, because then their order matters.

// ahead is what is carried out before all is said.
type ahead struct {
	stream
	a    *Agent
	on   bool     // what was said so far is in VPP, or on its way
	err  error    // VPP cannot be reached
	held []*value // what is put when everything else is
	// known is what VPP had at the beginning of kinds with thousands of values.
	known *descriptor.Dump
}

// commitPortions is Commit of a full resync with a Rest.
func (a *Agent) commitPortions(ctx context.Context, t *event.Txn) *event.Committed {
	x := &execution{a: a, c: &event.Committed{Seq: t.Seq, Cause: t.Cause, Resync: t.Resync, Triggered: t.Triggered}, began: a.cfg.Now()}
	unsaid := map[string]struct{}{}
	for key, v := range a.g.values {
		if v.msg != nil {
			unsaid[key] = struct{}{}
		}
	}
	h := &ahead{a: a, stream: stream{x: x}}
	h.begin(ctx, t.Values)
	say(unsaid, t.Values)
	for portion := range t.Rest {
		h.portion(ctx, portion)
		say(unsaid, portion)
	}
	h.end(ctx, unsaid)
	return x.c
}

// say notes which keys were spoken of.
func say(unsaid map[string]struct{}, values map[string]proto.Message) {
	if len(unsaid) == 0 {
		return
	}
	for key := range values {
		delete(unsaid, key)
	}
}

// begin looks what VPP has, and carries out the first portion.
func (h *ahead) begin(ctx context.Context, values map[string]proto.Message) {
	p := h.plan()
	h.a.told = true
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

// portion takes over what a later portion wants, and carries it out unless that has to wait.
func (h *ahead) portion(ctx context.Context, values map[string]proto.Message) {
	if h.on {
		h.plan()
	}
	p := h.x.p
	h.a.want(values, p.touch)
	switch {
	case !h.on:
	case p.collided || !h.compare(p):
		h.off(ctx)
	default:
		h.carryOut(ctx)
	}
}

// plan begins the plan of a portion.
func (h *ahead) plan() *planner {
	p := h.a.newPlanner()
	if h.out != nil {
		p.onWay = h.out.p.epoch
	}
	h.x.p = p
	return p
}

// carryOut sends the creations of the present plan, unless it has something else as well.
func (h *ahead) carryOut(ctx context.Context) {
	p := h.x.p
	h.a.denyUnknown(p.touch)
	p.settle()
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
	} else { // there was nothing to do
		h.a.observe(p, h.x)
	}
}

// onlyCreates reports that nothing VPP has is to be changed or removed.
func (p *planner) onlyCreates() bool {
	for _, v := range p.touched {
		switch {
		case v.plan.action == Create && !v.rebind:
		case v.plan.action != None || v.unsure || v.have != nil && v.ours && v.want == nil:
			return false
		}
	}
	return true
}

// release makes what was held part of the present plan.
func (h *ahead) release() {
	for _, v := range h.held {
		h.x.p.touch(v)
	}
	h.held = nil
}

// off leaves everything from here on to the end.
func (h *ahead) off(ctx context.Context) {
	if err := h.drain(ctx); err != nil {
		h.err = err
	}
	was := h.x.p
	h.on, h.x.p = false, h.a.newPlanner()
	for _, v := range was.touched {
		h.x.p.touch(v)
	}
	h.release()
}

// compare finds what VPP had of the values of a plan when all began; nobody added to them since. It reports whether that is
// known: of a kind with few values what was dumped is read once only.
func (h *ahead) compare(p *planner) bool {
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

// some shows a few values of a kind to its descriptor.
type some struct {
	candidates
	values []*value
}

func (s some) Each(f func(key string, state any, wanted bool)) {
	for _, v := range s.values {
		f(v.key, v.want, true)
	}
}

// end does what could not be done ahead: all is said by now.
func (h *ahead) end(ctx context.Context, unsaid map[string]struct{}) {
	a := h.a
	if h.on {
		if h.err = h.drain(ctx); h.err != nil {
			h.off(ctx)
		} else {
			h.plan()
			h.release()
		}
	}
	p := h.x.p
	for key := range unsaid {
		if v := a.g.values[key]; v != nil && v.msg != nil {
			a.put(v, nil, p.touch)
		}
	}
	switch {
	case h.err != nil:
	case h.on: // a creation may have been refused
		h.err = a.refreshUnsure(ctx, p)
	default: // some of what was said is not compared yet
		if h.x.c.Writes > 0 {
			h.known = nil // not true any more
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
