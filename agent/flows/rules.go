package flows

import (
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/space"
)

// rules are access lists as they were sent to VPP, as boxes; by name.
type rules map[string]*boxes

type boxes struct {
	of   *acl.ACL
	list []space.Box
	used bool // since the last call of dropUnused
}

// reasons are the reasons of rules at one moment. The end of a tier with 100 policies names them all, which takes 1 ms: each reason is made once.
type reasons struct {
	explain func(iface string, output bool, place, rule int) (policy.Reason, bool)
	known   map[ruleAt]explained
}

// ruleAt is a rule of an interface's lists, as in policy.Processor.Explain.
type ruleAt struct {
	iface       string
	output      bool
	place, rule int
}

type explained struct {
	reason policy.Reason
	ok     bool
}

func newReasons(p *policy.Processor) *reasons {
	return &reasons{explain: p.Explain, known: map[ruleAt]explained{}}
}

func (r *reasons) at(iface string, output bool, place, rule int) (policy.Reason, bool) {
	at := ruleAt{iface, output, place, rule}
	e, known := r.known[at]
	if !known {
		e.reason, e.ok = r.explain(iface, output, place, rule)
		r.known[at] = e
	}
	return e.reason, e.ok
}

// reasonOf returns the reason of the first rule of an interface's lists that has the header. False: no list, or a foreign one.
func (r rules) reasonOf(l *Loop, iface string, output bool, h space.Header) (policy.Reason, bool) {
	return r.firstReason(l, iface, output, h, func(*policy.Reason) bool { return true })
}

// egressOf returns what the egress policies of the pod at an interface decide about a header. The interface's input has their rules behind others: what
// may pass whatever policies decide, and refusals of receivers.
func (r rules) egressOf(l *Loop, iface string, h space.Header) (policy.Reason, bool) {
	found, ok := r.firstReason(l, iface, false, h, decidesEgress)
	return found, ok && decidesEgress(&found)
}

func decidesEgress(r *policy.Reason) bool { return r.Decides && r.Egress }

// firstReason returns the reason of the first rule of an interface's lists that has the header and whose reason fits, or that of the end of the lists.
func (r rules) firstReason(l *Loop, iface string, output bool, h space.Header, fits func(*policy.Reason) bool) (policy.Reason, bool) {
	lists, _ := l.Sent(kv.InterfaceACLsKey(iface)).(*contivacl.InterfaceACLs)
	names := lists.GetInput()
	if output {
		names = lists.GetOutput()
	}
	for place, name := range names {
		for i, box := range r.boxes(l.Sent, name) {
			if !box.Contains(h) {
				continue
			}
			if found, ok := l.reasons.at(iface, output, place, i); !ok || fits(&found) {
				return found, ok
			}
		}
	}
	if len(names) == 0 {
		return policy.Reason{}, false
	}
	return l.reasons.at(iface, output, len(names)-1, -1)
}

// FirstRule returns the first rule that has a header, in the lists of an interface as the agent sent them: the list's place, the number of the rule in it, and
// how many lists there are. Without such a rule place and rule are -1. In the loop.
func FirstRule(sent func(string) proto.Message, iface string, output bool, h space.Header) (place, rule, lists int) {
	m, _ := sent(kv.InterfaceACLsKey(iface)).(*contivacl.InterfaceACLs)
	names := m.GetInput()
	if output {
		names = m.GetOutput()
	}
	r := rules{}
	for place, name := range names {
		for i, box := range r.boxes(sent, name) {
			if box.Contains(h) {
				return place, i, len(names)
			}
		}
	}
	return -1, -1, len(names)
}

func (r rules) boxes(sent func(string) proto.Message, name string) []space.Box {
	now, _ := sent(kv.ACLKey(name)).(*acl.ACL)
	b := r[name]
	if b == nil || b.of != now {
		b = &boxes{of: now}
		for _, rule := range now.GetRules() {
			b.list = append(b.list, boxOf(rule.GetIpRule()))
		}
		r[name] = b
	}
	b.used = true
	return b.list
}

// dropUnused drops the lists that were not used since the last call.
func (r rules) dropUnused() {
	for name, b := range r {
		if !b.used {
			delete(r, name)
		}
		b.used = false
	}
}

// boxOf returns the headers that a rule matches. One without addresses is of IPv4.
func boxOf(r *acl.ACL_Rule_IpRule) space.Box {
	src, errSrc := netip.ParsePrefix(r.GetIp().GetSourceNetwork())
	dst, errDst := netip.ParsePrefix(r.GetIp().GetDestinationNetwork())
	b := space.All4()
	if src.Addr().Is6() || dst.Addr().Is6() {
		b = space.All6()
	}
	if errSrc == nil {
		b.Src = src
	}
	if errDst == nil {
		b.Dst = dst
	}
	span := func(first, last uint32) space.Span { return space.Span{First: uint16(first), Last: uint16(last)} }
	ports := func(p *acl.ACL_Rule_IpRule_PortRange) space.Span { return span(p.GetLowerPort(), p.GetUpperPort()) }
	switch icmp, tcp, udp := r.GetIcmp(), r.GetTcp(), r.GetUdp(); {
	case icmp != nil:
		b.Protocols = space.One(space.ICMP)
		if icmp.GetIcmpv6() {
			b.Protocols = space.One(space.ICMPv6)
		}
		b.SrcPorts = span(icmp.GetIcmpTypeRange().GetFirst(), icmp.GetIcmpTypeRange().GetLast())
		b.DstPorts = span(icmp.GetIcmpCodeRange().GetFirst(), icmp.GetIcmpCodeRange().GetLast())
	case tcp != nil:
		b.Protocols, b.SrcPorts, b.DstPorts = space.One(space.TCP), ports(tcp.GetSourcePortRange()), ports(tcp.GetDestinationPortRange())
		b.FlagMask, b.FlagBits = uint8(tcp.GetTcpFlagsMask()), uint8(tcp.GetTcpFlagsValue())
	case udp != nil:
		b.Protocols, b.SrcPorts, b.DstPorts = space.One(space.UDP), ports(udp.GetSourcePortRange()), ports(udp.GetDestinationPortRange())
	case r.GetIp().GetProtocol() != 0:
		b.Protocols = space.One(uint16(r.GetIp().GetProtocol()))
	}
	return b
}
