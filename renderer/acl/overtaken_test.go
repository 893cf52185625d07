package acl

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// lagging is a VPP that lacks some of what was sent: each interface may be in any of the states.
type lagging struct {
	*scene
	states []*book // that VPP may have, the last one is the sent one
	fresh  int     // index of the state at the last acknowledgement
	wanted []*book // what was wanted since VPP last had everything
}

// want records what a renderer without a past sends for the present world.
func (l *lagging) want(t *rapid.T) {
	f := &scene{w: newWorld(), b: newBook()}
	f.r = New(l.r.cfg, f.b)
	f.r.SetNode(l.r.pods.Node.Node)
	f.r.pods.Segs.Most = l.r.pods.Segs.Most
	f.send(l.w.all()...)
	f.settle(t)
	l.wanted = append(l.wanted, f.b)
}

// apply sends the next changes. VPP is behind, or has all; it may have acknowledged what was sent before the last acknowledgement.
func (l *lagging) apply(behind, acknowledged bool) (again bool) {
	switch l.r.Behind(dataplane.Progress{Behind: behind, Acknowledged: acknowledged || !behind}); {
	case !behind:
		l.states, l.fresh = l.states[len(l.states)-1:], 0
	case acknowledged:
		l.states, l.fresh = l.states[l.fresh:], len(l.states)-1-l.fresh
	}
	again = l.r.Apply()
	l.states = append(l.states, l.b.clone())
	return again
}

// complete reports a list that names a table which VPP does not have.
func (b *book) complete(t interface{ Fatalf(string, ...any) }) {
	for name, l := range b.lists {
		for _, table := range slices.Concat(l.GetInput(), l.GetOutput()) {
			if b.acls[table] == nil {
				t.Fatalf("%s names %s, which does not exist", name, table)
			}
		}
	}
}

// check looks for packets that pass although no wanted state lets them pass.
func (l *lagging) check(t *rapid.T, view dataplane.View, forger string) {
	look := func(p, dialled packet, from, to, how string) {
		var in, out bool
		for _, s := range l.states {
			in, out = in || s.on(entrance(p, from), false, dialled), out || s.leaves(p, from, to)
		}
		if !in || !out {
			return
		}
		for _, w := range l.wanted {
			if w.on(entrance(p, from), false, dialled) && w.leaves(p, from, to) {
				return
			}
		}
		t.Fatalf("%s%s from %q to %q passes with %d states in VPP, and in none of %d wanted ones", p, how, from, to, len(l.states), len(l.wanted))
	}
	each(func(p packet, from, to string) {
		look(p, p, from, to, "")
		if from != "" && from != forger && to != forger {
			look(p, p, forger, to, " forged")
		}
		if view == dataplane.PreDNAT && from != "" && p.translated() && p.src.Is4() {
			dialled := p
			dialled.dst, dialled.dport = netip.MustParseAddr("10.96.0.10"), 8081
			look(p, dialled, from, to, " by a service")
		}
	})
}

// TestNothingPassesWhenOvertaken: while VPP lacks some of several changes, in any order of interfaces, nothing passes that no wanted state lets
// pass. Interfaces that do not conflict change at once.
func TestNothingPassesWhenOvertaken(t *testing.T) {
	waited, overtook := 0, 0
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		t.Run(view.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newTightCheckedScene(testNode(view), rapid.Bool().Draw(t, "tight"), pick(t, "sources", modes))
				l := &lagging{scene: s, states: []*book{s.b.clone()}}
				s.send(start()...)
				for i := range pods {
					s.send(podMessage(i, drawEndpoint(t)))
				}
				for range 4 {
					s.send(drawMessage(t, s.w))
				}
				for again := true; again; s.b.complete(t) {
					again = l.apply(false, true)
				}
				l.want(t)
				l.states = []*book{s.b.clone()}
				for range rapid.IntRange(1, 3).Draw(t, "changes") {
					for range rapid.IntRange(1, 3).Draw(t, "messages") {
						s.send(drawMessage(t, s.w))
					}
					l.want(t)
					was := l.b.clone()
					if again := l.apply(rapid.IntRange(0, 3).Draw(t, "behind") > 0, rapid.Bool().Draw(t, "acknowledged")); again {
						if waited++; !l.b.equal(was) {
							overtook++
						}
					}
					l.b.complete(t)
					l.check(t, view, pick(t, "forger", pods))
				}
				for n := 0; n < 8 && l.apply(false, true); n++ {
				}
				l.check(t, view, pods[0])
				if last := l.wanted[len(l.wanted)-1]; !l.b.equal(last) {
					t.Fatal("in the end VPP does not have the wanted state")
				}
			})
		})
	}
	if t.Logf("%d changes waited, of %d a part did not", waited, overtook); waited == 0 || overtook == 0 {
		t.Error("the changes do not show it")
	}
}

// equal reports whether two books have equal lists, tables and filters.
func (b *book) equal(o *book) bool {
	return cmp.Diff(b.acls, o.acls, protocmp.Transform()) == "" && cmp.Diff(b.lists, o.lists, protocmp.Transform()) == "" && cmp.Diff(b.ports, o.ports, protocmp.Transform()) == ""
}

// TestOnlyMeetingChangesWait: pod 1 has egress, pod 2 and 3 have ingress. VPP may lack what the egress closes. Ingress opens at once where no
// packet of pod 1 arrives, or none that the change closes, and waits otherwise. So does a change that opens one of both and closes the other.
func TestOnlyMeetingChangesWait(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, then string // destinations of pod 1
		admits       string // new sources at pod 2
		waits        bool
	}{
		{"it may reach pod 2 no longer, which admits it", "10.1.1.2/32", "10.1.1.3/32", "10.1.1.1/32", true},
		{"it may reach pod 2 no longer, which admits all", "10.1.1.2/32", "10.1.1.3/32", "0.0.0.0/0", true},
		{"it may reach pod 2 no longer, which admits another one", "10.1.1.2/32", "10.1.1.3/32", "10.1.1.4/32", false},
		{"it may reach pod 3 no longer", "10.1.1.3/32", "10.1.2.1/32", "0.0.0.0/0", false},
		{"it may reach another node no longer", "10.1.2.1/32", "10.1.2.2/32", "10.1.1.1/32", false},
	} {
		for _, together := range []bool{false, true} {
			s := newCheckedScene(testNode(dataplane.PreDNAT), SourceStrict)
			s.send(start()...)
			egress := func(to string) *felix.ToDataplane {
				return policyMessage(policyIDs[0], &felix.Policy{OutboundRules: []*felix.Rule{{Action: "allow", DstNet: []string{to}}}})
			}
			ingress := func(from string) *felix.ToDataplane {
				return policyMessage(policyIDs[2], &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcNet: []string{from}}}})
			}
			admit := &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}, Tiers: []*felix.TierInfo{{Name: "b", IngressPolicies: []string{"b1"}}}}
			s.send(egress(c.before), ingress("10.1.2.2/32"), podMessage(0, withPolicies("", "a1")), podMessage(1, admit), openPod(2), openPod(3))
			s.settle(t)
			src := netip.MustParsePrefix(c.admits).Addr()
			if src.IsUnspecified() {
				src = podIPs[3][match.V4]
			}
			p := packet{src, podIPs[1][match.V4], 47, 0, 0} // evaluated for egress at the input alone
			s.send(egress(c.then))
			if !together {
				s.r.Apply()
				s.r.Behind(dataplane.Progress{Behind: true, Acknowledged: false})
			}
			s.send(ingress(c.admits))
			again := s.r.Apply()
			if open := s.b.on("if-p2", true, p); again != c.waits || open == c.waits {
				t.Errorf("%s, in one change %v: again %v, %s passes the output %v", c.name, together, again, p, open)
			}
			s.r.Behind(dataplane.Progress{Behind: false, Acknowledged: true})
			if s.settle(t); !s.b.on("if-p2", true, p) {
				t.Errorf("%s, in one change %v: never opens", c.name, together)
			}
		}
	}
}

// TestIsolatedPodStopsDialling: a pod loses its endpoint. Its input lets pass no Services any more, and other outputs forget its egress. A packet
// by a Service to a pod that its egress denied does not pass meanwhile.
func TestIsolatedPodStopsDialling(t *testing.T) {
	s := newCheckedScene(testNode(dataplane.PreDNAT), SourceStrict)
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: []*felix.Rule{{Action: "allow", DstNet: []string{"10.1.2.1/32"}}}}))
	s.send(podMessage(0, withPolicies("", "a1")), openPod(1), openPod(2), openPod(3))
	s.settle(t)
	p := packet{podIPs[0][match.V4], podIPs[1][match.V4], match.TCP, 40000, 80}
	dialled := p
	dialled.dst = netip.MustParseAddr("10.96.0.10")
	before := s.b.clone()
	s.send(&felix.ToDataplane{Payload: &felix.ToDataplane_WorkloadEndpointRemove{WorkloadEndpointRemove: &felix.WorkloadEndpointRemove{Id: podID(pods[0])}}})
	for again := true; again; {
		again = s.r.Apply()
		if onTheWay(before, s.b, p, dialled, pods[0], pods[1]) {
			t.Errorf("%s passes by a service, again %v", p, again)
		}
		before = s.b.clone()
	}
}

// TestInterimStateIsComplete: in the first state of all, a pod without egress policies has the lists of an isolated pod for now. No other list
// has their tables.
func TestInterimStateIsComplete(t *testing.T) {
	s := newCheckedScene(testNode(dataplane.PreDNAT), SourceStrict)
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], in2out("allow", "allow")), podMessage(0, withPolicies("a1", "")), openPod(1), openPod(2), openPod(3))
	if !s.r.Apply() || !slices.Contains(s.b.lists["if-p1"].GetInput(), table.StaticIn) {
		t.Fatalf("no interim state: %v", s.b.lists["if-p1"])
	}
	s.b.complete(t)
	s.settle(t)
	if s.b.complete(t); s.b.acls[table.StaticIn] != nil {
		t.Error("the table of the interim state stays")
	}
}

// TestOthersPassAnInterimState: while one change goes by way of an interim state that VPP may lack, another pod's changes are sent.
func TestOthersPassAnInterimState(t *testing.T) {
	s := newCheckedScene(testNode(dataplane.PreDNAT), SourceStrict)
	s.send(start()...)
	egress := func(to string) *felix.ToDataplane {
		return policyMessage(policyIDs[0], &felix.Policy{OutboundRules: []*felix.Rule{{Action: "allow", DstNet: []string{to}}}})
	}
	ingress := func(n int, from string) *felix.ToDataplane {
		return policyMessage(policyIDs[n], &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcNet: []string{from}}}})
	}
	s.send(egress("10.1.1.2/32"), ingress(1, "10.1.1.3/32"), ingress(2, "10.1.1.3/32"), openPod(2))
	s.send(podMessage(0, withPolicies("", "a1")), podMessage(1, withPolicies("a2", "")))
	s.send(podMessage(3, &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}, Tiers: []*felix.TierInfo{{Name: "b", IngressPolicies: []string{"b1"}}}}))
	s.settle(t)
	at := func(to int, from netip.Addr) bool {
		return s.b.on("if-"+pods[to], true, packet{from, podIPs[to][match.V4], 47, 0, 0}) // evaluated for egress at the input alone
	}
	s.send(egress("10.1.2.1/32"), ingress(1, "10.1.1.1/32")) // pod 1 may reach pod 2 no longer, which begins to admit it
	if !s.r.Apply() || at(1, podIPs[0][match.V4]) {
		t.Fatal("no interim state")
	}
	for i, from := range []string{"10.1.2.1/32", "10.1.2.2/32"} {
		s.r.Behind(dataplane.Progress{Behind: true, Acknowledged: false})
		s.send(ingress(2, from))
		if again := s.r.Apply(); !again || at(1, podIPs[0][match.V4]) || !at(3, remotes[i]) {
			t.Errorf("again %v, pod 2 is open %v, pod 4 is open %v", again, at(1, podIPs[0][match.V4]), at(3, remotes[i]))
		}
	}
	s.r.Behind(dataplane.Progress{Behind: true, Acknowledged: true}) // of what was sent before an earlier acknowledgement
	if s.r.Apply(); at(1, podIPs[0][match.V4]) {
		t.Error("pod 2 opens too early")
	}
	s.r.Behind(dataplane.Progress{Behind: true, Acknowledged: true})
	if s.r.Apply(); !at(1, podIPs[0][match.V4]) {
		t.Error("pod 2 does not open when VPP has the interim state")
	}
}
