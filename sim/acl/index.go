package acl

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// index finds the first matching rule of an ACL without comparing each. Rules of one shape (prefix lengths, protocol or any, one
// destination port or several) are in one table, by the fields that the shape fixes. ACLs usually have few shapes and many rules.
type index struct {
	tuples []tuple // by their first rule
	// odd are the rules that match outside of their prefixes by VPP's bug; empty without the bug.
	odd []int
}

// shape is what all rules of a tuple have in common. An IPv4 rule and an IPv6 rule never share one.
type shape struct {
	v6           bool
	src, dst     uint8 // prefix lengths
	proto, dport bool  // fixed
}

type tuple struct {
	shape
	first int
	rules map[tupleKey][]int // in order
}

type tupleKey struct {
	src, dst netip.Addr
	proto    uint8
	dport    uint16
}

func shapeOf(r *Rule) shape {
	return shape{
		v6: r.Src.Addr().Is6(), src: uint8(r.Src.Bits()), dst: uint8(r.Dst.Bits()),
		proto: r.Proto != 0, dport: r.Proto != 0 && r.DstPorts.First == r.DstPorts.Last,
	}
}

// newIndex indexes rules in their order; outside reports whether the bug lets rules match outside of their prefixes.
func newIndex(rules []Rule, outside bool) *index {
	x := &index{}
	at := map[shape]int{}
	for i := range rules {
		r := &rules[i]
		if outside && (crooked(r.Src) || crooked(r.Dst)) {
			x.odd = append(x.odd, i)
			continue
		}
		s := shapeOf(r)
		n, ok := at[s]
		if !ok {
			n = len(x.tuples)
			at[s] = n
			x.tuples = append(x.tuples, tuple{shape: s, first: i, rules: map[tupleKey][]int{}})
		}
		k := tupleKey{src: r.Src.Addr(), dst: r.Dst.Addr()}
		if s.proto {
			k.proto = r.Proto
		}
		if s.dport {
			k.dport = r.DstPorts.First
		}
		x.tuples[n].rules[k] = append(x.tuples[n].rules[k], i)
	}
	slices.SortFunc(x.tuples, func(a, b tuple) int { return cmp.Compare(a.first, b.first) })
	return x
}

// crooked reports whether VPP before 25.06 compares a prefix wrongly.
func crooked(p netip.Prefix) bool { return p.Addr().Is6() && p.Bits()%8 != 0 }

// first returns the first rule that matches; -1: none.
func (x *index) first(rules []Rule, q *query) int {
	best := len(rules)
	for i := range x.tuples {
		t := &x.tuples[i]
		if t.first >= best {
			break
		}
		if t.v6 != q.src.Is6() {
			continue
		}
		for _, n := range t.rules[t.maskedKey(q)] {
			if n >= best {
				break
			}
			if q.matches(&rules[n]) {
				best = n
			}
		}
	}
	for _, n := range x.odd {
		if n >= best {
			break
		}
		if q.matches(&rules[n]) {
			best = n
		}
	}
	if best == len(rules) {
		return -1
	}
	return best
}

func (t *tuple) maskedKey(q *query) tupleKey {
	src, _ := q.src.Prefix(int(t.src)) // the family is the tuple's, so the length fits
	dst, _ := q.dst.Prefix(int(t.dst))
	k := tupleKey{src: src.Addr(), dst: dst.Addr()}
	if t.proto {
		k.proto = q.proto
	}
	if t.dport {
		k.dport = q.dport
	}
	return k
}

// query is a packet in the form for rules.
type query struct {
	key
	tcpFlags uint8
	fragment bool // a later one: VPP does not compare ports and flags (l4_match_nonfirst_fragment)
	bug      prefixBug
}

// prefixBug selects how IPv6 prefixes are compared.
type prefixBug uint8

const (
	noBug prefixBug = iota
	// within: a packet must be in the prefix and pass the wrong comparison (hash lookup before 25.06).
	within
	// bare: the wrong comparison alone decides (linear lookup before 25.06).
	bare
)

// matches is single_rule_match_5tuple, and single_acl_match_5tuple for later fragments.
func (q *query) matches(r *Rule) bool {
	if q.src.Is6() != r.Src.Addr().Is6() || !q.holds(r.Dst, q.dst, byte(q.sport)) || !q.holds(r.Src, q.src, q.dst.As16()[0]) {
		return false
	}
	if r.Proto == 0 || q.fragment {
		return r.Proto == 0 || r.Proto == q.proto
	}
	if r.Proto != q.proto || !r.SrcPorts.holds(q.sport) || !r.DstPorts.holds(q.dport) {
		return false
	}
	return q.proto != uint8(model.TCP) || q.tcpFlags&r.TCPMask == r.TCPValue
}

// holds reports whether a prefix matches an address; behind is the byte after the address in VPP's memory.
func (q *query) holds(p netip.Prefix, a netip.Addr, behind byte) bool {
	if q.bug == noBug || !crooked(p) {
		return p.Contains(a)
	}
	return (q.bug == bare || p.Contains(a)) && shifted(p, a, behind)
}

// shifted is fa_acl_match_ip6_addr before 25.06: it compares the whole bytes, and then the rest of the length in the byte after the
// next. For the last byte of an address that is the byte after the address: in the packet an arbitrary one, in the rule the prefix
// length.
func shifted(p netip.Prefix, a netip.Addr, behind byte) bool {
	whole, rest := p.Bits()/8, p.Bits()%8
	want, have := p.Addr().As16(), a.As16()
	if [16]byte(want) != mix(have, want, whole) {
		return false
	}
	w, h := byte(p.Bits()), behind
	if whole+1 < len(want) {
		w, h = want[whole+1], have[whole+1]
	}
	return h&(0xff<<(8-rest)) == w
}

// mix returns the first n bytes of a and the rest of b.
func mix(a, b [16]byte, n int) [16]byte {
	copy(b[:n], a[:n])
	return b
}
