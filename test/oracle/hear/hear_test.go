package hear

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

func TestRef(t *testing.T) {
	for key, want := range map[policy.Key]model.Kind{
		{APIVersion: "projectcalico.org/v3", Kind: "NetworkPolicy"}: model.Kind(model.KindCalicoNetworkPolicy),
		{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}: model.Kind(model.KindNetworkPolicy),
	} {
		key.Namespace, key.Name = "prod", "web"
		if got := Ref(key); got != (model.Ref{Kind: want, Namespace: "prod", Name: "web"}) {
			t.Errorf("%v: %v", key, got)
		}
	}
}

// colored is a tier with a field that nobody reads.
type colored struct {
	*policy.CalicoTier
	Color string `json:"color"`
}

func TestAll(t *testing.T) {
	calico := func(kind string) policy.Key {
		return policy.Key{APIVersion: "projectcalico.org/v3", Kind: kind, Name: "x"}
	}
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	tier := func(action string) *policy.CalicoTier {
		out := &policy.CalicoTier{TypeMeta: metav1.TypeMeta{APIVersion: "projectcalico.org/v3", Kind: "Tier"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
		out.Spec.DefaultAction = action
		return out
	}
	for name, tc := range map[string]struct {
		change generate.Change
		err    string
	}{
		"gone":            {change: generate.Change{Key: calico("Tier")}},
		"of Kubernetes":   {change: generate.Change{Key: policy.Key{APIVersion: "v1", Kind: "Node", Name: "n"}, Object: node}},
		"of Calico":       {change: generate.Change{Key: calico("Tier"), Object: tier("Pass")}},
		"another version": {change: generate.Change{Key: policy.Key{APIVersion: "projectcalico.org/v9", Kind: "Tier"}, Object: tier("")}, err: "not a kind"},
		"another kind":    {change: generate.Change{Key: calico("Colour"), Object: tier("")}, err: "not a kind"},
		"a field more":    {change: generate.Change{Key: calico("Tier"), Object: colored{tier("Pass"), "red"}}, err: "color"},
		"refused":         {change: generate.Change{Key: calico("Tier"), Object: tier("Maybe")}, err: "defaultAction"},
	} {
		list, err := All([]generate.Change{tc.change})
		if tc.err == "" && (err != nil || len(list) != 1 || (list[0].Object != nil) != (tc.change.Object != nil)) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
		if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: %v; want something about %s", name, err, tc.err)
		}
	}
}
