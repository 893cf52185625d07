package acl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// tableOf has a rule for each word: "+3" allows 10.0.0.3, "-3" denies it.
func tableOf(words string) *table {
	t := &table{name: "t"}
	for _, w := range strings.Fields(words) {
		a := match.Atom{Src: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, w[1] - '0'}), 32), Dst: match.V4.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}
		if w[0] == '-' {
			a.Verb = match.Deny
		}
		t.add(a, &dataplane.Cause{})
	}
	return t
}

func (t *table) words() string {
	var out []string
	for _, a := range t.rules {
		b := a.Src.Addr().As4()
		out = append(out, string([]byte{"+-"[a.Verb], '0' + b[3]}))
	}
	return strings.Join(out, " ")
}

// The common part of tables allows what both allow, and denies what either denies.
func TestCommon(t *testing.T) {
	for _, c := range []struct {
		old, now, want string
		effect         effect
	}{
		{"+1 +2", "+2 +3", "+2", effect{true, true}},
		{"+1 +2", "+1 +2 +3", "+1 +2", effect{opens: true}},
		{"+1 +2", "+2", "+2", effect{closes: true}},
		{"-1 -2", "-2 -3", "-2 -3 -1", effect{true, true}},
		{"-1", "-1 -2", "-1 -2", effect{closes: true}},
		{"-1 -2", "-2", "-1 -2", effect{opens: true}},
		{"+1", "-1", "-1", effect{true, true}},
		{"-1", "+1", "-1", effect{true, true}},
		{"+1 -2 +3", "+3 -4", "-2 -4 +3", effect{true, true}},
		{"+1 +1", "+1", "+1", effect{closes: true}},
		{"+5 +1 -2 +6", "+5 +3 -4 +6", "+5 -2 -4 +6", effect{true, true}}, // no rule moves before the common beginning
		{"+5 -7 +1 -8", "+5 -7 +3 +1 -8", "+5 -7 +1 -8", effect{true, true}},
	} {
		old, now := tableOf(c.old), tableOf(c.now)
		if got := common(old, now).words(); got != c.want {
			t.Errorf("%s and %s: %s, want %s", c.old, c.now, got, c.want)
		}
		if got := effectOfContent(old, now); got != c.effect {
			t.Errorf("%s to %s: %+v, want %+v", c.old, c.now, got, c.effect)
		}
	}
	if got := common(tableOf("+1"), tableOf("+2")); len(got.rules) != 1 || got.rules[0].Verb != match.Deny {
		t.Errorf("nothing in common: %v", got.words())
	}
}

// newShifter is of a renderer that knows nothing but one table.
func newShifter(old, now *table) *shifter {
	r := &Renderer{}
	r.out.acls = map[string]*table{"t": old}
	c := &change{tables: map[string]*table{"t": now}}
	return &shifter{r: r, c: c, peers: map[part2]*conflict.Peers{}, found: map[shiftKey]*conflict.Shift{}, users: map[string][]string{}}
}

// effectOfContent is the effect of new rules in a table at an output.
func effectOfContent(old, now *table) (e effect) {
	s := newShifter(old, now)
	s.contentChanges(&conflict.Hook{}, place{table: "t"}, true)
	for k := range s.found {
		if len(differing(old, now, k.which)) > 0 {
			e = effect{e.opens || k.opens, e.closes || !k.opens}
		}
	}
	return e
}

// effectOfInput is the effect of other lists on packets that enter VPP.
func effectOfInput(old, now lists) (e effect) {
	s := newShifter(nil, nil)
	s.interfaceChanges("i", old, now)
	for k := range s.found {
		if !k.output {
			e = effect{e.opens || k.opens, e.closes || !k.opens}
		}
	}
	return e
}

// listOf has a place for each word, as in tableOf; "!" denies everything.
func listOf(words string) []place {
	var out []place
	for _, w := range strings.Fields(words) {
		if w == "!" {
			out = append(out, place{table: denyAll, denies: true})
			continue
		}
		out = append(out, place{table: w[1:], denies: w[0] == '-'})
	}
	return out
}

// The common part of lists keeps the order of both; denying tables keep their place, and no table occurs twice.
func TestCommonList(t *testing.T) {
	for _, c := range []struct{ old, now, want string }{
		{"+a +b !", "+a +c !", "a " + denyAll},
		{"+a -x +b !", "+a +b -y !", "a x b y " + denyAll},
		{"-x -y !", "-y -x !", "x y " + denyAll},
		{"", "+a !", "a " + denyAll},
		{"+a !", "", "a " + denyAll},
		{"", "", ""},
	} {
		if got := strings.Join(names(commonList(listOf(c.old), listOf(c.now))), " "); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.old, c.now, got, c.want)
		}
	}
}

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
	s.r.Behind(true, false)
	s.send(policyMessage(policyIDs[2], &felix.Policy{InboundRules: allow}))
	if again := s.r.Apply(); !again || s.b.on("if-p2", true, in) {
		t.Errorf("again %v, the ingress is open %v while the egress may not be closed", again, s.b.on("if-p2", true, in))
	}
	if again := s.r.Apply(); !again {
		t.Error("it waits once only")
	}
	s.r.Behind(false, true)
	if again := s.r.Apply(); again || !s.b.on("if-p2", true, in) {
		t.Errorf("again %v, the ingress is open %v when the egress is closed", again, s.b.on("if-p2", true, in))
	}
	s.r.Behind(true, false)
	s.send(policyMessage(policyIDs[2], &felix.Policy{InboundRules: none}))
	if again := s.r.Apply(); again || s.b.on("if-p2", true, in) {
		t.Errorf("again %v, the ingress is open %v: what closes does not wait", again, s.b.on("if-p2", true, in))
	}
}
