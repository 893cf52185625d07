package report

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/rbactest"
)

// allKinds adds one policy of each kind with conditions to an API's objects.
type allKinds struct{ *world }

// Identities implements Objects.
func (a allKinds) Identities(visit func(model.Ref, *kube.Identity) bool, kinds ...model.Kind) {
	for _, k := range kinds {
		if ref := (model.Ref{Kind: k, Name: "p"}); k != model.KindNode {
			plural := strings.TrimSuffix(strings.ToLower(string(k)), "y") + "ies"
			visit(ref, &kube.Identity{
				GroupVersionKind: schema.GroupVersionKind{Group: "policy.networking.k8s.io", Version: "v1", Kind: string(k)}, Resource: plural, Name: "p",
			})
		}
	}
}

// TestRolesAreExact compares the roles in deploy with what a reporter requests: they must be equal.
func TestRolesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.dynamic.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
		var problems []event.Problem
		for _, k := range withConditions() {
			problems = append(problems, event.Problem{Ref: model.Ref{Kind: k, Name: "p"}, Reason: event.NotUnderstood, Text: "x"})
		}
		cfg := Config{Events: true, Conditions: true, LeaseNamespace: "contiv-system"}
		a.runWith(t, cfg, allKinds{a}, func() {
			a.says(true, append(problems, ports)...)
			later(time.Minute)
			a.says(true)
			later(time.Minute)
			a.says(true, ports)
			later(time.Minute)
		})
		var asked []string
		for _, action := range slices.Concat(a.client.Actions(), a.dynamic.Actions()) {
			r := action.GetResource()
			name := r.Resource
			if sub := action.GetSubresource(); sub != "" {
				name += "/" + sub
			}
			asked = append(asked, r.Group+"/"+name+" "+action.GetVerb())
		}
		slices.Sort(asked)
		if diff := cmp.Diff(slices.Compact(asked), rbactest.Rights(t, "../../../deploy/other-cni/binding.yaml", "")); diff != "" {
			t.Errorf("rights (- asked for, + role):\n%s", diff)
		}
	})
}
