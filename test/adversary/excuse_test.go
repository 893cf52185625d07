package adversary

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
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
			policy.Sort(objects)
			tb, err := newTable(trace.Config{Agent: agent.Config{ServiceRenderer: agent.RendererCNAT}}, objects)
			if err != nil {
				t.Fatal(err)
			}
			defer tb.cluster.Close()
			revoke := Event{Changes: Differ(objects, append(objects[:len(objects):len(objects)], deny("client", networkingv1.PolicyTypeEgress)))}
			play := func(e Event) (arrived bool) {
				t.Helper()
				a, breach, err := tb.play(&e, nil)
				if err != nil || !breach.None() {
					t.Fatalf("%s %v", breach.Text, err)
				}
				return a.At != ""
			}
			play(request)
			play(revoke)
			if !play(push) || !maps.Equal(tb.law.Excused, map[string]int{c.excuse: 1}) {
				t.Fatalf("excused: %v", tb.law.Excused)
			}
			if play(request) || play(push) || len(tb.law.Excused) != 1 || tb.law.Excused[c.excuse] != 1 {
				t.Errorf("the client's packet did not end it: %v", tb.law.Excused)
			}
		})
	}
}
