package acl

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// negatedRule negates in all dimensions at once.
func negatedRule(action string) *felix.Rule {
	return &felix.Rule{
		Action: action, NotProtocol: &felix.Protocol{NumberOrName: &felix.Protocol_Number{Number: match.TCP}},
		NotSrcNet: []string{"10.1.1.2/32", "fd00:1::2/128"}, NotDstNet: []string{"10.1.2.1/32", "fd00:2::1/128", "8.0.0.0/7"},
		NotSrcIpSetIds: []string{"s1"}, NotDstIpSetIds: []string{"s2"},
	}
}

// Rules that negate protocols and addresses at once become few rules, with the right verdicts.
func TestNegations(t *testing.T) {
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		for _, wholeBytes := range []bool{false, true} {
			t.Run(fmt.Sprint(view, wholeBytes), func(t *testing.T) {
				n := testNode(view)
				n.ByteMatch6 = wholeBytes
				s := newScene(n)
				s.send(start()...)
				s.send(setMessage("s1", felix.IPSetUpdate_NET, []string{"10.1.1.3/32", "fd00:1::3/128"}), setMessage("s2", felix.IPSetUpdate_NET, []string{"10.1.2.2/32"}))
				tcp := &felix.Rule{Action: "allow", Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "tcp"}}, DstPorts: []*felix.PortRange{{First: 80, Last: 80}}}
				s.send(policyMessage(policyIDs[0], &felix.Policy{
					InboundRules:  []*felix.Rule{negatedRule("deny"), tcp, negatedRule("pass")},
					OutboundRules: []*felix.Rule{negatedRule("allow"), negatedRule("pass"), tcp},
				}))
				for i := range pods {
					s.send(podMessage(i, withPolicies("a1", "a1")))
				}
				s.settle(t)
				check(t, s)
				if len(s.b.notes) > 0 {
					t.Errorf("notes: %v", s.reasons())
				}
				rules := 0
				for _, a := range s.b.acls {
					rules += len(a.GetRules())
				}
				if rules > 2000 {
					t.Errorf("%d rules", rules)
				}
			})
		}
	}
}

// check is scene.check, outside a property.
func check(t *testing.T, s *scene) {
	t.Helper()
	each(func(p packet, from, to string) {
		want, got := s.w.wanted(p, from, to, s.r.pods.Node.View(match.FamilyOf(p.src))), s.b.got(p, from, to)
		if !got && p.proto == match.SCTP && (s.withoutSCTP(from, false) || s.withoutSCTP(to, true) || s.fronted(from, p.dst)) {
			return
		}
		if want != got {
			t.Errorf("%s from %q to %q: want %v got %v", p, from, to, want, got)
		}
	})
}

// Every combination of negations is expanded exactly.
func TestNegationsTogether(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) *felix.Rule {
		r := negatedRule(pick(t, "action", []string{"allow", "deny", "pass"}))
		if rapid.Bool().Draw(t, "proto") {
			r.NotProtocol = nil
		}
		if rapid.Bool().Draw(t, "icmp") {
			r.NotIcmp = &felix.Rule_NotIcmpType{NotIcmpType: pick(t, "type", []int32{8, 128})}
		}
		r.SrcNet, r.DstNet = some(t, "srcnet", nets, 2), some(t, "dstnet", nets, 2)
		r.NotSrcNet, r.NotDstNet = some(t, "notsrcnet", nets, 3), some(t, "notdstnet", nets, 3)
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		n := testNode(pick(t, "view", []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT}))
		n.ByteMatch6 = rapid.Bool().Draw(t, "bytes")
		s := newScene(n)
		s.send(start()...)
		for _, id := range setNames[:2] {
			s.send(setMessage(id, felix.IPSetUpdate_NET, some(t, "members", nets, 4)))
		}
		for _, id := range policyIDs[:3] {
			s.send(policyMessage(id, &felix.Policy{
				InboundRules: rapid.SliceOfN(draw, 0, 2).Draw(t, "in"), OutboundRules: rapid.SliceOfN(draw, 0, 2).Draw(t, "out"),
			}))
		}
		for i := range pods {
			s.send(podMessage(i, drawEndpoint(t)))
		}
		s.settle(t)
		s.check(t)
	})
}

// A clause that one pod's program can except, and another's cannot because too many rules follow, becomes two tables. The order of making
// them is random.
func TestNegationsBeforeMuch(t *testing.T) {
	deny := negatedRule("deny")
	deny.IpVersion = felix.IPVersion_IPV4
	deny.NotSrcNet, deny.NotSrcIpSetIds, deny.NotDstNet = nil, nil, nil // few enough to expand without exceptions
	var much []*felix.Rule
	for i := range int32(policy.MostUnfolded * 2 / 5) {
		much = append(much, &felix.Rule{Action: "allow", Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "tcp"}}, DstPorts: []*felix.PortRange{{First: i, Last: i}}})
	}
	for range pace.Fewer(8, 4) {
		s := newScene(testNode(dataplane.PostDNAT))
		s.send(start()...)
		s.send(setMessage("s2", felix.IPSetUpdate_NET, []string{"10.1.2.2/32"}))
		s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: []*felix.Rule{deny}}), policyMessage(policyIDs[1], &felix.Policy{OutboundRules: much}))
		for i := range pods {
			e := withPolicies("", "a1")
			if i%2 == 1 {
				e.Tiers[0].EgressPolicies = []string{"a1", "a2"}
			}
			s.send(podMessage(i, e))
		}
		s.settle(t)
		if check(t, s); len(s.b.notes) > 0 {
			t.Errorf("notes: %v", s.reasons())
		}
	}
}
