// Package denial turns the clauses of a program into the ports of TCP and UDP that they deny between two addresses.
//
//	clauses, source, destination ─▶ Rects: for one pair of addresses only ports remain
//
// Invariant: the rects of one result have no packet in common, and the first clause that matches a packet decides about it.
package denial

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Rect is a set of denied ports of TCP or UDP, and the cause of the denial.
type Rect struct {
	Proto        uint8
	Sport, Dport match.Span
	Cause        *dataplane.Cause
}

// Size is the number of pairs of ports.
func (c Rect) Size() int { return (int(c.Sport.Hi-c.Sport.Lo) + 1) * (int(c.Dport.Hi-c.Dport.Lo) + 1) }

// AppendTo appends the protocol and the ports to b. The appended bytes are equal for rects that match the same packets.
func (c Rect) AppendTo(b []byte) []byte {
	b = append(b, c.Proto)
	for _, v := range [...]uint16{c.Sport.Lo, c.Sport.Hi, c.Dport.Lo, c.Dport.Hi} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return b
}

// Atom returns the rule that denies the rect's packets between two networks.
func (c Rect) Atom(src, dst netip.Prefix) match.Atom {
	return match.Atom{Verb: match.Deny, Src: src, Dst: dst, Proto: c.Proto, SrcPorts: c.Sport, DstPorts: c.Dport}
}

// Of returns the TCP and UDP ports from src (invalid: any source) to dst that a program's clauses deny. Clauses that never match packets
// to dst may be absent.
func Of(sets match.Sets, clauses iter.Seq[*match.Clause], src, dst netip.Addr) []Rect {
	f := match.FamilyOf(dst)
	from, to := []netip.Prefix{f.All()}, []netip.Prefix{netip.PrefixFrom(dst, dst.BitLen())}
	if src.IsValid() {
		from[0] = netip.PrefixFrom(src, src.BitLen())
	}
	x := &match.Expander{Sets: sets, Note: func(*match.Clause, string, ...any) {}}
	left := []Rect{{Proto: match.TCP, Sport: match.AllPorts, Dport: match.AllPorts}, {Proto: match.UDP, Sport: match.AllPorts, Dport: match.AllPorts}}
	var denied []Rect
	var atoms []match.Atom
	for c := range clauses {
		if c.Misses(sets, to[0]) {
			continue
		}
		atoms = x.Expand(atoms[:0], c, f, from, to)
		for _, a := range atoms {
			left = cut(left, a, func(hit Rect) {
				if hit.Cause = c.Cause; c.Verb == match.Deny {
					denied = append(denied, hit)
				}
			})
		}
		if len(left) == 0 {
			break
		}
	}
	return denied
}

// cut removes the packets that an atom matches from the rects, and calls hit with each piece.
func cut(left []Rect, a match.Atom, hit func(Rect)) []Rect {
	var out []Rect
	for n, l := range left {
		s, ok := l.Sport.And(a.SrcPorts)
		d, also := l.Dport.And(a.DstPorts)
		if !ok || !also || a.Proto != 0 && a.Proto != l.Proto {
			out = append(out, l)
			continue
		}
		hit(Rect{Proto: l.Proto, Sport: s, Dport: d})
		for _, rest := range l.Sport.Minus(a.SrcPorts) {
			out = append(out, Rect{Proto: l.Proto, Sport: rest, Dport: left[n].Dport})
		}
		for _, rest := range l.Dport.Minus(a.DstPorts) {
			out = append(out, Rect{Proto: l.Proto, Sport: s, Dport: rest})
		}
	}
	return out
}

// Sender evaluates a program for one source. It keeps the result for each destination.
type Sender struct {
	sets    match.Sets
	clauses iter.Seq[*match.Clause]
	src     netip.Addr
	known   map[netip.Addr][]Rect
}

// NewSender returns a sender with this address; invalid: any source. Use it only while clauses and sets stay the same.
func NewSender(sets match.Sets, clauses iter.Seq[*match.Clause], src netip.Addr) *Sender {
	return &Sender{sets, clauses, src, map[netip.Addr][]Rect{}}
}

// Denied returns the cause why the program denies a port from all source ports (wholly), or from some at least; nil: it does not.
func (s *Sender) Denied(to netip.AddrPort, proto uint8, wholly bool) *dataplane.Cause {
	denied, ok := s.known[to.Addr()]
	if !ok {
		denied = Of(s.sets, s.clauses, s.src, to.Addr())
		s.known[to.Addr()] = denied
	}
	for _, d := range denied {
		if d.Proto == proto && d.Dport.Lo <= to.Port() && to.Port() <= d.Dport.Hi && (!wholly || d.Sport == match.AllPorts) {
			return d.Cause
		}
	}
	return nil
}
