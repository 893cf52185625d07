package vppagent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
)

// Closed until evaluated (ADR 14). VPP forwards everything that enters by an interface without access lists, so two orders hold:
//
//	no lists yet    deny everything ─▶ all other puts: access lists, NAT44, mappings ─▶ the lists that are wanted
//	nobody's yet    deny everything ─▶ (a value comes) ─▶ as above
//
// An interface that VPP had open is closed for answerTime at least. A server answers a datagram that VPP still forwarded a little later, and by an
// open interface that answer would be the first packet of a permitted flow: VPP would make a session, and admit the client as long as it sends.

const answerTime = 20 * time.Millisecond // most servers have answered a datagram by then

// closing is what the agent knows of interfaces that may be a pod's.
type closing struct {
	lists map[string]*value // the access lists of the interfaces that are closed until a value names them, by key
	roles map[string]bool   // the node's interfaces, by name; nil: not known yet
	moved bool              // roles has changed, and no plan has considered it yet
	at    time.Time         // when the agent last closed an interface that was open
}

// shut plans the first steps: interfaces that may be a pod's and have no lists yet get lists that deny everything.
func (p *planner) shut() [][]Step {
	var on, steps []Step
	for _, v := range p.puts {
		if v.plan.action != Create || v.kind.Stands == nil || v.have != nil || v.rebind || p.g.set.Given(v.key) == nil {
			continue
		}
		state := v.kind.Stands.Shut(v.want)
		if state == nil {
			continue
		}
		outlived, needed, loose := p.g.dependencies(v.kind, state)
		if !p.stands(outlived) || !p.stands(needed) {
			continue // nothing passes an interface that does not exist yet
		}
		v.plan.shut, v.plan.first = state, v.kind.Equal(state, v.want)
		for _, d := range loose {
			if d.plan.epoch == p.epoch && d.plan.action == Create && !d.plan.first {
				d.plan.first = true
				on = append(on, Step{Action: Create, Key: d.key, v: d})
			}
		}
		steps = append(steps, Step{Action: Create, Key: v.key, v: v, shut: true})
	}
	return slices.DeleteFunc([][]Step{on, steps}, func(level []Step) bool { return len(level) == 0 })
}

// closeEarly closes the interfaces that may be a pod's and have no lists, before the desired state is known. It changes nothing else.
func (x *execution) closeEarly(ctx context.Context) error {
	a := x.a
	p := a.newPlanner()
	create := func(v *value) {
		if v.have == nil && !v.unsure {
			p.mark(v)
			v.plan.action = Create
			p.puts = append(p.puts, v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.closing.lists)) {
		v := a.closing.lists[key]
		if v.want == nil || !v.kind.Stands.Shuts(v.want) {
			continue
		}
		for _, d := range v.deps[v.hard:] {
			create(d)
		}
		create(v)
	}
	rest := x.p
	x.p = p // consequences of a refusal belong to this plan during its execution
	err := x.execute(ctx, p.shut())
	x.p = rest
	for _, v := range p.touched {
		rest.touch(v)
	}
	return err
}

// stands reports that VPP already has all of the values.
func (p *planner) stands(list []*value) bool {
	return !slices.ContainsFunc(list, func(d *value) bool { return p.isPut(d) || !p.g.exists(d) })
}

// last reports that v is put after all others: it opens an interface that was closed before.
func (v *value) last() bool {
	if v.kind.Stands == nil {
		return false
	}
	return v.plan.shut != nil || v.have != nil && v.kind.Stands.Shuts(v.have)
}

// awaitAnswers waits before a level that opens interfaces, until the last closing is answerTime ago.
func (x *execution) awaitAnswers(ctx context.Context, level []Step) {
	wait := answerTime - x.a.cfg.Now().Sub(x.a.closing.at)
	if x.a.cfg.Pause != nil && wait > 0 && slices.ContainsFunc(level, func(s Step) bool { return s.Action != Delete && !s.shut && s.v.last() }) {
		x.a.cfg.Pause(ctx, wait)
	}
}

// giveParts gives values the parts that follow from VPP's interfaces. It arranges NAT44 on those of pods, and closes those that may be a pod's, until a value
// states what may pass them.
//
// It closes untagged interfaces only when the node's interfaces are known: an agent that closed its own path to the API server
// would never learn them.
//
// Its work grows with the interfaces, so that a plan of other values skips it.
func (a *Agent) giveParts(touch func(*value)) {
	if !a.g.partsDue {
		return
	}
	a.g.partsDue, a.closing.moved = false, false
	if k := a.g.kindOf(kv.Nat44InterfaceKey("any")); k != nil {
		for _, v := range slices.Clone(k.values) {
			if !v.unsure { // else when VPP has been asked
				a.g.give(v.key, nat.PodPart(a.g.world, v.want, v.have), touch)
			}
			if v.have != nil && v.want != nil && !v.ours && k.Equal(v.have, v.want) {
				a.setHave(v, v.want, true) // with the part VPP has what is wanted: adopted without a write
			}
		}
	}
	if !a.cfg.DenyUnknown {
		return
	}
	now := map[string]*value{}
	for _, i := range acl.Unknown(a.g.world, a.closing.roles != nil) {
		if !a.spokenOf(i) {
			d := acl.Closed(i.Name)
			now[d.Key] = a.g.nodeOf(d.Key)
			a.g.give(d.Key, d.State, touch)
		}
	}
	for key := range a.closing.lists {
		if now[key] == nil {
			a.g.give(key, nil, touch)
		}
	}
	a.closing.lists = now
}

// learnAddressed finds which of the interfaces that may be a pod's by their kind have an address: those belong to another owner.
func (a *Agent) learnAddressed(ctx context.Context) error {
	if !a.cfg.DenyUnknown {
		return nil
	}
	var ask []*descriptor.Iface
	for _, i := range acl.Unknown(a.g.world, true) {
		if !a.g.set.Said(kv.InterfaceACLsKey(i.Name)) {
			ask = append(ask, i)
		}
	}
	return acl.LearnAddressed(ctx, a.check.answers.Do, ask)
}

// spokenOf reports that an interface is the node's, or that a value names it.
func (a *Agent) spokenOf(i *descriptor.Iface) bool {
	for _, name := range slices.Compact([]string{i.VPPName, i.Name, i.Tag}) { // the name in values is one of the others
		if name == "" {
			continue
		}
		if a.closing.roles[name] {
			return true
		}
		if name != i.Name && a.g.set.Said(kv.InterfaceACLsKey(name)) {
			return true
		}
		if v := a.g.values[kv.InterfaceKey(name)]; v != nil && v.speaks() {
			return true
		}
	}
	return false
}

// speaks reports that an interface is wanted, or that a value on it is wanted other than access lists and the translation of Services.
func (v *value) speaks() bool {
	if v.want != nil {
		return true
	}
	for d := range v.dependents {
		if d.want != nil && d.kind != nil && !d.kind.ofPods(d.want, v.key) {
			return true
		}
	}
	return false
}

// ofPods reports that interfaces of pods have values of this kind, too. Every plan asks it for every interface, so the kind remembers the answer.
func (k *kind) ofPods(state any, iface string) bool {
	if k.pods == nil {
		is := k.Dependencies != nil && slices.ContainsFunc(k.Dependencies(state), func(d descriptor.Dependency) bool { return d.Key == iface && d.Pods })
		k.pods = &is
	}
	return *k.pods
}

// learnRoles records which interfaces are the node's.
func (a *Agent) learnRoles(l *event.Located) {
	roles := map[string]bool{}
	for _, name := range append([]string{l.Uplink, l.Overlay, l.Host}, l.Node...) {
		if name != "" {
			roles[name] = true
		}
	}
	if a.cfg.DenyUnknown && (a.closing.roles == nil || !maps.Equal(roles, a.closing.roles)) {
		a.closing.roles, a.closing.moved, a.g.partsDue = roles, true, true
		a.poke() // the set of closed interfaces changes
	}
}
