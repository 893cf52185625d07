package vppagent

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// The order law for values that stand on other values, as the lists of an interface stand on access lists: VPP gets from before
// to after by one message, or by several messages whose steps all change packets in the same direction.
//
//	one value changes          in place: one message, and all that stands on it changes in one moment
//	several, the same way      in place: whoever looks in between sees something from before to after
//	several, different ways    second objects beside the first ones ─▶ what stands on them is switched ─▶ the first ones go
//	one that many stand on     the same, if VPP would forward nothing for too long otherwise (package cost)

// settled reports that everything v stands on is wanted and was not replaced beside since.
func (g *graph) settled(v *value) bool {
	if v.kind.Stands == nil {
		return true
	}
	for _, d := range v.deps[v.hard:] {
		if d.want == nil {
			return false
		}
	}
	return v.kind.Stands.Settled(g.world, v.have)
}

// touchFollowers touches the values that must be planned again because of v.
func (p *planner) touchFollowers(v *value) {
	if v.kind.Replace != nil || v.kind.Stands == nil && v.outlives > 0 { // the values that wait for it
		for d := range v.dependents {
			if len(d.held) > 0 {
				p.mark(d)
			}
		}
	}
	if v.plan.action != None && v.kind.Stands != nil { // the objects that it will stop using
		for _, u := range v.uses {
			if u.kind != nil && u.have != nil && u.kind.Replace != nil && u.kind.Replace.Stale(u.have) {
				p.mark(u)
			}
		}
	}
}

// layBeside chooses the values that are replaced beside, and switches all values that stand on them.
func (p *planner) layBeside() {
	var queue []*value
	queued := map[*value]bool{}
	usersOf := func(v *value) {
		for u := range v.users {
			if !queued[u] {
				queued[u] = true
				queue = append(queue, u)
			}
		}
	}
	lay := func(v *value) {
		v.plan.beside = true
		for s := range v.users {
			p.switchOver(s)
		}
		p.remakeNeeders(v)
		usersOf(v)
	}
	for _, v := range slices.Clone(p.touched) {
		switch {
		case !p.changesObject(v):
		case p.costly(v):
			lay(v)
		default:
			usersOf(v)
		}
	}
	for len(queue) > 0 {
		u := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		queued[u] = false
		if !p.torn(u) {
			continue
		}
		for _, v := range u.uses {
			if p.changesObject(v) && !v.plan.beside {
				lay(v)
			}
		}
	}
}

// costly reports that changing v in place would stop VPP for too long, and that switching each interface to a second object stops it for
// less long.
func (p *planner) costly(v *value) bool {
	inPlace, beside := v.kind.Replace.Cost(p.g.world, v.have, v.want)
	return inPlace > p.g.stall && beside < inPlace && !slices.ContainsFunc(slices.Collect(maps.Keys(v.dependents)), func(d *value) bool { return needs(d, v) })
}

// needs reports that d must be recreated if v is replaced beside.
func needs(d, v *value) bool { return d.kind != nil && d.kind.Stands == nil && !d.onlyAfter(v) }

// remakeNeeders recreates the values that need v and cannot be switched to the second object.
func (p *planner) remakeNeeders(v *value) {
	for d := range v.dependents {
		if needs(d, v) {
			p.alsoRecreate(d)
		}
	}
}

// changesObject reports that the plan changes the content of v's object in VPP.
func (p *planner) changesObject(v *value) bool {
	return v.kind != nil && v.kind.Replace != nil && v.plan.epoch == p.epoch && v.plan.action == Update
}

// torn reports that packets would meet u half changed if the values it stands on were changed in place.
func (p *planner) torn(u *value) bool {
	inPlace := 0
	for _, v := range u.uses {
		if p.changesObject(v) && !v.plan.beside {
			inPlace++
		}
	}
	itself := p.isPut(u) || p.isRemoved(u) || u.want == nil || !u.kind.Equal(u.have, u.want) || !p.g.settled(u)
	if inPlace == 0 || inPlace == 1 && !itself {
		return false
	}
	var want any
	if u.will {
		want = u.want
	}
	if !p.g.settled(u) { // its actual lists are unknown here, or it will be denied everything
		return true
	}
	return u.kind.Stands.Torn(p.g.world, u.have, want, func(key string) (any, any) {
		v := p.g.values[key]
		switch {
		case v == nil:
			return nil, nil
		case p.isPut(v):
			return v.have, v.want
		}
		return v.have, v.have
	})
}

// switchOver makes u change to the second objects of the values it stands on.
func (p *planner) switchOver(u *value) {
	p.mark(u)
	if u.plan.action == None && u.will && u.want != nil {
		u.plan.action = Update
		p.touchFollowers(u)
	}
}

// sweeps are the steps that remove replaced objects once nothing uses them any more.
func (p *planner) sweeps() [][]Step {
	var steps []Step
	for _, v := range p.touched {
		if v.kind == nil || v.kind.Replace == nil || v.plan.action == Delete || v.have == nil {
			continue
		}
		if v.plan.beside || v.kind.Replace.Stale(v.have) {
			steps = append(steps, Step{Action: Update, Key: v.key, v: v, sweep: true})
		}
	}
	if len(steps) == 0 {
		return nil
	}
	return [][]Step{steps}
}

// reach are the requests for the part of a value that the values it stands on allow.
func (x *execution) reach(v *value) ([]descriptor.Op, error) {
	g, on := x.a.g, v.kind.Stands
	v.plan.after, v.held, v.never = on.Reach(g.world, v.have, v.want, g.sure)
	if v.have == nil {
		return v.kind.Create(g.world, v.plan.after)
	}
	if v.kind.Equal(v.have, v.plan.after) && on.Settled(g.world, v.plan.after) {
		return nil, nil
	}
	return v.kind.Update(g.world, v.have, v.plan.after)
}

// sweep are the requests that remove the replaced object of v; ok is false if the replacement failed.
func (x *execution) sweep(v *value) (ops []descriptor.Op, ok bool) {
	if v.plan.err != nil || v.have == nil || v.unsure {
		return nil, false
	}
	ops, v.plan.after = v.kind.Replace.Sweep(x.a.g.world, v.have)
	if !v.kind.Replace.Stale(v.plan.after) && v.want != nil && v.kind.Equal(v.plan.after, v.want) {
		v.plan.after = nil
	}
	return ops, true
}

// guardsOn reports that v, which is to be recreated with the value it is on, has to stay because that value's removal failed.
func (v *value) guardsOn() bool {
	for _, d := range v.deps[:v.outlives] {
		if d.have != nil && d.plan.epoch == v.plan.epoch && d.plan.err != nil {
			return true
		}
	}
	return false
}

// setUses records what v.have stands on: VPP must keep those objects.
func (g *graph) setUses(v *value) {
	if v.kind.Stands == nil {
		return
	}
	var uses []*value
	if v.have != nil {
		for _, d := range v.kind.Dependencies(v.have) {
			if d.Loose {
				uses = append(uses, g.nodeOf(d.Key))
			}
		}
	}
	for _, u := range v.uses {
		if !slices.Contains(uses, u) {
			delete(u.users, v)
			g.collect(u)
		}
	}
	for _, u := range uses {
		if u.users == nil {
			u.users = map[*value]struct{}{}
		}
		u.users[v] = struct{}{}
	}
	v.uses = uses
}

// sure is the actual state of a key if it is certain and equals the desired state; nil otherwise.
func (g *graph) sure(key string) any {
	v := g.values[key]
	if v == nil || v.have == nil || v.unsure || v.want == nil || !v.kind.Equal(v.have, v.want) {
		return nil
	}
	return v.have
}
