package acl

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

// association is a rule about new SCTP associations. Both prefixes are of one family.
type association struct {
	permit       bool
	src, dst     netip.Prefix
	sport, dport match.Span
	cause        *dataplane.Cause
	asks         bool // its rule names ports
}

// everything reports whether every association of the family matches.
func (a *association) everything() bool {
	return a.src.Bits() == 0 && a.dst.Bits() == 0 && a.sport == match.AllPorts && a.dport == match.AllPorts
}

// same reports whether two rules are equal apart from their causes.
func (a association) same(b association) bool {
	b.cause, b.asks = a.cause, a.asks
	return a == b
}

// filter decides about new associations: those whose packets enter VPP by an interface, and those whose packets leave by it. The first
// rule that matches decides, and a packet without a match is dropped; without rules all may begin. Nil is no filter.
type filter [2][]association

// same reports whether two filters have equal rules.
func (f *filter) same(o *filter) bool {
	if f == nil || o == nil {
		return f == o
	}
	return slices.EqualFunc(f[0], o[0], association.same) && slices.EqualFunc(f[1], o[1], association.same)
}

// origin is the source of a part of a list: a table without a segment, or the step of a program.
type origin struct {
	table string
	use
}

// origins returns the origins of tables and of the steps behind them.
func origins(tables []place, uses []use) []origin {
	out := make([]origin, 0, len(tables)+len(uses))
	for _, p := range tables {
		out = append(out, origin{table: p.table})
	}
	for _, u := range uses {
		out = append(out, origin{use: u})
	}
	return out
}

// asksPorts reports whether steps name ports of SCTP.
func asksPorts(uses []use) bool {
	return slices.ContainsFunc(uses, func(u use) bool { return u.seg != nil && u.seg.asks })
}

// associations returns the segment's rules about SCTP.
func (s *segment) associations(sets match.Sets) []association {
	if s.sctpDone {
		return s.sctp
	}
	s.sctp, s.sctpDone = nil, true
	x := &match.Expander{Sets: sets, SCTP: true, Note: func(*match.Clause, string, ...any) {}}
	for i := range s.clauses {
		c := &s.clauses[i]
		for _, f := range match.Families {
			for _, a := range x.Expand(nil, c, f, s.from(f), []netip.Prefix{f.All()}) {
				s.sctp = append(s.sctp, association{c.Verb != match.Deny, a.Src, a.Dst, a.SrcPorts, a.DstPorts, c.Cause, c.AsksPorts()})
			}
		}
	}
	return s.sctp
}

// associations returns the rules of a part of a list about SCTP.
func (r *Renderer) associations(o *origin) []association {
	var out []association
	switch {
	case o.table != "":
		t := r.fixed[o.table]
		if t == nil {
			return nil
		}
		for i := range t.rules {
			if a := &t.rules[i]; a.Proto == 0 || a.Proto == match.SCTP {
				out = append(out, association{a.Verb != match.Deny, a.Src, a.Dst, match.AllPorts, match.AllPorts, t.causes[i], false})
			}
		}
	case o.seg != nil:
		return o.seg.associations(r.sets)
	default:
		for _, f := range match.Families {
			out = append(out, association{o.verb != match.Deny, f.All(), f.All(), match.AllPorts, match.AllPorts, o.cause, false})
		}
	}
	return out
}

// decide returns the rules of a list about SCTP, in order, up to the one that decides everything. It reports whether they differ from the
// access lists, which allow nothing for some ports, and deny all for others.
func (r *Renderer) decide(list []origin) (out []association, differs bool) {
	var done [2]bool
	for i := range list {
		if seg := list[i].seg; seg != nil && seg.asks && list[i].verb == match.Deny {
			differs = true
		}
		for _, a := range r.associations(&list[i]) {
			if f := match.FamilyOf(a.src.Addr()); !done[f] {
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
func pairs(rules []association) []match.Atom {
	var last [2]int // permission of each family
	for i := range rules {
		if a := &rules[i]; a.permit {
			last[match.FamilyOf(a.src.Addr())] = i
		}
	}
	var out []match.Atom
	run, seen := 0, map[[2]netip.Prefix]bool{} // run is the start of the last run of rules of one verb
	for i := range rules {
		a := &rules[i]
		all := a.sport == match.AllPorts && a.dport == match.AllPorts
		ends := [2]netip.Prefix{a.src, a.dst}
		if seen[ends] || !a.permit && (!all || i > last[match.FamilyOf(a.src.Addr())]) {
			continue // an earlier rule decides, or none needs to
		}
		seen[ends] = true
		v := match.Deny
		if a.permit {
			v = match.Allow
		}
		if len(out) > 0 && out[len(out)-1].Verb != v {
			sortPairs(out[run:])
			run = len(out)
		}
		out = append(out, match.Atom{Verb: v, Src: a.src, Dst: a.dst, Proto: match.SCTP, SrcPorts: match.AllPorts, DstPorts: match.AllPorts})
	}
	sortPairs(out[run:])
	return out
}

// sortPairs sorts adjacent pairs with one verb: their order has no effect.
func sortPairs(list []match.Atom) {
	slices.SortFunc(list, func(a, b match.Atom) int { return cmp.Or(netset.Compare(a.Src, b.Src), netset.Compare(a.Dst, b.Dst)) })
}

// closed is a filter that lets nothing begin.
func closed() (out []association) {
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}
	for _, f := range match.Families {
		out = append(out, association{src: f.All(), dst: f.All(), sport: match.AllPorts, dport: match.AllPorts, cause: cause})
	}
	return out
}

// meet returns rules that permit what both lists permit: a packet's first match in either list is also its first pair in the result.
func meet(a, b []association) (out []association) {
	if len(a)*len(b) > 1<<20 {
		return closed()
	}
	for i := range a {
		for k := range b {
			m := a[i]
			src, ok := netset.Overlap(m.src, b[k].src)
			dst, also := netset.Overlap(m.dst, b[k].dst)
			s, same := m.sport.And(b[k].sport)
			d, too := m.dport.And(b[k].dport)
			if !ok || !also || !same || !too {
				continue
			}
			if m.permit {
				m.permit, m.cause = b[k].permit, b[k].cause
			}
			m.src, m.dst, m.sport, m.dport = src, dst, s, d
			out = append(out, m)
		}
	}
	return out
}
