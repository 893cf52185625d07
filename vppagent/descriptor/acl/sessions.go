package acl

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// A packet that a rule permits makes a session if the rule reflects. Rules are alike if whether a permitted packet makes one depends
// on its protocol, ports and flags alone, whichever of them matches first. Then a rule that permits hides none that reflects, and
// what a change does to permitted packets can be read from permissions and denials.

// sessions is what the rules of an ACL say about sessions: which packets they permit with one (reflect), and without (permit).
type sessions struct {
	reflect, permit map[box]struct{}
	unclear         bool // they say too much
}

// class is a kind of packets of which sessions are made differently.
type class uint8

const (
	classSYN   class = iota // TCP with SYN and without ACK
	classTCP                // other TCP
	classUDP                // UDP
	classOther              // all others, whatever their ports
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

// mostBoxes bounds what an ACL may say. Ours say a few things about many addresses.
const mostBoxes = 64

// agree reports that all rules are alike that these lists have, and will have.
func (c contents) agree(have, want []string) bool {
	all := sessions{reflect: map[box]struct{}{}, permit: map[box]struct{}{}}
	for _, list := range [2][]string{have, want} {
		for _, k := range list {
			for _, l := range c.both(k) {
				if !all.add(l.sessions()) {
					return false
				}
			}
		}
	}
	for p := range all.permit {
		for r := range all.reflect {
			if p.meets(r) {
				return false
			}
		}
	}
	return true
}

// both is what VPP has of an ACL, and what it will have.
func (c contents) both(key string) (out []*accessList) {
	h, w := c(key)
	for _, l := range []*accessList{h, w} {
		if l != nil && (len(out) == 0 || out[0] != l) {
			out = append(out, l)
		}
	}
	return out
}

// add reports whether what is said so far is still clear.
func (s *sessions) add(o *sessions) bool {
	for b := range o.reflect {
		s.reflect[b] = struct{}{}
	}
	for b := range o.permit {
		s.permit[b] = struct{}{}
	}
	return !o.unclear && len(s.reflect)+len(s.permit) <= mostBoxes
}

// sessions is what the ACL says about them.
func (l *accessList) sessions() *sessions {
	if l.said == nil {
		l.said = sessionsOf(l.rules)
	}
	return l.said
}

// sessionsOf reads rules. Of neighbours for the same addresses those behind say only what is left for them.
func sessionsOf(rules []acl_types.ACLRule) *sessions {
	out := &sessions{reflect: map[box]struct{}{}, permit: map[box]struct{}{}}
	var before []box // what earlier rules for these addresses match
	for i := range rules {
		r := &rules[i]
		if i > 0 && (r.SrcPrefix != rules[i-1].SrcPrefix || r.DstPrefix != rules[i-1].DstPrefix) {
			before = before[:0]
		}
		if withoutSession(r) {
			continue
		}
		list, exact := boxesOf(r)
		if r.IsPermit != acl_types.ACL_ACTION_API_DENY {
			said := out.permit
			if r.IsPermit == acl_types.ACL_ACTION_API_PERMIT_REFLECT {
				said = out.reflect
			}
			for _, b := range remainder(list, before) {
				said[b] = struct{}{}
			}
			if len(out.reflect)+len(out.permit) > mostBoxes {
				return &sessions{unclear: true}
			}
		}
		if exact {
			before = append(before, list...)
		}
		if len(before) > mostBoxes {
			return &sessions{unclear: true}
		}
	}
	return out
}

// withoutSession reports that a rule is for ICMP of which VPP makes no session that lets answers pass (24.06 to 25.10,
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

// boxesOf is what a rule matches; it is exact, or more than that.
func boxesOf(r *acl_types.ACLRule) (out []box, exact bool) {
	src, dst := ports{r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast}, ports{r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast}
	switch {
	case r.Proto == 0:
		for c := range classes {
			out = append(out, box{c, allPorts, allPorts})
		}
		return out, true
	case r.Proto == descriptor.ProtoUDP:
		return []box{{classUDP, src, dst}}, true
	case r.Proto != descriptor.ProtoTCP:
		return []box{{classOther, allPorts, allPorts}}, false
	case r.TCPFlagsMask == tcpSYN|tcpACK && r.TCPFlagsValue == tcpSYN:
		return []box{{classSYN, src, dst}}, true
	}
	return []box{{classSYN, src, dst}, {classTCP, src, dst}}, r.TCPFlagsMask == 0
}

const (
	tcpSYN = 0x02
	tcpACK = 0x10
)

// remainder is what of boxes is in none of others.
func remainder(list, others []box) []box {
	for _, o := range others {
		var left []box
		for _, b := range list {
			left = append(left, b.minus(o)...)
		}
		list = left
	}
	return list
}

// minus is what of a box is outside another, in up to four pieces.
func (b box) minus(o box) (out []box) {
	if !b.meets(o) {
		return []box{b}
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
