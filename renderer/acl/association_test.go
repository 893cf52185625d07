package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

func sctpRule(action string, ports ...int32) *felix.Rule {
	r := &felix.Rule{Action: action, Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "sctp"}}}
	for i := 0; i+1 < len(ports); i += 2 {
		r.DstPorts = append(r.DstPorts, &felix.PortRange{First: ports[i], Last: ports[i+1]})
	}
	return r
}

// drawSCTP draws a rule that mostly names ports of SCTP.
func drawSCTP(t *rapid.T) *felix.Rule {
	r := drawRule(t)
	r.Icmp, r.NotIcmp = nil, nil
	switch rapid.IntRange(0, 5).Draw(t, "sctp") {
	case 0:
		r.Protocol, r.NotProtocol = nil, nil
	case 1: // as it is
	default:
		r.Protocol, r.NotProtocol = sctpRule("").Protocol, nil
		drawPorts(t, r)
	}
	return r
}

// Policies about ports of SCTP have the verdict of their rules, regardless of their history; during a change nothing passes that
// is denied before and after.
func TestPortsOfSCTP(t *testing.T) {
	filters, interims, denied := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		view := pick(t, "view", []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT})
		n := testNode(view)
		n.ByteMatch6 = rapid.Bool().Draw(t, "bytes")
		s := newTightCheckedScene(n, rapid.Bool().Draw(t, "tight"), pick(t, "sources", modes))
		s.send(start()...)
		for range rapid.IntRange(1, 4).Draw(t, "steps") {
			states := []*book{s.b.clone()}
			for range rapid.IntRange(1, 6).Draw(t, "messages") {
				if rapid.Bool().Draw(t, "policy") {
					rules := rapid.Custom(drawSCTP)
					s.send(policyMessage(pick(t, "id", policyIDs), &felix.Policy{
						InboundRules: rapid.SliceOfN(rules, 0, 3).Draw(t, "in"), OutboundRules: rapid.SliceOfN(rules, 0, 3).Draw(t, "out"),
					}))
				} else {
					s.send(drawMessage(t, s.w))
				}
			}
			for again := true; again; {
				again = s.r.Apply()
				states = append(states, s.b.clone())
			}
			filters += len(s.b.ports)
			if interims += len(states) - 2; len(states) > 2 {
				checkTheWay(t, states, view, pick(t, "forger", pods))
			}
		}
		s.check(t)
		s.checkFilters(t)
		denied += s.checkPairs(t)
	})
	if pace.Fewer(2, 2) == 2 && (filters == 0 || interims == 0 || denied == 0) { // rare: not with fewer checks
		t.Errorf("%d filters, %d changes with a state on the way, %d pairs of addresses denied before a permission", filters, interims, denied)
	}
}

// checkFilters checks the filters beside lists: that they exist where a policy names ports of SCTP, and their content.
func (s *scene) checkFilters(t *rapid.T) {
	for name, i := range s.r.pods.Ifaces {
		asks := i.Progs[0] != nil && (table.AskPorts(i.Progs[0].Uses) || table.AskPorts(i.Progs[1].Uses))
		if s.b.ports[name] != nil && !asks {
			t.Fatalf("%s has a filter, and nobody asks for ports of SCTP\n%s", name, s)
		}
	}
	for name, l := range s.b.lists {
		for d, list := range [2][]string{l.GetInput(), l.GetOutput()} {
			own := kv.SCTPPortsACL(name, d == 0)
			first := 0
			for first < len(list) && (table.IsSource(list[first]) || list[first] == table.ServiceFronts || list[first] == table.NodeFronts) {
				first++
			}
			switch at := slices.Index(list, own); {
			case at > first:
				t.Fatalf("%s is at place %d of %s", own, at, name)
			case at == first && s.b.ports[name] == nil:
				t.Fatalf("%s has %s, and nothing decides about ports", name, own)
			}
		}
		if len(l.GetInput())+len(l.GetOutput()) > s.r.cfg.maxACLs() {
			t.Fatalf("%s has %d lists", name, len(l.GetInput())+len(l.GetOutput()))
		}
	}
	for name := range s.b.ports {
		if s.b.lists[name] == nil {
			t.Fatalf("%s has a filter and no lists", name)
		}
	}
}

// checkPairs checks the rules of lists for SCTP packets that begin nothing: they pass if the first rule that permits their addresses some port
// precedes those that deny the addresses at all ports. Behind the list that permits them, nothing else passes.
func (s *scene) checkPairs(t *rapid.T) (denied int) {
	for name, f := range s.b.ports {
		for d, rules := range [2][]*contivacl.SCTPPorts_Rule{f.GetInput(), f.GetOutput()} {
			if len(rules) == 0 {
				continue
			}
			for _, f := range match.Families {
				list, _ := ends(f)
				for range 10 {
					p := packet{pick(t, "src", list), pick(t, "dst", list), match.SCTP, 7, 80}
					want, before := pairPermitted(rules, p)
					if before {
						denied++
					}
					if got, _, _ := s.b.passes(name, d == 1, p); got && !want || want && !got && d == 1 {
						t.Fatalf("%s output %v, %s -> %s: want %v\n%s", name, d == 1, p.src, p.dst, want, s)
					}
				}
			}
		}
	}
	return denied
}

// pairPermitted returns the verdict of rules for addresses of SCTP; before: a rule denies them at all ports, and a later one permits some.
func pairPermitted(rules []*contivacl.SCTPPorts_Rule, p packet) (permitted, before bool) {
	ends := false
	for _, r := range rules {
		switch {
		case !prefix(r.GetSourceNetwork()).Contains(p.src) || !prefix(r.GetDestinationNetwork()).Contains(p.dst):
		case r.GetPermit():
			return !ends, ends
		case r.GetSource() == nil && r.GetDestination() == nil:
			ends = true
		}
	}
	return false, false
}

// withSCTP is a scene with one pod to which policy a1 applies.
func withSCTP(t *testing.T, ingress, egress bool, p *felix.Policy) *scene {
	s := newScene(testNode(dataplane.PostDNAT))
	s.send(start()...)
	in, out := "", ""
	if ingress {
		in = "a1"
	}
	if egress {
		out = "a1"
	}
	s.send(policyMessage(policyIDs[0], p), podMessage(0, withPolicies(in, out)))
	s.settle(t)
	return s
}

// show is a filter as text.
func (b *book) show(iface string) string {
	var out []string
	for d, list := range [][]string{b.rulesOf(iface, false), b.rulesOf(iface, true)} {
		for _, r := range list {
			out = append(out, []string{"in ", "out "}[d]+r)
		}
	}
	return strings.Join(out, "\n")
}

func (b *book) rulesOf(iface string, output bool) (out []string) {
	rules := b.ports[iface].GetInput()
	if output {
		rules = b.ports[iface].GetOutput()
	}
	for _, r := range rules {
		verb := "deny"
		if r.GetPermit() {
			verb = "permit"
		}
		text := fmt.Sprintf("%s %s -> %s", verb, r.GetSourceNetwork(), r.GetDestinationNetwork())
		if p := r.GetSource(); p != nil {
			text += fmt.Sprintf(" from %d-%d", p.GetLower(), p.GetUpper())
		}
		if p := r.GetDestination(); p != nil {
			text += fmt.Sprintf(" to %d-%d", p.GetLower(), p.GetUpper())
		}
		if strings.HasPrefix(r.GetSourceNetwork(), "fd00:f::1/") || strings.Contains(text, "-> "+podIPs[0][match.V6].String()) || strings.HasPrefix(r.GetSourceNetwork(), "::") {
			continue // IPv6 looks the same
		}
		out = append(out, text)
	}
	return out
}

func TestFilters(t *testing.T) {
	tcp := &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "tcp"}}
	port := []*felix.PortRange{{First: 80, Last: 80}}
	const node, self = "permit 192.168.0.1/32 -> 0.0.0.0/0", "permit 10.1.1.1/32 -> 10.1.1.1/32"
	for _, c := range []struct {
		name            string
		ingress, egress bool
		policy          *felix.Policy
		want            string
	}{
		{"all ports", true, false, &felix.Policy{InboundRules: []*felix.Rule{sctpRule("allow")}}, ""},
		{"another protocol", true, false, &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", Protocol: tcp, DstPorts: port}}}, ""},
		{"not this protocol", true, false, &felix.Policy{InboundRules: []*felix.Rule{{Action: "deny", NotProtocol: sctpRule("").Protocol, DstPorts: port}}}, ""},
		{
			"a port", true, false, &felix.Policy{InboundRules: []*felix.Rule{sctpRule("allow", 80, 80)}},
			strings.Join([]string{"out " + node, "out " + self, "out permit 0.0.0.0/0 -> 0.0.0.0/0 to 80-80", "out deny 0.0.0.0/0 -> 0.0.0.0/0"}, "\n"),
		},
		{
			"a range but some", true, false, &felix.Policy{InboundRules: []*felix.Rule{sctpRule("deny", 3, 5), sctpRule("allow", 0, 10)}},
			strings.Join([]string{
				"out " + node, "out " + self, "out deny 0.0.0.0/0 -> 0.0.0.0/0 to 3-5", "out permit 0.0.0.0/0 -> 0.0.0.0/0 to 0-10",
				"out deny 0.0.0.0/0 -> 0.0.0.0/0",
			}, "\n"),
		},
		{ // sessions for answers have addresses alone: the other direction needs a filter, too
			"egress, and no ingress", true, true, &felix.Policy{OutboundRules: []*felix.Rule{sctpRule("allow", 80, 80)}},
			strings.Join([]string{
				"in " + self, "in permit 0.0.0.0/0 -> 0.0.0.0/0 to 80-80", "in deny 0.0.0.0/0 -> 0.0.0.0/0",
				"out " + node, "out " + self, "out deny 0.0.0.0/0 -> 0.0.0.0/0",
			}, "\n"),
		},
		{ // lists deny all of SCTP then
			"no ports of SCTP denied", true, false, &felix.Policy{InboundRules: []*felix.Rule{{Action: "deny", DstIpPortSetIds: []string{"n1"}}, {Action: "allow"}}},
			strings.Join([]string{"out " + node, "out " + self, "out permit 0.0.0.0/0 -> 0.0.0.0/0"}, "\n"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := withSCTP(t, c.ingress, c.egress, c.policy)
			if got := s.b.show("if-p1"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if len(s.b.notes) > 0 {
				t.Errorf("notes %v", s.b.notes)
			}
			s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{sctpRule("allow")}}))
			s.settle(t)
			if len(s.b.ports) > 0 || s.b.acls[kv.SCTPPortsACL("if-p1", true)] != nil || s.b.acls[kv.SCTPPortsACL("if-p1", false)] != nil {
				t.Errorf("left behind: %v", s.b.ports)
			}
		})
	}
}

// A new member of a set changes the filter, although no list names the set.
func TestFilterFollowsSets(t *testing.T) {
	rule := sctpRule("allow", 80, 80)
	rule.SrcIpSetIds = []string{"s1"}
	s := withSCTP(t, true, false, &felix.Policy{InboundRules: []*felix.Rule{rule}})
	p := packet{remotes[0], podIPs[0][match.V4], match.SCTP, 7, 80}
	if s.b.on("if-p1", true, p) {
		t.Fatal("nobody is allowed yet")
	}
	s.send(&felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: &felix.IPSetDeltaUpdate{Id: "s1", AddedMembers: []string{"10.1.2.1/32"}}}})
	s.settle(t)
	if !s.b.on("if-p1", true, p) {
		t.Errorf("the member is not allowed\n%s", s.b.show("if-p1"))
	}
	if p.dport = 81; s.b.on("if-p1", true, p) {
		t.Error("the member is allowed at other ports")
	}
}

// Negations of addresses and of ports do not multiply in the classifier, which has room for few.
func TestNegationsOfPorts(t *testing.T) {
	all := sctpRule("allow", 0, 0)
	all.DstPorts, all.NotDstPorts = nil, []*felix.PortRange{{First: 80, Last: 80}}
	all.SrcNet, all.NotSrcNet = []string{"10.0.0.0/8"}, []string{"10.1.2.3/32", "10.9.0.0/16"}
	one := sctpRule("allow", 443, 443)
	one.SrcNet = []string{"10.1.2.3/32"}
	s := withSCTP(t, true, false, &felix.Policy{InboundRules: []*felix.Rule{all, one}})
	if len(s.b.notes) > 0 {
		t.Fatal(s.b.notes)
	}
	for _, c := range []struct {
		src          string
		sport, dport uint16
		want         bool
	}{
		{"10.1.2.4", 7, 81, true},
		{"10.1.2.4", 7, 80, false},
		{"10.1.2.3", 7, 81, false},
		{"10.1.2.3", 179, 443, true},
		{"10.9.8.7", 7, 443, false},
		{"11.1.2.4", 7, 81, false},
	} {
		p := packet{netip.MustParseAddr(c.src), podIPs[0][match.V4], match.SCTP, c.sport, c.dport}
		if s.b.on("if-p1", true, p) != c.want {
			t.Errorf("%s: want %v\n%s", p, c.want, s.b.show("if-p1"))
		}
	}
}

// Rules beyond the capacity of VPP's classifier count as if VPP had no classifier, and the pod has a note about it.
func TestTooManyPorts(t *testing.T) {
	var many []*felix.Rule
	for i := range 200 {
		r := sctpRule("allow", 1, 65534)
		if r.SrcNet = []string{fmt.Sprintf("10.%d.0.0/%d", i, 9+i%20)}; i%2 > 0 {
			r.Action = "deny"
		}
		many = append(many, r)
	}
	s := withSCTP(t, true, false, &felix.Policy{InboundRules: many})
	if len(s.b.ports) > 0 || len(s.reasons()) != 1 || !strings.Contains(s.reasons()[0], "too many rules for SCTP") {
		t.Errorf("filters %v, notes %v", s.b.ports, s.b.notes)
	}
	if s.b.on("if-p1", true, packet{netip.MustParseAddr("10.0.0.1"), podIPs[0][match.V4], match.SCTP, 7, 80}) {
		t.Error("it is allowed")
	}
	s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: many[:1]}))
	s.settle(t)
	if len(s.b.ports) != 1 || len(s.b.notes) > 0 {
		t.Errorf("filters %v, notes %v", s.b.ports, s.b.notes)
	}
}

// Cause names the rule that decides about an association.
func TestCauseOfAssociations(t *testing.T) {
	s := withSCTP(t, true, false, &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", Protocol: &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "udp"}}}, sctpRule("allow", 80, 80)}})
	for _, c := range []struct {
		port uint16
		want dataplane.Cause
	}{
		{80, dataplane.Cause{Kind: dataplane.CauseRule, Endpoint: "p1", Tier: "a", Policy: "a1", Rule: 1}},
		{81, dataplane.Cause{Kind: dataplane.CauseEndOfTier, Endpoint: "p1", Tier: "a", Denied: true}},
	} {
		_, rule := s.b.begins("if-p1", true, packet{remotes[0], podIPs[0][match.V4], match.SCTP, 7, c.port})
		if got, ok := s.r.Cause("if-p1", true, dataplane.PortsPlace, rule); !ok || got != c.want {
			t.Errorf("port %d: %+v, %v", c.port, got, ok)
		}
	}
	if got, ok := s.r.Cause("if-p1", true, dataplane.PortsPlace, 100); ok {
		t.Errorf("a rule that is not there: %+v", got)
	}
	if got, ok := s.r.Cause("if-p1", true, dataplane.PortsPlace, -1); !ok || !got.Denied {
		t.Errorf("no rule: %+v, %v", got, ok)
	}
}

// If one filter opens while another closes, the interim state lets begin what both before and after do.
func TestStepsOfFilters(t *testing.T) {
	ports := func(first, last int32) []*felix.Rule { return []*felix.Rule{sctpRule("allow", first, last)} }
	for _, c := range []struct {
		name                string
		before, after       [2][]*felix.Rule // the first pod's egress, and the second pod's ingress
		steps               int
		never, always, open []uint16 // ports closed during the change, always open, and open at the end
	}{
		{"one port becomes another", [2][]*felix.Rule{ports(80, 80), ports(81, 81)}, [2][]*felix.Rule{ports(81, 81), ports(80, 80)}, 2, []uint16{80, 81}, nil, nil},
		{"ranges move", [2][]*felix.Rule{ports(80, 90), ports(80, 82)}, [2][]*felix.Rule{ports(81, 95), ports(81, 95)}, 2, []uint16{96, 79}, []uint16{81, 82}, []uint16{95}},
		{"only the second changes", [2][]*felix.Rule{ports(80, 81), ports(80, 80)}, [2][]*felix.Rule{ports(80, 81), ports(81, 81)}, 1, []uint16{82}, nil, []uint16{81}},
		{"the first asks no more", [2][]*felix.Rule{ports(80, 80), ports(81, 81)}, [2][]*felix.Rule{{sctpRule("allow")}, ports(80, 80)}, 2, []uint16{81}, nil, []uint16{80}},
		{"the second asks no more", [2][]*felix.Rule{ports(80, 80), ports(81, 81)}, [2][]*felix.Rule{ports(81, 81), {sctpRule("deny")}}, 2, []uint16{80, 81}, nil, nil},
		{"both begin to ask", [2][]*felix.Rule{{sctpRule("deny")}, {sctpRule("allow")}}, [2][]*felix.Rule{ports(80, 81), ports(81, 81)}, 2, []uint16{80, 82}, nil, []uint16{81}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(testNode(dataplane.PostDNAT))
			s.send(start()...)
			change := func(rules [2][]*felix.Rule) {
				s.send(policyMessage(policyIDs[0], &felix.Policy{OutboundRules: rules[0]}), policyMessage(policyIDs[1], &felix.Policy{InboundRules: rules[1]}))
			}
			change(c.before)
			s.send(podMessage(0, withPolicies("", "a1")), podMessage(1, withPolicies("a2", "")))
			s.settle(t)
			states := []*book{s.b.clone()}
			change(c.after)
			for again := true; again; {
				again = s.r.Apply()
				states = append(states, s.b.clone())
			}
			if len(states)-1 != c.steps {
				t.Errorf("%d steps, want %d", len(states)-1, c.steps)
			}
			p := packet{podIPs[0][match.V4], podIPs[1][match.V4], match.SCTP, 7, 0}
			for i := range states[1:] {
				for _, p.dport = range c.never {
					if onTheWay(states[i], states[i+1], p, p, pods[0], pods[1]) {
						t.Errorf("port %d passes at %d", p.dport, i)
					}
				}
			}
			for i, b := range states {
				for name := range b.acls {
					if iface, needs := kv.NeedsSCTPPorts(name); needs && b.ports[iface] == nil {
						t.Errorf("%s at %d, and nothing decides about ports", name, i)
					}
				}
				for _, p.dport = range c.always {
					if !onTheWay(b, b, p, p, pods[0], pods[1]) {
						t.Errorf("port %d does not pass at %d", p.dport, i)
					}
				}
			}
			for _, p.dport = range c.open {
				if !onTheWay(s.b, s.b, p, p, pods[0], pods[1]) {
					t.Errorf("port %d does not pass in the end", p.dport)
				}
			}
		})
	}
}
