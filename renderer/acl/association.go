package acl

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// VPP's access lists look at ports of TCP and UDP only. What policies say about ports of SCTP is decided once for each association,
// by its first packet, in a filter that the packets of an interface meet beside its lists (ADR 11):
//
//	programs ─┬─▶ tables, as ever: what asks for ports of SCTP allows nothing, or denies all of it ─▶ lists
//	          └─▶ associations: the same for SCTP alone, with its ports, exactly ─┬─▶ SCTPPorts
//	                                                                              └─▶ an access list for their addresses,
//	                                                                                  the first of its direction
//
// An interface none of whose policies asks for ports of SCTP has neither.

// association is a rule about SCTP associations that begin. Both prefixes are of one family.
type association struct {
	permit       bool
	src, dst     netip.Prefix
	sport, dport span
	cause        *dataplane.Cause
	asks         bool // it is of a rule that asks for ports
}

// everything reports whether every association of the family matches.
func (a *association) everything() bool {
	return a.src.Bits() == 0 && a.dst.Bits() == 0 && a.sport == allPorts && a.dport == allPorts
}

// same reports whether two rules are the same, whatever stands behind them.
func (a association) same(b association) bool {
	b.cause, b.asks = a.cause, a.asks
	return a == b
}

// filter is what decides about associations that begin: those whose packets enter VPP by an interface, and those whose packets leave it
// there. The first rule that matches decides, and nothing passes that none matches; without rules all may begin. Nil is no filter.
type filter [2][]association

// same reports whether two filters decide alike, rule by rule.
func (f *filter) same(o *filter) bool {
	if f == nil || o == nil {
		return f == o
	}
	return slices.EqualFunc(f[0], o[0], association.same) && slices.EqualFunc(f[1], o[1], association.same)
}

// origin is where a part of a list comes from: a table of no segment, or the step of a program.
type origin struct {
	table string
	use
}

// origins are those of tables and of steps behind them.
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

// asksPorts reports whether steps ask for ports of SCTP.
func asksPorts(uses []use) bool {
	return slices.ContainsFunc(uses, func(u use) bool { return u.seg != nil && u.seg.asks })
}

// asksPorts reports whether the clause matches SCTP by its ports.
func (c *clause) asksPorts() bool {
	asks := false
	for _, m := range c.matches {
		if m.proto >= 0 && m.proto != protoSCTP || m.notProto == protoSCTP || m.icmp != nil {
			return false
		}
		asks = asks || !m.src.anyPort() || !m.dst.anyPort()
	}
	return asks
}

// associations is what the segment says about SCTP.
func (s *segment) associations(sets map[string]*ipset) []association {
	if s.told {
		return s.sctp
	}
	s.sctp, s.told = nil, true
	x := &expander{sets: sets, sctp: true, note: func(*clause, string, ...any) {}}
	for i := range s.clauses {
		c := &s.clauses[i]
		for _, f := range families {
			for _, a := range x.expand(nil, c, f, s.from(f), []netip.Prefix{f.all()}) {
				s.sctp = append(s.sctp, association{c.verb != deny, a.src, a.dst, a.sport, a.dport, c.cause, c.asksPorts()})
			}
		}
	}
	return s.sctp
}

// associations is what a part of a list says about SCTP.
func (r *Renderer) associations(o *origin) []association {
	var out []association
	switch {
	case o.table != "":
		t := r.fixed[o.table]
		if t == nil {
			return nil
		}
		for i := range t.rules {
			if a := &t.rules[i]; a.proto == 0 || a.proto == protoSCTP {
				out = append(out, association{a.verb != deny, a.src, a.dst, allPorts, allPorts, t.causes[i], false})
			}
		}
	case o.seg != nil:
		return o.seg.associations(r.sets)
	default:
		for _, f := range families {
			out = append(out, association{o.verb != deny, f.all(), f.all(), allPorts, allPorts, o.cause, false})
		}
	}
	return out
}

// decide is the rules of a list about SCTP, in order, up to what decides everything. It reports whether that differs from what the access
// lists say: they allow nothing for some ports, and deny all for others.
func (r *Renderer) decide(list []origin) (out []association, differs bool) {
	var done [2]bool
	for i := range list {
		if seg := list[i].seg; seg != nil && seg.asks && list[i].verb == deny {
			differs = true
		}
		for _, a := range r.associations(&list[i]) {
			if f := familyOf(a.src.Addr()); !done[f] {
				out, differs = append(out, a), differs || a.asks
				done[f] = a.everything()
			}
		}
		if done[v4] && done[v6] {
			break
		}
	}
	return out, differs
}

// pairs is what rules say about SCTP that begins nothing, as rules of an access list: in order, the addresses of what they permit at some
// port, and of what they deny at all ports as far as a permission of the family follows.
func pairs(rules []association) []atom {
	var last [2]int // permission of each family
	for i := range rules {
		if a := &rules[i]; a.permit {
			last[familyOf(a.src.Addr())] = i
		}
	}
	var out []atom
	run, seen := 0, map[[2]netip.Prefix]bool{} // run is where the last rules of one verb begin
	for i := range rules {
		a := &rules[i]
		all := a.sport == allPorts && a.dport == allPorts
		ends := [2]netip.Prefix{a.src, a.dst}
		if seen[ends] || !a.permit && (!all || i > last[familyOf(a.src.Addr())]) {
			continue // an earlier rule decides, or none has to
		}
		seen[ends] = true
		v := deny
		if a.permit {
			v = allow
		}
		if len(out) > 0 && out[len(out)-1].verb != v {
			sortPairs(out[run:])
			run = len(out)
		}
		out = append(out, atom{verb: v, src: a.src, dst: a.dst, proto: protoSCTP, sport: allPorts, dport: allPorts})
	}
	sortPairs(out[run:])
	return out
}

// sortPairs sorts neighbours with one verb: their order decides nothing.
func sortPairs(list []atom) {
	slices.SortFunc(list, func(a, b atom) int { return cmp.Or(comparePrefix(a.src, b.src), comparePrefix(a.dst, b.dst)) })
}

// closed lets nothing begin.
func closed() (out []association) {
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}
	for _, f := range families {
		out = append(out, association{src: f.all(), dst: f.all(), sport: allPorts, dport: allPorts, cause: cause})
	}
	return out
}

// meet is rules that permit what both lists do: the first rules of either that match a packet are the first pair of them that does.
func meet(a, b []association) (out []association) {
	if len(a)*len(b) > 1<<20 {
		return closed()
	}
	for i := range a {
		for k := range b {
			m := a[i]
			src, ok := overlap(m.src, b[k].src)
			dst, also := overlap(m.dst, b[k].dst)
			s, same := m.sport.and(b[k].sport)
			d, too := m.dport.and(b[k].dport)
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

// overlap is what two prefixes have in common: the longer, if it is in the other.
func overlap(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() < b.Bits() {
		a, b = b, a
	}
	return a, familyOf(a.Addr()) == familyOf(b.Addr()) && b.Contains(a.Addr())
}
