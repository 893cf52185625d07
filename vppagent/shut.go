package vppagent

import (
	"context"
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

// Closed until evaluated (ADR 14). VPP forwards whatever comes in by an interface without access lists, so that two orders hold:
//
//	no lists yet    deny everything ─▶ all other puts: access lists, NAT44, mappings ─▶ the lists that are wanted
//	nobody's yet    deny everything ─▶ (a value comes) ─▶ as above

// shut plans what comes before everything else: that nothing passes where there is nothing yet, if it may be a pod's.
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
			continue // nothing passes an interface that is not made yet
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
	if len(steps) == 0 {
		return nil
	}
	if len(on) == 0 {
		return [][]Step{steps}
	}
	return [][]Step{on, steps}
}

// closeEarly closes what may be a pod's, and has no lists, before it is known what is wanted: nothing else is changed.
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
	for _, key := range slices.Sorted(maps.Keys(a.unknown)) {
		v := a.unknown[key]
		if v.want == nil || !v.kind.Stands.Shuts(v.want) {
			continue
		}
		for _, d := range v.deps[v.hard:] {
			create(d)
		}
		create(v)
	}
	rest := x.p
	x.p = p // what a refusal leads to belongs to this plan while it is carried out
	err := x.execute(ctx, p.shut())
	x.p = rest
	for _, v := range p.touched {
		rest.touch(v)
	}
	return err
}

// stands reports that VPP has all of some values already.
func (p *planner) stands(list []*value) bool {
	for _, d := range list {
		if p.isPut(d) || !p.g.exists(d) {
			return false
		}
	}
	return true
}

// last reports that v is put after all others: something passes where nothing passed before.
func (v *value) last() bool {
	if v.kind.Stands == nil {
		return false
	}
	return v.plan.shut != nil || v.have != nil && v.kind.Stands.Shuts(v.have)
}

// denyUnknown closes the interfaces that may be a pod's while no value says what may pass them, and no longer.
//
// Untagged interfaces are closed only when it is known which are the node's: with its way to the API server closed, an agent
// would never learn.
func (a *Agent) denyUnknown(touch func(*value)) {
	if !a.cfg.DenyUnknown {
		return
	}
	now := map[string]*value{}
	for _, i := range acl.Unknown(a.g.world, a.roles != nil) {
		if d := acl.Closed(i.Name); !a.spokenOf(i) {
			now[d.Key] = a.g.node(d.Key)
			a.g.give(d.Key, d.State, touch)
		}
	}
	for key := range a.unknown {
		if now[key] == nil {
			a.g.give(key, nil, touch)
		}
	}
	a.unknown = now
}

// learnAddressed finds out which of the interfaces that may be a pod's by their kind have an address: those are somebody's own.
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
	return acl.LearnAddressed(ctx, a.cfg.Caller.Do, ask)
}

// spokenOf reports that an interface is the node's, or that a value speaks of it.
func (a *Agent) spokenOf(i *descriptor.Iface) bool {
	for _, name := range []string{i.Name, i.VPPName, i.Tag} {
		if name == "" {
			continue
		}
		if a.roles[name] {
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

// speaks reports that an interface is wanted, or something on it beside its access lists and the translation of services.
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

// ofPods reports that interfaces of pods have such a value, too.
func (k *kind) ofPods(state any, iface string) bool {
	return k.Dependencies != nil && slices.ContainsFunc(k.Dependencies(state), func(d descriptor.Dependency) bool { return d.Key == iface && d.Pods })
}

// learnRoles keeps which interfaces are the node's.
func (a *Agent) learnRoles(l *event.Located) {
	roles := map[string]bool{}
	for _, name := range append([]string{l.Uplink, l.Overlay, l.Host}, l.Node...) {
		if name != "" {
			roles[name] = true
		}
	}
	if a.cfg.DenyUnknown && (a.roles == nil || !maps.Equal(roles, a.roles)) {
		a.roles = roles
		a.InterfacesChanged() // others are closed now, and these are not
	}
}
