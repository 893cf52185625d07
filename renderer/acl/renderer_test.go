package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

func deltaAdd(id string, members ...string) *felix.ToDataplane {
	return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: &felix.IPSetDeltaUpdate{Id: id, AddedMembers: members}}}
}

// Before the first InSync nothing is sent; from then on a pod without an endpoint is isolated, and an unrestricted pod has no
// list.
func TestBeginning(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	if again := s.r.Apply(); again || s.b.writes > 0 {
		t.Fatalf("before InSync: again %v, %d writes", again, s.b.writes)
	}
	s.send(start()...)
	s.settle(t)
	each(func(p packet, from, to string) {
		real := p.src.Is6() || p.translated() || p.proto == match.ICMP // nat44 gives its address to others
		if want := to != "" && from == "" && real && slices.Contains(nodeIPs, p.src); s.b.got(p, from, to) != want {
			t.Errorf("isolated: %s: want %v", p, want)
		}
	})
	for i := range pods {
		s.send(podMessage(i, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	}
	s.settle(t)
	if len(s.b.lists)+len(s.b.acls) > 0 {
		t.Errorf("open pods have %v and %d tables", s.b.lists, len(s.b.acls))
	}
}

// One more member in a set of 10,000 that 100 pods use costs one table of eight, in any view; one rule of one pod's policy costs
// one table.
func TestCostOfAChange(t *testing.T) {
	const members = 10000
	users, least := pace.Fewer(100, 10), members/4
	if users < 100 {
		least = members / 10 // those of the set, and few of pods
	}
	for _, c := range []struct {
		name   string
		view   dataplane.View
		egress bool
	}{{"ingress", dataplane.PreDNAT, false}, {"egress, post-dnat", dataplane.PostDNAT, true}, {"egress, pre-dnat", dataplane.PreDNAT, true}} {
		var sink counter
		r, delta := bigSet(c.view, users, members, c.egress, &sink)
		if sink.rules < least || sink.rules > members { // a rule is four (law), and adjacent prefixes are joined
			t.Errorf("%s: %d rules at first", c.name, sink.rules)
		}
		for i := range pace.Fewer(20, 10) {
			sink = counter{}
			r.OnUpdate(delta(i))
			for r.Apply() {
			}
			if sink.values != 1 || sink.rules > 4*members/6 || sink.rules == 0 {
				t.Errorf("%s: one member: %d values with %d rules", c.name, sink.values, sink.rules)
			}
		}
	}
	var sink counter
	r, policy := busyNode(dataplane.PreDNAT, 20, 300, &sink)
	sink = counter{}
	r.OnUpdate(policy(7, 5, false))
	for r.Apply() {
	}
	if sink.values != 2 { // at the pod's output, and where packets from outside enter
		t.Errorf("one rule: %d values", sink.values)
	}
	sink = counter{}
	r.OnUpdate(policy(8, 5, true))
	for r.Apply() {
	}
	if sink.values != 3 { // at the pod's input, where it leaves, and where answers enter
		t.Errorf("one rule for egress: %d values", sink.values)
	}
	sink = counter{}
	r.OnUpdate(policy(8, 5, true))
	for r.Apply() {
	}
	if sink.values != 0 {
		t.Errorf("the same policy again: %d values", sink.values)
	}
}

// Endpoints with the same policies share tables, by names that stay when rules change.
func TestSharing(t *testing.T) {
	s := newScene(testNode(dataplane.PostDNAT))
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], in2out("allow", "allow")))
	for i := range pods {
		s.send(podMessage(i, withPolicies("a1", "")))
	}
	s.settle(t)
	first := s.b.lists["if-p1"].GetOutput()
	for _, name := range pods {
		got := slices.DeleteFunc(slices.Clone(s.b.lists["if-"+name].GetOutput()), func(t string) bool { return t == node.SelfName("if-"+name) })
		want := slices.DeleteFunc(slices.Clone(first), func(t string) bool { return t == node.SelfName("if-p1") })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, %s: %v", name, got, "p1", want)
		}
	}
	p := in2out("allow", "allow")
	p.InboundRules[0].Protocol = named("udp")
	before := s.b.writes
	s.send(policyMessage(policyIDs[0], p))
	s.settle(t)
	if s.b.writes-before != 1 || !slices.Equal(first, s.b.lists["if-p1"].GetOutput()) {
		t.Errorf("a rule changed: %d writes, list %v then %v", s.b.writes-before, first, s.b.lists["if-p1"].GetOutput())
	}
	for _, l := range s.b.lists {
		for _, name := range append(l.GetInput(), l.GetOutput()...) {
			if len(name) > 40 || s.b.acls[name] == nil {
				t.Errorf("table %q", name)
			}
		}
	}
}

// Causes name the rule that decides, and its owner.
func TestCauses(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], in2out("allow", "deny")), podMessage(0, withPolicies("a1", "")), podMessage(1, withPolicies("", "a1")))
	s.send(podMessage(2, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	s.settle(t)
	tcp := func(src, dst string) packet {
		return packet{netip.MustParseAddr(src), netip.MustParseAddr(dst), 6, 40000, 80}
	}
	udp := tcp("10.1.2.1", "10.1.1.1")
	udp.proto = 17
	rule := dataplane.Cause{Kind: dataplane.CauseRule, Tier: "a", Policy: "a1"}
	end := dataplane.Cause{Kind: dataplane.CauseEndOfTier, Tier: "a", Denied: true}
	with := func(c dataplane.Cause, f func(*dataplane.Cause)) dataplane.Cause { f(&c); return c }
	for _, c := range []struct {
		iface  string
		output bool
		p      packet
		want   dataplane.Cause
	}{
		{"if-p1", true, tcp("10.1.2.1", "10.1.1.1"), with(rule, func(c *dataplane.Cause) { c.Endpoint = "p1" })},
		{"if-p1", true, udp, with(end, func(c *dataplane.Cause) { c.Endpoint = "p1" })},
		{"if-p1", true, tcp("192.168.0.1", "10.1.1.1"), dataplane.Cause{Kind: dataplane.CauseStatic, Text: "addresses of the node itself"}},
		{"if-p1", false, tcp("10.1.1.1", "10.1.2.1"), dataplane.Cause{Kind: dataplane.CauseProfileRule, Profile: "open", Egress: true, Endpoint: "p1"}},
		{"if-p2", false, tcp("10.1.1.2", "10.1.2.1"), with(rule, func(c *dataplane.Cause) { c.Egress, c.Denied, c.Endpoint = true, true, "p2" })},
		{"if-p2", false, tcp("10.1.1.2", "10.96.0.1"), dataplane.Cause{Kind: dataplane.CauseStatic, Text: "services, which are evaluated where they lead"}},
		{"if-p3", true, tcp("10.1.1.2", "10.1.1.3"), with(rule, func(c *dataplane.Cause) { c.Egress, c.Denied, c.Endpoint = true, true, "p2" })},
		{"overlay", true, tcp("10.1.1.2", "10.1.2.1"), with(rule, func(c *dataplane.Cause) { c.Egress, c.Denied, c.Endpoint = true, true, "p2" })},
		{"if-p4", true, tcp("10.1.1.2", "10.1.1.4"), dataplane.Cause{Kind: dataplane.CauseIsolated, Denied: true}},
	} {
		_, place, line := s.b.passes(c.iface, c.output, c.p)
		got, ok := s.r.Cause(c.iface, c.output, place, line)
		if !ok || got != c.want {
			t.Errorf("%s output %v, %s: place %d rule %d: %+v (%v), want %+v", c.iface, c.output, c.p, place, line, got, ok, c.want)
		}
	}
	if c, ok := s.r.Cause("if-p1", true, -1, -1); !ok || c.Kind != dataplane.CauseNoMatch || !c.Denied {
		t.Errorf("end of list: %+v %v", c, ok)
	}
	if _, ok := s.r.Cause("nowhere", true, 0, 0); ok {
		t.Error("a cause at no interface")
	}
}

// A part that is not understood lets no additional packet pass, and has a note.
func TestFailClosed(t *testing.T) {
	bad := map[string]func(*felix.Rule){
		"action":      func(r *felix.Rule) { r.Action = "permit" },
		"version":     func(r *felix.Rule) { r.IpVersion = 5 },
		"prefix":      func(r *felix.Rule) { r.SrcNet = []string{"10.0.0.0/33"} },
		"port":        func(r *felix.Rule) { r.Protocol = named("tcp"); r.DstPorts = []*felix.PortRange{{First: 80, Last: 79}} },
		"protocol":    func(r *felix.Rule) { r.Protocol = named("quic") },
		"no protocol": func(r *felix.Rule) { r.NotProtocol = &felix.Protocol{} },
		"ICMP":        func(r *felix.Rule) { r.Icmp = &felix.Rule_IcmpType{IcmpType: 256} },
		"HTTP":        func(r *felix.Rule) { r.HttpMatch = &felix.HTTPMatch{Methods: []string{"GET"}} },
		"later part":  func(r *felix.Rule) { r.ProtoReflect().SetUnknown([]byte{0xf8, 0x07, 1}) },
		"set":         func(r *felix.Rule) { r.SrcIpSetIds = []string{"unknown"} },
		"not set":     func(r *felix.Rule) { r.NotSrcIpSetIds = []string{"unknown"} },
		"named port":  func(r *felix.Rule) { r.Protocol = named("tcp"); r.DstNamedPortIpSetIds = []string{"s1"} },
	}
	for name, spoil := range bad {
		for _, action := range []string{"allow", "deny", "pass"} {
			s := newScene(testNode(dataplane.PostDNAT))
			s.send(start()...)
			r := &felix.Rule{Action: action}
			spoil(r)
			rest := "allow" // the rest after a denial or pass that is not understood
			if action == "allow" {
				rest = "deny"
			}
			s.r.OnUpdate(policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{r, {Action: rest}}}))
			e := withPolicies("a1", "")
			if e.ProfileIds = nil; name == "HTTP" || name == "later part" || name == "set" || name == "not set" {
				e.ProfileIds = []string{} // a pass is known to lead to a denial
			}
			s.r.OnUpdate(podMessage(0, e))
			s.settle(t)
			p := packet{remotes[0], podIPs[0][0], 6, 1, 80}
			if s.b.on("if-p1", true, p) {
				t.Errorf("%s of a rule with a bad %s lets a packet pass", action, name)
			}
			if len(s.b.notes) == 0 {
				t.Errorf("%s of a rule with a bad %s: no note", action, name)
			}
		}
	}
}

func named(proto string) *felix.Protocol {
	return &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: proto}}
}

// Two endpoints with one address and different policies are isolated until one is removed.
func TestAddressTwice(t *testing.T) {
	s := newScene(testNode(dataplane.PostDNAT))
	s.send(start()...)
	other := podMessage(0, &felix.WorkloadEndpoint{State: "active"})
	other.GetWorkloadEndpointUpdate().Id = podID("other")
	s.send(podMessage(0, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}}))
	s.r.OnUpdate(other)
	s.settle(t)
	p := packet{remotes[0], podIPs[0][0], 6, 1, 80}
	if s.b.on("if-p1", true, p) || len(s.b.notes) != 1 {
		t.Errorf("shared: passes %v, notes %v, endpoints %d", s.b.on("if-p1", true, p), s.b.notes, len(s.r.pods.Ifaces["if-p1"].Work))
	}
	s.r.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointRemove{WorkloadEndpointRemove: &felix.WorkloadEndpointRemove{Id: podID("other")}}})
	s.settle(t)
	if !s.b.on("if-p1", true, p) || len(s.b.notes) != 0 {
		t.Errorf("alone again: does not pass, or notes are %v", s.b.notes)
	}
}

// No message makes the driver panic, or name a table that does not exist.
func FuzzOnUpdate(f *testing.F) {
	for _, m := range append(start(), policyMessage(policyIDs[0], in2out("allow", "odd")), podMessage(0, withPolicies("a1", "a1")), deltaAdd("unknown", "x"), deltaAdd("s1", "10.0.0.0/40")) {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, uint8(0))
	}
	f.Fuzz(func(t *testing.T, raw []byte, view uint8) {
		m := &felix.ToDataplane{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		s := newScene(testNode(dataplane.View(view % 2)))
		for _, first := range append(start(), policyMessage(policyIDs[0], in2out("allow", "deny")), podMessage(0, withPolicies("a1", "a1")), podMessage(1, withPolicies("a1", "a2"))) {
			s.r.OnUpdate(first)
		}
		s.settle(t)
		s.r.OnUpdate(m)
		s.settle(t)
		for _, name := range []string{"if-p1", "if-p2", "overlay"} {
			for _, output := range []bool{false, true} {
				s.b.on(name, output, packet{podIPs[0][0], podIPs[1][0], 6, 1, 80})
			}
		}
	})
}

func ExampleRenderer() {
	b := newBook()
	r := New(Config{}, b)
	r.SetNode(dataplane.Node{View4: dataplane.PostDNAT, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{netip.MustParseAddr("10.1.1.1"): "tap1"}})
	r.OnUpdate(podMessage(0, withPolicies("", "")))
	r.OnUpdate(inSync())
	for r.Apply() { // once more after each interim state
	}
	c, _ := r.Cause("tap1", true, 1, 0)
	fmt.Println(b.lists["tap1"].GetOutput(), c.Kind == dataplane.CauseIsolated, c.Profile)
	// Output: [no-sctp static-output self-3rruvbh5j25u7tzxpp6xfz67 deny-all] false
}
