package acl

import (
	"errors"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	maxPort     = 65535
	maxICMP     = 255 // type and code are bytes
	protoICMPv6 = 58
)

func any4() netip.Prefix { return netip.PrefixFrom(netip.IPv4Unspecified(), 0) }
func any6() netip.Prefix { return netip.PrefixFrom(netip.IPv6Unspecified(), 0) }

// compiler compiles the rules of one ACL. Most have a network of the rule before.
type compiler struct{ src, dst network }

// network is the last network that was parsed.
type network struct {
	text   string
	prefix netip.Prefix
}

func (n *network) parseText(field, s string) (netip.Prefix, error) {
	if s == n.text {
		return n.prefix, nil
	}
	p, err := parseNetwork(field, s)
	if err == nil {
		n.text, n.prefix = s, p
	}
	return p, err
}

// appendRule appends a rule in VPP's form: one rule, or one per address family if the rule is for any address (a rule in VPP has
// one family).
func (c *compiler) appendRule(rules []acl_types.ACLRule, m *acl.ACL_Rule) ([]acl_types.ACLRule, error) {
	var r acl_types.ACLRule
	switch m.GetAction() {
	case acl.ACL_Rule_DENY:
	case acl.ACL_Rule_PERMIT:
		r.IsPermit = acl_types.ACL_ACTION_API_PERMIT
	case acl.ACL_Rule_REFLECT:
		r.IsPermit = acl_types.ACL_ACTION_API_PERMIT_REFLECT
	default:
		return nil, fmt.Errorf("action: unknown %d", m.GetAction())
	}
	ip := m.GetIpRule()
	switch {
	case m.GetMacipRule() != nil:
		return nil, errors.New("macip_rule: not supported: VPP keeps MAC-IP lists apart, and they are for one direction only")
	case ip == nil:
		return nil, errors.New("ip_rule: missing")
	}
	v6, one, err := layer4(&r, ip)
	if err != nil {
		return nil, fmt.Errorf("ip_rule.%w", err)
	}
	src, err := c.src.parseText("source_network", ip.GetIp().GetSourceNetwork())
	if err != nil {
		return nil, fmt.Errorf("ip_rule.ip.%w", err)
	}
	dst, err := c.dst.parseText("destination_network", ip.GetIp().GetDestinationNetwork())
	if err != nil {
		return nil, fmt.Errorf("ip_rule.ip.%w", err)
	}
	if src.IsValid() && dst.IsValid() && src.Addr().Is4() != dst.Addr().Is4() {
		return nil, fmt.Errorf("ip_rule.ip.source_network: %s and %s are of different address families", src, dst)
	}
	given := src
	if dst.IsValid() {
		given = dst
	}
	if given.IsValid() {
		if one && given.Addr().Is6() != v6 {
			return nil, fmt.Errorf("ip_rule.icmp.icmpv6: does not go with %s", given)
		}
		v6, one = given.Addr().Is6(), true
	}
	if !one {
		rules = append(rules, withNetworks(r, false, src, dst))
		v6 = true
	}
	return append(rules, withNetworks(r, v6, src, dst)), nil
}

// withNetworks returns r for packets of a family between two networks; an invalid network means any address of the family.
func withNetworks(r acl_types.ACLRule, v6 bool, src, dst netip.Prefix) acl_types.ACLRule {
	any := any4()
	if v6 {
		any = any6()
	}
	if !src.IsValid() {
		src = any
	}
	if !dst.IsValid() {
		dst = any
	}
	r.SrcPrefix, r.DstPrefix = descriptor.ToPrefix(src), descriptor.ToPrefix(dst)
	return r
}

// parseNetwork parses <address>/<length>; "" is the zero value. VPP refuses an ACL of which one rule has host bits.
func parseNetwork(field, s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, nil
	}
	p, err := descriptor.ParsePrefix(field, s)
	if err != nil {
		return p, err
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s: %s has bits set beyond its length; meant is perhaps %s", field, s, p.Masked())
	}
	return p, nil
}

// layer4 sets protocol, ports, ICMP and flags. one reports that the rule is limited to one address family, which v6 then is.
func layer4(r *acl_types.ACLRule, ip *acl.ACL_Rule_IpRule) (v6, one bool, err error) {
	given := ip.GetIp().GetProtocol()
	if given > 255 {
		return false, false, fmt.Errorf("ip.protocol: %d is above 255", given)
	}
	r.SrcportOrIcmptypeLast, r.DstportOrIcmpcodeLast = maxPort, maxPort
	proto := uint32(0)
	n := 0
	if ip.GetIcmp() != nil {
		n++
		proto, v6, one = descriptor.ProtoICMP, ip.GetIcmp().GetIcmpv6(), true
		if v6 {
			proto = protoICMPv6
		}
		err = setICMP(r, ip.GetIcmp())
	}
	if ip.GetTcp() != nil {
		n++
		proto = descriptor.ProtoTCP
		err = errors.Join(err, setTCP(r, ip.GetTcp()))
	}
	if udp := ip.GetUdp(); udp != nil {
		n++
		proto = descriptor.ProtoUDP
		err = errors.Join(err, setPorts(r, "udp.source_port_range", "udp.destination_port_range", udp.GetSourcePortRange(), udp.GetDestinationPortRange()))
	}
	switch {
	case n > 1:
		return v6, one, errors.New("icmp: at most one of icmp, tcp and udp may be given")
	case n == 1 && given != 0 && given != proto:
		return v6, one, fmt.Errorf("ip.protocol: %d, but what is given beside it is for %d", given, proto)
	case n == 0:
		proto = given
	}
	if portless(proto) {
		r.SrcportOrIcmptypeLast, r.DstportOrIcmpcodeLast = 0, 0
	}
	r.Proto = ip_types.IPProto(proto)
	return v6, one, err
}

// portless reports that VPP reads no ports of a protocol: they count as 0 (acl_fill_5tuple_l4_and_pkt_data, 24.06 to 26.06). A rule for port 0
// alone matches the same packets as one for all ports, and its mask has ports. So it contains no mask of rules for addresses: VPP's tuple merge
// would put these under it first, and then one by one into its hash table, which takes four times as long (TestVPPNeighboursShareEntries in
// test/realvpp).
func portless(proto uint32) bool {
	switch proto {
	case 0, descriptor.ProtoICMP, protoICMPv6, descriptor.ProtoTCP, descriptor.ProtoUDP:
		return false
	}
	return true
}

func setICMP(r *acl_types.ACLRule, m *acl.ACL_Rule_IpRule_Icmp) (err error) {
	types, codes := m.GetIcmpTypeRange(), m.GetIcmpCodeRange()
	r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast, err = parseRange("icmp.icmp_type_range", types.GetFirst(), types.GetLast(), maxICMP)
	if err != nil {
		return err
	}
	r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast, err = parseRange("icmp.icmp_code_range", codes.GetFirst(), codes.GetLast(), maxICMP)
	return err
}

func setTCP(r *acl_types.ACLRule, m *acl.ACL_Rule_IpRule_Tcp) error {
	mask, value := m.GetTcpFlagsMask(), m.GetTcpFlagsValue()
	switch {
	case mask > 255:
		return fmt.Errorf("tcp.tcp_flags_mask: %d is above 255", mask)
	case value&^mask != 0:
		return fmt.Errorf("tcp.tcp_flags_value: %#x has flags that the mask %#x leaves out: no packet matches", value, mask)
	}
	r.TCPFlagsMask, r.TCPFlagsValue = uint8(mask), uint8(value)
	return setPorts(r, "tcp.source_port_range", "tcp.destination_port_range", m.GetSourcePortRange(), m.GetDestinationPortRange())
}

func setPorts(r *acl_types.ACLRule, srcField, dstField string, src, dst *acl.ACL_Rule_IpRule_PortRange) (err error) {
	r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast, err = parseRange(srcField, src.GetLowerPort(), src.GetUpperPort(), maxPort)
	if err != nil {
		return err
	}
	r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast, err = parseRange(dstField, dst.GetLowerPort(), dst.GetUpperPort(), maxPort)
	return err
}

func parseRange(field string, first, last, limit uint32) (uint16, uint16, error) {
	switch {
	case last > limit:
		return 0, 0, fmt.Errorf("%s: %d is above %d", field, last, limit)
	case first > last:
		return 0, 0, fmt.Errorf("%s: begins with %d and ends with %d", field, first, last)
	}
	return uint16(first), uint16(last), nil
}

// ruleMessage is the inverse of appendRule.
func ruleMessage(r *acl_types.ACLRule) *acl.ACL_Rule {
	ip := &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{
		SourceNetwork: descriptor.FromPrefix(r.SrcPrefix).String(), DestinationNetwork: descriptor.FromPrefix(r.DstPrefix).String(), Protocol: uint32(r.Proto),
	}}
	src := &acl.ACL_Rule_IpRule_PortRange{LowerPort: uint32(r.SrcportOrIcmptypeFirst), UpperPort: uint32(r.SrcportOrIcmptypeLast)}
	dst := &acl.ACL_Rule_IpRule_PortRange{LowerPort: uint32(r.DstportOrIcmpcodeFirst), UpperPort: uint32(r.DstportOrIcmpcodeLast)}
	all := src.GetUpperPort() == maxPort && dst.GetUpperPort() == maxPort && src.GetLowerPort() == 0 && dst.GetLowerPort() == 0
	switch proto := uint8(r.Proto); {
	case proto == descriptor.ProtoTCP && (!all || r.TCPFlagsMask != 0):
		ip.Tcp = &acl.ACL_Rule_IpRule_Tcp{
			SourcePortRange: src, DestinationPortRange: dst, TcpFlagsMask: uint32(r.TCPFlagsMask), TcpFlagsValue: uint32(r.TCPFlagsValue),
		}
	case proto == descriptor.ProtoUDP && !all:
		ip.Udp = &acl.ACL_Rule_IpRule_Udp{SourcePortRange: src, DestinationPortRange: dst}
	case (proto == descriptor.ProtoICMP || proto == protoICMPv6) && !all:
		ip.Icmp = &acl.ACL_Rule_IpRule_Icmp{
			Icmpv6:        proto == protoICMPv6,
			IcmpTypeRange: &acl.ACL_Rule_IpRule_Icmp_Range{First: src.GetLowerPort(), Last: src.GetUpperPort()},
			IcmpCodeRange: &acl.ACL_Rule_IpRule_Icmp_Range{First: dst.GetLowerPort(), Last: dst.GetUpperPort()},
		}
	}
	return &acl.ACL_Rule{Action: acl.ACL_Rule_Action(r.IsPermit), IpRule: ip}
}
