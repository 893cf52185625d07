package acl

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// onTheWay returns the verdict for a packet while some interfaces have changed from a to b and others have not: it passes if any such state
// lets it.
func onTheWay(a, b *book, p, dialled packet, from, to string) bool {
	in := entrance(p, from)
	return (a.on(in, false, dialled) || b.on(in, false, dialled)) && (a.leaves(p, from, to) || b.leaves(p, from, to))
}

// entrance is the interface where a packet enters.
func entrance(p packet, from string) string {
	switch {
	case from != "":
		return "if-" + from
	case slices.Contains(nodeIPs, p.src):
		return "host"
	case p.src == remotes[0] || p.src == remotes[1]:
		return "overlay"
	}
	return "uplink"
}

// While interfaces change, in any order, nothing passes that is denied both before and after.
func TestNothingPassesOnTheWay(t *testing.T) {
	interims := 0
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		t.Run(view.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newTightCheckedScene(testNode(view), rapid.Bool().Draw(t, "tight"), pick(t, "sources", modes))
				s.r.pods.Segs.Most = pick(t, "most", mosts)
				s.send(start()...)
				for range rapid.IntRange(1, 8).Draw(t, "changes") {
					states := []*book{s.b.clone()}
					for range rapid.IntRange(1, 6).Draw(t, "messages") {
						s.send(drawMessage(t, s.w))
					}
					for again := true; again; {
						again = s.r.Apply()
						states = append(states, s.b.clone())
					}
					interims += len(states) - 2
					checkTheWay(t, states, view, pick(t, "forger", pods))
				}
			})
		})
	}
	if interims == 0 {
		t.Error("no change needed a state on the way")
	}
}

// checkTheWay checks all packets, and those of other pods as if the forger had sent them.
func checkTheWay(t *rapid.T, states []*book, view dataplane.View, forger string) {
	first, last := states[0], states[len(states)-1]
	look := func(p packet, from, to string) {
		evaluate := func(p, dialled packet, how string) {
			pass := func(b *book) bool { return onTheWay(b, b, p, dialled, from, to) }
			if pass(first) || pass(last) {
				return
			}
			for i := range states[1:] {
				if onTheWay(states[i], states[i+1], p, dialled, from, to) {
					t.Fatalf("%s%s from %q to %q passes on the way, at %d of %d", p, how, from, to, i, len(states)-1)
				}
			}
		}
		evaluate(p, p, "")
		if from != "" && leavesBy(p.dst) == "uplink" {
			leaving := p
			leaving.src = nodeIPs[match.FamilyOf(p.src)]
			evaluate(leaving, p, " masqueraded")
		}
		if view == dataplane.PreDNAT && from != "" && p.translated() && p.src.Is4() {
			dialled := p
			dialled.dst, dialled.dport = netip.MustParseAddr("10.96.0.10"), 8081
			evaluate(p, dialled, " by a service")
		}
	}
	each(func(p packet, from, to string) {
		look(p, from, to)
		if from != "" && from != forger && to != forger {
			look(p, forger, to)
		}
	})
}

// A change that opens and closes takes two steps, a change that only opens or only closes takes one.
func TestStepsOfAChange(t *testing.T) {
	both := func(in, out string) *scene {
		s := newScene(testNode(dataplane.PostDNAT))
		s.send(start()...)
		s.send(policyMessage(policyIDs[0], in2out(in, "allow")), policyMessage(policyIDs[1], in2out("allow", out)))
		s.send(podMessage(0, withPolicies("a1", "")), podMessage(1, withPolicies("", "a2")))
		s.settle(t)
		return s
	}
	for _, c := range []struct {
		name                     string
		in, out, thenIn, thenOut string
		steps                    int
	}{
		{"opens", "deny", "deny", "allow", "allow", 1},
		{"closes", "allow", "allow", "deny", "deny", 1},
		{"opens one, closes the other", "deny", "allow", "allow", "deny", 2},
		{"closes one, opens the other", "allow", "deny", "deny", "allow", 2},
		{"changes nothing", "deny", "allow", "deny", "allow", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := both(c.in, c.out)
			s.send(policyMessage(policyIDs[0], in2out(c.thenIn, "allow")), policyMessage(policyIDs[1], in2out("allow", c.thenOut)))
			steps := 1
			for s.r.Apply() {
				steps++
			}
			if steps != c.steps {
				t.Errorf("%d steps, want %d", steps, c.steps)
			}
		})
	}
}

// A pod's egress is evaluated twice if its input sees Services, and opens at one place while it closes at another. Both evaluate
// the same packet, so one step suffices if no pod uses the address of another one: what it dials then is evaluated at the input, as dialled,
// and where it leaves, as it arrives.
func TestStepsOfEgress(t *testing.T) {
	for _, mode := range []SourceCheck{SourceStrict, SourceOff} {
		s := newCheckedScene(testNode(dataplane.PreDNAT), mode)
		s.send(start()...)
		to := func(net string) *felix.ToDataplane {
			return policyMessage(policyIDs[0], &felix.Policy{OutboundRules: []*felix.Rule{{Action: "allow", DstNet: []string{net}}}})
		}
		s.send(to("10.1.2.1/32"))
		for i := range 2 {
			s.send(podMessage(i, withPolicies("", "a1")))
		}
		s.settle(t)
		before := s.b.clone()
		s.send(to("10.96.0.10/32"))
		steps := 1
		for ; s.r.Apply(); steps++ {
		}
		if want := 1 + match.InOut(mode == SourceOff); steps != want {
			t.Errorf("source check %v: %d steps, want %d", mode, steps, want)
		}
		forged := packet{podIPs[1][match.V4], netip.MustParseAddr("10.1.2.1"), match.TCP, 40000, 80}
		dialled := forged
		dialled.dst = netip.MustParseAddr("10.96.0.10")
		pass := func(a, b *book) bool { return onTheWay(a, b, forged, dialled, pods[0], "") }
		if hole := pass(before, s.b) && !pass(before, before) && !pass(s.b, s.b); hole != (mode == SourceOff) {
			t.Errorf("source check %v: in one step, what one pod dials with the address of another would pass: %v", mode, hole)
		}
	}
}

// in2out is a policy with one rule in each direction, for TCP.
func in2out(in, out string) *felix.Policy {
	tcp := &felix.Protocol{NumberOrName: &felix.Protocol_Number{Number: 6}}
	return &felix.Policy{InboundRules: []*felix.Rule{{Action: in, Protocol: tcp}}, OutboundRules: []*felix.Rule{{Action: out, Protocol: tcp}}}
}

// withPolicies is an endpoint with one policy in a direction.
func withPolicies(in, out string) *felix.WorkloadEndpoint {
	t := &felix.TierInfo{Name: "a"}
	if in != "" {
		t.IngressPolicies = []string{in}
	}
	if out != "" {
		t.EgressPolicies = []string{out}
	}
	return &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}, Tiers: []*felix.TierInfo{t}}
}
