package datastore

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/calico"
)

func TestDialects(t *testing.T) {
	for _, c := range []struct{ older, newer string }{
		{"/calico/v1/policy/tier/default/policy/prod%2fknp.default.web", "/calico/v1/policy/KubernetesNetworkPolicy/prod/web"},
		{"/calico/v1/policy/tier/sec/policy/sec.x", "/calico/v1/policy/GlobalNetworkPolicy//sec.x"},
		{"/calico/v1/policy/tier/sec/policy/prod%2fstaged:sec.x", "/calico/v1/policy/StagedNetworkPolicy/prod/sec.x"},
		{"/calico/v1/policy/tier/adminnetworkpolicy/policy/kanp.adminnetworkpolicy.x", "/calico/v1/policy/KubernetesAdminNetworkPolicy//x"},
		{"/calico/v1/policy/tier/sec/metadata", "/calico/v1/policy/tier/sec/metadata"},
		{"/calico/v1/Ready", "/calico/v1/Ready"},
	} {
		if got := Modern(calico.KV{Key: c.older}); got.Key != c.newer || got.Value != nil {
			t.Errorf("%s becomes %+v, want %s", c.older, got, c.newer)
		}
		_, ok := Tiered(calico.KV{Key: c.newer})
		if ok != (c.older == c.newer) {
			t.Errorf("the tier of %s without a value is known: %v", c.newer, ok)
		}
	}
	bad := calico.KV{Key: "/calico/v1/policy/tier/sec/policy/sec.x", Value: []byte("{")}
	if got := Modern(bad); !slices.Equal(got.Value, bad.Value) || got.Key != bad.Key {
		t.Errorf("what does not parse becomes %+v", got)
	}
}

func TestOf(t *testing.T) {
	for key, want := range map[string]string{
		"/calico/v1/Ready":                                             "felix",
		ServiceCIDRPrefix + "x":                                        "felix",
		"/calico/v1/ipam/v4/pool/10.65.0.0-16":                         "felix bgp tunnel-ip-allocation",
		"/calico/resources/v3/projectcalico.org/nodes/n1":              "felix bgp tunnel-ip-allocation",
		"/calico/resources/v3/projectcalico.org/kubernetesservice/a/b": "felix",
		"/calico/resources/v3/projectcalico.org/bgppeers/x":            "felix bgp",
		"/calico/resources/v3/projectcalico.org/bgpfilters/x":          "bgp",
		"/calico/resources/v3/projectcalico.org/caliconodestatuses/x":  "node-status",
		"/calico/v1/host/n1/workload/k8s/default%2fweb/endpoint/eth0":  "felix",
		"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26":           "felix",
	} {
		var got []string
		for _, set := range []string{"felix", "bgp", "tunnel-ip-allocation", "node-status", "nonsense"} {
			if Of(set, key) {
				got = append(got, set)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s is of %q, want %q", key, s, want)
		}
	}
}
