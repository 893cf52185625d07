package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// The source reads policies of all groups, but not their other kinds.
func TestPolicies(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{
			"a typed list", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList\nitems:\n- metadata: {name: a}\n- metadata: {name: a, namespace: b}\n",
			"+ NetworkPolicy default/a @f.yaml:4|+ NetworkPolicy b/a @f.yaml:5",
		},
		{
			"Calico's is another kind of the same name", "{apiVersion: projectcalico.org/v3, kind: NetworkPolicy, metadata: {name: a}}\n---\n" +
				"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}}\n",
			"+ CalicoNetworkPolicy default/a @f.yaml:1|+ NetworkPolicy default/a @f.yaml:3",
		},
		{
			"one object under two groups", "{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: a}}\n---\n" +
				"{apiVersion: crd.projectcalico.org/v1, kind: Tier, metadata: {name: a}}\n",
			"+ Tier a @f.yaml:1|! f.yaml:3: Tier a: is defined at f.yaml:1 already; this definition is ignored",
		},
		{
			"other kinds of the groups", "{apiVersion: projectcalico.org/v3, kind: IPPool}\n---\n{apiVersion: crd.projectcalico.org/v1, kind: FelixConfiguration}\n---\n" +
				"{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicySet}\n", "",
		},
		{
			"a version that is gone", "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: ClusterNetworkPolicy\nmetadata: {name: a}\n",
			"! f.yaml:1: ClusterNetworkPolicy a: apiVersion: must be policy.networking.k8s.io/v1alpha2 (\"policy.networking.k8s.io/v1alpha1\")",
		},
		{
			"a field that is not one", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec:\n  podSelector: {}\n  ingress:\n  - form: []\n",
			"! f.yaml:7: NetworkPolicy default/a: spec.ingress[0].form: is not a field of this kind",
		},
		{"a service account", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}\n", "+ ServiceAccount default/a @f.yaml:1"},
	} {
		if got := strings.Join(say(parse("f.yaml", []byte(c.text), false)), "|"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// A refused policy carries its usable part. A change of that part is emitted even if the error stays the same.
func TestRefusedPolicyKeepsUsablePart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "p.yaml")
	load := func(port string) event.Change {
		t.Helper()
		text := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec:\n  podSelector: {}\n" +
			"  ingress:\n  - ports: [{port: 0}]\n  - ports: [{port: " + port + "}]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		changes, err := Load(dir)
		if err != nil || len(changes) != 1 {
			t.Fatal(changes, err)
		}
		return changes[0]
	}
	a, b := load("80"), load("81")
	p, ok := a.Object.(*model.Policy)
	if want := file + ":7: NetworkPolicy default/a: spec.ingress[0].ports[0].port: must be 1 to 65535 (0)"; a.Err == nil || a.Err.Error() != want {
		t.Errorf("error %v, want %s", a.Err, want)
	}
	if !ok || !p.Ingress || len(p.InboundRules) != 1 || p.InboundRules[0].Origin != "ingress rule 2" {
		t.Errorf("left is %+v", a.Object)
	}
	s := sent{}
	for _, step := range []struct {
		now  event.Change
		want int
	}{{a, 1}, {a, 0}, {b, 1}, {b, 0}} {
		if got := len(s.diff([]event.Change{step.now})); got != step.want {
			t.Errorf("%d changes, want %d", got, step.want)
		}
	}
}
