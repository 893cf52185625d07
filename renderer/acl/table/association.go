package table

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// VPP's access lists compare ports of TCP and UDP only. A filter that the packets of an interface meet beside its lists evaluates
// rules about ports of SCTP, once for each association, by its first packet (ADR 11):
//
//	programs ─┬─▶ tables, as ever: what asks for ports of SCTP allows nothing, or denies all of it ─▶ lists
//	          └─▶ associations: the same for SCTP alone, with its ports, exactly ─┬─▶ SCTPPorts
//	                                                                              └─▶ an access list for their addresses,
//	                                                                                  the first of its direction
//
// An interface without policies that name ports of SCTP has neither.

// Association is a rule about new SCTP associations. Both prefixes are of one family.
type Association struct {
	Permit             bool
	Src, Dst           netip.Prefix
	SrcPorts, DstPorts match.Span
	Cause              *dataplane.Cause
	asks               bool // its rule names ports
}

// everything reports whether every association of the family matches.
func (a *Association) everything() bool {
	return a.Src.Bits() == 0 && a.Dst.Bits() == 0 && a.SrcPorts == match.AllPorts && a.DstPorts == match.AllPorts
}

// Same reports whether two rules are equal apart from their causes.
func (a Association) Same(b Association) bool {
	b.Cause, b.asks = a.Cause, a.asks
	return a == b
}

// Filter decides about new associations: those whose packets enter VPP by an interface, and those whose packets leave by it. The first
// rule that matches decides, and a packet without a match is dropped; without rules all may begin. Nil is no filter.
type Filter [2][]Association

// Same reports whether two filters have equal rules.
func (f *Filter) Same(o *Filter) bool {
	if f == nil || o == nil {
		return f == o
	}
	return slices.EqualFunc(f[0], o[0], Association.Same) && slices.EqualFunc(f[1], o[1], Association.Same)
}

// Origin is the source of a part of a list: a table without a segment, or the step of a program.
type Origin struct {
	Table string
	Use
}

// associations returns the segment's rules about SCTP.
func (s *Segment) associations(sets match.Sets) []Association {
	if s.sctp != nil {
		return s.sctp
	}
	s.sctp = []Association{}
	x := &match.Expander{Sets: sets, SCTP: true, Note: func(*match.Clause, string, ...any) {}}
	for i := range s.Clauses {
		c := &s.Clauses[i]
		for _, f := range match.Families {
			for _, a := range x.Expand(nil, c, f, s.from(f), []netip.Prefix{f.All()}) {
				s.sctp = append(s.sctp, Association{c.Verb != match.Deny, a.Src, a.Dst, a.SrcPorts, a.DstPorts, c.Cause, c.AsksPorts()})
			}
		}
	}
	return s.sctp
}

// associations returns the rules of a part of a list about SCTP.
func (g *Segments) associations(o *Origin) []Association {
	var out []Association
	switch {
	case o.Table != "":
		t := g.store.Fixed(o.Table)
		if t == nil {
			return nil
		}
		for i := range t.Rules {
			if a := &t.Rules[i]; a.Proto == 0 || a.Proto == match.SCTP {
				out = append(out, Association{a.Verb != match.Deny, a.Src, a.Dst, match.AllPorts, match.AllPorts, t.Causes[i], false})
			}
		}
	case o.Seg != nil:
		return o.Seg.associations(g.sets)
	default:
		for _, f := range match.Families {
			out = append(out, Association{o.Verb != match.Deny, f.All(), f.All(), match.AllPorts, match.AllPorts, o.Cause, false})
		}
	}
	return out
}

// decide returns the rules of a list about SCTP, in order, up to the one that decides everything. It reports whether they differ from the
// access lists, which allow nothing for some ports, and deny all for others.
func (g *Segments) decide(list []Origin) (out []Association, differs bool) {
	var done [2]bool
	for i := range list {
		if seg := list[i].Seg; seg != nil && seg.AsksPorts && list[i].Verb == match.Deny {
			differs = true
		}
		for _, a := range g.associations(&list[i]) {
			if f := match.FamilyOf(a.Src.Addr()); !done[f] {
				out, differs = append(out, a), differs || a.asks
				done[f] = a.everything()
			}
		}
		if done[match.V4] && done[match.V6] {
			break
		}
	}
	return out, differs
}

// pairs returns access-list rules for the SCTP packets that begin nothing: in order, the addresses that rules permit at some port, and
// the addresses that they deny at all ports if a permission of the family follows.
func pairs(rules []Association) []match.Atom {
	var last [2]int // permission of each family
	for i := range rules {
		if a := &rules[i]; a.Permit {
			last[match.FamilyOf(a.Src.Addr())] = i
		}
	}
	var out []match.Atom
	run, seen := 0, map[[2]netip.Prefix]bool{} // run is the start of the last run of rules of one verb
	for i := range rules {
		a := &rules[i]
		all := a.SrcPorts == match.AllPorts && a.DstPorts == match.AllPorts
		ends := [2]netip.Prefix{a.Src, a.Dst}
		if seen[ends] || !a.Permit && (!all || i > last[match.FamilyOf(a.Src.Addr())]) {
			continue // an earlier rule decides, or none needs to
		}
		seen[ends] = true
		v := match.Deny
		if a.Permit {
			v = match.Allow
		}
		if len(out) > 0 && out[len(out)-1].Verb != v {
			sortPairs(out[run:])
			run = len(out)
		}
		out = append(out, match.Atom{Verb: v, Src: a.Src, Dst: a.Dst, Proto: match.SCTP, SrcPorts: match.AllPorts, DstPorts: match.AllPorts})
	}
	sortPairs(out[run:])
	return out
}

// sortPairs sorts adjacent pairs with one verb: their order has no effect.
func sortPairs(list []match.Atom) {
	slices.SortFunc(list, func(a, b match.Atom) int { return cmp.Or(netset.Compare(a.Src, b.Src), netset.Compare(a.Dst, b.Dst)) })
}

// closed is a filter that lets nothing begin.
func closed() (out []Association) {
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}
	for _, f := range match.Families {
		out = append(out, Association{Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts, Cause: cause})
	}
	return out
}

// meet returns rules that permit what both lists permit: a packet's first match in either list is also its first pair in the result.
func meet(a, b []Association) (out []Association) {
	if len(a)*len(b) > 1<<20 {
		return closed()
	}
	for i := range a {
		for k := range b {
			m := a[i]
			src, ok := netset.Overlap(m.Src, b[k].Src)
			dst, also := netset.Overlap(m.Dst, b[k].Dst)
			s, same := m.SrcPorts.And(b[k].SrcPorts)
			d, too := m.DstPorts.And(b[k].DstPorts)
			if !ok || !also || !same || !too {
				continue
			}
			if m.Permit {
				m.Permit, m.Cause = b[k].Permit, b[k].Cause
			}
			m.Src, m.Dst, m.SrcPorts, m.DstPorts = src, dst, s, d
			out = append(out, m)
		}
	}
	return out
}
