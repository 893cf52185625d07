package acl

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A rule that allows some sources allows no address of another node in the pre-dnat view, in any form of the rule; one that allows all does.
// Addresses adjacent to a node's are allowed as before.
func TestRulesAboutPeers(t *testing.T) {
	const peer, beside = "192.168.0.7", "192.168.0.6"
	many := []string{"192.168.0.6/32", "192.168.0.7/32", "10.9.0.0/16"}
	for i := range 600 { // several tables
		many = append(many, fmt.Sprintf("10.8.%d.%d/32", i/256, i%256))
	}
	for _, c := range []struct {
		name  string
		rules []*felix.Rule
		peer  bool // the rules alone admit it
		open  bool // by a rule without sources
		noted bool
	}{
		{"a network", []*felix.Rule{{Action: "allow", SrcNet: []string{"192.168.0.0/24"}}}, true, false, true},
		{"the address", []*felix.Rule{{Action: "allow", SrcNet: []string{"192.168.0.6/32", "192.168.0.7/32"}}}, true, false, true},
		{"all addresses as a network", []*felix.Rule{{Action: "allow", SrcNet: []string{"0.0.0.0/0"}, NotSrcNet: []string{"10.0.0.0/8"}}}, true, false, false},
		{"not some", []*felix.Rule{{Action: "allow", NotSrcNet: []string{"10.0.0.0/8"}}}, true, false, false},
		{"a set", []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"many"}}}, true, false, false},
		{"a set with a network", []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"wide"}}}, true, false, false},
		{"two sets", []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"many", "wide"}}}, true, false, false},
		{"not a set", []*felix.Rule{{Action: "allow", NotSrcIpSetIds: []string{"pods"}}}, true, false, false},
		{"what a rule passes on", []*felix.Rule{{Action: "pass", SrcNet: []string{"192.168.0.0/24"}}, {Action: "deny"}}, true, false, true},
		{"all", []*felix.Rule{{Action: "allow"}}, true, true, false},
		{"all at a port", []*felix.Rule{{Action: "allow", Protocol: named("tcp"), DstPorts: []*felix.PortRange{{First: 80, Last: 80}}}}, true, true, false},
		{"many negations", []*felix.Rule{{Action: "allow", NotSrcIpSetIds: []string{"pods"}, NotProtocol: named("sctp"), NotDstNet: []string{"10.1.1.77/32", "10.3.0.0/16"}, NotSrcNet: []string{"10.77.3.1/32", "11.4.4.4/32", "12.1.2.3/32", "13.1.2.3/32"}}}, true, false, false},
	} {
		for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
			for _, known := range []bool{true, false} { // the node's address is known from the start, or is added later
				n := testNode(view)
				later := n
				later.Peers = addrs(peer, "192.168.0.99")
				if known {
					n = later
				}
				s := newScene(n)
				s.send(start()...)
				s.send(setMessage("many", felix.IPSetUpdate_NET, many), setMessage("wide", felix.IPSetUpdate_NET, []string{"192.168.0.0/28"}), setMessage("pods", felix.IPSetUpdate_NET, []string{"10.1.1.2/32"}))
				s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: c.rules}), podMessage(0, withPolicies("a1", "")))
				s.settle(t)
				s.r.SetNode(later)
				s.settle(t)
				for src, want := range map[string]bool{peer: c.peer && (c.open || view == dataplane.PostDNAT), beside: c.peer} {
					p := packet{netip.MustParseAddr(src), podIPs[0][match.V4], match.TCP, 40000, 80}
					if got := s.b.on("if-p1", true, p); got != want {
						t.Errorf("%s, %s, known %v: from %s: %v", c.name, view, known, src, got)
					}
				}
				said := strings.Contains(strings.Join(s.reasons(), "\n"), "addresses of nodes")
				if said != (c.noted && view == dataplane.PreDNAT) {
					t.Errorf("%s, %s: notes %q", c.name, view, s.reasons())
				}
			}
		}
	}
}
