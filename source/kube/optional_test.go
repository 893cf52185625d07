package kube

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func custom(apiVersion, kind, namespace, name string, spec map[string]any) metav1.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": name, "namespace": namespace},
	}}
}

const (
	calicoCRD = "crd.projectcalico.org/v1"
	calicoV3  = "projectcalico.org/v3"
	admin     = "policy.networking.k8s.io/v1alpha1"
	cluster   = "policy.networking.k8s.io/v1alpha2"
)

// followAll runs a source that repeats discovery at short intervals, on a client with custom resources.
func followAll(t *testing.T, s *apiServer) *follower {
	t.Helper()
	return followWith(t, Config{Client: s.client(t), Dynamic: s.dynamic(t), Discover: 20 * time.Millisecond})
}

// Optional kinds that are served at the start are part of the first update.
func TestOptionalKinds(t *testing.T) {
	each(t, func(t *testing.T, s *apiServer) {
		s.serve(calicoCRD, "NetworkPolicy", "Tier", "IPPool")
		s.serve(cluster, "ClusterNetworkPolicy")
		s.put(
			custom(calicoCRD, "NetworkPolicy", "prod", "web", map[string]any{"selector": "all()", "order": 1.5}),
			custom(calicoCRD, "Tier", "", "sec", map[string]any{"order": int64(7)}),
			custom(calicoCRD, "IPPool", "", "ignored", nil),
			custom(cluster, "ClusterNetworkPolicy", "", "c", nil),
		)
		f := followAll(t, s)
		f.expect("wait-for-ready", "resync",
			"!+ClusterNetworkPolicy c: spec.priority: is missing; spec.tier: must be Admin or Baseline (\"\"); "+
				"spec.subject: must have exactly one of namespaces and pods +CalicoNetworkPolicy prod/web +Tier sec", "in-sync")
		s.put(custom(calicoCRD, "Tier", "", "sec", map[string]any{"order": int64(8)}))
		f.expect("+Tier sec")
		s.remove(custom(calicoCRD, "NetworkPolicy", "prod", "web", nil))
		f.expect("-CalicoNetworkPolicy prod/web")
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.ContainsFunc(s.asked, func(q string) bool { return strings.HasPrefix(q, "ippools") }) {
			t.Error("a kind that is not read is asked for")
		}
	})
}

// The source follows kinds once they are served, and withdraws their objects when they are no longer served.
func TestOptionalKindsAppearAndDisappear(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	f := followAll(t, s)
	f.expect("wait-for-ready", "resync", "in-sync")
	s.put(custom(admin, "AdminNetworkPolicy", "", "a", map[string]any{
		"priority": int64(1), "subject": map[string]any{"namespaces": map[string]any{}},
	}))
	s.serve(admin, "AdminNetworkPolicy")
	f.expect("+AdminNetworkPolicy a")
	s.serve(admin)
	s.drop()
	f.expect("-AdminNetworkPolicy a")
	s.serve(admin, "AdminNetworkPolicy")
	f.expect("+AdminNetworkPolicy a")
}

// The source reads Calico's objects from one group only: from Calico's API server if it runs, else from where they are
// stored.
func TestCalicoIsReadFromOneGroup(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.serve(calicoCRD, "Tier")
	s.serve(calicoV3, "Tier")
	s.put(
		custom(calicoCRD, "Tier", "", "stored", map[string]any{"order": 1.0}),
		custom(calicoV3, "Tier", "", "shown", map[string]any{"order": 1.0}),
	)
	f := followAll(t, s)
	f.expect("wait-for-ready", "resync", "+Tier shown", "in-sync")
	s.serve(calicoV3)
	s.drop()
	got := strings.Fields(<-f.events) // one update or two
	if len(got) == 2 {
		got = append(got, strings.Fields(<-f.events)...)
	}
	slices.Sort(got)
	if want := "+Tier -Tier shown stored"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// While discovery fails the source is not in sync, since policies may exist. It has read everything else.
func TestFailedDiscoveryBlocksSync(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.put(world()...)
	s.set(func(s *apiServer) { s.mute = true })
	f := followAll(t, s)
	quiet := time.NewTimer(300 * time.Millisecond) // by then informers have long been in sync
	for told := false; ; {
		select {
		case got := <-f.events:
			if !strings.HasPrefix(got, "wait-for-ready") && !strings.HasPrefix(got, "resync") {
				t.Fatalf("event %q while discovery fails", got)
			}
			told = told || strings.Contains(got, "discovery: on fire")
			continue
		case <-quiet.C:
		}
		if !told {
			t.Error("the status does not say what is waited for")
		}
		break
	}
	s.set(func(s *apiServer) { s.mute = false })
	for got := ""; got != "in-sync"; got = <-f.events {
		if strings.HasPrefix(got, "in-sync: ") {
			t.Fatalf("event %q", got)
		}
	}
}
