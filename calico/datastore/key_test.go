package datastore

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
)

var keys = []struct {
	path string
	key  Key
}{
	{"/calico/v1/host/n1/workload/k8s/prod%2fweb-0.a/endpoint/eth0", Key{Kind: KeyWorkload, Node: "n1", Orchestrator: "k8s", Workload: "prod/web-0.a", Name: "eth0"}},
	{"/calico/v1/host/n1/workload/open%2fstack/work%2fload/endpoint/end%2fpoint", Key{Kind: KeyWorkload, Node: "n1", Orchestrator: "open/stack", Workload: "work/load", Name: "end/point"}},
	{"/calico/v1/host/n1/endpoint/n1-eth0", Key{Kind: KeyHostEndpoint, Node: "n1", Name: "n1-eth0"}},
	{"/calico/v1/host/n1/bird_ip", Key{Kind: KeyHostIP, Node: "n1"}},
	{"/calico/v1/host/n1/metadata", Key{Kind: KeyHostMetadata, Node: "n1"}},
	{"/calico/v1/host/n1/wireguard", Key{Kind: KeyWireguard, Node: "n1"}},
	{"/calico/v1/host/n1/config/IpInIpTunnelAddr", Key{Kind: KeyHostConfig, Node: "n1", Name: "IpInIpTunnelAddr"}},
	{"/calico/v1/netset/prod%2fext", Key{Kind: KeyNetworkSet, Name: "prod/ext"}},
	{"/calico/v1/netset/100%25", Key{Kind: KeyNetworkSet, Name: "100%"}},
	{"/calico/v1/netset/%252f", Key{Kind: KeyNetworkSet, Name: "%2f"}},
	{"/calico/v1/policy/tier/sec/metadata", Key{Kind: KeyTier, Name: "sec"}},
	{"/calico/v1/policy/tier/default/policy/prod%2fknp.default.allow-web", Key{Kind: KeyTieredPolicy, Tier: "default", Name: "prod/knp.default.allow-web"}},
	{"/calico/v1/policy/NetworkPolicy/prod/sec.web", Key{Kind: KeyPolicy, Type: "NetworkPolicy", Namespace: "prod", Name: "sec.web"}},
	{"/calico/v1/policy/GlobalNetworkPolicy//deny-all", Key{Kind: KeyPolicy, Type: "GlobalNetworkPolicy", Name: "deny-all"}},
	{"/calico/v1/policy/profile/kns.prod/rules", Key{Kind: KeyProfileRules, Name: "kns.prod"}},
	{"/calico/v1/policy/profile/kns.prod/labels", Key{Kind: KeyProfileLabels, Name: "kns.prod"}},
	{"/calico/v1/ipam/v4/pool/10.65.0.0-16", Key{Kind: KeyPool, CIDR: netip.MustParsePrefix("10.65.0.0/16")}},
	{"/calico/v1/ipam/v6/pool/fd00::-64", Key{Kind: KeyPool, CIDR: netip.MustParsePrefix("fd00::/64")}},
	{"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26", Key{Kind: KeyBlock, CIDR: netip.MustParsePrefix("10.65.0.0/26")}},
	{"/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26", Key{Kind: KeyAffinity, Type: "host", Node: "n1", CIDR: netip.MustParsePrefix("10.65.0.0/26")}},
	{"/calico/v1/config/InterfacePrefix", Key{Kind: KeyConfig, Name: "InterfacePrefix"}},
	{"/calico/v1/config/a/b", Key{Kind: KeyConfig, Name: "a/b"}},
	{"/calico/v1/Ready", Key{Kind: KeyReady}},
	{"/calico/resources/v3/projectcalico.org/nodes/n1", Key{Kind: KeyResource, Type: ResourceNodes, Name: "n1"}},
	{"/calico/resources/v3/projectcalico.org/kubernetesendpointslices/prod/web-x", Key{Kind: KeyResource, Type: ResourceEndpointSlices, Namespace: "prod", Name: "web-x"}},
	{"/calico/resources/v3/projectcalico.org/kubernetesservice/prod/web", Key{Kind: KeyResource, Type: ResourceServices, Namespace: "prod", Name: "web"}},
	{"/calico/resources/v3/projectcalico.org/bgpfilters/f", Key{Kind: KeyResource, Type: ResourceBGPFilters, Name: "f"}},
}

func TestKeys(t *testing.T) {
	for _, c := range keys {
		k, err := ParseKey(c.path)
		if err != nil || k != c.key {
			t.Errorf("%s: got %+v, %v, want %+v", c.path, k, err, c.key)
		}
		if got := c.key.String(); got != c.path {
			t.Errorf("%+v is written %s, want %s", c.key, got, c.path)
		}
	}
	if got := (Key{}).String(); got != "" {
		t.Errorf("no key is written %q", got)
	}
}

func TestUnknownKeys(t *testing.T) {
	for _, path := range []string{
		"", "/", "/calico", "/calico/", "/calico/v1", "/calico/v1/", "calico/v1/Ready", "/calico/v2/Ready", "/calico/v1/Ready/x",
		"/calico/v1/host/n1", "/calico/v1/host//bird_ip", "/calico/v1/host/n1/bird_ip/x", "/calico/v1/host/n1/orchestrator_refs",
		"/calico/v1/host/n1/workload/k8s/w/eth0", "/calico/v1/host/n1/workload/k8s/w/endpoint/", "/calico/v1/host/n1/workload//w/endpoint/e",
		"/calico/v1/host/n1/config/", "/calico/v1/host/n1/endpoint/a/b", "/calico/v1/config/", "/calico/v1/netset/", "/calico/v1/netset/a/b",
		"/calico/v1/policy/tier/sec", "/calico/v1/policy/tier/sec/policy", "/calico/v1/policy/tier/sec/policy/", "/calico/v1/policy/tier//metadata",
		"/calico/v1/policy/profile/p/tags", "/calico/v1/policy/NetworkPolicy//x", "/calico/v1/policy/GlobalNetworkPolicy/ns/x",
		"/calico/v1/policy/Unknown//x", "/calico/v1/policy/GlobalNetworkPolicy//",
		"/calico/v1/ipam/v4/pool/10.0.0.0", "/calico/v1/ipam/v6/pool/10.0.0.0-8", "/calico/v1/ipam/v4/pool/10.0.0.0-33", "/calico/v1/ipam/v6/pool/::ffff:10.0.0.0-120",
		"/calico/ipam/v2/assignment/ipv4/block/x", "/calico/ipam/v2/host//ipv4/block/10.0.0.0-26", "/calico/ipam/v2/handle/h", "/calico/ipam/v1/assignment/ipv4/block/10.0.0.0-26",
		"/calico/resources/v3/projectcalico.org/nodes", "/calico/resources/v3/projectcalico.org/nodes/a/b",
		"/calico/resources/v3/projectcalico.org/kubernetesservice/x", "/calico/resources/v3/projectcalico.org/wonders/x", "/calico/resources/v4/projectcalico.org/nodes/x",
		"/calico/felix/v2/no-region/host/n1/status", "/calico/bgp/v1/global/as_num",
	} {
		if k, err := ParseKey(path); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: got %+v, %v", path, k, err)
		}
	}
}

// Policy names of the dialect up to v3.31 contain their object's name.
func TestPolicyObjects(t *testing.T) {
	for _, id := range []model.PolicyID{
		{Kind: model.KindNetworkPolicy, Namespace: "prod", Name: "web"},
		{Kind: model.KindAdminNetworkPolicy, Name: "x"},
		{Kind: model.KindBaselinePolicy, Name: "default"},
		{Kind: model.KindClusterNetworkPolicy, Name: "x"},
		{Kind: model.KindCalicoNetworkPolicy, Namespace: "prod", Name: "sec.web"},
		{Kind: model.KindGlobalNetworkPolicy, Name: "sec.web"},
		{Kind: model.KindStagedKubernetesPolicy, Namespace: "prod", Name: "web"},
		{Kind: model.KindStagedNetworkPolicy, Namespace: "prod", Name: "sec.web"},
		{Kind: model.KindStagedGlobalPolicy, Name: "sec.web"},
	} {
		old := Key{Kind: KeyTieredPolicy, Tier: "sec", Name: id.FelixName("sec")}
		if got := old.Object(); got != id {
			t.Errorf("%s: got %v, want %v", old, got, id)
		}
		if got, want := old.PolicyID(), (model.PolicyID{Kind: model.KindTieredPolicy, Namespace: "sec", Name: old.Name}); got != want {
			t.Errorf("%s: got %v, want %v", old, got, want)
		}
		modern, ok := PolicyKey(id)
		if !ok || modern.PolicyID() != id || modern.Object() != id {
			t.Errorf("%v: key %s, which is %v", id, modern, modern.PolicyID())
		}
		if k, err := ParseKey(modern.String()); err != nil || k != modern {
			t.Errorf("%s: read as %+v, %v", modern, k, err)
		}
	}
	if k, ok := PolicyKey(model.PolicyID{Kind: model.KindTieredPolicy, Name: "x"}); ok {
		t.Errorf("a policy of the old dialect has key %s", k)
	}
}

func FuzzParseKey(f *testing.F) {
	for _, c := range keys {
		f.Add(c.path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		k, err := ParseKey(path)
		if err != nil {
			return
		}
		k.PolicyID()
		k.Object()
		again, err := ParseKey(k.String())
		if err != nil || again != k {
			t.Errorf("%q is %+v, written %q, read again %+v, %v", path, k, k, again, err)
		}
	})
}
