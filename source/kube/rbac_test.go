package kube

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/source/kube/api/apitest"
	"github.com/contiv-agent/contiv-agent/source/kube/rbactest"
)

// TestRolesAreExact compares the roles in deploy with what this package lists and watches: they must be equal.
func TestRolesAreExact(t *testing.T) {
	var want []string
	both := func(name string) { want = append(want, name+" list", name+" watch") }
	scheme := apitest.Scheme()
	for _, r := range resources(apitest.New()) {
		kinds, _, err := scheme.ObjectKinds(r.example)
		if err != nil {
			t.Fatal(err)
		}
		both(kinds[0].Group + "/" + r.name)
	}
	optionals := func(keys bool) (out []string) {
		o := &optional{keys: keys}
		for _, g := range optionalGroups() {
			for _, gv := range g.versions {
				var served []metav1.APIResource
				for _, kind := range everyKind {
					served = append(served, metav1.APIResource{Name: strings.Replace(plural(kind), "statuss", "statuses", 1), Kind: kind, Verbs: metav1.Verbs{"list", "watch"}})
				}
				for _, r := range o.readable(gv, served) {
					out = append(out, gv.Group+"/"+r.Name)
				}
			}
		}
		return out
	}
	objects := optionals(false)
	for _, name := range objects {
		both(name)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, rbactest.Rights(t, "../../deploy/reader/role.yaml", "contiv-reader")); diff != "" {
		t.Errorf("contiv-reader (- read, + role):\n%s", diff)
	}
	want = nil
	for _, name := range optionals(true) {
		if !slices.Contains(objects, name) {
			both(name)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, rbactest.Rights(t, "../../deploy/fanout-server/roles.yaml", "contiv-fanout-keys")); diff != "" {
		t.Errorf("contiv-fanout-keys (- read, + role):\n%s", diff)
	}
}

// everyKind lists what a server of these groups may serve, including kinds that this package does not read.
var everyKind = []string{
	"AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "ClusterNetworkPolicy",
	"NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy", "StagedKubernetesNetworkPolicy", "Tier", "Profile",
	"NetworkSet", "GlobalNetworkSet", "HostEndpoint", "IPPool", "IPAMBlock", "IPAMConfig", "IPAMHandle", "BlockAffinity", "IPReservation",
	"BGPConfiguration", "BGPPeer", "BGPFilter", "CalicoNodeStatus", "FelixConfiguration", "ClusterInformation", "KubeControllersConfiguration",
}
