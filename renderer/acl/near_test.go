package acl

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// atPods are rules whose result differs between local pods, or between their sources.
var atPods = []*felix.Rule{
	{DstNet: nets[1:3]},
	{DstNet: []string{nets[0], "fd00:1::1/128"}},
	{DstNet: []string{"fd00:1::2/128"}},
	{NotDstNet: nets[1:3]},
	{DstIpSetIds: []string{"s1"}},
	{NotDstIpSetIds: []string{"s1"}},
	{DstIpSetIds: []string{"s1", "unheard-of"}},
	{Protocol: named("tcp"), DstNamedPortIpSetIds: []string{"n1"}},
	{Protocol: named("tcp"), NotDstNamedPortIpSetIds: []string{"n1"}},
	{Protocol: named("tcp"), DstIpPortSetIds: []string{"n1"}},
	{IpVersion: felix.IPVersion_IPV4, Protocol: named("udp")},
	{SrcNet: nets[1:2], DstNet: nets[:1]},
	{Protocol: named("tcp"), DstPorts: []*felix.PortRange{{First: 80, Last: 80}}},
}

// Denials at a pod are copied from another pod only if they are equal.
func TestResiduesTakenOver(t *testing.T) {
	denied := 0
	rapid.Check(t, func(t *rapid.T) {
		n := testNode(dataplane.PreDNAT)
		n.View6 = pick(t, "view of IPv6", []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT})
		n.Interfaces = maps.Clone(n.Interfaces)
		s := newScene(testNode(n.View4))
		s.send(start()...)
		s.send(setMessage("s1", felix.IPSetUpdate_NET, nets[1:3]), setMessage("n1", felix.IPSetUpdate_IP_AND_PORT, endpoints[:4]))
		var rules []*felix.Rule
		for range rapid.IntRange(1, 4).Draw(t, "rules") {
			r := proto.Clone(pick(t, "rule", atPods)).(*felix.Rule)
			r.Action = pick(t, "action", []string{"allow", "deny"})
			rules = append(rules, r)
		}
		s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: rules}))
		for i := range pods {
			m := podMessage(i, withPolicies("", "a1"))
			if f := rapid.IntRange(0, 2).Draw(t, "family"); f < 2 { // only this one
				delete(n.Interfaces, podIPs[i][1-f])
				e := m.GetWorkloadEndpointUpdate().GetEndpoint()
				if e.Ipv6Nets = nil; match.Family(f) == match.V6 {
					e.Ipv4Nets, e.Ipv6Nets = nil, []string{podIPs[i][match.V6].String() + "/128"}
				}
			}
			s.send(m)
		}
		s.r.SetNode(n)
		s.settle(t)
		for p, j := range s.r.outbound {
			for _, i := range s.r.ifaces {
				got, want := i.residues[p], s.r.freshResidue(j, slices.Collect(p.steps.Each), s.r.node.Early(nil, i.addrs))
				if (got == nil) != (want == nil) || got != nil && got.sig != want.sig {
					t.Fatalf("%s: %+v, want %+v", i.name, got, want)
				}
				if got != nil {
					denied++
				}
			}
		}
	})
	if denied == 0 {
		t.Error("nothing was ever denied")
	}
}
