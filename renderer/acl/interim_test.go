package acl

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A source that joins a set is evaluated again at all destinations.
func TestSourceJoinsSet(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	rules := []*felix.Rule{{Action: "deny", SrcIpSetIds: []string{"s1"}, DstNet: []string{"10.1.1.0/24"}}, {Action: "allow"}}
	s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: rules}), podMessage(0, withPolicies("", "a1")))
	s.send(podMessage(1, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	s.settle(t)
	p := packet{podIPs[0][0], podIPs[1][0], 6, 40000, 80}
	for _, in := range []bool{false, true, false} {
		members := slices.DeleteFunc([]string{"10.1.1.1/32"}, func(m string) bool { return in == slices.Contains(s.w.sets["s1"].GetMembers(), m) })
		if len(members) > 0 {
			d := &felix.IPSetDeltaUpdate{Id: "s1", AddedMembers: members}
			if !in {
				d = &felix.IPSetDeltaUpdate{Id: "s1", RemovedMembers: members}
			}
			s.send(&felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}})
		}
		s.settle(t)
		if got := s.b.gotByService(p, "p1", "p2"); got == in {
			t.Errorf("source in the set %v: passes %v", in, got)
		}
	}
}

// Packets that a new pod may not send are denied at their destination before the pod may send anything.
func TestNewPodWaitsForOthers(t *testing.T) {
	n := testNode(dataplane.PreDNAT)
	delete(n.Interfaces, podIPs[0][match.V4])
	delete(n.Interfaces, podIPs[0][match.V6])
	s := newScene(n)
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: []*felix.Rule{{Action: "deny", DstNet: []string{"10.1.1.2/32"}}, {Action: "allow"}}}))
	for i := range pods[1:] {
		s.send(podMessage(1+i, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	}
	s.settle(t)
	s.r.SetNode(testNode(dataplane.PreDNAT))
	s.send(podMessage(0, withPolicies("", "a1")))
	direct, away := packet{podIPs[0][match.V4], podIPs[1][match.V4], match.TCP, 40000, 80}, packet{podIPs[0][match.V4], podIPs[2][match.V4], match.TCP, 40000, 80}
	if !s.r.Apply() || s.b.gotByService(away, "p1", "p3") || s.b.leaves(direct, "p1", "p2") {
		t.Errorf("it may send, or others do not know yet: %v", s.b.lists["if-p1"])
	}
	s.settle(t)
	if !s.b.gotByService(away, "p1", "p3") || s.b.gotByService(direct, "p1", "p2") {
		t.Errorf("in the end: %v", s.b.lists["if-p1"])
	}
}

// TestOpeningWaitsForEarlierClosing: while VPP may not have a closed egress, no other interface's ingress is opened. A change that only closes is
// sent at once.
func TestOpeningWaitsForEarlierClosing(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	allow, none := []*felix.Rule{{Action: "allow"}}, []*felix.Rule{{Action: "deny"}}
	s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: allow}), policyMessage(policyIDs[2], &felix.Policy{InboundRules: none}))
	egress := withPolicies("", "a1")
	ingress := &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}, Tiers: []*felix.TierInfo{{Name: "b", IngressPolicies: []string{"b1"}}}}
	s.send(podMessage(0, egress), podMessage(1, ingress), podMessage(2, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	s.settle(t)
	in := packet{podIPs[2][match.V4], podIPs[1][match.V4], match.TCP, 40000, 80}

	s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: none}))
	if s.r.Apply() {
		t.Fatal("a change that only closes has a state on the way")
	}
	s.r.Behind(dataplane.Progress{Behind: true, Acknowledged: false})
	s.send(policyMessage(policyIDs[2], &felix.Policy{InboundRules: allow}))
	if again := s.r.Apply(); !again || s.b.on("if-p2", true, in) {
		t.Errorf("again %v, the ingress is open %v while the egress may not be closed", again, s.b.on("if-p2", true, in))
	}
	if again := s.r.Apply(); !again {
		t.Error("it waits once only")
	}
	s.r.Behind(dataplane.Progress{Behind: false, Acknowledged: true})
	if again := s.r.Apply(); again || !s.b.on("if-p2", true, in) {
		t.Errorf("again %v, the ingress is open %v when the egress is closed", again, s.b.on("if-p2", true, in))
	}
	s.r.Behind(dataplane.Progress{Behind: true, Acknowledged: false})
	s.send(policyMessage(policyIDs[2], &felix.Policy{InboundRules: none}))
	if again := s.r.Apply(); again || s.b.on("if-p2", true, in) {
		t.Errorf("again %v, the ingress is open %v: what closes does not wait", again, s.b.on("if-p2", true, in))
	}
}

// TestOpeningFollowsEndedConnections: an interface opens for packets to an endpoint that leaves a Service only when VPP has that. Another one opens at once.
func TestOpeningFollowsEndedConnections(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	allow, none := []*felix.Rule{{Action: "allow", SrcNet: []string{"10.1.1.0/24"}}}, []*felix.Rule{{Action: "allow", SrcNet: []string{"192.0.2.1/32"}}}
	ingress := &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}, Tiers: []*felix.TierInfo{{Name: "b", IngressPolicies: []string{"b1"}}}}
	in := packet{podIPs[2][match.V4], podIPs[1][match.V4], match.TCP, 40000, 80}
	open := func() bool { return s.b.on("if-p2", true, in) }
	change := func(p *felix.Policy) { s.send(policyMessage(policyIDs[2], p)) }
	change(&felix.Policy{InboundRules: none})
	s.send(podMessage(1, ingress), podMessage(2, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	s.settle(t)
	here, there := []netip.Addr{podIPs[1][match.V4]}, []netip.Addr{podIPs[2][match.V4]}

	s.r.Behind(dataplane.Progress{Ending: func() (now, late []netip.Addr) { return there, there }})
	change(&felix.Policy{InboundRules: allow})
	if again := s.r.Apply(); again || !open() {
		t.Fatalf("another endpoint leaves a Service: again %v, open %v", again, open())
	}
	change(&felix.Policy{InboundRules: none})
	s.settle(t)

	s.r.Behind(dataplane.Progress{Ending: func() (now, late []netip.Addr) { return here, nil }})
	change(&felix.Policy{InboundRules: allow})
	if again := s.r.Apply(); !again || open() {
		t.Fatalf("with the change: again %v, open %v", again, open())
	}
	s.r.Behind(dataplane.Progress{Ending: func() (now, late []netip.Addr) { return nil, here }})
	if again := s.r.Apply(); !again || open() {
		t.Fatalf("VPP may lack the change: again %v, open %v", again, open())
	}
	s.r.Behind(dataplane.Progress{Ending: func() (now, late []netip.Addr) { return here, nil }}) // it leaves another Service
	if s.r.Apply(); !open() {
		t.Error("closed when VPP has the change")
	}
	change(&felix.Policy{InboundRules: none})
	s.r.Behind(dataplane.Progress{Ending: func() (now, late []netip.Addr) { return here, here }})
	if s.r.Apply(); open() {
		t.Error("what closes waits")
	}
}
