package adversary

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/trace"
)

// TestExtrasLeaveSeedsAlone: a seed draws the same events with extra packets and without, and of the extra ones each kind.
func TestExtrasLeaveSeedsAlone(t *testing.T) {
	with, without := NewAttacker(3, Limits{}), NewAttacker(3, Limits{NoExtras: true})
	forged, kinds := 0, map[string]int{}
	for i := range 2000 {
		objects := with.Objects()
		a, b := with.Next(objects), without.Next(objects)
		if x, _ := a.question(0); true {
			if y, _ := b.question(0); x != y {
				t.Fatalf("event %d: with extras %s, without %s", i, x, y)
			}
		}
		for _, s := range with.Extras(objects) {
			switch {
			case s.SourceAddress != "" && s.Fragments == 0:
				forged++
			case s.Fragments > 0:
				kinds[s.Only]++
			}
		}
		if extra := without.Extras(objects); len(extra) > 0 {
			t.Fatalf("extras though there should be none: %v", extra)
		}
	}
	if forged == 0 || len(kinds) != 4 {
		t.Errorf("%d forged packets, fragments %v", forged, kinds)
	}
}

// secondNode is a node beside smallNode.
func secondNode() *corev1.Node {
	n := smallNode()
	n.Name, n.Spec.PodCIDR, n.Spec.PodCIDRs = "node-2", "10.1.2.0/24", []string{"10.1.2.0/24"}
	n.Status.Addresses[0].Address = "192.168.16.2"
	return n
}

// TestRightsOfForgers: from outside, an address gives the rights of who has it, except at that node itself.
func TestRightsOfForgers(t *testing.T) {
	other := secondNode()
	far := smallPod("far", "10.1.2.3")
	far.Spec.NodeName = "node-2"
	l := NewLaw()
	if err := l.Become([]policy.Object{smallNode(), other, smallPod("near", "10.1.1.3"), far}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ src, at, want string }{
		{"198.51.100.7", "node-1", ""},
		{"10.1.1.3", "node-1", ""},
		{"10.1.1.254", "node-1", ""},
		{"192.168.16.1", "node-1", ""},
		{"169.254.1.2", "node-1", ""},
		{"10.1.2.3", "node-1", "pod:prod/far"},
		{"192.168.16.2", "node-1", "node:node-2"},
		{"10.1.1.3", "node-2", "pod:prod/near"},
		{"10.1.2.77", "node-1", "external:10.1.2.77@node-1"},
	} {
		a := &trace.Arrival{AtNode: c.at, Sent: packet.NewUDP(netip.AddrPortFrom(netip.MustParseAddr(c.src), 1), netip.MustParseAddrPort("10.1.1.3:53"))}
		got := ""
		if owner := impersonated(l, l.addrs["external:198.51.100.7@node-1"], a); owner != nil {
			got = owner.name
		}
		if got != c.want {
			t.Errorf("%s at %s: the rights of %q, want %q", c.src, c.at, got, c.want)
		}
	}
}

// TestForgersAnswerAsTheNode: a pod dials its node. An outsider that sends under the node's address, from and to these ports, reaches the pod
// by the pod's own session, and from other ports nobody.
func TestForgersAnswerAsTheNode(t *testing.T) {
	objects := []policy.Object{smallNode(), smallPod("client", "10.1.1.2"), deny("client", networkingv1.PolicyTypeIngress)}
	tb, play := lay(t, agent.RendererNAT44, objects)
	forged := func(port uint16) trace.Arrival {
		e := oneWay("", "10.1.1.2:8001", "TCP", port, "S")
		e.From, e.SourceAddress = "external:198.51.100.7@node-1", "192.168.16.1"
		return play(e)
	}
	if a := forged(82); a.At != "" {
		t.Fatalf("%q got a packet before any of the pod's", a.At)
	}
	dial := oneWay("client", "192.168.16.1:82", "TCP", 8001, "S")
	if a := play(dial); a.At == "" {
		t.Fatalf("%+v", a)
	}
	got := forged(82)
	if want := map[string]int{"an outsider under the address of a node, to which the receiver sent": 1}; got.At != "pod:prod/client" || !maps.Equal(tb.law.Excused, want) {
		t.Fatalf("%q got it; excused: %v", got.At, tb.law.Excused)
	}
	if a := forged(83); a.At != "" {
		t.Errorf("%q got a packet from another port", a.At)
	}
	other := got
	other.Sent.SrcPort, other.Packet.SrcPort = 83, 83
	if tb.law.Judge("external:198.51.100.7@node-1", &other).None() {
		t.Error("another port is excused")
	}
	dial.To = "169.254.1.1:82"
	play(dial)
	got.Sent.Src, got.Packet.Src = netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("169.254.1.1")
	if breach := tb.law.Judge("external:198.51.100.7@node-1", &got); !breach.None() {
		t.Error(breach.Text)
	}
}

// TestForgedPacketsBeforeTheSourceCheck: with cnat, VPP translates a pod's packet before the source check drops it, and keeps the session. By it the
// endpoint's answer to the client gets the Service's address. The law expects no more of the client's connection from that port, and nothing less of
// others. nat44 comes after the source check.
func TestForgedPacketsBeforeTheSourceCheck(t *testing.T) {
	for _, c := range []struct {
		renderer agent.ServiceRenderer
		own      bool // the answer has its sender's address
	}{{agent.RendererCNAT, false}, {agent.RendererNAT44, true}} {
		t.Run(string(c.renderer), func(t *testing.T) {
			web := &kube.Service{N: 1, Namespace: "prod", Proto: corev1.ProtocolUDP, Kind: corev1.ServiceTypeClusterIP, Target: 8080, Every: 1}
			objects := []policy.Object{smallNode(), smallPod("client", "10.1.1.2"), smallPod("server", "10.1.1.3"), smallPod("liar", "10.1.1.4"), deny("client", networkingv1.PolicyTypeIngress)}
			tb, play := lay(t, c.renderer, append(objects, web.Objects([]*corev1.Pod{smallPod("server", "10.1.1.3")})...))
			lie := oneWay("liar", netip.AddrPortFrom(netip.MustParseAddr(web.Addresses()[0]), uint16(web.Port())).String(), "UDP", 40000, "")
			lie.SourceAddress = "10.1.1.2"
			if a := play(lie); a.At != "" {
				t.Fatalf("%q got a forged packet", a.At)
			}
			for _, port := range []uint16{40000, 40001} {
				play(oneWay("client", "10.1.1.3:8080", "UDP", port, ""))
				answer := play(oneWay("server", netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), port).String(), "UDP", 8080, ""))
				own := answer.At == "pod:prod/client" && answer.Packet.Src == netip.MustParseAddr("10.1.1.3")
				if own != (c.own || port != 40000) {
					t.Errorf("port %d: %q got the answer from %s", port, answer.At, answer.Packet.Src)
				}
			}
			for key, conn := range tb.law.begun {
				if conn.kept != (key.cport != 40000) {
					t.Errorf("port %d: it counts as established: %v", key.cport, conn.kept)
				}
			}
			if len(tb.law.begun) != 2 {
				t.Errorf("%d connections", len(tb.law.begun))
			}
		})
	}
}

// TestForgedPacketsRename: a client's egress allows a node's address. The endpoint of a node port there gets the client's packet, and with cnat under
// the address that a forged packet dialled from the endpoint's address. The client's own address counts, as the endpoint's list knows it by that one.
func TestForgedPacketsRename(t *testing.T) {
	for _, forger := range []string{"pod:prod/liar", "external:198.51.100.7@node-1"} {
		t.Run(forger, func(t *testing.T) {
			far, client, server := secondNode(), smallPod("client", "10.1.2.2"), smallPod("server", "10.1.1.3")
			client.Spec.NodeName = far.Name
			lure := &kube.Service{N: 1, Namespace: "prod", Proto: corev1.ProtocolTCP, Kind: corev1.ServiceTypeClusterIP, Target: 80, Every: 1}
			web := &kube.Service{N: 2, Namespace: "prod", Proto: corev1.ProtocolTCP, Kind: corev1.ServiceTypeNodePort, Target: 8080, Every: 1}
			out, in := deny("client", networkingv1.PolicyTypeEgress), deny("server", networkingv1.PolicyTypeIngress)
			out.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.168.16.1/32"}}}}}
			in.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: client.Labels}}}}}
			in.Spec.PolicyTypes = append(in.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			objects := []policy.Object{smallNode(), far, client, server, smallPod("liar", "10.1.1.4"), out, in}
			objects = append(append(objects, lure.Objects([]*corev1.Pod{client})...), web.Objects([]*corev1.Pod{server})...)
			tb, play := lay(t, agent.RendererCNAT, objects)
			vip := netip.AddrPortFrom(netip.MustParseAddr(lure.Addresses()[0]), uint16(lure.Port()))
			lie := oneWay("", vip.String(), "TCP", 8080, "S")
			lie.From, lie.SourceAddress = forger, "10.1.1.3"
			if a := play(lie); a.At != "" {
				t.Fatalf("%q got a forged packet", a.At)
			}
			got := play(oneWay("client", fmt.Sprintf("192.168.16.1:%d", web.NodePort()), "TCP", 80, "S"))
			want := map[string]int{"egress to a frontend, not to its endpoint": 1, "a pod under the address that a forged packet dialled": 1}
			if got.At != "pod:prod/server" || shown(&got) != vip || !maps.Equal(tb.law.Excused, want) {
				t.Fatalf("%q got %s; excused: %v", got.At, &got.Packet, tb.law.Excused)
			}
			if a := play(oneWay("server", vip.String(), "TCP", 8080, "SA")); a.At != "pod:prod/client" {
				t.Errorf("%q got the answer: %s", a.At, a.Lost)
			}
			other, direct, stranger := got, got, got
			other.Packet.SrcPort++
			direct.Sent.Dst = netip.MustParseAddr("192.168.16.2") // which is no frontend that the client may dial
			direct.Packet.DstPort = 8081
			stranger.Sender, stranger.Sent.Src = "pod:prod/liar", netip.MustParseAddr("10.1.1.4")
			for _, a := range []trace.Arrival{other, direct, stranger} {
				if tb.law.Judge(a.Sender, &a).None() {
					t.Errorf("%s sent %s, and %s is excused", a.Sender, &a.Sent, &a.Packet)
				}
			}
		})
	}
}

// TestForgedPacketsLetAnswersPass: an outsider's packet under a pod's address reaches another pod of another node, or by a node port. That pod, whose
// egress is denied, answers, and reaches the first one: by whatever address, if the outsider dialled that.
func TestForgedPacketsLetAnswersPass(t *testing.T) {
	first, second := smallPod("first", "10.1.1.2"), smallPod("second", "10.1.1.3")
	web := &kube.Service{N: 1, Namespace: "prod", Proto: corev1.ProtocolTCP, Kind: corev1.ServiceTypeNodePort, Target: 80, Every: 1}
	lure := &kube.Service{N: 2, Namespace: "prod", Proto: corev1.ProtocolTCP, Kind: corev1.ServiceTypeClusterIP, Target: 80, Every: 1}
	objects := append([]policy.Object{smallNode(), first, second, deny("first", networkingv1.PolicyTypeEgress)}, web.Objects([]*corev1.Pod{first})...)
	tb, play := lay(t, agent.RendererCNAT, append(objects, lure.Objects([]*corev1.Pod{second})...))
	lie := oneWay("", fmt.Sprintf("192.168.16.1:%d", web.NodePort()), "TCP", 80, "S")
	lie.From, lie.SourceAddress = "external:198.51.100.7@node-1", "10.1.1.3"
	vip := netip.AddrPortFrom(netip.MustParseAddr(lure.Addresses()[0]), uint16(lure.Port())).String()
	play(lie)
	if a := play(oneWay("first", vip, "TCP", 81, "S")); a.At != "" {
		t.Fatalf("%q got a packet that egress denies", a.At)
	}
	got, excuse := play(oneWay("first", vip, "TCP", 80, "S")), "a pod by the session of an outsider's forged packet"
	if shown(&got).String() != lie.To || got.At != "pod:prod/second" || tb.law.Excused[excuse] != 1 {
		t.Fatalf("%q got %s; excused: %v", got.At, &got.Packet, tb.law.Excused)
	}
	got.Packet.SrcPort++
	if tb.law.Judge("pod:prod/first", &got).None() {
		t.Error("excused by another port")
	}
}

// TestSecondFirstFragments: nat44 gives the ports of a datagram's first fragment to a second one, which policies would deny with its own ports. The law
// knows the first one, also if its datagram became whole; without it nothing is excused.
func TestSecondFirstFragments(t *testing.T) {
	far := smallPod("far", "10.1.2.3")
	far.Spec.NodeName = "node-2"
	other := secondNode()
	objects := []policy.Object{smallNode(), other, far, deny("far", networkingv1.PolicyTypeIngress)}
	for _, only := range []string{"reversed", "first"} {
		tb, play := lay(t, agent.RendererNAT44, objects)
		play(oneWay("far", "192.168.16.1:82", "TCP", 33000, "A"))
		parts := func(port uint16, to, only string) Event {
			e := oneWay("", to, "TCP", port, "S")
			e.From, e.Fragments, e.Only, e.Identification = "node:node-1", 3, only, 52
			return e
		}
		play(parts(82, "10.1.2.3:33000", only))
		got := play(parts(4001, "10.1.2.3:80", "first"))
		if n := tb.law.Excused["a second first fragment, which nat44 gives the ports of the first one"]; got.At != "pod:prod/far" || n != 1 {
			t.Errorf("%s: %q got it, excused: %v", only, got.At, tb.law.Excused)
		}
		got.Identification = 53
		if tb.law.Judge("node:node-1", &got).None() {
			t.Errorf("%s: excused without a first fragment", only)
		}
	}
}
