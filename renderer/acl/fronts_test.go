package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Under nat44 a pod whose egress policies treat destinations differently sends no SCTP to addresses behind which nat44 may hide another pod: Services' and
// nodes'. Other addresses, the host link among them, are evaluated as ever; so are all if the policies treat all alike, and other protocols.
func TestNoSCTPToFronts(t *testing.T) {
	const outer = "198.51.100.9"
	all := []string{"192.168.0.1", "192.168.0.7", "10.96.0.10", outer}
	rule := func(action, protocol string, dst ...string) *felix.Rule {
		r := &felix.Rule{Action: action, DstNet: dst}
		if protocol != "" {
			r.Protocol = named(protocol)
		}
		return r
	}
	for _, c := range []struct {
		name   string
		egress []*felix.Rule
		denied bool // SCTP to addresses of Services and nodes, under nat44
		noted  bool
	}{
		{"some networks", []*felix.Rule{rule("allow", "", "192.168.0.0/16", "10.96.0.0/16", "198.51.100.0/24", "169.254.0.0/16")}, true, false},
		{"SCTP to a node", []*felix.Rule{rule("allow", "sctp", "192.168.0.7/32"), rule("allow", "tcp")}, true, true},
		{"SCTP to all", []*felix.Rule{rule("allow", "sctp", "0.0.0.0/0"), rule("deny", "")}, true, false},
		{"not pods", []*felix.Rule{rule("deny", "sctp", "10.1.0.0/16"), rule("allow", "")}, true, false},
		{"a set", []*felix.Rule{{Action: "deny", DstIpSetIds: []string{"far"}}, rule("allow", "")}, true, false},
		{"a set of ports", []*felix.Rule{{Action: "deny", Protocol: named("sctp"), DstNamedPortIpSetIds: []string{"ports"}}, rule("allow", "")}, true, false},
		{"what a rule passes on", []*felix.Rule{rule("pass", "", "192.168.0.0/16"), rule("deny", "")}, true, false},
		{"no addresses", []*felix.Rule{rule("allow", "sctp"), rule("allow", "udp"), rule("deny", "")}, false, false},
		{"addresses for TCP alone", []*felix.Rule{rule("deny", "tcp", "10.1.0.0/16"), rule("allow", "")}, false, false},
		{"IPv6 addresses", []*felix.Rule{rule("deny", "sctp", "fd00:2::/64"), rule("allow", "")}, false, false},
	} {
		for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
			for _, known := range []bool{true, false} { // addresses are known from the start, or are added later
				n := testNode(view)
				n.HostAddrs = addrs("169.254.1.2")
				later := n
				later.Peers = addrs("192.168.0.7")
				later.Outer = []dataplane.Outer{
					{Addr: netip.MustParseAddr(outer), Proto: match.TCP, Port: 80, Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.2.1:80")}},
					{Addr: nodeIPs[0], Proto: match.TCP, Port: 30080, Backends: []netip.AddrPort{netip.MustParseAddrPort("10.1.2.1:80")}},
				}
				if known {
					n = later
				}
				s := newScene(n)
				s.send(start()...)
				s.send(setMessage("far", felix.IPSetUpdate_NET, []string{"10.1.2.1/32"}), setMessage("ports", felix.IPSetUpdate_IP_AND_PORT, []string{"10.1.2.1,sctp:80"}))
				s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow"}}, OutboundRules: c.egress}), podMessage(0, withPolicies("", "a1")))
				s.settle(t)
				s.r.SetNode(later)
				s.settle(t)
				what := fmt.Sprintf("%s, %s, known %v", c.name, view, known)
				for _, dst := range append(slices.Clone(all), "169.254.1.2") {
					p := packet{podIPs[0][0], netip.MustParseAddr(dst), match.SCTP, 0, 0}
					pod := s.w.eps[pods[0]]
					want := s.w.allows(pod, true, p) && (!c.denied || view == dataplane.PostDNAT || dst == "169.254.1.2")
					if got := s.b.on("if-p1", false, p); got != want {
						t.Errorf("%s: SCTP to %s: %v", what, dst, got)
					}
					p.proto, p.dport = 47, 0
					if got, want := s.b.on("if-p1", false, p), s.w.allows(pod, true, p); got != want {
						t.Errorf("%s: GRE to %s: %v", what, dst, got)
					}
				}
				if said := strings.Contains(strings.Join(s.reasons(), "\n"), "SCTP to addresses of nodes"); said != (c.noted && view == dataplane.PreDNAT) {
					t.Errorf("%s: notes %q", what, s.reasons())
				}
			}
		}
	}
}

// Pods share the tables of Services' and nodes' addresses: a new Service, and a new node, change one table, and no list.
func TestFrontsAreShared(t *testing.T) {
	n := testNode(dataplane.PreDNAT)
	n.Frontends = append(n.Frontends, netip.MustParsePrefix("172.16.0.5/32"))
	n.Peers = addrs("192.168.0.7")
	s := newScene(n)
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: []*felix.Rule{{Action: "allow", DstNet: []string{"10.0.0.0/8"}}}}))
	for i := range 3 {
		s.send(podMessage(i, withPolicies("", "a1")))
	}
	s.settle(t)
	for i := range 3 {
		in := s.b.lists["if-"+pods[i]].GetInput()
		if !slices.Contains(in, table.ServiceFronts) || !slices.Contains(in, table.NodeFronts) {
			t.Fatalf("%s has %v", pods[i], in)
		}
	}
	was := s.b.clone()
	n.Peers = addrs("192.168.0.7", "192.168.0.8")
	s.r.SetNode(n)
	s.settle(t)
	for name := range s.b.lists {
		if !slices.Equal(s.b.lists[name].GetInput(), was.lists[name].GetInput()) {
			t.Errorf("%s has %v, had %v", name, s.b.lists[name].GetInput(), was.lists[name].GetInput())
		}
	}
	for name := range s.b.acls {
		if got := s.b.acls[name].String() != was.acls[name].String(); got != (name == table.NodeFronts) {
			t.Errorf("%s changed: %v", name, got)
		}
	}
}
