package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// closeMany closes pods in both directions by one policy that admits each pod at so many other ports, and returns the rules of the copies at
// all pods.
func closeMany(r *Renderer, pods, ports int) (copies int) {
	n := dataplane.Node{
		View4: dataplane.PreDNAT, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{}, Uplink: "uplink", Overlay: "overlay", Host: "host",
		Frontends: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	p := &felix.Policy{}
	t := &felix.TierInfo{Name: "default", IngressPolicies: []string{"p"}, EgressPolicies: []string{"p"}}
	for i := range pods {
		a := netip.AddrFrom4([4]byte{10, 1, 1, byte(i + 1)})
		n.Interfaces[a] = fmt.Sprint("tap", i)
		r.OnUpdate(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &felix.WorkloadEndpointUpdate{
			Id: podID(fmt.Sprint("prod/p", i)), Endpoint: &felix.WorkloadEndpoint{State: "active", Ipv4Nets: []string{a.String() + "/32"}, Tiers: []*felix.TierInfo{t}},
		}}})
		in, out := &felix.Rule{Action: "allow", Protocol: named("tcp")}, &felix.Rule{Action: "allow", Protocol: named("tcp")}
		in.SrcNet, out.DstNet = []string{a.String() + "/32"}, []string{a.String() + "/32"}
		for k := range ports {
			in.DstPorts = append(in.DstPorts, &felix.PortRange{First: int32(100*i + 2*k + 1), Last: int32(100*i + 2*k + 1)})
		}
		out.DstPorts = in.DstPorts
		p.InboundRules, p.OutboundRules = append(p.InboundRules, in), append(p.OutboundRules, out)
	}
	r.OnUpdate(inSync())
	r.OnUpdate(policyMessage(&felix.PolicyID{Tier: "default", Name: "p"}, p))
	r.SetNode(n)
	for r.Apply() {
	}
	for i := range pods {
		for _, at := range r.closed.Places(r.pods.Ifaces[fmt.Sprint("tap", i)]) {
			copies += len(r.pods.Store.Lookup(at.Table).Rules)
		}
	}
	return copies
}

// Copies of closed pods' policies at other pods are within the limits. Beyond, everything to these pods is denied there, and they get a note; within
// the limits again, the copies are exact.
func TestCopiesForClosedPodsAreBounded(t *testing.T) {
	if n := closeMany(New(Config{}, &counter{}), 20, 20); n < 50_000 {
		t.Errorf("without limits %d rules: the test has no large copies", n)
	}
	b := newBook()
	r := New(Config{Limits: budget.Limits{budget.Rules: {Object: 2000}}}, b)
	if n := closeMany(r, 20, 20); n > 20*20*2 {
		t.Errorf("%d rules, want at most one for each protocol, sender and closed pod", n)
	}
	notes := r.closed.NotesLeftOut()
	if len(notes) != 20 || notes[0].Ref != r.pods.Ifaces["tap0"].Work[0].Ref() || !notes[0].Refused || !strings.Contains(notes[0].Reason, "rules of policies, and an object may have 2000 (--max-policy-rules)") {
		t.Errorf("notes: %v", notes)
	}
	if n, exact := closeMany(r, 20, 1), closeMany(New(Config{}, &counter{}), 20, 1); n != exact || len(r.closed.NotesLeftOut()) > 0 {
		t.Errorf("with few ports again %d rules, want %d, and %v", n, exact, r.closed.NotesLeftOut())
	}
}

// TestLimitedCopiesOnTheWay: while copies become short or exact again, no packet passes that is denied both before and after. Afterwards each input
// denies what the receiver refuses, and the lists and notes are those of a renderer that sees the last state alone.
func TestLimitedCopiesOnTheWay(t *testing.T) {
	short := 0
	rapid.Check(t, func(t *rapid.T) {
		mode, limits := pick(t, "sources", modes), budget.Limits{budget.Rules: {Object: rapid.IntRange(1, 12).Draw(t, "rules")}}
		limited := func() *scene {
			s := &scene{w: newWorld(), b: newBook()}
			s.r = New(Config{SourceCheck: mode, Limits: limits}, s.b)
			s.r.SetNode(testNode(dataplane.PreDNAT))
			return s
		}
		s := limited()
		s.send(start()...)
		for i := range pods {
			s.send(openPod(i))
		}
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			states := []*book{s.b.clone()}
			for range rapid.IntRange(1, 6).Draw(t, "messages") {
				s.send(drawClosedMessage(t, s.w))
			}
			for again := true; again; {
				again = s.r.Apply()
				states = append(states, s.b.clone())
			}
			checkTheWay(t, states, dataplane.PreDNAT, pick(t, "forger", pods))
			if slices.ContainsFunc(s.r.closed.NotesLeftOut(), func(n model.Note) bool { return strings.Contains(n.Reason, "copies") }) {
				short++
			}
		}
		each(func(p packet, from, to string) {
			if from != "" && to != "" && s.w.eps[from] != nil && p.translated() && s.refuses(to, p) && s.b.on("if-"+from, false, p) {
				t.Fatalf("%s from %q to %q passes\n%s", p, from, to, s)
			}
		})
		fresh := limited()
		fresh.send(s.w.all()...)
		fresh.settle(t)
		for what, diff := range map[string]string{
			"tables": cmp.Diff(fresh.b.acls, s.b.acls, protocmp.Transform()), "lists": cmp.Diff(fresh.b.lists, s.b.lists, protocmp.Transform()), "notes": cmp.Diff(fresh.b.notes, s.b.notes),
		} {
			if diff != "" {
				t.Fatalf("%s: -from scratch +step by step\n%s", what, diff)
			}
		}
	})
	if short == 0 && pace.Fewer(2, 2) == 2 { // fewer checks may have none
		t.Error("no copies were too large")
	}
}
