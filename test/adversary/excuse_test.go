package adversary

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/trace"
)

func smallNode() *corev1.Node {
	return &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec:   corev1.NodeSpec{PodCIDR: "10.1.1.0/24", PodCIDRs: []string{"10.1.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.16.1"}}},
	}
}

func smallPod(name, ip string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "x"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}},
	}
}

// deny is a policy that denies a pod's traffic in one direction.
func deny(pod string, direction networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: pod + "-" + strings.ToLower(string(direction))},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": pod}}, PolicyTypes: []networkingv1.PolicyType{direction}},
	}
}

// TestExcusesEnd: a server reaches a client whose egress was revoked, by the session at the client's interface, until the client's next
// packet. So it is whether the client's first packet reached the server or not.
func TestExcusesEnd(t *testing.T) {
	packet := func(from, to string, port uint16) Event {
		return Event{Step: trace.Step{Question: trace.Question{From: "pod:prod/" + from, To: to, Protocol: "UDP"}, SourcePort: port, OneWay: true}}
	}
	request, push := packet("client", "10.1.1.3:53", 40000), packet("server", "10.1.1.2:40000", 53)
	for _, c := range []struct {
		name   string
		extra  []policy.Object
		excuse string
	}{
		{"answered", nil, "revoked, and nothing of the client came since: UDP"},
		{"never answered", []policy.Object{deny("server", networkingv1.PolicyTypeIngress)}, "the receiver's own attempt, revoked, and the receiver is silent since: UDP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := append([]policy.Object{
				smallNode(), smallPod("client", "10.1.1.2"), smallPod("server", "10.1.1.3"), deny("client", networkingv1.PolicyTypeIngress),
			}, c.extra...)
			tb, play := lay(t, agent.RendererCNAT, objects)
			revoke := Event{Changes: kube.Differ(objects, append(objects[:len(objects):len(objects)], deny("client", networkingv1.PolicyTypeEgress)))}
			play(request)
			play(revoke)
			if play(push).At == "" || !maps.Equal(tb.law.Excused, map[string]int{c.excuse: 1}) {
				t.Fatalf("excused: %v", tb.law.Excused)
			}
			if play(request).At != "" || play(push).At != "" || len(tb.law.Excused) != 1 || tb.law.Excused[c.excuse] != 1 {
				t.Errorf("the client's packet did not end it: %v", tb.law.Excused)
			}
		})
	}
}

// lay returns a table of a world, and a function that plays an event there: a breach of the law fails the test.
func lay(t *testing.T, r agent.ServiceRenderer, objects []policy.Object) (*table, func(Event) trace.Arrival) {
	t.Helper()
	policy.Sort(objects)
	tb, err := newTable(trace.Config{Agent: agent.Config{Services: config.ServedBy(r)}}, objects)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tb.cluster.Close)
	return tb, func(e Event) trace.Arrival {
		t.Helper()
		a, breach, err := tb.play(&e, nil)
		if err != nil || !breach.None() {
			t.Fatalf("%s %v", breach.Text, err)
		}
		return a
	}
}

// TestOwnAttemptsMeetASYN: a pod's SYN reached nobody, and its egress was revoked. A SYN of the other side, between the same ports, reaches the pod,
// and opens nothing: the pod's answer is dropped, and ends that.
func TestOwnAttemptsMeetASYN(t *testing.T) {
	objects := []policy.Object{
		smallNode(), smallPod("client", "10.1.1.2"), smallPod("server", "10.1.1.3"), deny("client", networkingv1.PolicyTypeIngress), deny("server", networkingv1.PolicyTypeIngress),
	}
	tb, play := lay(t, agent.RendererCNAT, objects)
	play(oneWay("client", "10.1.1.3:81", "TCP", 80, "S"))
	revoke := deny("client", networkingv1.PolicyTypeEgress)
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(revoke), Object: revoke}}})
	syn := oneWay("server", "10.1.1.2:80", "TCP", 81, "S")
	got := play(syn)
	if want := map[string]int{"the receiver's own attempt, revoked, and the other side sends a SYN": 1}; got.At != "pod:prod/client" || !maps.Equal(tb.law.Excused, want) {
		t.Fatalf("%q got it; excused: %v", got.At, tb.law.Excused)
	}
	other := got
	other.Sent.SrcPort, other.Packet.SrcPort = 82, 82
	if tb.law.Judge("pod:prod/server", &other).None() {
		t.Error("a SYN from another port is excused")
	}
	if a := play(oneWay("client", "10.1.1.3:81", "TCP", 80, "SA")); a.At != "" {
		t.Errorf("%q got the answer", a.At)
	}
	if a := play(syn); a.At != "" || tb.law.Judge("pod:prod/server", &got).None() {
		t.Errorf("%q got the next SYN, or it is excused", a.At)
	}
}

// TestTwoConnectionsOfTheSamePorts: two pods open a connection each, between the same ports, and the egress of both is revoked after its own. Each
// reaches the other as the server of the other's connection, as its packets pass the other's list. A packet that this list drops ends that.
func TestTwoConnectionsOfTheSamePorts(t *testing.T) {
	objects := []policy.Object{smallNode(), smallPod("low", "10.1.1.2"), smallPod("high", "10.1.1.3")}
	egress := func(pod, to string) policy.Object { // a change of the addresses replaces rules in place, so that sessions of the other direction stay
		o := deny(pod, networkingv1.PolicyTypeEgress)
		o.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: to}}}}}
		return o
	}
	objects = append(objects, egress("low", "10.1.1.0/24"), egress("high", "10.1.1.0/24"))
	tb, play := lay(t, agent.RendererCNAT, objects)
	revoke := func(o policy.Object) {
		t.Helper()
		play(Event{Changes: []generate.Change{{Key: policy.KeyOf(o), Object: o}}})
	}
	up := func(flags string) Event { return oneWay("low", "10.1.1.3:40000", "TCP", 81, flags) }
	down := oneWay("high", "10.1.1.2:81", "TCP", 40000, "PA")
	play(down)
	revoke(egress("high", "10.9.0.0/16"))
	if a := play(down); a.At != "" {
		t.Fatalf("%q got a packet of a revoked connection", a.At)
	}
	play(up("S"))
	revoke(egress("low", "10.9.0.0/16"))
	first, second := play(up("PA")), play(down)
	if want := map[string]int{"revoked, and nothing of the client came since: TCP": 2}; first.At == "" || second.At == "" || !maps.Equal(tb.law.Excused, want) {
		t.Fatalf("%q and %q got them; excused: %v", first.At, second.At, tb.law.Excused)
	}
	revoke(deny("high", networkingv1.PolicyTypeIngress))
	if a := play(up("PA")); a.At != "" {
		t.Fatalf("%q got a packet that its ingress denies", a.At)
	}
	if a := play(down); a.At != "" || tb.law.Judge("pod:prod/high", &second).None() {
		t.Errorf("%q got it, or it is excused", a.At)
	}
}

// TestPingsOfBothSides: two pods ping each other, and policies revoke both pings at one of them. An answer to its own ping does not end the
// session of the other's: that of an echo request is another one.
func TestPingsOfBothSides(t *testing.T) {
	objects := []policy.Object{smallNode(), smallPod("client", "10.1.1.2"), smallPod("server", "10.1.1.3")}
	to := func(cidr string) policy.Object { // a change of the addresses replaces rules in place, so that sessions of the other direction stay
		o := deny("server", networkingv1.PolicyTypeEgress)
		peer := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}}
		o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		o.Spec.Egress, o.Spec.Ingress = []networkingv1.NetworkPolicyEgressRule{{To: peer}}, []networkingv1.NetworkPolicyIngressRule{{From: peer}}
		return o
	}
	tb, play := lay(t, agent.RendererCNAT, append(objects, to("10.1.1.0/24")))
	play(oneWay("client", "10.1.1.3", "ICMP", 4001, ""))
	play(oneWay("server", "10.1.1.2", "ICMP", 4001, ""))
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(to("10.9.0.0/16")), Object: to("10.9.0.0/16")}}})
	answer := play(oneWay("client", "10.1.1.3", "ICMP", 4001, "echo-reply"))
	late := play(oneWay("server", "10.1.1.2", "ICMP", 4001, "echo-reply"))
	if answer.At == "" || late.At == "" {
		t.Fatalf("%q and %q got them", answer.At, late.At)
	}
	if want := map[string]int{"revoked, and nothing of the client came since: ICMP": 2}; !maps.Equal(tb.law.Excused, want) {
		t.Errorf("excused: %v", tb.law.Excused)
	}
}

// oneWay is a packet that nobody answers.
func oneWay(from, to, protocol string, port uint16, flags string) Event {
	return Event{Step: trace.Step{Question: trace.Question{From: "pod:prod/" + from, To: to, Protocol: protocol}, SourcePort: port, Flags: flags, OneWay: true}}
}

// TestServicesDoNotInvite: a pod that may neither send nor be sent anything dials a Service. The endpoint does not reach it by that, and nothing
// excuses it, by whichever address.
func TestServicesDoNotInvite(t *testing.T) {
	lure := &kube.Service{N: 1, Namespace: "prod", Proto: corev1.ProtocolTCP, Kind: corev1.ServiceTypeClusterIP, Target: 8080, Every: 1}
	objects := []policy.Object{smallNode(), smallPod("cell", "10.1.1.2"), smallPod("zeal", "10.1.1.3"), deny("cell", networkingv1.PolicyTypeIngress), deny("cell", networkingv1.PolicyTypeEgress)}
	objects = append(objects, lure.Objects([]*corev1.Pod{smallPod("zeal", "10.1.1.3")})...)
	vip := netip.AddrPortFrom(netip.MustParseAddr(lure.Addresses()[0]), uint16(lure.Port()))
	tb, play := lay(t, agent.RendererNAT44, objects)
	play(oneWay("cell", vip.String(), "TCP", 40000, "S"))
	push := play(oneWay("zeal", "10.1.1.2:40000", "TCP", 8080, "S"))
	if push.At != "" || len(tb.law.Excused) > 0 {
		t.Errorf("%q got %s; excused: %v", push.At, &push.Packet, tb.law.Excused)
	}
	for _, from := range []netip.AddrPort{vip, netip.MustParseAddrPort("10.1.1.3:8080")} {
		got := push
		got.At, got.AtNode, got.Packet.Src, got.Packet.SrcPort = "pod:prod/cell", "node-1", from.Addr(), from.Port()
		if tb.law.Judge("pod:prod/zeal", &got).None() {
			t.Errorf("from %s: excused", from)
		}
	}
}

// TestLowPortsGoOn: a client from a port below 32768 whose egress was revoked continues while its ingress allows the server, who answered once.
func TestLowPortsGoOn(t *testing.T) {
	for _, c := range []struct {
		name     string
		port     uint16
		answered bool
		excuse   string
	}{
		{"answered", 4000, true, "revoked, from a port below 32768: TCP"},
		{"not answered", 4001, false, ""},
		{"a client's port", 40000, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := deny("client", networkingv1.PolicyTypeIngress)
			in.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}}}}}}
			objects := []policy.Object{smallNode(), smallPod("client", "10.1.1.2"), smallPod("server", "10.1.1.3"), deny("server", networkingv1.PolicyTypeEgress), in}
			tb, play := lay(t, agent.RendererCNAT, objects)
			play(oneWay("client", "10.1.1.3:80", "TCP", c.port, "PA")) // no SYN: it makes no session at the client's interface
			if c.answered {
				play(oneWay("server", fmt.Sprintf("10.1.1.2:%d", c.port), "TCP", 80, "PA"))
			}
			out := deny("client", networkingv1.PolicyTypeEgress)
			play(Event{Changes: []generate.Change{{Key: policy.KeyOf(out), Object: out}}})
			arrived := play(oneWay("client", "10.1.1.3:80", "TCP", c.port, "S")).At != ""
			if arrived != (c.excuse != "") || arrived && !maps.Equal(tb.law.Excused, map[string]int{c.excuse: 1}) {
				t.Errorf("arrived: %v; excused: %v", arrived, tb.law.Excused)
			}
		})
	}
}

// TestServedPortsOfClients: a pod that nobody may reach sends UDP from a port that it is known to serve. The answer is lost, and excused. From
// any other port the answer arrives.
func TestServedPortsOfClients(t *testing.T) {
	for _, c := range []struct {
		name    string
		port    uint16
		objects []policy.Object
		want    bool // the answer arrives
	}{
		{"nothing names it", 60000, nil, true},
		{"a policy names it", 60000, named("Allow", "UDP", 60000, 60001), false},
		{"a policy names a range of 1024 ports with it", 60000, named("Allow", "UDP", 59000, 60023), false},
		{"a policy names a range of 1025 ports with it", 60000, named("Allow", "UDP", 59000, 60024), true},
		{"a policy names the port before it", 60002, named("Allow", "UDP", 60000, 60001), true},
		{"a policy names it for TCP", 60000, named("Allow", "TCP", 60000, 60001), true},
		{"a policy denies it", 60000, named("Deny", "UDP", 60000, 60001), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := append(c.objects, smallNode(), smallPod("client", "10.1.1.2"), smallPod("server", "10.1.1.3"), deny("client", networkingv1.PolicyTypeIngress))
			tb, play := lay(t, agent.RendererCNAT, objects)
			request, answer := oneWay("client", "10.1.1.3:81", "UDP", c.port, ""), oneWay("server", fmt.Sprintf("10.1.1.2:%d", c.port), "UDP", 81, "")
			request.Continues, answer.Continues = "there", "back"
			if at := play(oneWay("client", "10.1.1.3:81", "UDP", c.port, "")).At; at != "pod:prod/server" || play(request).At != at {
				t.Fatalf("%q got the request", at)
			}
			want := map[string]int{}
			if !c.want {
				want["an answer to a port that its receiver serves: UDP"] = 1
			}
			if at := play(answer).At; (at != "") != c.want || !maps.Equal(tb.law.Excused, want) {
				t.Errorf("%q got the answer; excused: %v", at, tb.law.Excused)
			}
		})
	}
}

// named is a policy for the ingress of all pods that names ports, and comes after those that decide.
func named(action, protocol string, first, last int32) []policy.Object {
	p := &policy.BaselineAdminNetworkPolicy{TypeMeta: metav1.TypeMeta{APIVersion: "policy.networking.k8s.io/v1alpha1", Kind: "BaselineAdminNetworkPolicy"}, ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	all := &metav1.LabelSelector{}
	p.Spec.Subject.Namespaces = all
	p.Spec.Ingress = []policy.AdminRule{{
		Action: action, From: []policy.AdminPeer{{Namespaces: all}},
		Ports: &[]policy.AdminPort{{PortRange: &policy.AdminPortRange{Protocol: protocol, Start: first, End: last}}},
	}}
	return []policy.Object{p}
}

// translated sets up a pod on one node, and a function that plays events there. The pod may answer only; another node hides its clients outside.
func translated(t *testing.T, proto corev1.Protocol) (tb *table, web *kube.Service, play func(e Event) (trace.Arrival, Breach)) {
	t.Helper()
	near, far := smallNode(), smallNode()
	near.Spec.PodCIDRs = append(near.Spec.PodCIDRs, "fd00:10:1:1::/64")
	near.Status.Addresses = append(near.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "fd00:192:168::1"})
	far.Name, far.Spec.PodCIDR, far.Spec.PodCIDRs = "node-2", "10.1.2.0/24", []string{"10.1.2.0/24", "fd00:10:1:2::/64"}
	far.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.16.2"}, {Type: corev1.NodeInternalIP, Address: "fd00:192:168::2"}}
	web = &kube.Service{N: 1, Namespace: "prod", Proto: proto, Kind: corev1.ServiceTypeNodePort, Target: 80, Every: 1}
	server := smallPod("server", "fd00:10:1:1::3")
	objects := append([]policy.Object{near, far, server, deny("server", networkingv1.PolicyTypeEgress)}, web.Objects([]*corev1.Pod{server})...)
	policy.Sort(objects)
	tb, err := newTable(trace.Config{Agent: agent.Config{Services: config.ServedBy(agent.RendererCNAT)}}, objects)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tb.cluster.Close)
	return tb, web, func(e Event) (a trace.Arrival, breach Breach) {
		t.Helper()
		a, breach, err := tb.play(&e, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a, breach
	}
}

// outside is a packet of a client outside to node-2.
func outside(to, protocol string, port uint16, flags string) Event {
	e := oneWay("", to, protocol, port, flags)
	e.From = "external:2001:db8:51::7@node-2"
	return e
}

// TestLostTranslations: an answer to a client behind a node's address reaches that node itself when its VPP has restarted. The law takes it for
// an answer to that client, until the client's next packet with that address and port comes to the server, and takes nothing else for it.
func TestLostTranslations(t *testing.T) {
	tb, web, play := translated(t, corev1.ProtocolTCP)
	request := outside(fmt.Sprintf("[fd00:192:168::2]:%d", web.NodePort()), "TCP", 4001, "S")
	a, _ := play(request)
	if a.At != "pod:prod/server" || a.Packet.Src != netip.MustParseAddr("fd00:192:168::2") {
		t.Fatalf("%q got %s", a.At, &a.Packet)
	}
	in := deny("server", networkingv1.PolicyTypeIngress)
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(in), Object: in}}})
	play(Event{Step: trace.Step{Restart: "vpp:node-2"}})
	push := oneWay("server", fmt.Sprintf("[fd00:192:168::2]:%d", a.Packet.SrcPort), "TCP", 80, "PA")
	got, breach := play(push)
	if want := map[string]int{"revoked, and nothing of the client came since: TCP": 1}; got.At != "node:node-2" || !breach.None() || !maps.Equal(tb.law.Excused, want) {
		t.Fatalf("%q got %s: %s; excused: %v", got.At, &got.Packet, breach.Text, tb.law.Excused)
	}
	other := got
	other.Sent.DstPort, other.Packet.DstPort = 22, 22
	if tb.law.Judge("pod:prod/server", &other).None() {
		t.Error("a packet to another port of the node is excused")
	}
	got.Sent.TCPFlags = packet.SYN // a Service's client is pushed to in any case
	hidden := a                    // the client continues behind another port: the session at the server's interface is not asked
	hidden.At, hidden.Lost, hidden.Packet.SrcPort = "", "node-1: acl-plugin-out-ip6-fa: drop", a.Packet.SrcPort+1
	tb.law.Try(request.From, &hidden)
	if !tb.law.Judge("pod:prod/server", &got).None() {
		t.Error("not excused after a packet of the client behind another port")
	}
	hidden.Packet.SrcPort = a.Packet.SrcPort
	tb.law.Try(request.From, &hidden)
	if tb.law.Judge("pod:prod/server", &got).None() {
		t.Error("excused after the client's next packet")
	}
	tb.law.revived[tb.law.seen[dialled(&got)].key] = true
	if !tb.law.Judge("pod:prod/server", &got).None() {
		t.Error("not excused after that packet made a session")
	}
}

// TestPodsReachThemselvesByNodes: a pod dials a node port of another node, and is its endpoint itself, under that node's address. Its egress is revoked,
// and that node's VPP restarts. Packets that the pod sends as the endpoint reach the node itself, until the pod's next packet arrives at its interface.
func TestPodsReachThemselvesByNodes(t *testing.T) {
	web := &kube.Service{N: 1, Namespace: "prod", Proto: corev1.ProtocolTCP, Kind: corev1.ServiceTypeNodePort, Target: 80, Every: 1}
	pod := smallPod("pod", "10.1.1.2")
	with := func(cidr string) policy.Object {
		o := deny("pod", networkingv1.PolicyTypeEgress)
		peer := []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}}
		o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		o.Spec.Egress, o.Spec.Ingress = []networkingv1.NetworkPolicyEgressRule{{To: peer}}, []networkingv1.NetworkPolicyIngressRule{{From: peer}}
		return o
	}
	tb, play := lay(t, agent.RendererCNAT, append([]policy.Object{smallNode(), secondNode(), pod, with("192.168.16.2/32")}, web.Objects([]*corev1.Pod{pod})...))
	dialled := play(oneWay("pod", fmt.Sprintf("192.168.16.2:%d", web.NodePort()), "TCP", 40000, "S"))
	if dialled.At != "pod:prod/pod" || dialled.Packet.Src.String() != "192.168.16.2" {
		t.Fatalf("%q got %s", dialled.At, &dialled.Packet)
	}
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(with("10.9.0.0/16")), Object: with("10.9.0.0/16")}}})
	play(Event{Step: trace.Step{Restart: "vpp:node-2"}})
	got := play(oneWay("pod", shown(&dialled).String(), "TCP", 80, "PA"))
	if want := map[string]int{"revoked, and nothing of the client came since: TCP": 1}; got.At != "node:node-2" || !maps.Equal(tb.law.Excused, want) {
		t.Fatalf("%q got %s; excused: %v", got.At, &got.Packet, tb.law.Excused)
	}
	other := got
	other.Sent.DstPort, other.Packet.DstPort = 22, 22
	if tb.law.Judge("pod:prod/pod", &other).None() {
		t.Error("a packet to another port of the node is excused")
	}
	dialled.At, dialled.Lost = "", "node-1: acl-plugin-out-ip4-fa: drop"
	tb.law.Try("pod:prod/pod", &dialled)
	if tb.law.Judge("pod:prod/pod", &got).None() {
		t.Errorf("after the pod's next packet, excused: %v", tb.law.Excused)
	}
}

// TestForgottenTranslations: the translation of a client behind a node's address expires, and the client continues behind another port of that
// address. The law takes an answer to the first port, which reaches the node itself, for an answer to that client, until the client's next packet
// with that port comes to the server. Packets with the second port do not end that, as the server's interface has a session for each.
func TestForgottenTranslations(t *testing.T) {
	tb, _, play := translated(t, corev1.ProtocolUDP)
	request := outside("[fd00:10:1:1::3]:80", "UDP", 4001, "")
	first, _ := play(request)
	play(Event{Step: trace.Step{After: "6m"}})
	second, _ := play(request)
	if first.Packet.SrcPort == second.Packet.SrcPort || first.Packet.Src != second.Packet.Src {
		t.Fatalf("the client is %s, then %s", shown(&first), shown(&second))
	}
	in := deny("server", networkingv1.PolicyTypeIngress)
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(in), Object: in}}})
	denied, _ := play(request)
	got, breach := play(oneWay("server", shown(&first).String(), "UDP", 80, ""))
	want := map[string]int{"revoked, and nothing of the client came since: UDP": 1}
	if denied.At != "" || got.At != "node:node-2" || !breach.None() || !maps.Equal(tb.law.Excused, want) {
		t.Fatalf("%q got the request; %q got %s: %s; excused: %v", denied.At, got.At, &got.Packet, breach.Text, tb.law.Excused)
	}
	to2 := got
	to2.Sent.DstPort, to2.Packet.DstPort = second.Packet.SrcPort, second.Packet.SrcPort
	if tb.law.Judge("pod:prod/server", &to2).None() {
		t.Error("an answer to the second port is excused after the client's next packet")
	}
	denied.Packet.SrcPort = first.Packet.SrcPort
	tb.law.Try(request.From, &denied)
	if tb.law.Judge("pod:prod/server", &got).None() {
		t.Error("an answer to the first port is excused after the client's next packet with it")
	}
}

// TestHostLinksStayHidden: a pod may send to its node's address alone. The node's own SCTP makes a session of nat44, by which the pod's SCTP to that
// address would reach the node under the address of its host link. So it is dropped.
func TestHostLinksStayHidden(t *testing.T) {
	egress := deny("pod", networkingv1.PolicyTypeEgress)
	egress.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.168.16.0/30"}}}}}
	objects := []policy.Object{smallNode(), smallPod("pod", "10.1.1.2"), egress}
	tb, play := lay(t, agent.RendererNAT44, objects)
	own := oneWay("", "10.1.1.2:80", "SCTP", 53, "INIT")
	own.From = "node:node-1"
	play(own)
	a := play(oneWay("pod", "192.168.16.1:8080", "SCTP", 33000, "INIT"))
	if a.At != "" || len(tb.law.Excused) != 0 {
		t.Errorf("%q got %s; excused: %v", a.At, &a.Packet, tb.law.Excused)
	}
	a.At, a.AtNode, a.Packet.Dst = "node:node-1", "node-1", netip.MustParseAddr("169.254.1.2")
	if tb.law.Judge("pod:prod/pod", &a).None() {
		t.Error("a packet to the host link is allowed")
	}
	// Had the pod got the node's packet, its SCTP would pass by that session after a change, until the node sends more.
	sent := packet.NewSCTP(netip.MustParseAddrPort("169.254.1.2:53"), netip.MustParseAddrPort("10.1.1.2:80"))
	tb.law.Try("node:node-1", &trace.Arrival{Sender: "node:node-1", Node: "node-1", At: "pod:prod/pod", AtNode: "node-1", Sent: sent, Packet: sent})
	other := egress.DeepCopy()
	other.Spec.Egress[0].To[0].IPBlock.CIDR = "10.9.0.0/16"
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(other), Object: other}}})
	if breach := tb.law.Judge("pod:prod/pod", &a); !breach.None() || !maps.Equal(tb.law.Excused, map[string]int{"SCTP by a session of the receiver's, who is silent since": 1}) {
		t.Errorf("%s; excused: %v", breach.Text, tb.law.Excused)
	}
}

// TestNodesHideNobody: a pod may send to nodes, not to another pod. With nat44 its SCTP to the node's address would reach the other pod once that pod
// sent SCTP to it, as a session of nat44 exists although a list dropped that packet. So it is dropped. With cnat the node gets it.
func TestNodesHideNobody(t *testing.T) {
	for _, r := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		egress := deny("cell", networkingv1.PolicyTypeEgress)
		egress.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.168.16.0/24"}}}}}
		objects := []policy.Object{smallNode(), smallPod("cell", "10.1.1.2"), smallPod("zeal", "10.1.1.3"), egress}
		tb, play := lay(t, r, objects)
		if a := play(oneWay("zeal", "10.1.1.2:80", "SCTP", 4002, "INIT")); a.At != "" {
			t.Errorf("%s: %q got an association that its lists do not track", r, a.At)
		}
		a := play(oneWay("cell", "192.168.16.1:81", "SCTP", 80, "INIT"))
		if want := map[agent.ServiceRenderer]string{agent.RendererCNAT: "node:node-1"}[r]; a.At != want {
			t.Errorf("%s: %q got it, not %q", r, a.At, want)
		}
		a.At, a.Packet.Dst = "pod:prod/zeal", netip.MustParseAddr("10.1.1.3")
		if tb.law.Judge("pod:prod/cell", &a).None() || len(tb.law.Excused) > 0 {
			t.Errorf("%s: the law admits it; excused: %v", r, tb.law.Excused)
		}
	}
}

// TestServicesHideNobody: a pod may send to Services, not to another pod, which is the endpoint of one. It dials that Service by TCP; the endpoint
// sends SCTP to it. With nat44 its SCTP to the Service's address, a cluster IP or an external one, would reach the endpoint then. So it is dropped.
func TestServicesHideNobody(t *testing.T) {
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer} {
		lure := &kube.Service{N: 1, Namespace: "prod", Proto: corev1.ProtocolTCP, Kind: kind, Target: 8080, Every: 1}
		for _, text := range lure.Addresses() {
			zeal := smallPod("zeal", "10.1.1.3")
			vip := netip.AddrPortFrom(netip.MustParseAddr(text), uint16(lure.Port()))
			for _, r := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
				egress := deny("cell", networkingv1.PolicyTypeEgress)
				egress.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: vip.Addr().String() + "/32"}}}}}
				objects := append([]policy.Object{smallNode(), smallPod("cell", "10.1.1.2"), zeal, egress}, lure.Objects([]*corev1.Pod{zeal})...)
				tb, play := lay(t, r, objects)
				begin := oneWay("cell", vip.String(), "SCTP", 4001, "INIT")
				play(oneWay("cell", vip.String(), "TCP", 60000, "S"))
				play(begin)
				play(oneWay("zeal", "10.1.1.2:8080", "SCTP", 4000, "INIT"))
				if a := play(begin); a.At == "pod:prod/zeal" || r == agent.RendererNAT44 && a.At != "" || len(tb.law.Excused) > 0 {
					t.Errorf("%s, %s: %q got it; excused: %v", r, vip, a.At, tb.law.Excused)
				}
			}
		}
	}
}

// TestHiddenSendersInviteSCTP: SCTP of a pod leaves to an address outside, with the node's address. The node has a host endpoint. Once nat44 has
// forgotten the pod, an association from that address to the node is let in, from no other.
func TestHiddenSendersInviteSCTP(t *testing.T) {
	host := &policy.CalicoHostEndpoint{TypeMeta: metav1.TypeMeta{APIVersion: "projectcalico.org/v3", Kind: "HostEndpoint"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1-uplink"}}
	host.Spec.Node, host.Spec.InterfaceName, host.Spec.ExpectedIPs = "node-1", "uplink", []string{"192.168.16.1"}
	tb, play := lay(t, agent.RendererNAT44, []policy.Object{smallNode(), smallPod("pod", "10.1.1.2"), host})
	from := func(outside string) trace.Arrival {
		e := oneWay("", "192.168.16.1:8080", "SCTP", 33000, "INIT")
		e.From = "external:" + outside + "@node-1"
		return play(e)
	}
	if a := play(oneWay("pod", "198.51.100.7:4000", "SCTP", 8080, "INIT")); a.Packet.Src.String() != "192.168.16.1" {
		t.Fatalf("the node does not hide the pod: %s", &a.Packet)
	}
	play(Event{Step: trace.Step{After: "6m"}})
	other, a := from("198.51.100.8"), from("198.51.100.7")
	if other.At != "" || a.At != "node:node-1" || !maps.Equal(tb.law.Excused, map[string]int{"SCTP from outside by a session of the node's": 1}) {
		t.Errorf("%q and %q got it; excused: %v", other.At, a.At, tb.law.Excused)
	}
}

// TestNodesInviteSCTP: a node with a host endpoint sends SCTP outside. An association from that address is let in then, from no other.
func TestNodesInviteSCTP(t *testing.T) {
	host := &policy.CalicoHostEndpoint{TypeMeta: metav1.TypeMeta{APIVersion: "projectcalico.org/v3", Kind: "HostEndpoint"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1-uplink"}}
	host.Spec.Node, host.Spec.InterfaceName, host.Spec.ExpectedIPs, host.Spec.Profiles = "node-1", "uplink", []string{"192.168.16.1"}, []string{"out"}
	out := &policy.CalicoProfile{TypeMeta: metav1.TypeMeta{APIVersion: "projectcalico.org/v3", Kind: "Profile"}, ObjectMeta: metav1.ObjectMeta{Name: "out"}}
	out.Spec.Egress = []policy.CalicoRule{{Action: "Allow"}}
	objects := []policy.Object{smallNode(), host, out}
	tb, play := lay(t, agent.RendererCNAT, objects)
	send := func(from, to string, port uint16, flags string) (at string) {
		t.Helper()
		e := oneWay("", to, "SCTP", port, flags)
		e.From = from
		return play(e).At
	}
	outside := "external:198.51.100.7@node-1"
	if at := send(outside, "192.168.16.1:8080", 33000, "INIT"); at != "" {
		t.Fatalf("%s got an association that the host endpoint denies", at)
	}
	if send("node:node-1", "198.51.100.7:4000", 8080, "DATA") == "" {
		t.Fatal("the node does not reach an address outside")
	}
	if at := send(outside, "192.168.16.1:8080", 33000, "INIT"); at != "node:node-1" || !maps.Equal(tb.law.Excused, map[string]int{"SCTP from outside by a session of the node's": 1}) {
		t.Errorf("%q got it; excused: %v", at, tb.law.Excused)
	}
}

// TestSessionsEndWithOlderOnes: a lost reply of a server whose egress is isolated breaks the law, unless the server's egress once let a reply make a
// session by itself.
func TestSessionsEndWithOlderOnes(t *testing.T) {
	for _, replied := range []bool{true, false} {
		tb, play := lay(t, agent.RendererCNAT, []policy.Object{smallNode(), smallPod("client", "10.1.1.2"), smallPod("server", "10.1.1.3")})
		reply := oneWay("server", "10.1.1.2", "ICMP", 53, "echo-reply")
		play(oneWay("client", "10.1.1.3", "ICMP", 53, ""))
		if replied {
			play(reply)
		}
		isolate := deny("server", networkingv1.PolicyTypeEgress)
		play(Event{Changes: []generate.Change{{Key: policy.KeyOf(isolate), Object: isolate}}})
		play(Event{Step: trace.Step{After: "20m"}}) // all sessions end
		a := play(reply)
		breach := tb.law.Arrives(&a, true)
		if excused := tb.law.Excused["an answer whose session ended with an older one between the same ends: ICMP"]; a.At != "" || breach.None() != replied || (excused == 1) != replied {
			t.Errorf("replied before %v: %q got the reply, excused %v, %s", replied, a.At, tb.law.Excused, breach.Text)
		}
	}
}

// TestNewPodsInheritNoSessions: a pod ends, another one gets its address, and VPP gives the new interface the index of the old one, whose sessions it
// keeps. The agent ends them before it opens the interface, so that they do not pass what the new pod's egress denies.
func TestNewPodsInheritNoSessions(t *testing.T) {
	tb, play := lay(t, agent.RendererCNAT, []policy.Object{smallNode(), smallPod("old", "10.1.1.2"), smallPod("server", "10.1.1.3"), deny("old", networkingv1.PolicyTypeEgress)})
	play(oneWay("server", "10.1.1.2:4000", "TCP", 8080, "S"))
	isolate := deny("new", networkingv1.PolicyTypeEgress)
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(smallPod("old", "10.1.1.2"))}}})
	play(Event{Changes: []generate.Change{{Key: policy.KeyOf(isolate), Object: isolate}, {Key: policy.KeyOf(smallPod("new", "")), Object: smallPod("new", "10.1.1.2")}}})
	if a := play(oneWay("new", "10.1.1.3:8080", "TCP", 4000, "S")); a.At != "" || len(tb.law.Excused) > 0 {
		t.Errorf("%q got it; excused: %v", a.At, tb.law.Excused)
	}
}
