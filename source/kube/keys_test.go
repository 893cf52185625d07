package kube

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/event"
)

// followKeys runs a source with keys, and sends every change that has a key containing part; "": all changes.
func followKeys(t *testing.T, cfg Config) <-chan string {
	t.Helper()
	cfg.Keys, cfg.Batch = true, time.Millisecond
	out := make(chan string, 100)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = New(cfg).Run(ctx, func(e event.Event) {
			u, ok := e.(*event.Update)
			if !ok {
				return
			}
			for _, c := range u.Changes {
				line := c.Ref.String()
				if c.Object != nil {
					line += " +model"
				}
				if c.Err != nil {
					line += " refused"
				}
				for _, kv := range c.Keys {
					line += " " + kv.Key[strings.LastIndex(kv.Key, "/")+1:]
				}
				out <- line
			}
		})
	}()
	t.Cleanup(func() { stop(); <-ended })
	return out
}

func expectLines(t *testing.T, from <-chan string, want ...string) {
	t.Helper()
	var got []string
	for range want {
		select {
		case line := <-from:
			got = append(got, line)
		case <-time.After(20 * time.Second):
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// With Config.Keys an object also carries its form in Calico's datastore, even if it does not matter to this agent or is
// refused. A version in which only the keys differ is a change; a version that differs elsewhere only is none.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.serve(calicoCRD, "NetworkPolicy", "Tier", "IPPool", "BGPPeer", "KubeControllersConfiguration")
	s.set(func(s *apiServer) { s.secret = "bgppeers.crd.projectcalico.org" }) // bgppeers cannot deny traffic: the source continues without them
	headless := service("headless", "None", 80)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{PodIP: "10.1.1.2", PodIPs: []corev1.PodIP{{IP: "10.1.1.2"}}},
	}
	s.put(
		custom(calicoCRD, "IPPool", "", "pool", map[string]any{"cidr": "10.65.0.0/16"}),
		headless, pod, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "no-uuid"}},
		custom(calicoCRD, "Tier", "", "sec", map[string]any{"order": int64(7)}),
		custom(calicoCRD, "NetworkPolicy", "prod", "sec.web", map[string]any{"tier": "sec", "selector": "((("}),
	)
	lines := followKeys(t, Config{Client: s.client(t), Dynamic: s.dynamic(t), Discover: 20 * time.Millisecond})
	expectLines(
		t, lines, "IPPool pool 10.65.0.0-16", "Service default/headless +model headless", "Pod default/web-0 +model eth0", "ServiceAccount default/web +model refused",
		"Tier sec +model metadata", "CalicoNetworkPolicy prod/sec.web +model refused prod%2fsec.web",
	)
	var requests []string
	s.set(func(s *apiServer) { requests = slices.Clone(s.asked) })
	for _, asked := range requests {
		if strings.HasPrefix(asked, "services?") && asked != "services?" || strings.HasPrefix(asked, "endpointslices?") && asked != "endpointslices?" {
			t.Errorf("asked for %s: not for all of them", asked)
		}
	}
	s.put(pod) // a new version, with equal content
	same := pod.DeepCopy()
	same.GenerateName = "web-"
	s.put(same)
	expectLines(t, lines, "Pod default/web-0 +model eth0")
	s.remove(same)
	expectLines(t, lines, "Pod default/web-0")
	if len(lines) > 0 {
		t.Errorf("and %s", <-lines)
	}
}
