package acl

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
)

// value is the table as VPP's agent takes it: one rule of the message for each rule of the table. Old is what was there before;
// nil: nothing.
func (t *table) value(old *table) *acl.ACL {
	if t.wire == nil {
		t.wire = make([]*acl.ACL_Rule, len(t.rules))
		start, end := 0, 0
		if old != nil && old.wire != nil {
			start, end = alike(old.rules, t.rules)
			copy(t.wire[:start], old.wire)
			copy(t.wire[len(t.wire)-end:], old.wire[len(old.wire)-end:])
		}
		render(t.wire[start:len(t.wire)-end], t.rules[start:len(t.rules)-end])
	}
	return &acl.ACL{Name: t.name, Rules: t.wire}
}

// render writes rules. Their pieces come from one allocation for all.
func render(out []*acl.ACL_Rule, atoms []atom) {
	n := len(atoms)
	rules, ips, ranges := make([]ruleValue, n), make([]acl.ACL_Rule_IpRule_Ip, n), make([]acl.ACL_Rule_IpRule_PortRange, 2*n)
	cache := map[netip.Prefix]string{}
	for i := range atoms {
		a, v := &atoms[i], &rules[i]
		ips[i].SourceNetwork, ips[i].DestinationNetwork = text(cache, a.src), text(cache, a.dst)
		v.ip.Ip = &ips[i]
		switch a.proto {
		case protoICMP, protoICMP6:
			v.icmp(a)
		case protoTCP:
			src, dst := a.ranges(ranges[2*i : 2*i+2])
			v.ip.Tcp = &acl.ACL_Rule_IpRule_Tcp{SourcePortRange: src, DestinationPortRange: dst}
		case protoUDP:
			src, dst := a.ranges(ranges[2*i : 2*i+2])
			v.ip.Udp = &acl.ACL_Rule_IpRule_Udp{SourcePortRange: src, DestinationPortRange: dst}
		default:
			ips[i].Protocol = uint32(a.proto)
		}
		v.rule.Action, v.rule.IpRule = a.verb.value(), &v.ip
		out[i] = &v.rule
	}
}

type ruleValue struct {
	rule acl.ACL_Rule
	ip   acl.ACL_Rule_IpRule
}

func text(cache map[netip.Prefix]string, p netip.Prefix) string {
	s, ok := cache[p]
	if !ok {
		s = p.String()
		cache[p] = s
	}
	return s
}

func (a *atom) ranges(r []acl.ACL_Rule_IpRule_PortRange) (src, dst *acl.ACL_Rule_IpRule_PortRange) {
	r[0].LowerPort, r[0].UpperPort = uint32(a.sport.lo), uint32(a.sport.hi)
	r[1].LowerPort, r[1].UpperPort = uint32(a.dport.lo), uint32(a.dport.hi)
	return &r[0], &r[1]
}

// icmp writes types and codes. The other family's ICMP is a protocol like any.
func (v *ruleValue) icmp(a *atom) {
	if familyOf(a.src.Addr()).icmp() != a.proto {
		v.ip.Ip.Protocol = uint32(a.proto)
		return
	}
	v.ip.Icmp = &acl.ACL_Rule_IpRule_Icmp{
		Icmpv6:        a.proto == protoICMP6,
		IcmpTypeRange: &acl.ACL_Rule_IpRule_Icmp_Range{First: uint32(a.sport.lo), Last: uint32(min(a.sport.hi, 255))},
		IcmpCodeRange: &acl.ACL_Rule_IpRule_Icmp_Range{First: uint32(a.dport.lo), Last: uint32(min(a.dport.hi, 255))},
	}
}

func (v verb) value() acl.ACL_Rule_Action {
	switch v {
	case allow:
		return acl.ACL_Rule_REFLECT
	case admit:
		return acl.ACL_Rule_PERMIT
	}
	return acl.ACL_Rule_DENY
}
