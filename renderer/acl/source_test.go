package acl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// forged are sources that pod p1 may not use.
func forged(f match.Family) []netip.Addr {
	var out []netip.Addr
	all := slices.Concat(nodeIPs, hairpin, remotes, podIPs[1], addrs("0.0.0.0", "255.255.255.255", "10.1.1.0", "::", "fe80::1", "fd00:1::", "fd00:1::3"))
	for _, a := range all {
		if match.FamilyOf(a) == f {
			out = append(out, a)
		}
	}
	return out
}

func openPod(i int, allowed ...string) *felix.ToDataplane {
	return podMessage(i, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}, AllowSpoofedSourcePrefixes: allowed})
}

// A pod that policies do not restrict has one list, which permits its addresses and makes no session.
func TestSourceCheckOfAnOpenPod(t *testing.T) {
	for _, bytes := range []bool{false, true} {
		n := testNode(dataplane.PreDNAT)
		n.ByteMatch6 = bytes
		s := newCheckedScene(n, SourceStrict)
		s.send(start()...)
		s.send(openPod(0))
		s.settle(t)
		list := s.b.lists["if-p1"]
		if len(list.GetInput()) != 1 || len(list.GetOutput()) != 0 {
			t.Fatalf("lists %v", list)
		}
		for _, rule := range s.b.acls[list.GetInput()[0]].GetRules() {
			if rule.GetAction().String() == "REFLECT" {
				t.Errorf("%v makes a session", rule)
			}
		}
		s.checkSources(t, "if-p1", 0)
		c, ok := s.r.Cause("if-p1", false, 0, len(s.b.acls[list.GetInput()[0]].GetRules())-1)
		if !ok || c.Kind != dataplane.CauseSource || !c.Denied || c.Endpoint != "p1" {
			t.Errorf("cause %+v %v", c, ok)
		}
	}
}

// checkSources checks packets that enter by the interface of a pod whose egress is open.
func (s *scene) checkSources(t interface{ Errorf(string, ...any) }, iface string, pod int) {
	for _, f := range match.Families {
		for _, src := range forged(f) {
			for _, p := range flows(src, remotes[3*int(f)]) {
				if s.b.on(iface, false, p) {
					t.Errorf("%s passes at %s", p, iface)
				}
			}
		}
		for _, p := range flows(podIPs[pod][f], remotes[3*int(f)]) {
			if !s.b.on(iface, false, p) {
				t.Errorf("%s does not pass at %s", p, iface)
			}
		}
	}
	for _, c := range []struct {
		src  string
		typ  uint16
		want bool
	}{{"fe80::1", 135, true}, {"fe80::1", 136, true}, {"fe80::1", 133, true}, {"::", 135, true}, {"fe80::1", 128, false}, {"::", 136, false}, {"fe80::1", 134, false}, {"fec0::1", 135, false}} {
		p := packet{netip.MustParseAddr(c.src), netip.MustParseAddr("fe80::2"), 58, c.typ, 0}
		if got := s.b.on(iface, false, p); got != c.want {
			t.Errorf("%s at %s: %v", p, iface, got)
		}
	}
}

// A pod that policies restrict has the check in front of its lists.
func TestSourceCheckComesFirst(t *testing.T) {
	sctp := &felix.Policy{
		InboundRules:  []*felix.Rule{{Action: "allow", Protocol: named("sctp"), DstPorts: []*felix.PortRange{{First: 80, Last: 80}}}},
		OutboundRules: []*felix.Rule{{Action: "deny", Protocol: named("sctp"), DstPorts: []*felix.PortRange{{First: 81, Last: 81}}}, {Action: "allow"}},
	}
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		for _, bytes := range []bool{false, true} {
			n := testNode(view)
			n.ByteMatch6 = bytes
			s := newCheckedScene(n, SourceStrict)
			s.send(start()...)
			s.send(policyMessage(policyIDs[0], sctp), podMessage(0, withPolicies("a1", "a1")))
			s.settle(t)
			if in := s.b.lists["if-p1"].GetInput(); len(in) < 3 || !strings.HasPrefix(in[0], table.SourceFirst) || !strings.HasPrefix(in[1], "sctp-ports/") {
				t.Fatalf("%s: input %v", view, in)
			}
			s.checkSources(t, "if-p1", 0)
		}
	}
}

// Sources that an endpoint allows count if the agent's setting or Felix's says so; otherwise the endpoint's note says that they do not.
func TestAllowedSources(t *testing.T) {
	other := packet{netip.MustParseAddr("172.16.3.4"), remotes[0], 6, 40000, 80}
	felixSays := &felix.ToDataplane{Payload: &felix.ToDataplane_ConfigUpdate{ConfigUpdate: &felix.ConfigUpdate{Config: map[string]string{"WorkloadSourceSpoofing": "Any"}}}}
	for _, c := range []struct {
		mode  SourceCheck
		felix bool
		want  bool
	}{{SourceStrict, false, false}, {SourceStrict, true, true}, {SourceAllowed, false, true}, {SourceOff, false, true}} {
		s := newCheckedScene(testNode(dataplane.PreDNAT), c.mode)
		s.send(start()...)
		s.send(openPod(0, "172.16.0.0/12", "fd99::/16"))
		s.settle(t)
		if c.felix { // the setting is added later
			s.r.OnUpdate(felixSays)
			s.settle(t)
		}
		if got := s.b.on("if-p1", false, other); got != c.want {
			t.Errorf("%d, felix %v: %v", c.mode, c.felix, got)
		}
		if said := len(s.b.notes["acl/note/interface|if-p1"]) > 0; said == c.want {
			t.Errorf("%d, felix %v: notes %v", c.mode, c.felix, s.b.notes)
		}
		s.send(openPod(0))
		s.settle(t)
		if got := s.b.on("if-p1", false, other); got != (c.mode == SourceOff) {
			t.Errorf("%d, felix %v: after the endpoint allows nothing: %v", c.mode, c.felix, got)
		}
	}
}

// A new pod, and a policy on a pod that had none, need no interim state because of the source check.
func TestSourceCheckNeedsNoStateOnTheWay(t *testing.T) {
	n := testNode(dataplane.PostDNAT)
	s := newCheckedScene(n, SourceStrict)
	s.send(start()...)
	s.send(setMessage("s1", felix.IPSetUpdate_NET, nil))
	s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"s1"}}}}))
	s.send(podMessage(0, withPolicies("a1", "")), openPod(2))
	fewer := n
	fewer.Interfaces = map[netip.Addr]string{podIPs[0][0]: "if-p1", podIPs[2][0]: "if-p3"}
	s.r.SetNode(fewer)
	s.settle(t)
	more := fewer
	more.Interfaces = map[netip.Addr]string{podIPs[0][0]: "if-p1", podIPs[2][0]: "if-p3", podIPs[1][0]: "if-p2"}
	s.r.SetNode(more)
	s.send(openPod(1), deltaAdd("s1", "10.1.1.2/32")) // the new pod's list closes, the set opens
	if s.r.Apply() {
		t.Error("a new pod needs a state on the way")
	}
	s.send(podMessage(2, withPolicies("a1", "")))
	if s.r.Apply() {
		t.Error("a pod's first policy needs a state on the way")
	}
	if in := s.b.lists["if-p3"].GetInput(); len(in) < 2 || !strings.HasPrefix(in[0], table.SourceFirst) {
		t.Errorf("input %v", in)
	}
	s.send(openPod(2))
	if s.r.Apply() {
		t.Error("a pod that loses its policies needs a state on the way")
	}
	for name := range s.b.acls {
		if table.IsSource(name) && name != table.OutsideOnly && name != table.OutsideOnly+table.OverlaySuffix && name != table.SourceOnly+table.NameOf("if-p3") && name != table.SourceOnly+table.NameOf("if-p2") && name != table.SourceFirst+table.NameOf("if-p1") {
			t.Errorf("%s is left", name)
		}
	}
}

// The rules of a check are exactly the addresses that are not allowed, for any prefixes.
func TestSourceRulesAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Bool().Draw(t, "bytes")
		n := testNode(dataplane.PreDNAT)
		n.ByteMatch6 = bytes
		s := newCheckedScene(n, SourceAllowed)
		s.send(start()...)
		var allowed []string
		for range rapid.IntRange(0, 3).Draw(t, "prefixes") {
			allowed = append(allowed, pick(t, "prefix", nets))
		}
		s.send(policyMessage(policyIDs[0], &felix.Policy{}))
		msg := withPolicies("a1", "")
		msg.ProfileIds, msg.AllowSpoofedSourcePrefixes = []string{"open"}, allowed
		if rapid.Bool().Draw(t, "open") {
			msg.Tiers = nil
		}
		s.send(podMessage(0, msg))
		s.settle(t)
		for _, f := range match.Families {
			for _, src := range slices.Concat(forged(f), podIPs[0][f:f+1], remotes) {
				if match.FamilyOf(src) != f {
					continue
				}
				want := src == podIPs[0][f] || slices.ContainsFunc(allowed, func(p string) bool { return netip.MustParsePrefix(p).Masked().Contains(src) })
				if got := s.b.on("if-p1", false, packet{src, podIPs[1][f], 6, 40000, 80}); got != want {
					t.Fatalf("from %s with %v: %v\n%s", src, allowed, got, s)
				}
			}
		}
	})
}

// An interim state has the source check, too: one pod is restricted while another opens.
func TestStateOnTheWayChecksSources(t *testing.T) {
	s := newCheckedScene(testNode(dataplane.PostDNAT), SourceStrict)
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], in2out("allow", "allow")))
	s.send(openPod(0), podMessage(1, withPolicies("a1", "")))
	s.settle(t)
	s.send(podMessage(0, withPolicies("", "a1")), openPod(1))
	if !s.r.Apply() {
		t.Fatal("no state on the way")
	}
	for again := true; again; again = s.r.Apply() {
		if p := (packet{podIPs[0][0], podIPs[1][0], 6, 40000, 80}); !s.b.on("if-p1", false, p) {
			t.Errorf("%s does not pass, and did before and does after", p)
		}
		for _, f := range match.Families {
			for _, src := range forged(f) {
				if p := (packet{src, podIPs[1][f], 6, 40000, 80}); s.b.on("if-p1", false, p) {
					t.Errorf("%s passes", p)
				}
			}
		}
	}
}
