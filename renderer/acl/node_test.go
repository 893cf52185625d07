package acl

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Packets from an address that NAT gives to others reach no pod with policies, even if policies admit it; packets from the host link reach
// all pods.
func TestAddressesOfNATAreNobodys(t *testing.T) {
	host := netip.MustParseAddr("169.254.1.2")
	everybody := &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow"}}}
	theNode := &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcNet: []string{"192.168.0.0/16"}}}}
	for _, c := range []struct {
		name       string
		view       dataplane.View
		host       []netip.Addr
		pool, link bool
	}{
		{"nat44", dataplane.PreDNAT, addrs("169.254.1.2"), false, true},
		{"nat44, nothing known", dataplane.PreDNAT, nil, false, false},
		{"nat44, trusted", dataplane.PreDNAT, addrs("169.254.1.2", "192.168.0.1"), true, true},
		{"cnat", dataplane.PostDNAT, nil, true, false},
		{"cnat, host link", dataplane.PostDNAT, addrs("169.254.1.2"), true, true},
	} {
		for _, p := range []*felix.Policy{{}, theNode} {
			n := testNode(c.view)
			n.HostAddrs = c.host
			s := newScene(n)
			s.send(start()...)
			s.send(policyMessage(policyIDs[0], p), policyMessage(policyIDs[1], everybody), podMessage(0, withPolicies("a1", "")))
			s.settle(t)
			for _, proto := range []uint8{match.TCP, match.UDP, match.ICMP} {
				port := uint16(80)
				if proto == match.ICMP {
					port = 0
				}
				from := func(a netip.Addr) packet { return packet{a, podIPs[0][0], proto, 8, port} }
				if got := s.b.on("if-p1", true, from(nodeIPs[0])); got != c.pool {
					t.Errorf("%s: protocol %d from the node's address: %v", c.name, proto, got)
				}
				if got := s.b.on("if-p1", true, from(host)); got != c.link {
					t.Errorf("%s: protocol %d from the host link: %v", c.name, proto, got)
				}
			}
			if got := s.b.on("if-p1", true, packet{nodeIPs[1], podIPs[0][1], match.TCP, 4000, 80}); !got { // IPv6 is not translated before
				t.Errorf("%s: IPv6 from the node's address: %v", c.name, got)
			}
			if got := s.b.on("if-p1", true, packet{host, podIPs[0][0], 132, 0, 0}); got != c.link {
				t.Errorf("%s: SCTP from the host link: %v", c.name, got)
			}
		}
	}
}

// Under nat44 SCTP of every pod has the node's address: if a policy matches the sender, no SCTP enters, even if the policy admits the
// node's address or denies others. If none does, policies decide.
func TestSCTPThatNATHidesFailsClosed(t *testing.T) {
	theNode := &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcNet: []string{"192.168.0.0/16"}}}}
	notPods := &felix.Policy{InboundRules: []*felix.Rule{{Action: "deny", SrcNet: []string{"10.0.0.0/8"}}, {Action: "allow"}}}
	everybody := &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow"}, {Action: "deny"}}}
	for _, c := range []struct {
		name   string
		view   dataplane.View
		host   []netip.Addr
		policy *felix.Policy
		want   bool
	}{
		{"nat44, lets the node in", dataplane.PreDNAT, addrs("169.254.1.2"), theNode, false},
		{"nat44, denies pods", dataplane.PreDNAT, addrs("169.254.1.2"), notPods, false},
		{"nat44, asks nobody", dataplane.PreDNAT, addrs("169.254.1.2"), everybody, true},
		{"nat44, trusted", dataplane.PreDNAT, addrs("192.168.0.1"), notPods, true},
		{"cnat", dataplane.PostDNAT, nil, notPods, true},
	} {
		n := testNode(c.view)
		n.HostAddrs = c.host
		s := newScene(n)
		s.send(start()...)
		s.send(policyMessage(policyIDs[0], c.policy), podMessage(0, withPolicies("a1", "")))
		s.settle(t)
		if got := s.b.on("if-p1", true, packet{nodeIPs[0], podIPs[0][0], match.SCTP, 4000, 80}); got != c.want {
			t.Errorf("%s: SCTP from the node's address: %v", c.name, got)
		}
		if got := s.b.on("if-p1", true, packet{netip.MustParseAddr("10.96.0.1"), podIPs[0][0], match.SCTP, 4000, 80}); got && !c.want {
			t.Errorf("%s: SCTP from the address of a Service: %v", c.name, got)
		}
		if got := s.b.on("if-p1", true, packet{nodeIPs[1], podIPs[0][1], match.SCTP, 4000, 80}); !got && c.policy != theNode {
			t.Errorf("%s: SCTP from the node's IPv6 address: %v", c.name, got)
		}
	}
}
