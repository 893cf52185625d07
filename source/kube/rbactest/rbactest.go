// Package rbactest turns manifests into the rights they grant. Invariant: each right is named as in a request,
// "group/resource verb", and occurs once.
package rbactest

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// Rights returns the rights of a ClusterRole in a file of manifests, sorted. If role is "", it returns those of all roles
// in the file, namespaced ones included. The test fails if there are none or one is granted twice.
func Rights(t testing.TB, path, role string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var r rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &r); err != nil {
			t.Fatal(err)
		}
		if role != "" && (r.Kind != "ClusterRole" || r.Name != role) || role == "" && !strings.HasSuffix(r.Kind, "Role") {
			continue
		}
		for _, rule := range r.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						out = append(out, group+"/"+resource+" "+verb)
					}
				}
			}
		}
	}
	if slices.Sort(out); len(out) == 0 || len(slices.Compact(slices.Clone(out))) != len(out) {
		t.Fatalf("%s: role %q has no rights, or one twice: %v", path, role, out)
	}
	return out
}
