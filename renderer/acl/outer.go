package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// exposure is a port of a pod that hidden clients reach.
type exposure struct {
	proto uint8
	port  uint16
}

func (e exposure) compare(o exposure) int {
	if e.proto != o.proto {
		return int(e.proto) - int(o.proto)
	}
	return int(e.port) - int(o.port)
}

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
					r.exposed[b.Addr()] = append(r.exposed[b.Addr()], exposure{o.Proto, b.Port()})
				}
			}
		}
		r.fixKept()
		fixFronts(r)
	}
	for _, i := range r.ifaces {
		var now []exposure
		for _, a := range i.addrs {
			now = append(now, r.exposed[a]...)
		}
		slices.SortFunc(now, exposure.compare)
		if now = slices.Compact(now); !slices.Equal(now, i.exposed) {
			i.exposed = now
			r.dirty.ifaces[i] = struct{}{}
		}
	}
}

// hairpins returns the table for packets from a pod to itself through a Service.
func (r *Renderer) hairpins(i *iface) []place {
	if len(i.exposed) == 0 {
		r.unfix(hairpinTable(i.name))
		return r.optional(hairpinAll)
	}
	r.fixTable(r.hairpinTable(hairpinTable(i.name), i.exposed))
	return r.optional(hairpinTable(i.name))
}

// optional returns the place of a table, if it has a rule.
func (r *Renderer) optional(name string) []place {
	t := r.fixed[name]
	if t == nil || len(t.rules) == 0 {
		return nil
	}
	return []place{{table: name, denies: t.denies()}}
}

func hairpinTable(iface string) string { return hairpinAll + "-" + nameOf(iface) }

// hairpinTable permits clients with the addresses of hairpins, except to some ports.
func (r *Renderer) hairpinTable(name string, but []exposure) *table {
	t := &table{name: name}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "the pod itself, by way of a service"}
	for _, a := range r.node.Hairpin {
		for _, proto := range []uint8{match.TCP, match.UDP} {
			left := []match.Span{match.AllPorts}
			for _, e := range but {
				if e.proto == proto {
					last := left[len(left)-1]
					left = append(left[:len(left)-1], last.Minus(match.Span{Lo: e.port, Hi: e.port})...)
				}
				if len(left) == 0 {
					break
				}
			}
			for _, ports := range left {
				t.add(match.Atom{Src: netip.PrefixFrom(a, a.BitLen()), Dst: match.FamilyOf(a).All(), Proto: proto, SrcPorts: match.AllPorts, DstPorts: ports}, cause)
			}
		}
	}
	return t
}

// fixKept writes the table of outer addresses that keep their clients: their packets are evaluated where they lead.
func (r *Renderer) fixKept() {
	t := &table{name: keptOuter, egress: true}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "services, which are evaluated where they lead"}
	for k := range r.node.Outer {
		if o := &r.node.Outer[k]; !o.Hides && r.view(match.FamilyOf(o.Addr)) == dataplane.PreDNAT {
			t.add(outerAtom(o, match.Allow, match.FamilyOf(o.Addr).All()), cause)
		}
	}
	if had := len(r.optional(keptOuter)) > 0; had != (len(t.rules) > 0) {
		r.relistEgress()
	}
	r.fixTable(t)
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

// outerAtom matches the dialled address and port from src.
func outerAtom(o *dataplane.Outer, v match.Verb, src netip.Prefix) match.Atom {
	return match.Atom{
		Verb: v, Src: src, Dst: netip.PrefixFrom(o.Addr, o.Addr.BitLen()), Proto: o.Proto, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: o.Port, Hi: o.Port},
	}
}

// outer returns the places of outer addresses in the list of a pod with a program for egress.
func (r *Renderer) outer(p *program) []place {
	evaluated := flagged(append(r.optional(outerTable(barred, p)), r.optional(outerTable(led, p))...), true, false)
	return append(evaluated, flagged(r.optional(keptOuter), false, true)...)
}

func outerTable(kind string, p *program) string { return kind + "-" + nameOf(p.key) }

// evaluateOuter evaluates packets to outer addresses, for the programs that changed, and for all that use a changed set.
func (r *Renderer) evaluateOuter(programs map[*program]struct{}) {
	for p := range programs {
		if r.outbound[p] == nil {
			r.unfix(outerTable(barred, p))
			r.unfix(outerTable(led, p))
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
	no, yes := &table{name: outerTable(barred, p)}, &table{name: outerTable(led, p), egress: true}
	froms := []netip.Addr{{}}
	if !p.steps.IgnoresSources() {
		froms = r.outbound[p].sources
	}
	for _, src := range froms {
		known := map[netip.Addr][]rect{}
		for k := range r.node.Outer {
			o := &r.node.Outer[k]
			f := match.FamilyOf(o.Addr)
			if !o.Hides || r.view(f) != dataplane.PreDNAT || src.IsValid() && match.FamilyOf(src) != f {
				continue
			}
			from := f.All()
			if src.IsValid() {
				from = netip.PrefixFrom(src, src.BitLen())
			}
			by := r.backendsBar(p, src, o, known)
			switch {
			case by != nil && !r.dialledBarred(p, src, o, known, true):
				no.add(outerAtom(o, match.Deny, from), by)
			case by == nil && r.dialledBarred(p, src, o, known, false):
				yes.add(outerAtom(o, match.Allow, from), &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "a service that leads only where policies allow"})
			}
		}
	}
	for _, t := range []*table{no, yes} {
		had := len(r.optional(t.name)) > 0
		switch {
		case len(t.rules) > 0:
			r.fixTable(t)
		case had:
			r.unfix(t.name)
		}
		if had != (len(t.rules) > 0) {
			r.relist(p)
		}
	}
}

// backendsBar returns why one of the backends is denied; nil: all are allowed.
func (r *Renderer) backendsBar(p *program, src netip.Addr, o *dataplane.Outer, known map[netip.Addr][]rect) *dataplane.Cause {
	for _, b := range o.Backends {
		if c := r.bars(p.steps, src, b, o.Proto, known, false); c != nil {
			return c
		}
	}
	return nil
}

// dialledBarred reports whether the dialled address is denied without a table of outer addresses: for all source ports (wholly),
// or for some at least.
func (r *Renderer) dialledBarred(p *program, src netip.Addr, o *dataplane.Outer, known map[netip.Addr][]rect, wholly bool) bool {
	for _, f := range r.node.Frontends {
		if f.Contains(o.Addr) && (!f.IsSingleIP() || !slices.Contains(r.node.Addrs, o.Addr)) {
			return false
		}
	}
	return r.bars(p.steps, src, netip.AddrPortFrom(o.Addr, o.Port), o.Proto, known, wholly) != nil
}

// bars returns why a program denies a port, from all source ports (wholly), or from some at least; nil: it does not.
func (r *Renderer) bars(p policy.Steps, src netip.Addr, to netip.AddrPort, proto uint8, known map[netip.Addr][]rect, wholly bool) *dataplane.Cause {
	denied, ok := known[to.Addr()]
	if !ok {
		denied = r.denies(p.Each, src, to.Addr())
		known[to.Addr()] = denied
	}
	for _, d := range denied {
		if d.proto == proto && d.dport.Lo <= to.Port() && to.Port() <= d.dport.Hi && (!wholly || d.sport == match.AllPorts) {
			return d.cause
		}
	}
	return nil
}

// unfix removes a table without a segment.
func (r *Renderer) unfix(name string) {
	if r.fixed[name] != nil {
		delete(r.fixed, name)
		r.dirty.tables[name] = struct{}{}
	}
}
