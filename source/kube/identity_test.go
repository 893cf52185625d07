package kube

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// known returns all identities of a source, one a line.
func known(s *Source) (out []string) {
	s.Identities(func(ref model.Ref, id *Identity) bool {
		line := fmt.Sprintf("%s = %s %s %s/%s %s", ref, id.GroupVersion().WithResource(id.Resource), id.Kind, id.Namespace, id.Name, id.UID)
		for _, c := range id.Conditions {
			line += " " + c.Type + "=" + string(c.Status)
		}
		out = append(out, line)
		return true
	}, model.KindService, model.KindNode, model.Kind(model.KindCalicoNetworkPolicy), model.Kind(model.KindClusterNetworkPolicy))
	slices.Sort(out)
	return out
}

func withUID(o metav1.Object, uid string) metav1.Object {
	o.SetUID(types.UID(uid))
	return o
}

// An object that is created again has a new identity though its content is the same. A refused object has an identity, and
// an object of a kind that is no longer served has none.
func TestIdentities(t *testing.T) {
	s := newAPIServer(t)
	s.serve(calicoCRD, "NetworkPolicy")
	s.serve(cluster, "ClusterNetworkPolicy")
	guard := custom(cluster, "ClusterNetworkPolicy", "", "guard", nil).(*unstructured.Unstructured)
	guard.Object["status"] = map[string]any{"conditions": []any{
		"nonsense",
		map[string]any{"type": "Accepted", "status": "True"},
		map[string]any{"type": "contiv-agent.io/Programmed-n", "status": "False", "lastTransitionTime": "2026-11-01T00:00:00Z"},
		map[string]any{"type": "contiv-agent.io/Accepted", "status": "False"},
	}}
	s.put(
		withUID(service("web", "10.96.0.10", 80), "u1"), withUID(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, "u2"),
		withUID(custom(calicoCRD, "NetworkPolicy", "prod", "web", map[string]any{"selector": "all()"}), "u3"), withUID(guard, "u4"),
	)
	src := New(Config{Client: s.client(t), Dynamic: s.dynamic(t), Discover: 20 * time.Millisecond, Identities: true})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- src.Run(ctx, func(event.Event) {}) }()
	defer func() { stop(); <-ended }()
	expect := func(want ...string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !slices.Equal(known(src), want); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("(-want +got)\n%s", cmp.Diff(want, known(src)))
			}
		}
	}
	policy := "CalicoNetworkPolicy prod/web = crd.projectcalico.org/v1, Resource=networkpolicies NetworkPolicy prod/web u3"
	guarded := "ClusterNetworkPolicy guard = policy.networking.k8s.io/v1alpha2, Resource=clusternetworkpolicies ClusterNetworkPolicy /guard u4 " +
		"contiv-agent.io/Accepted=False contiv-agent.io/Programmed-n=False"
	node := "Node n = /v1, Resource=nodes Node /n u2"
	expect(policy, guarded, node, "Service default/web = /v1, Resource=services Service default/web u1")
	s.put(withUID(service("web", "10.96.0.10", 80), "u5"))
	expect(policy, guarded, node, "Service default/web = /v1, Resource=services Service default/web u5")
	s.remove(service("web", "10.96.0.10", 80))
	s.put(withUID(service("bad", "10.96.0.300", 80), "u6"))
	expect(policy, guarded, node, "Service default/bad = /v1, Resource=services Service default/bad u6")
	s.serve(calicoCRD)
	s.set(func(s *apiServer) { s.absent = "networkpolicies.crd.projectcalico.org" })
	s.drop()
	expect(guarded, node, "Service default/bad = /v1, Resource=services Service default/bad u6")
	id, ok := src.Identity(model.Ref{Kind: model.KindService, Namespace: "default", Name: "bad"})
	if want := (corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: "bad", UID: "u6"}); !ok || id.Reference() != want {
		t.Errorf("%+v", id.Reference())
	}
	if _, ok := src.Identity(model.Ref{Kind: model.KindService, Namespace: "default", Name: "web"}); ok {
		t.Error("an object that is not there any more is known")
	}
}

// Without Config.Identities the source keeps no identities.
func TestWithoutIdentities(t *testing.T) {
	s := newAPIServer(t)
	s.put(withUID(service("web", "10.96.0.10", 80), "u1"))
	src := New(Config{Client: s.client(t)})
	ctx, stop := context.WithCancel(t.Context())
	synced := make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- src.Run(ctx, func(ev event.Event) {
			if st, ok := ev.(*event.SyncStatus); ok && st.Status == event.InSync && st.Err == nil {
				close(synced)
			}
		})
	}()
	<-synced
	stop()
	<-ended
	if len(known(src)) != 0 {
		t.Error(known(src))
	}
}
