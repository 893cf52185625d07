package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/closed"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// invites reports whether a pod's policies admit a packet, or let the pod begin the flow that the packet would answer.
func (w *world) invites(to string, p packet) bool {
	back := packet{p.dst, p.src, p.proto, p.dport, p.sport}
	return w.allows(w.eps[to], false, p) || w.sends(w.eps[to], back)
}

// refuses reports whether a pod restricts both directions, and invites no such packet, where NAT may replace the sender's address.
func (s *scene) refuses(to string, p packet) bool {
	if s.r.pods.Node.View(match.FamilyOf(p.src)) != dataplane.PreDNAT || !p.translated() || s.w.eps[to].GetState() != "active" {
		return false
	}
	return !s.w.invites(to, p)
}

// drawClosedRule draws a rule about few peers and ports, for either direction.
func drawClosedRule(t *rapid.T) *felix.Rule {
	r := &felix.Rule{Action: pick(t, "action", []string{"allow", "allow", "allow", "deny"})}
	r.SrcNet, r.DstNet = some(t, "srcnet", nets, 2), some(t, "dstnet", nets, 2)
	r.SrcIpSetIds, r.DstIpSetIds = some(t, "srcset", setNames[:2], 1), some(t, "dstset", setNames[:2], 1)
	if proto := pick(t, "proto", []string{"", "tcp", "udp"}); proto != "" {
		r.Protocol = named(proto)
	}
	ranges := []*felix.PortRange{{First: 80, Last: 80}, {First: 443, Last: 8080}, {First: 32768, Last: 65535}}
	r.SrcPorts, r.DstPorts = some(t, "sports", ranges, 1), some(t, "dports", ranges, 2)
	return r
}

// drawClosedMessage draws a change of policies of which one or two close each pod in both directions.
func drawClosedMessage(t *rapid.T, w *world) *felix.ToDataplane {
	rules := func(label string) []*felix.Rule {
		return rapid.SliceOfN(rapid.Custom(drawClosedRule), 0, 2).Draw(t, label)
	}
	switch rapid.IntRange(0, 5).Draw(t, "message") {
	case 0, 1:
		return policyMessage(pick(t, "policy", policyIDs[:2]), &felix.Policy{InboundRules: rules("in"), OutboundRules: rules("out")})
	case 2, 3:
		id, m := pick(t, "set", setNames[:2]), pick(t, "member", nets[:6])
		d := &felix.IPSetDeltaUpdate{Id: id}
		if slices.Contains(w.sets[id].GetMembers(), m) {
			d.RemovedMembers = []string{m}
		} else {
			d.AddedMembers = []string{m}
		}
		return &felix.ToDataplane{Payload: &felix.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: d}}
	case 4:
		return setMessage(pick(t, "set", setNames[:2]), felix.IPSetUpdate_NET, some(t, "members", nets[:6], 3))
	}
	i := rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
	tier := func(label string) []string { return []string{pick(t, label, []string{"a1", "a2"})} }
	e := &felix.WorkloadEndpoint{State: "active", ProfileIds: []string{"open"}, AllowSpoofedSourcePrefixes: some(t, "spoofs", []string{"10.1.1.4/32", "10.9.0.0/16"}, 1)}
	if rapid.IntRange(0, 3).Draw(t, "closed") > 0 {
		e.Tiers = []*felix.TierInfo{{Name: "a", IngressPolicies: tier("ingress"), EgressPolicies: tier("egress")}}
	}
	return podMessage(i, e)
}

// TestClosedPodsRefuse: each input lets pass to a local pod exactly what the sender's egress, or the host endpoint, allows, and the receiver's policies
// allow in one of both directions, before NAT replaces the sender's address.
func TestClosedPodsRefuse(t *testing.T) {
	refused := map[bool]int{} // by near
	left, states := 0, 0      // pods whose policies make too many rules for the uplink
	for name, draw := range map[string]func(*rapid.T, *world) *felix.ToDataplane{"few": drawClosedMessage, "any": drawMessage} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := newTightCheckedScene(testNode(dataplane.PreDNAT), name == "any" && rapid.Bool().Draw(t, "tight"), pick(t, "sources", modes))
				s.send(start()...)
				for i := range pods {
					s.send(openPod(i))
				}
				for range rapid.IntRange(1, 6).Draw(t, "changes") {
					for range rapid.IntRange(1, 6).Draw(t, "messages") {
						s.send(draw(t, s.w))
					}
					s.settle(t)
					s.checkClosed(t, refused, &left)
					states++
				}
			})
		})
	}
	if t.Logf("%d pods left out in %d states", left, states); left > max(4, states/20) {
		t.Error("too many pods are left out")
	}
	if refused[true] == 0 || refused[false] == 0 {
		t.Errorf("refused: %v", refused)
	}
}

// leftOut reports whether a note says that a pod's policies make too many rules for the inputs of uplink and overlay: then its own lists decide alone.
func (s *scene) leftOut(pod string) bool {
	for _, notes := range s.b.notes {
		if slices.ContainsFunc(notes, func(n model.Note) bool {
			return n.Refused && strings.HasSuffix(n.Ref.Name, pod) && strings.Contains(n.Reason, "too many rules for the uplink")
		}) {
			return true
		}
	}
	return false
}

// checkClosed compares the inputs with the policies, for all packets to local pods.
func (s *scene) checkClosed(t *rapid.T, refused map[bool]int, left *int) {
	over := map[string]bool{}
	defer func() { *left += len(over) }()
	each(func(p packet, from, to string) {
		if to == "" || slices.Contains(nodeIPs, p.src) || from != "" && s.w.eps[from] == nil {
			return
		}
		kinds := []packet{p}
		if p.translated() {
			kinds = append(kinds, packet{p.src, p.dst, p.proto, p.dport, p.sport})
		}
		for _, p := range kinds {
			refuses := s.refuses(to, p)
			if refuses {
				refused[from != ""]++
			}
			if from != "" {
				s.checkNear(t, p, from, to, !refuses)
				continue
			}
			for _, in := range []string{"uplink", "overlay"} {
				host := s.w.hostAllows(s.w.hostAt(in), false, false, p)
				if h := s.r.hosts.Hook(in); refuses && h != nil && !h.Forwards {
					continue
				}
				want, got := host && !refuses, s.b.on(in, false, p)
				if got && refuses && s.leftOut(to) {
					over[to] = true
					continue
				}
				if want != got && !s.excused(got) {
					t.Fatalf("%s at %s to %q: want %v got %v\n%s", p, in, to, want, got, s)
				}
			}
		}
	})
}

// checkNear compares the input of a local sender, also for packets that another pod sends from the sender's address as far as its source check
// allows that.
func (s *scene) checkNear(t *rapid.T, p packet, from, to string, invited bool) {
	for _, forger := range pods {
		e := s.w.eps[forger]
		if p.proto == match.SCTP || e == nil || forger == to || forger != from && (s.r.cfg.SourceCheck == SourceStrict || !s.b.on("if-"+forger, false, packet{p.src, hairpin[0], 47, 0, 0})) {
			continue
		}
		want, got := s.w.sends(e, p) && invited, s.b.on("if-"+forger, false, p)
		if forger != from && !want && got { // a pod that may use an address is let pass by it
			continue
		}
		if want != got && !s.excused(got) {
			t.Fatalf("%s from %q as %q to %q: want %v got %v\n%s", p, forger, from, to, want, got, s)
		}
	}
}

// closedWorld has p1, which admits senders of the set "in" at port 80 and may dial the set "out" at port 443, and open pods.
func closedWorld(n dataplane.Node) *scene {
	s := newScene(n)
	s.send(start()...)
	tcp := func(src, dst string, port int32) []*felix.Rule {
		r := &felix.Rule{Action: "allow", Protocol: named("tcp"), DstPorts: []*felix.PortRange{{First: port, Last: port}}}
		if src != "" {
			r.SrcIpSetIds = []string{src}
		} else {
			r.DstIpSetIds = []string{dst}
		}
		return []*felix.Rule{r}
	}
	s.send(setMessage("in", felix.IPSetUpdate_NET, []string{"10.1.1.2/32", "10.1.2.1/32", "192.168.0.7/32"}), setMessage("out", felix.IPSetUpdate_NET, []string{"10.1.1.3/32", "10.1.2.2/32", "192.168.0.7/32"}))
	s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: tcp("in", "", 80), OutboundRules: tcp("", "out", 443)}))
	s.send(podMessage(0, &felix.WorkloadEndpoint{State: "active", Tiers: []*felix.TierInfo{{Name: "a", IngressPolicies: []string{"a1"}, EgressPolicies: []string{"a1"}}}}))
	for i := range pods[1:] {
		s.send(openPod(i + 1))
	}
	return s
}

// TestRefusalsNameTheirCause: a refused packet, near and far, has the ingress of the closed pod as cause; an answer from elsewhere its egress.
func TestRefusalsNameTheirCause(t *testing.T) {
	s := closedWorld(testNode(dataplane.PreDNAT))
	s.settle(t)
	for _, c := range []struct {
		iface  string
		p      packet
		passes bool
		want   dataplane.Cause
	}{
		{"if-p2", packet{podIPs[1][match.V4], podIPs[0][match.V4], match.TCP, 40000, 81}, false, dataplane.Cause{Kind: dataplane.CauseEndOfTier, Tier: "a", Denied: true, Endpoint: "p1"}},
		{"uplink", packet{remotes[0], podIPs[0][match.V4], match.TCP, 40000, 81}, false, dataplane.Cause{Kind: dataplane.CauseEndOfTier, Tier: "a", Denied: true, Endpoint: "p1"}},
		{"overlay", packet{remotes[1], podIPs[0][match.V4], match.TCP, 443, 40000}, true, dataplane.Cause{Kind: dataplane.CauseRule, Tier: "a", Policy: "a1", Egress: true}},
	} {
		ok, place, rule := s.b.passes(c.iface, false, c.p)
		got, known := s.r.Cause(c.iface, false, place, rule)
		if ok != c.passes || !known || got != c.want {
			t.Errorf("%s at %s: passes %v, %+v, want %+v", c.p, c.iface, ok, got, c.want)
		}
	}
}

// TestNodesAnswerClosedPods: another node's address answers a closed pod, although no rule about its ingress admits such an address.
func TestNodesAnswerClosedPods(t *testing.T) {
	n := testNode(dataplane.PreDNAT)
	n.Peers = addrs("192.168.0.7")
	s := closedWorld(n)
	s.settle(t)
	answer, request := packet{n.Peers[0], podIPs[0][match.V4], match.TCP, 443, 40000}, packet{n.Peers[0], podIPs[0][match.V4], match.TCP, 40000, 80}
	if !s.b.on("overlay", false, answer) || s.b.on("overlay", false, request) {
		t.Errorf("the answer passes: %v, the request: %v", s.b.on("overlay", false, answer), s.b.on("overlay", false, request))
	}
}

// TestServedPortsOfClosedPods: a packet to a high port that a closed pod is known to serve makes a session where it enters if the pod admits it,
// and is dropped if not, also when the port is known later than the pod.
func TestServedPortsOfClosedPods(t *testing.T) {
	serves := func(n dataplane.Node, port uint16) dataplane.Node {
		n.Served = []dataplane.Served{{Addr: podIPs[0][match.V4], Proto: match.UDP, First: port, Last: port}}
		return n
	}
	n := testNode(dataplane.PreDNAT)
	for name, before := range map[string]dataplane.Node{"at once": serves(n, 40000), "later": n, "another port before": serves(n, 41000)} {
		s := closedWorld(before)
		port := &felix.Rule{Action: "allow", Protocol: named("udp"), SrcIpSetIds: []string{"in"}, DstPorts: []*felix.PortRange{{First: 33000, Last: 50000}}}
		s.send(policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{port}}))
		s.settle(t)
		s.r.SetNode(serves(n, 40000))
		s.settle(t)
		for dport, want := range map[uint16]vppacl.ACL_Rule_Action{40000: vppacl.ACL_Rule_REFLECT, 40001: vppacl.ACL_Rule_PERMIT} {
			p := packet{remotes[0], podIPs[0][match.V4], match.UDP, 40000, dport}
			ok, place, rule := s.b.passes("overlay", false, p)
			if list := s.b.lists["overlay"].GetInput(); !ok || s.b.acls[list[place]].GetRules()[rule].GetAction() != want {
				t.Errorf("%s: to port %d: passes %v, by %s rule %d", name, dport, ok, list[place], rule)
			}
			if p.src = remotes[1]; s.b.on("overlay", false, p) {
				t.Errorf("%s: to port %d: passes from a sender that the pod denies", name, dport)
			}
		}
	}
}

// TestInvitationsThatAreTooBig: of two closed pods that use many members the bigger is evaluated where packets enter, whatever its size. The other
// one gets a note, and is not.
func TestInvitationsThatAreTooBig(t *testing.T) {
	s := closedWorld(testNode(dataplane.PreDNAT))
	other := func(n int) {
		var many []string
		for i := range n {
			many = append(many, netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 1}).String()+"/32")
		}
		s.send(setMessage("many", felix.IPSetUpdate_NET, many))
		s.settle(t)
	}
	s.r.pods.Segs.Most = closed.MostInvited
	s.send(setMessage("many", felix.IPSetUpdate_NET, nil), policyMessage(policyIDs[1], &felix.Policy{InboundRules: []*felix.Rule{{Action: "allow", SrcIpSetIds: []string{"many"}}}}))
	s.send(podMessage(1, &felix.WorkloadEndpoint{State: "active", Tiers: []*felix.TierInfo{{Name: "a", IngressPolicies: []string{"a2"}, EgressPolicies: []string{"a2"}}}}))
	refused := func(pod int) bool {
		return !s.b.on("overlay", false, packet{remotes[2], podIPs[pod][match.V4], match.TCP, 40000, 81})
	}
	for _, n := range []int{10, 3000, 10} {
		s.r.pods.Segs.Most = table.MaxRules
		if n > 1000 {
			s.r.pods.Segs.Most = 1
		}
		other(n)
		left := strings.Contains(strings.Join(s.reasons(), "\n"), "too many rules for the uplink")
		if !refused(1) || refused(0) == left || left != (n > 1000) {
			t.Errorf("%d members: p1 refused %v, p2 %v, noted %v: %v", n, refused(0), refused(1), left, s.b.lists["overlay"])
		}
	}
}

// multiplied is a pod whose policy denies some networks in both directions, by a number of port ranges, and permits SCTP to port 80 and TCP to port 81.
func multiplied(ranges int) *felix.ToDataplane {
	in, out := &felix.Rule{Action: "deny", Protocol: named("tcp")}, &felix.Rule{Action: "deny", Protocol: named("tcp")}
	for i := range int32(6) {
		net := fmt.Sprintf("10.%d.0.0/16", 50+i)
		in.SrcNet, out.DstNet = append(in.SrcNet, net), append(out.DstNet, net)
	}
	for i := range int32(ranges) {
		p := &felix.PortRange{First: 1000 + 10*i, Last: 1005 + 10*i}
		in.DstPorts, out.DstPorts = append(in.DstPorts, p), append(out.DstPorts, p)
	}
	tcp := &felix.Rule{Action: "allow", Protocol: named("tcp"), DstPorts: []*felix.PortRange{{First: 81, Last: 81}}}
	return policyMessage(policyIDs[0], &felix.Policy{InboundRules: []*felix.Rule{in, sctpRule("allow", 80, 80), tcp}, OutboundRules: []*felix.Rule{out}})
}

// TestInvitationsThatMultiply: each direction of a closed pod has few rules, and what both deny is too many for a list. Then the pod's own lists decide
// alone: no packet that they permit is dropped where it enters, by SCTP neither, and no packet to another pod or to the node. A note on the pod says so.
func TestInvitationsThatMultiply(t *testing.T) {
	s := closedWorld(testNode(dataplane.PreDNAT))
	s.r.pods.Segs.Most = 30
	for _, ranges := range []int{1, 4, 1} {
		s.send(multiplied(ranges))
		s.settle(t)
		for _, in := range []string{"uplink", "overlay"} {
			for _, p := range []packet{
				{remotes[0], podIPs[0][match.V4], match.SCTP, 7, 80},
				{remotes[0], podIPs[0][match.V4], match.TCP, 40000, 81},
				{remotes[0], podIPs[1][match.V4], match.TCP, 40000, 1000},
				{remotes[0], nodeIPs[match.V4], match.UDP, 40000, 1000},
				{remotes[3], nodeIPs[match.V6], match.UDP, 40000, 1000},
			} {
				if !s.b.on(in, false, p) {
					_, place, rule := s.b.passes(in, false, p)
					t.Errorf("%d ranges: %s is dropped at %s, by list %d rule %d: %v", ranges, p, in, place, rule, s.b.lists[in])
				}
			}
			uninvited := packet{netip.MustParseAddr("10.50.0.1"), podIPs[0][match.V4], match.TCP, 1000, 1000}
			if got, left := s.b.on(in, false, uninvited), s.leftOut("p1"); left != (ranges > 1) || got != left {
				t.Errorf("%d ranges: an uninvited packet passes %s: %v; noted: %v", ranges, in, got, left)
			}
		}
		if n := len(s.reasons()); n > 1 || (n == 1) != (ranges > 1) {
			t.Errorf("%d ranges: notes %v: the policy itself is written", ranges, s.reasons())
		}
	}
}

// TestStepsOfClosedPods: other senders' inputs change with a closed pod's ingress. That needs no interim state.
func TestStepsOfClosedPods(t *testing.T) {
	s := closedWorld(testNode(dataplane.PreDNAT))
	s.settle(t)
	s.send(policyMessage(policyIDs[0], &felix.Policy{
		InboundRules:  []*felix.Rule{{Action: "allow", SrcNet: []string{"10.1.1.4/32"}}},
		OutboundRules: s.w.policies["a|a1"].GetOutboundRules(),
	}))
	if s.r.Apply() {
		t.Error("an interim state")
	}
	if s.b.on("if-p2", false, packet{podIPs[1][match.V4], podIPs[0][match.V4], match.TCP, 40000, 80}) || !s.b.on("if-p4", false, packet{podIPs[3][match.V4], podIPs[0][match.V4], match.TCP, 40000, 80}) {
		t.Error("other senders are not evaluated by the new rules")
	}
}
