package acl

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// served is what pods of TestLaw serve: TCP 40000 is p1's, UDP 80 and 50000 to 50010 p2's.
var served = []dataplane.Served{
	{Addr: podIPs[0][0], Proto: 6, First: 40000, Last: 40000},
	{Addr: podIPs[0][1], Proto: 6, First: 40000, Last: 40000},
	{Addr: podIPs[1][0], Proto: 17, First: 80, Last: 80},
	{Addr: podIPs[1][1], Proto: 17, First: 80, Last: 80},
	{Addr: podIPs[1][0], Proto: 17, First: 50000, Last: 50010},
	{Addr: podIPs[1][1], Proto: 17, First: 50000, Last: 50010},
}

// isAnswer reports whether a packet is an answer of a pod (egress), or to one.
func isAnswer(egress bool, p packet) bool {
	pod, own, peer := p.dst, p.dport, p.sport
	if egress {
		pod, own, peer = p.src, p.sport, p.dport
	}
	known := slices.ContainsFunc(served, func(s dataplane.Served) bool {
		return s.Addr == pod && s.Proto == p.proto && s.First <= own && own <= s.Last
	})
	if egress && !known && p.proto == 17 && own < 32768 && peer < 32768 {
		return false // a client that chose its port itself
	}
	return egress == (known || own < 32768)
}

// action returns the action of the first rule that matches a packet, which for TCP has these flags.
func (b *book) action(iface string, output bool, p packet, flags uint8) vppacl.ACL_Rule_Action {
	l := b.lists[iface]
	names := l.GetInput()
	if output {
		names = l.GetOutput()
	}
	for _, name := range names {
		for i, r := range b.lines[name] {
			tcp := b.acls[name].GetRules()[i].GetIpRule().GetTcp()
			if r.src.Contains(p.src) && r.dst.Contains(p.dst) && r.matches(p) && uint32(flags)&tcp.GetTcpFlagsMask() == tcp.GetTcpFlagsValue() {
				return b.acls[name].GetRules()[i].GetAction()
			}
		}
	}
	return vppacl.ACL_Rule_DENY
}

// lawFlows are packets whose ports of both ends show the server.
func lawFlows(src, dst netip.Addr) []packet {
	out := []packet{{src, dst, 132, 80, 40000}, {src, dst, 47, 0, 0}}
	ports := []uint16{80, 32767, 32768, 40000, 50000, 50010, 50011, 65535}
	for _, proto := range []uint8{6, 17} {
		for _, s := range ports {
			for _, d := range ports {
				out = append(out, packet{src, dst, proto, s, d})
			}
		}
	}
	return out
}

// Whether a TCP packet begins a connection does not affect whether it passes. A packet that passes reflects if it is a request by
// the pod's port, or begins a connection, or is neither TCP nor UDP.
func TestLaw(t *testing.T) {
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		t.Run(view.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				n := testNode(view)
				n.Served = served
				s := newTightScene(n, rapid.Bool().Draw(t, "tight"))
				s.send(start()...)
				for range rapid.IntRange(1, 20).Draw(t, "steps") {
					s.send(drawMessage(t, s.w))
				}
				s.settle(t)
				s.checkLaw(t)
			})
		})
	}
}

func (s *scene) checkLaw(t *rapid.T) {
	for _, f := range match.Families {
		list, pod := ends(f)
		list = slices.DeleteFunc(list, func(a netip.Addr) bool {
			return pod[a] == "" && a != remotes[0] && a != remotes[3] && !slices.Contains(nodeIPs, a)
		})
		for _, src := range list {
			for _, dst := range list {
				for _, p := range lawFlows(src, dst) {
					if from := pod[src]; from != "" && src != dst {
						s.checkHook(t, "if-"+from, false, p, isAnswer(true, p))
					}
					if to := pod[dst]; to != "" && src != dst {
						s.checkHook(t, "if-"+to, true, p, isAnswer(false, p))
					}
				}
			}
		}
	}
}

// names reports whether an ingress rule of the pod names its port in the packet, which may make the pod a server there.
// TestRulesNamePorts checks which rules do.
func (s *scene) names(pod string, output bool, p packet) bool {
	own := p.sport
	if output {
		own = p.dport
	}
	e := s.w.eps[pod]
	var rules []*felix.Rule
	for _, name := range e.GetProfileIds() {
		rules = append(rules, s.w.profiles[name].GetInboundRules()...)
	}
	for _, tier := range e.GetTiers() {
		for _, name := range tier.GetIngressPolicies() {
			rules = append(rules, s.w.policies[tier.GetName()+"|"+name].GetInboundRules()...)
		}
	}
	return slices.ContainsFunc(rules, func(r *felix.Rule) bool {
		return slices.ContainsFunc(r.GetDstPorts(), func(ports *felix.PortRange) bool {
			return ports.GetFirst() <= int32(own) && int32(own) <= ports.GetLast() && ports.GetLast()-ports.GetFirst() < policy.MostPorts
		})
	})
}

func (s *scene) checkHook(t *rapid.T, iface string, output bool, p packet, answer bool) {
	if len(s.b.lists[iface].GetInput()) == 0 {
		return
	}
	for _, flags := range []uint8{0x02, 0x12, 0x10, 0x18, 0x04} {
		got, first := s.b.action(iface, output, p, flags), s.b.action(iface, output, p, 0x02)
		if (got == vppacl.ACL_Rule_DENY) != (first == vppacl.ACL_Rule_DENY) {
			t.Fatalf("%s flags %#x at %s, output %v: %v, with SYN %v\n%s", p, flags, iface, output, got, first, s)
		}
		want := vppacl.ACL_Rule_REFLECT
		if answer && (p.proto == 17 || p.proto == 6 && flags != 0x02) {
			want = vppacl.ACL_Rule_PERMIT
		}
		if got != vppacl.ACL_Rule_DENY && got != want && !s.names(strings.TrimPrefix(iface, "if-"), output, p) {
			t.Fatalf("%s flags %#x at %s, output %v: %v, want %v\n%s", p, flags, iface, output, got, want, s)
		}
	}
}

// A pod is a server at the ports that its ingress rules name, of UDP below 32768 too. Broad ranges, and egress, name none.
func TestRulesNamePorts(t *testing.T) {
	answers := packet{podIPs[0][0], remotes[0], 17, 80, 53} // from low to low: a request, unless the pod is known to serve
	for _, c := range []struct {
		name        string
		ports       *felix.PortRange
		out, permit bool
	}{
		{"one port", &felix.PortRange{First: 80, Last: 80}, false, true},
		{"a range", &felix.PortRange{First: 1, Last: policy.MostPorts}, false, true},
		{"a broad range", &felix.PortRange{First: 1, Last: policy.MostPorts + 1}, false, false},
		{"another port", &felix.PortRange{First: 81, Last: 81}, false, false},
		{"egress", &felix.PortRange{First: 80, Last: 80}, true, false},
	} {
		rule := []*felix.Rule{{Action: "allow", Protocol: udp(), DstPorts: []*felix.PortRange{c.ports}}}
		pol := &felix.Policy{InboundRules: rule}
		if c.out {
			pol = &felix.Policy{OutboundRules: append(rule, &felix.Rule{Action: "allow"}), InboundRules: []*felix.Rule{{Action: "allow", Protocol: udp()}}}
		}
		s := newScene(testNode(dataplane.PostDNAT))
		s.send(start()...)
		s.send(policyMessage(policyIDs[0], pol), podMessage(0, withPolicies("a1", map[bool]string{true: "a1"}[c.out])))
		s.settle(t)
		want := vppacl.ACL_Rule_REFLECT
		if c.permit {
			want = vppacl.ACL_Rule_PERMIT
		}
		if got := s.b.action("if-p1", false, answers, 0); got != want {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}

func udp() *felix.Protocol {
	return &felix.Protocol{NumberOrName: &felix.Protocol_Name{Name: "udp"}}
}

// Packets to and from elsewhere reflect as at the pod's interface; a pod's high ports count.
func TestLawElsewhere(t *testing.T) {
	n := testNode(dataplane.PreDNAT)
	n.Served = served
	s := newScene(n)
	s.send(start()...)
	s.send(policyMessage(policyIDs[0], in2out("allow", "allow")))
	s.w.policies["a|a1"].OutboundRules = append(s.w.policies["a|a1"].OutboundRules, &felix.Rule{Action: "deny"})
	s.send(policyMessage(policyIDs[0], s.w.policies["a|a1"]))
	for i := range pods {
		s.send(podMessage(i, withPolicies("", "a1")))
	}
	s.settle(t)
	pod, far := podIPs[0][0], remotes[0]
	for _, c := range []struct {
		iface   string
		output  bool
		p       packet
		flags   uint8
		reflect bool
	}{
		{"overlay", false, packet{far, pod, 6, 50000, 80}, 0x10, true},
		{"overlay", false, packet{far, pod, 6, 50000, 40000}, 0x10, true}, // a served one
		{"overlay", false, packet{far, pod, 17, 50000, 40000}, 0, false},  // for TCP only
		{"overlay", false, packet{far, pod, 6, 80, 45000}, 0x10, false},
		{"overlay", false, packet{far, pod, 6, 80, 45000}, 0x02, true},
		{"overlay", true, packet{pod, far, 6, 80, 50000}, 0x10, false},
		{"overlay", true, packet{pod, far, 6, 45000, 80}, 0x10, true},
		{"overlay", true, packet{pod, far, 6, 32767, 80}, 0x10, false},
		{"host", true, packet{pod, nodeIPs[0], 6, 80, 45000}, 0x10, false},
		{"host", false, packet{nodeIPs[0], pod, 6, 45000, 80}, 0x10, true},
	} {
		got := s.b.action(c.iface, c.output, c.p, c.flags)
		if (got == vppacl.ACL_Rule_REFLECT) != c.reflect || got == vppacl.ACL_Rule_DENY {
			t.Errorf("%s flags %#x at %s, output %v: %v", c.p, c.flags, c.iface, c.output, got)
		}
	}
}

// Packets that leave with the node's address are the node's, or NAT's, which keeps the ports of clients if it can.
func TestLawOfTheNode(t *testing.T) {
	s := newScene(testNode(dataplane.PreDNAT))
	s.send(start()...)
	s.send(hostMessage("h", &felix.HostEndpoint{Name: "uplink"}))
	s.settle(t)
	for _, c := range []struct {
		proto   uint8
		port    uint16
		flags   uint8
		reflect bool
	}{{17, 50000, 0, true}, {6, 50000, 0x10, true}, {6, 8443, 0x10, false}, {6, 8443, 0x02, true}, {17, 123, 0, true}} {
		got := s.b.action("uplink", true, packet{nodeIPs[0], remotes[2], c.proto, c.port, 443}, c.flags)
		if (got == vppacl.ACL_Rule_REFLECT) != c.reflect || got == vppacl.ACL_Rule_DENY {
			t.Errorf("protocol %d from port %d: %v", c.proto, c.port, got)
		}
	}
}

// A pod serves the high ports that a policy names for its ingress, unless the range is too broad to be specific. Pods without such
// a policy keep the tables they share.
func TestExplicitPorts(t *testing.T) {
	s := newScene(testNode(dataplane.PostDNAT))
	s.send(start()...)
	rule := func(proto string, first, last int32) *felix.Policy {
		return &felix.Policy{
			InboundRules:  []*felix.Rule{{Action: "allow", Protocol: named(proto), DstPorts: []*felix.PortRange{{First: first, Last: last}}}},
			OutboundRules: []*felix.Rule{{Action: "allow", DstNet: []string{"10.0.0.0/8"}}},
		}
	}
	s.send(policyMessage(policyIDs[0], rule("tcp", 40000, 40009)), policyMessage(policyIDs[1], rule("tcp", 50000, 60000)))
	s.send(podMessage(0, withPolicies("a1", "a1")), podMessage(1, withPolicies("a2", "a1")), podMessage(2, withPolicies("a2", "a1")))
	s.settle(t)
	strict := func(from int, port uint16) bool {
		return s.b.action("if-"+pods[from], false, packet{podIPs[from][0], podIPs[3][0], 6, port, 50000}, 0x10) == vppacl.ACL_Rule_PERMIT
	}
	if !strict(0, 40009) || strict(0, 40010) || strict(1, 55000) || strict(1, 40009) {
		t.Error(s.b.lists, s.b.acls)
	}
	same := func(a, b int, output bool) bool {
		x, y := s.b.lists["if-"+pods[a]].GetInput(), s.b.lists["if-"+pods[b]].GetInput()
		return slices.Equal(x[len(x)-2:], y[len(y)-2:])
	}
	if same(0, 1, false) || !same(1, 2, false) {
		t.Error("sharing", s.b.lists)
	}
	writes := s.b.writes
	s.send(policyMessage(policyIDs[0], rule("tcp", 80, 80)))
	s.settle(t)
	if strict(0, 40009) || !same(0, 1, false) {
		t.Error("after the policy changed", s.b.lists)
	}
	if n := s.b.writes - writes; n > 4 { // the policy's table, two of the pod, and its lists
		t.Errorf("%d writes", n)
	}
	for name := range s.b.acls {
		if !slices.ContainsFunc(pods, func(p string) bool {
			l := s.b.lists["if-"+p]
			return slices.Contains(l.GetInput(), name) || slices.Contains(l.GetOutput(), name)
		}) && s.b.lists["uplink"] == nil {
			t.Errorf("table %s is in no list", name)
		}
	}
}

// A table without a policy that only denies is one table in VPP, whichever ports its pods serve.
func TestTablesThatOnlyDenyAreShared(t *testing.T) {
	for _, view := range []dataplane.View{dataplane.PreDNAT, dataplane.PostDNAT} {
		n := testNode(view)
		n.Served = served
		s := newScene(n)
		s.send(start()...)
		p := in2out("allow", "allow")
		p.InboundRules = []*felix.Rule{{Action: "allow", SrcNet: []string{"10.1.0.0/16"}}, {Action: "deny"}}
		s.send(policyMessage(policyIDs[0], p))
		for i := range 3 { // each pod serves other ports
			s.send(podMessage(i, withPolicies("a1", "a1")))
		}
		s.settle(t)
		shared, own := map[string]int{}, 0
		for i := range 3 {
			l := s.b.lists["if-"+pods[i]]
			for _, name := range slices.Concat(l.GetInput(), l.GetOutput()) {
				if s.r.out.Table(name) != nil {
					shared[name]++
					continue
				}
				own++
				denies := !slices.ContainsFunc(s.b.acls[name].GetRules(), func(r *vppacl.ACL_Rule) bool { return r.GetAction() != vppacl.ACL_Rule_DENY })
				if denies {
					t.Errorf("%s: %s only denies, and is one of several", view, name)
				}
			}
		}
		if shared[table.NoSCTP] < 3 || own == 0 {
			t.Errorf("%s: shared %v, %d tables of one law: the test shows nothing", view, shared, own)
		}
	}
}

// Each rule in VPP has its cause, regardless of how many rules a rule of a policy became.
func TestCausesUnderTheLaw(t *testing.T) {
	n := testNode(dataplane.PostDNAT)
	n.Served = served
	s := newScene(n)
	s.send(start()...)
	p := in2out("allow", "allow")
	p.OutboundRules = []*felix.Rule{{Action: "allow", DstNet: []string{"10.1.0.0/16"}}, {Action: "allow", Protocol: named("tcp"), DstNet: []string{"8.8.8.8/32"}}, {Action: "deny"}}
	s.send(policyMessage(policyIDs[0], p), podMessage(0, withPolicies("a1", "a1")), podMessage(2, withPolicies("a1", "a1")))
	s.settle(t)
	for _, i := range []int{0, 2} {
		rules := map[int]int{}
		for place, name := range s.b.lists["if-"+pods[i]].GetInput() {
			for rule, r := range s.b.acls[name].GetRules() {
				c, ok := s.r.Cause("if-"+pods[i], false, place, rule)
				if !ok || c.Denied != (r.GetAction() == vppacl.ACL_Rule_DENY) {
					t.Fatalf("%s rule %d: %+v, %v", name, rule, c, ok)
				}
				if c.Kind == dataplane.CauseRule {
					rules[c.Rule]++
				}
			}
			if _, ok := s.r.Cause("if-"+pods[i], false, place, len(s.b.acls[name].GetRules())); ok {
				t.Errorf("%s has a rule too many", name)
			}
		}
		want := map[int]int{0: 4, 1: 3, 2: 2}
		if i == 0 { // serves one more TCP port
			want = map[int]int{0: 6, 1: 5, 2: 2}
		}
		for rule, n := range want {
			if rules[rule] != n {
				t.Errorf("%s: rule %d became %d, want %d", pods[i], rule, rules[rule], n)
			}
		}
	}
}
