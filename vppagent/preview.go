package vppagent

import (
	"context"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vpp/describe"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// Plan returns the plan that Commit would execute, and changes nothing: it works on a copy of the agent, and sends VPP only the
// dumps that Commit would send before it writes.
func (a *Agent) Plan(ctx context.Context, t *event.Txn) (*Plan, error) {
	t = t.Whole()
	c := a.clone()
	p := c.newPlanner()
	c.accept(t, p.touch)
	if err := c.away(); err != nil {
		return nil, err
	}
	if err := c.lookAtVPP(ctx, p, t.Resync); err != nil {
		return nil, err
	}
	c.giveParts(p.touch)
	p.settleValues()
	p.decide()
	plan := &Plan{Levels: p.order(), Foreign: c.foreign()}
	for _, level := range plan.Levels {
		for i := range level {
			level[i].describe(c.g.world)
		}
	}
	for _, v := range p.touched {
		switch {
		case v.bad != nil:
			plan.Invalid = append(plan.Invalid, Note{v.key, v.bad.Error()})
		case v.want != nil && !v.will:
			plan.Pending = append(plan.Pending, Note{v.key, "waits for " + strings.Join(v.missingKeys(), ", ")})
		}
	}
	byKey := func(a, b Note) int { return strings.Compare(a.Key, b.Key) }
	slices.SortFunc(plan.Invalid, byKey)
	slices.SortFunc(plan.Pending, byKey)
	return plan, nil
}

// PlanSessions is Plan with Sessions counted. It asks VPP for the sessions of every removed backend, which stops forwarding
// meanwhile: it serves people who decide, not programs.
func (a *Agent) PlanSessions(ctx context.Context, t *event.Txn) (*Plan, error) {
	plan, err := a.Plan(ctx, t)
	if err != nil {
		return nil, err
	}
	var cut []sessions.Backend
	for _, level := range plan.Levels {
		for _, s := range level {
			switch s.Action {
			case Delete:
				cut = append(cut, nat.Cut(a.g.world, s.v.have, nil)...)
			case Update:
				cut = append(cut, nat.Cut(a.g.world, s.v.have, s.v.want)...)
			}
		}
	}
	n, err := sessions.CountTo(ctx, a.cfg.Caller.Do, cut)
	if err != nil {
		return nil, err
	}
	plan.Sessions = &n
	return plan, nil
}

// describe fills in the messages of a step.
func (s *Step) describe(w *descriptor.World) {
	var ops []descriptor.Op
	var err error
	switch v := s.v; {
	case s.sweep && v.plan.beside:
		s.Unknown = "removes what was replaced, by a number that is known once it is"
	case s.sweep:
		ops, _ = v.kind.Replace.Sweep(w, v.have)
	case s.shut:
		ops, err = v.kind.Create(w, v.plan.shut)
	case s.Action == Create || v.have == nil:
		ops, err = v.kind.Create(w, v.want)
	case s.Action == Delete:
		ops, err = v.kind.Delete(w, v.have)
	case v.plan.beside:
		ops, _ = v.kind.Replace.Make(w, v.have, v.want)
	default:
		ops, err = v.kind.Update(w, v.have, v.want)
	}
	for at := 0; at < len(ops); at++ {
		op := ops[at]
		if len(op.Next) > 0 {
			ops = slices.Insert(slices.Clone(ops), at+1, op.Next...)
		}
		switch {
		case op.Preview != nil:
			s.Messages = append(s.Messages, describe.Request(op.Preview, w.Name))
		case op.Asks && s.v.kind.Stands != nil:
			s.Unknown = "depends on numbers VPP has yet to give"
		default:
			s.Messages = append(s.Messages, describe.Request(op.Call.Msg, w.Name))
		}
	}
	if err != nil {
		s.Unknown = err.Error()
	}
}

// clone returns an agent in the same state that shares only immutable data.
func (a *Agent) clone() *Agent {
	cfg := a.cfg
	cfg.Journal = ""
	c := New(cfg)
	c.stale = a.stale
	for i, k := range a.g.kinds {
		c.g.kinds[i].foreign = k.foreign
	}
	c.state.Store(a.state.Load())
	c.closing.roles = a.closing.roles
	c.g.world.CopyFrom(a.g.world)
	c.copyValues(a.g)
	c.closing.lists = make(map[string]*value, len(a.closing.lists))
	for key := range a.closing.lists {
		c.closing.lists[key] = c.g.nodeOf(key)
	}
	p := c.newPlanner()
	for _, v := range c.g.values {
		p.touch(v)
	}
	p.settleValues()
	return c
}

// copyValues copies the values of a graph into c.
func (a *Agent) copyValues(from *graph) {
	a.g.set = from.set.Clone(a.g.descriptorOf)
	for _, v := range from.values {
		n := a.g.nodeOf(v.key)
		n.msg, n.bad, n.want = v.msg, v.bad, v.want
		n.have, n.ours, n.unsure, n.tried, n.rebind = v.have, v.ours, v.unsure, v.tried, v.rebind
		n.held, n.never = v.held, v.never
		if v.base != nil {
			n.base = a.g.nodeOf(v.base.key)
		}
		for _, d := range v.derived {
			n.derived = append(n.derived, a.g.nodeOf(d.key))
		}
	}
	for key := range from.values {
		if n := a.g.values[key]; n.want != nil || n.have != nil || n.unsure {
			a.g.setDeps(n)
			a.g.setUses(n)
		}
	}
}

// Wanted returns all values of the desired state by key. Do not change the messages.
func (a *Agent) Wanted() map[string]proto.Message {
	out := map[string]proto.Message{}
	for key, v := range maps.All(a.g.values) {
		if v.msg != nil {
			out[key] = v.msg
		}
	}
	return out
}
