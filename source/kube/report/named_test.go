package report

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/rbactest"
)

func named(name string) model.Ref {
	return model.Ref{Kind: model.Kind(model.KindNetworkPolicy), Namespace: "shop", Name: name}
}

// heard returns a Named as behind a fan-out server: it knows a Service by UID, all else by name.
func heard() *Named {
	n := &Named{}
	n.Heard(&event.Update{Changes: []event.Change{
		{Ref: service("web"), Object: &model.Service{}, UID: "u1"},
		{Ref: named("rules"), Err: errors.New("x")},
		{Ref: named("more"), Object: &model.Policy{}},
		{Ref: model.Ref{Kind: model.KindNode, Name: node}, Object: &model.Node{}},
		{Ref: model.Ref{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}, Object: &model.Pod{}},
	}})
	return n
}

// Reports on objects known by name reach these objects, with exactly the rights in deploy/reporting.
func TestNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		broken := func(name string) event.Problem {
			return event.Problem{Ref: named(name), Reason: event.NotEnforced, Text: "a rule is left out"}
		}
		a.runWith(t, Config{Events: true, LeaseNamespace: "contiv-system"}, heard(), func() {
			a.says(true, ports, broken("rules"), broken("more"))
			later(time.Minute)
			a.says(true)
			later(time.Minute)
			a.says(true, ports)
			later(time.Minute)
			all := map[corev1.ObjectReference]string{}
			var list eventsv1.EventList
			a.read(t, eventsv1.SchemeGroupVersion.WithResource("events"), "shop", "", &list)
			for _, e := range list.Items {
				if e.Reason != string(event.Rendered) {
					all[e.Regarding] = e.Note
				}
			}
			want := map[corev1.ObjectReference]string{
				{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", UID: "u1"}:                ports.Text,
				{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Namespace: "shop", Name: "rules"}: broken("rules").Text,
				{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy", Namespace: "shop", Name: "more"}:  broken("more").Text,
			}
			if diff := cmp.Diff(want, all); diff != "" || len(list.Items) != 6 {
				t.Errorf("%d events (-want +got):\n%s", len(list.Items), diff)
			}
			l := a.lease(t)
			if l.Annotations[Ready] != "true" || len(l.OwnerReferences) != 0 {
				t.Errorf("%+v", l)
			}
		})
		var asked []string
		for _, action := range slices.Concat(a.client.Actions(), a.dynamic.Actions()) {
			if r := action.GetResource(); action.GetVerb() != "list" && (action.GetVerb() != "get" || r.Resource != "leases") { // made by the test itself
				asked = append(asked, r.Group+"/"+r.Resource+" "+action.GetVerb())
			}
		}
		slices.Sort(asked)
		if diff := cmp.Diff(slices.Compact(asked), rbactest.Rights(t, "../../../deploy/reporting/roles.yaml", "")); diff != "" {
			t.Errorf("rights (- asked for, + role):\n%s", diff)
		}
	})
}

// Named forgets deleted objects, and uses the kinds' public names.
func TestNamedObjects(t *testing.T) {
	n := heard()
	if _, ok := n.Identity(model.Ref{Kind: model.KindPod, Namespace: "shop", Name: "web-0"}); ok {
		t.Error("a Pod is remembered")
	}
	n.Heard(&event.SyncStatus{Source: "typha"})
	n.Heard(&event.Update{Changes: []event.Change{{Ref: service("web")}}})
	if id, ok := n.Identity(service("web")); ok {
		t.Errorf("gone, but %+v", id)
	}
	var nodes []string
	n.Identities(func(_ model.Ref, id *kube.Identity) bool {
		nodes = append(nodes, id.Kind+" "+id.Name)
		return true
	}, model.KindNode)
	if !slices.Equal(nodes, []string{"Node " + node}) {
		t.Errorf("nodes %q", nodes)
	}
	for kind, want := range map[model.Kind]string{
		model.KindService: "/v1, Kind=Service", model.KindPod: "", model.Kind(model.KindTieredPolicy): "",
		model.Kind(model.KindNetworkPolicy):          "networking.k8s.io/v1, Kind=NetworkPolicy",
		model.Kind(model.KindCalicoNetworkPolicy):    "projectcalico.org/v3, Kind=NetworkPolicy",
		model.Kind(model.KindGlobalNetworkPolicy):    "projectcalico.org/v3, Kind=GlobalNetworkPolicy",
		model.Kind(model.KindStagedKubernetesPolicy): "projectcalico.org/v3, Kind=StagedKubernetesNetworkPolicy",
		model.Kind(model.KindAdminNetworkPolicy):     "policy.networking.k8s.io/v1alpha1, Kind=AdminNetworkPolicy",
		model.Kind(model.KindBaselinePolicy):         "policy.networking.k8s.io/v1alpha1, Kind=BaselineAdminNetworkPolicy",
		model.Kind(model.KindClusterNetworkPolicy):   "policy.networking.k8s.io/v1alpha2, Kind=ClusterNetworkPolicy",
		model.KindTier:             "projectcalico.org/v3, Kind=Tier",
		model.KindNetworkSet:       "projectcalico.org/v3, Kind=NetworkSet",
		model.KindGlobalNetworkSet: "projectcalico.org/v3, Kind=GlobalNetworkSet",
		model.KindHostEndpoint:     "projectcalico.org/v3, Kind=HostEndpoint",
	} {
		gvk, ok := called(kind)
		if ok != (want != "") || ok && gvk.String() != want {
			t.Errorf("%s is called %s, want %s", kind, gvk, want)
		}
	}
}
