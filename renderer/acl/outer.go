package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A packet behind an outer address that hides its clients does not show two facts any more.
//
// The client: a pod that reaches itself through a Service has the same address then, and the table of hairpins admits it. At
// ports that hidden clients reach, only policies admit that address.
//
// The pod whose egress it is: so the packet is evaluated where the pod dials, by the result for all backends together. Two tables
// per program list the addresses where that differs from the result for the dialled address.

// expose records the backends of outer addresses, and marks interfaces whose exposure changed.
func (r *Renderer) expose() {
	if r.dirty.outer {
		clear(r.exposed)
		clear(r.behind)
		for k := range r.node.Outer {
			o := &r.node.Outer[k]
			for _, b := range o.Backends {
				if r.behind[b.Addr()] = struct{}{}; o.Hides {
					r.exposed[b.Addr()] = append(r.exposed[b.Addr()], node.Exposure{Proto: o.Proto, Port: b.Port()})
				}
			}
		}
		r.fixKept()
		fixFronts(r)
	}
	for _, i := range r.ifaces {
		var now []node.Exposure
		for _, a := range i.addrs {
			now = append(now, r.exposed[a]...)
		}
		slices.SortFunc(now, node.Exposure.Compare)
		if now = slices.Compact(now); !slices.Equal(now, i.exposed) {
			i.exposed = now
			r.dirty.ifaces[i] = struct{}{}
		}
	}
}

// hairpins returns the table for packets from a pod to itself through a Service.
func (r *Renderer) hairpins(i *iface) []lists.Place {
	if len(i.exposed) == 0 {
		r.store.Unfix(hairpinTable(i.name))
		return r.optional(table.HairpinAll)
	}
	r.store.Fix(r.node.HairpinTable(hairpinTable(i.name), i.exposed))
	return r.optional(hairpinTable(i.name))
}

// fixed stores a table without a segment, and returns its place, if it has a rule.
func (r *Renderer) fixed(t *table.Table) []lists.Place {
	r.store.Fix(t)
	return r.optional(t.Name)
}

// optional returns the place of a table, if it has a rule.
func (r *Renderer) optional(name string) []lists.Place {
	t := r.store.Fixed(name)
	if t == nil || len(t.Rules) == 0 {
		return nil
	}
	return []lists.Place{{Table: name, Denies: t.Denies()}}
}

func hairpinTable(iface string) string { return table.HairpinAll + "-" + table.NameOf(iface) }

// fixKept writes the table of outer addresses that keep their clients: their packets are evaluated where they lead.
func (r *Renderer) fixKept() {
	t := &table.Table{Name: table.KeptOuter, Egress: true}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "services, which are evaluated where they lead"}
	for k := range r.node.Outer {
		if o := &r.node.Outer[k]; !o.Hides && r.node.View(match.FamilyOf(o.Addr)) == dataplane.PreDNAT {
			t.Add(node.OuterAtom(o, match.Allow, match.FamilyOf(o.Addr).All()), cause)
		}
	}
	if had := len(r.optional(table.KeptOuter)) > 0; had != (len(t.Rules) > 0) {
		r.relistEgress()
	}
	r.store.Fix(t)
}

// relistEgress marks the interfaces that have a program for egress.
func (r *Renderer) relistEgress() {
	for _, i := range r.ifaces {
		if i.progs[1] != nil {
			r.dirty.ifaces[i] = struct{}{}
		}
	}
}

// relist marks the interfaces that have a program.
func (r *Renderer) relist(p *program) {
	for i := range p.users {
		r.dirty.ifaces[i] = struct{}{}
	}
}

// outer returns the places of outer addresses in the list of a pod with a program for egress.
func (r *Renderer) outer(p *program) []lists.Place {
	evaluated := lists.Flagged(append(r.optional(outerTable(table.Barred, p)), r.optional(outerTable(table.Led, p))...), true, false)
	return append(evaluated, lists.Flagged(r.optional(table.KeptOuter), false, true)...)
}

func outerTable(kind string, p *program) string { return kind + "-" + table.NameOf(p.key) }

// evaluateOuter evaluates packets to outer addresses, for the programs that changed, and for all that use a changed set.
func (r *Renderer) evaluateOuter(programs map[*program]struct{}) {
	for p := range programs {
		if r.outbound[p] == nil {
			r.store.Unfix(outerTable(table.Barred, p))
			r.store.Unfix(outerTable(table.Led, p))
			r.relist(p)
		}
	}
	for p := range r.outbound {
		if _, changed := programs[p]; changed || r.dirty.outer || r.asksBehind(p) {
			r.fixOuter(p)
		}
	}
	r.dirty.outer = false
}

// asksBehind reports whether members changed in a set that a program may use for backends of outer addresses.
func (r *Renderer) asksBehind(p *program) bool {
	if len(r.node.Outer) == 0 {
		return false
	}
	for id, members := range r.dirty.members {
		if !p.steps.NamesSet(id) {
			continue
		}
		for _, m := range members {
			if _, is := r.behind[m.Addr()]; is || !m.IsSingleIP() || !p.steps.IgnoresSources() {
				return true
			}
		}
		if r.dialled(members) {
			return true
		}
	}
	return false
}

// dialled reports whether one of the addresses is an outer one.
func (r *Renderer) dialled(members []netip.Prefix) bool {
	return slices.ContainsFunc(members, func(m netip.Prefix) bool {
		return slices.ContainsFunc(r.node.Outer, func(o dataplane.Outer) bool { return m.Contains(o.Addr) })
	})
}

// fixOuter writes the tables of a program: addresses that all backends allow although the dialled address would be denied, and
// addresses that one backend denies although the dialled address would be allowed.
func (r *Renderer) fixOuter(p *program) {
	no, yes := &table.Table{Name: outerTable(table.Barred, p)}, &table.Table{Name: outerTable(table.Led, p), Egress: true}
	froms := []netip.Addr{{}}
	if !p.steps.IgnoresSources() {
		froms = r.outbound[p].sources
	}
	for _, src := range froms {
		sender := denial.NewSender(r.sets, p.steps.Each, src)
		for k := range r.node.Outer {
			o := &r.node.Outer[k]
			f := match.FamilyOf(o.Addr)
			if !o.Hides || r.node.View(f) != dataplane.PreDNAT || src.IsValid() && match.FamilyOf(src) != f {
				continue
			}
			from := f.All()
			if src.IsValid() {
				from = netip.PrefixFrom(src, src.BitLen())
			}
			by := backendsBar(sender, o)
			switch {
			case by != nil && !r.dialledBarred(sender, o, true):
				no.Add(node.OuterAtom(o, match.Deny, from), by)
			case by == nil && r.dialledBarred(sender, o, false):
				yes.Add(node.OuterAtom(o, match.Allow, from), &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "a service that leads only where policies allow"})
			}
		}
	}
	for _, t := range []*table.Table{no, yes} {
		had := len(r.optional(t.Name)) > 0
		switch {
		case len(t.Rules) > 0:
			r.store.Fix(t)
		case had:
			r.store.Unfix(t.Name)
		}
		if had != (len(t.Rules) > 0) {
			r.relist(p)
		}
	}
}

// backendsBar returns why one of the backends is denied; nil: all are allowed.
func backendsBar(s *denial.Sender, o *dataplane.Outer) *dataplane.Cause {
	for _, b := range o.Backends {
		if c := s.Denied(b, o.Proto, false); c != nil {
			return c
		}
	}
	return nil
}

// dialledBarred reports whether the dialled address is denied without a table of outer addresses: for all source ports (wholly),
// or for some at least.
func (r *Renderer) dialledBarred(s *denial.Sender, o *dataplane.Outer, wholly bool) bool {
	for _, f := range r.node.Frontends {
		if f.Contains(o.Addr) && (!f.IsSingleIP() || !slices.Contains(r.node.Addrs, o.Addr)) {
			return false
		}
	}
	return s.Denied(netip.AddrPortFrom(o.Addr, o.Port), o.Proto, wholly) != nil
}
