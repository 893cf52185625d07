package flows

import (
	"fmt"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/space"
)

// A rule matches the headers that VPP matches by it.
func TestBoxes(t *testing.T) {
	ports := func(first, last uint32) *acl.ACL_Rule_IpRule_PortRange {
		return &acl.ACL_Rule_IpRule_PortRange{LowerPort: first, UpperPort: last}
	}
	from := &acl.ACL_Rule_IpRule_Ip{SourceNetwork: "10.1.0.0/16", DestinationNetwork: "0.0.0.0/0"}
	six := &acl.ACL_Rule_IpRule_Ip{SourceNetwork: "fd00::/64", DestinationNetwork: "::/0"}
	icmp := func(v6 bool) *acl.ACL_Rule_IpRule_Icmp {
		r := &acl.ACL_Rule_IpRule_Icmp_Range{First: 3, Last: 4}
		return &acl.ACL_Rule_IpRule_Icmp{Icmpv6: v6, IcmpTypeRange: r, IcmpCodeRange: &acl.ACL_Rule_IpRule_Icmp_Range{Last: 255}}
	}
	syn := &acl.ACL_Rule_IpRule{Ip: from, Tcp: &acl.ACL_Rule_IpRule_Tcp{
		SourcePortRange: ports(0, 65535), DestinationPortRange: ports(80, 81), TcpFlagsMask: 18, TcpFlagsValue: 2,
	}}
	for _, c := range []struct {
		name    string
		rule    *acl.ACL_Rule_IpRule
		header  string
		matches bool
	}{
		{"SYN", syn, "6 10.1.0.1 10.2.0.1 1 80 2", true},
		{"SYN and ACK", syn, "6 10.1.0.1 10.2.0.1 1 80 18", false},
		{"another port", syn, "6 10.1.0.1 10.2.0.1 1 82 2", false},
		{"another source", syn, "6 10.2.0.1 10.2.0.1 1 80 2", false},
		{"UDP by TCP's rule", syn, "17 10.1.0.1 10.2.0.1 1 80 2", false},
		{"UDP", &acl.ACL_Rule_IpRule{Ip: from, Udp: &acl.ACL_Rule_IpRule_Udp{SourcePortRange: ports(5, 5), DestinationPortRange: ports(0, 9)}}, "17 10.1.0.1 10.2.0.1 5 9 0", true},
		{"UDP from another port", &acl.ACL_Rule_IpRule{Ip: from, Udp: &acl.ACL_Rule_IpRule_Udp{SourcePortRange: ports(5, 5), DestinationPortRange: ports(0, 9)}}, "17 10.1.0.1 10.2.0.1 9 5 0", false},
		{"ICMP", &acl.ACL_Rule_IpRule{Ip: from, Icmp: icmp(false)}, "1 10.1.0.1 10.2.0.1 3 9 0", true},
		{"ICMP of another type", &acl.ACL_Rule_IpRule{Ip: from, Icmp: icmp(false)}, "1 10.1.0.1 10.2.0.1 8 0 0", false},
		{"ICMPv6", &acl.ACL_Rule_IpRule{Ip: six, Icmp: icmp(true)}, "58 fd00::1 fd01::1 4 0 0", true},
		{"IPv4 by IPv6's rule", &acl.ACL_Rule_IpRule{Ip: six}, "6 10.1.0.1 10.2.0.1 1 80 2", false},
		{"any protocol", &acl.ACL_Rule_IpRule{Ip: from}, "47 10.1.0.1 10.2.0.1 0 0 0", true},
		{"one protocol", &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{SourceNetwork: "10.1.0.0/16", DestinationNetwork: "0.0.0.0/0", Protocol: 47}}, "50 10.1.0.1 10.2.0.1 0 0 0", false},
	} {
		var h space.Header
		var src, dst string
		if _, err := fmt.Sscan(c.header, &h.Protocol, &src, &dst, &h.SrcPort, &h.DstPort, &h.Flags); err != nil {
			t.Fatal(err)
		}
		h.Src, h.Dst = netip.MustParseAddr(src), netip.MustParseAddr(dst)
		if box := boxOf(c.rule); box.Contains(h) != c.matches {
			t.Errorf("%s: %s matches %v", c.name, h, !c.matches)
		}
	}
}

// A reason is made once for each rule, and again at the next read.
func TestReasonsAreMadeOnce(t *testing.T) {
	made := map[ruleAt]int{}
	explain := func(iface string, output bool, place, rule int) (policy.Reason, bool) {
		made[ruleAt{iface, output, place, rule}]++
		return policy.Reason{Text: fmt.Sprint(iface, output, place, rule)}, rule < 2
	}
	for read := 1; read <= 2; read++ {
		r := newReasons(nil)
		r.explain = explain
		for range 3 {
			for _, at := range []ruleAt{{"a", false, 0, 1}, {"b", false, 0, 1}, {"a", true, 0, 1}, {"a", false, 1, 1}, {"a", false, 0, -1}, {"a", false, 0, 2}} {
				got, ok := r.at(at.iface, at.output, at.place, at.rule)
				if want := fmt.Sprint(at.iface, at.output, at.place, at.rule); got.Text != want || ok != (at.rule < 2) || made[at] != read {
					t.Errorf("read %d: %+v has %q, %v, made %d times", read, at, got.Text, ok, made[at])
				}
			}
		}
	}
}

// An interface without lists denies nothing: there is no end of its lists.
func TestNoListDecidesNothing(t *testing.T) {
	l := &Loop{Sent: func(string) proto.Message { return nil }, reasons: newReasons(nil)}
	l.reasons.explain = func(string, bool, int, int) (policy.Reason, bool) { return policy.Reason{Denied: true}, true }
	if r, ok := (rules{}).reasonOf(l, "pod", true, space.Header{Src: netip.MustParseAddr("10.1.0.1"), Dst: netip.MustParseAddr("10.2.0.1"), Protocol: space.TCP}); ok {
		t.Errorf("%+v", r)
	}
}
