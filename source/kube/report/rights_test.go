package report

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

// roles are the rights of deploy's reporter, "group/resource verb", sorted.
func roles(t *testing.T) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/standalone/binding.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var r rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &r); err != nil {
			t.Fatal(err)
		}
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out = append(out, rule.APIGroups[0]+"/"+resource+" "+verb)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// allKinds are an API's objects with one policy of each kind that has conditions.
type allKinds struct{ *api }

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

// TestRolesAreExact holds the roles of deploy against what a reporter asks for: not one right more, not one less.
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
		if diff := cmp.Diff(slices.Compact(asked), roles(t)); diff != "" {
			t.Errorf("rights (- asked for, + role):\n%s", diff)
		}
	})
}
