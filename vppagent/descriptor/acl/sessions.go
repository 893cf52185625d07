package acl

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// A permitted packet makes a session if its rule reflects. Rules are alike if the protocol, ports and flags of a permitted packet alone decide that,
// regardless of which rule matches first. If each permitting rule is alike all later ones, none hides a reflecting one, and permissions and denials
// show the effect of a change on permitted packets.

// sessions is the meaning of an ACL's rules for sessions: which packets they permit with a session (reflect), and without (permit).
type sessions struct {
	reflect, permit map[box]struct{}
	unclear         bool // the rules distinguish too much
}

// class is a class of packets with separate rules for sessions.
type class uint8

const (
	classSYN   class = iota // TCP with SYN and without ACK
	classTCP                // other TCP
	classUDP                // UDP
	classOther              // all others, regardless of ports
	classes
)

// box is packets of a class with these ports.
type box struct {
	class
	src, dst ports
}

type ports struct{ first, last uint16 }

var allPorts = ports{0, maxPort}

func (p ports) meets(o ports) bool { return p.first <= o.last && o.first <= p.last }

func (b box) meets(o box) bool { return b.class == o.class && b.src.meets(o.src) && b.dst.meets(o.dst) }

// mostBoxes bounds the boxes of an ACL. Our ACLs need few, although they have many addresses.
const mostBoxes = 64

// agree reports that no rule of these lists, now or later, hides one that makes sessions: each ACL is alike itself and the later ones.
func (c contents) agree(have, want []string) bool { return c.alike(have) && c.alike(want) }

func (c contents) alike(list []string) bool {
	reflect := map[box]struct{}{} // of this ACL and the later ones
	for _, k := range slices.Backward(list) {
		own := sessions{reflect: reflect, permit: map[box]struct{}{}}
		for _, l := range c.both(k) {
			if !own.add(l.sessions()) {
				return false
			}
		}
		for p := range own.permit {
			if slices.ContainsFunc(slices.Collect(maps.Keys(reflect)), p.meets) {
				return false
			}
		}
	}
	return true
}

// both returns the meaning of an ACL's present and future rules.
func (c contents) both(key string) (out []*accessList) {
	h, w := c(key)
	for _, l := range []*accessList{h, w} {
		if l != nil && (len(out) == 0 || out[0] != l) {
			out = append(out, l)
		}
	}
	return out
}

// add reports whether the meaning so far is still clear.
func (s *sessions) add(o *sessions) bool {
	for b := range o.reflect {
		s.reflect[b] = struct{}{}
	}
	for b := range o.permit {
		s.permit[b] = struct{}{}
	}
	return !o.unclear && len(s.reflect)+len(s.permit) <= mostBoxes
}

// sessions returns the meaning of the ACL's rules for sessions.
func (l *accessList) sessions() *sessions {
	if l.said == nil {
		l.said = sessionsOf(l.rules)
	}
	return l.said
}

// sessionsOf evaluates rules. Adjacent rules for the same addresses are a group. The members of a set have equal groups, of which one says all.
func sessionsOf(rules []acl_types.ACLRule) *sessions {
	out := &sessions{reflect: map[box]struct{}{}, permit: map[box]struct{}{}}
	var last []acl_types.ACLRule
	for len(rules) > 0 {
		n := 1
		for n < len(rules) && rules[n].SrcPrefix == rules[0].SrcPrefix && rules[n].DstPrefix == rules[0].DstPrefix {
			n++
		}
		group := rules[:n]
		if !slices.EqualFunc(group, last, equalBeyondAddresses) && !out.addGroup(group) {
			return &sessions{unclear: true}
		}
		rules, last = rules[n:], group
	}
	return out
}

// equalBeyondAddresses reports whether two rules are equal, apart from addresses of the same family.
func equalBeyondAddresses(a, b acl_types.ACLRule) bool {
	if a.SrcPrefix.Address.Af != b.SrcPrefix.Address.Af {
		return false
	}
	a.SrcPrefix, a.DstPrefix = b.SrcPrefix, b.DstPrefix
	return a == b
}

// addGroup adds the meaning of rules for the same addresses, and reports whether it is still clear. A later rule applies only to packets
// that the earlier ones do not match.
func (s *sessions) addGroup(rules []acl_types.ACLRule) bool {
	var before []box // of the earlier rules
	var room [classes]box
	for i := range rules {
		r := &rules[i]
		if withoutSession(r) {
			continue
		}
		list, exact := boxesOf(room[:0], r)
		if r.IsPermit != acl_types.ACL_ACTION_API_DENY {
			said := s.permit
			if r.IsPermit == acl_types.ACL_ACTION_API_PERMIT_REFLECT {
				said = s.reflect
			}
			for _, b := range remainder(list, before) {
				said[b] = struct{}{}
			}
		}
		if exact {
			before = append(before, list...)
		}
		if len(s.reflect)+len(s.permit) > mostBoxes || len(before) > mostBoxes {
			return false
		}
	}
	return true
}

// withoutSession reports that a rule is for ICMP for which VPP makes no session that lets answers pass (24.06 to 25.10,
// session_inlines.h: icmp4_valid_new, icmp6_valid_new).
func withoutSession(r *acl_types.ACLRule) bool {
	var requests []uint16
	switch six := r.SrcPrefix.Address.Af == ip_types.ADDRESS_IP6; {
	case r.Proto == descriptor.ProtoICMP && !six:
		requests = []uint16{8, 13, 15, 17}
	case r.Proto == protoICMPv6 && six:
		requests = []uint16{128, 139}
	default:
		return false
	}
	return !slices.ContainsFunc(requests, func(t uint16) bool { return r.SrcportOrIcmptypeFirst <= t && t <= r.SrcportOrIcmptypeLast })
}

// boxesOf appends the boxes that a rule matches, or larger ones.
func boxesOf(out []box, r *acl_types.ACLRule) (list []box, exact bool) {
	src, dst := ports{r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast}, ports{r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast}
	switch {
	case r.Proto == 0:
		for c := range classes {
			out = append(out, box{c, allPorts, allPorts})
		}
		return out, true
	case r.Proto == descriptor.ProtoUDP:
		return append(out, box{classUDP, src, dst}), true
	case r.Proto != descriptor.ProtoTCP:
		return append(out, box{classOther, allPorts, allPorts}), false
	case r.TCPFlagsMask == tcpSYN|tcpACK && r.TCPFlagsValue == tcpSYN:
		return append(out, box{classSYN, src, dst}), true
	}
	return append(out, box{classSYN, src, dst}, box{classTCP, src, dst}), r.TCPFlagsMask == 0
}

const (
	tcpSYN = 0x02
	tcpACK = 0x10
)

// remainder returns the part of boxes that is in none of others.
func remainder(list, others []box) []box {
	for _, o := range others {
		if !slices.ContainsFunc(list, o.meets) {
			continue
		}
		left := make([]box, 0, 2*len(list))
		for _, b := range list {
			left = b.appendOutside(left, o)
		}
		list = left
	}
	return list
}

// appendOutside appends the part of a box that is outside another, in up to four pieces.
func (b box) appendOutside(out []box, o box) []box {
	if !b.meets(o) {
		return append(out, b)
	}
	if b.src.first < o.src.first {
		out = append(out, box{b.class, ports{b.src.first, o.src.first - 1}, b.dst})
	}
	if b.src.last > o.src.last {
		out = append(out, box{b.class, ports{o.src.last + 1, b.src.last}, b.dst})
	}
	src := ports{max(b.src.first, o.src.first), min(b.src.last, o.src.last)}
	if b.dst.first < o.dst.first {
		out = append(out, box{b.class, src, ports{b.dst.first, o.dst.first - 1}})
	}
	if b.dst.last > o.dst.last {
		out = append(out, box{b.class, src, ports{o.dst.last + 1, b.dst.last}})
	}
	return out
}
