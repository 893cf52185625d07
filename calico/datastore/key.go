package datastore

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// KeyKind is the kind of a key.
type KeyKind uint8

// Kinds of keys, each with its fields of Key (Calico v3.31, libcalico-go/lib/backend/model).
const (
	_                KeyKind = iota
	KeyWorkload              // Node, Orchestrator, Workload, Name: /calico/v1/host/n1/workload/k8s/prod%2fweb-0/endpoint/eth0
	KeyHostEndpoint          // Node, Name: /calico/v1/host/n1/endpoint/n1-eth0
	KeyHostIP                // Node: /calico/v1/host/n1/bird_ip
	KeyHostConfig            // Node, Name: /calico/v1/host/n1/config/IpInIpTunnelAddr
	KeyHostMetadata          // Node: /calico/v1/host/n1/metadata
	KeyWireguard             // Node: /calico/v1/host/n1/wireguard
	KeyNetworkSet            // Name, with its namespace: /calico/v1/netset/prod%2fext
	KeyTier                  // Name: /calico/v1/policy/tier/sec/metadata
	KeyTieredPolicy          // Tier, Name: /calico/v1/policy/tier/default/policy/prod%2fknp.default.web, up to v3.31
	KeyPolicy                // Type (the object's kind), Namespace, Name: /calico/v1/policy/GlobalNetworkPolicy//sec, from v3.32 on
	KeyProfileRules          // Name: /calico/v1/policy/profile/kns.prod/rules
	KeyProfileLabels         // Name: /calico/v1/policy/profile/kns.prod/labels
	KeyPool                  // CIDR: /calico/v1/ipam/v4/pool/10.65.0.0-16
	KeyBlock                 // CIDR: /calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26
	KeyAffinity              // Type (host or virtual), Node, CIDR: /calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26
	KeyConfig                // Name: /calico/v1/config/InterfacePrefix
	KeyReady                 // /calico/v1/Ready
	KeyResource              // Type (the plural), Namespace, Name: /calico/resources/v3/projectcalico.org/nodes/n1
)

// Key is a parsed key. Its fields depend on Kind; the others are empty. Keys are comparable with ==.
type Key struct {
	Kind         KeyKind
	Type         string
	Node         string
	Orchestrator string
	Workload     string
	Tier         string
	Namespace    string
	Name         string
	CIDR         netip.Prefix // without host bits
}

// ErrUnknownKey is wrapped by all errors of ParseKey.
var ErrUnknownKey = errors.New("not a key of the datastore")

// resourceNamespaced returns whether a resource, by plural, is namespaced, and whether it has keys at all.
func resourceNamespaced(plural string) (namespaced, known bool) {
	switch plural {
	case ResourceEndpointSlices, ResourceServices, ResourceKubernetesPolicies, "networkpolicies", "networksets",
		"stagednetworkpolicies", "stagedkubernetesnetworkpolicies", "workloadendpoints":
		return true, true
	case ResourceNodes, ResourceProfiles, ResourceBGPConfigurations, ResourceBGPPeers, ResourceBGPFilters, "blockaffinities",
		"caliconodestatuses", "clusterinformations", "felixconfigurations", "globalnetworkpolicies", "globalnetworksets",
		"hostendpoints", "ipamconfigs", "ippools", "ipreservations", "kubecontrollersconfigurations",
		"kubernetesadminnetworkpolicies", "kubernetesbaselineadminnetworkpolicies", "kubernetesclusternetworkpolicies",
		"stagedglobalnetworkpolicies", "tiers":
		return false, true
	}
	return false, false
}

// Plurals of resources that are sent unchanged.
const (
	ResourceNodes              = "nodes"
	ResourceProfiles           = "profiles"
	ResourceEndpointSlices     = "kubernetesendpointslices"
	ResourceServices           = "kubernetesservice"
	ResourceKubernetesPolicies = "kubernetesnetworkpolicies"
	ResourceBGPConfigurations  = "bgpconfigurations"
	ResourceBGPPeers           = "bgppeers"
	ResourceBGPFilters         = "bgpfilters"
)

// PolicyKey returns the key of a policy in the dialect of v3.32 and later; false: that dialect cannot name its kind.
func PolicyKey(id model.PolicyID) (Key, bool) {
	k, ok := id.Kind.Info()
	if !ok {
		return Key{}, false
	}
	return Key{Kind: KeyPolicy, Type: k.Stored, Namespace: id.Namespace, Name: id.Name}, true
}

// PolicyID returns the identifier in a key of kind KeyPolicy or KeyTieredPolicy. Up to v3.31 names are unique within a tier
// only, so the identifier contains the tier. Object returns the policy's object.
func (k Key) PolicyID() model.PolicyID {
	if k.Kind == KeyTieredPolicy {
		return model.PolicyID{Kind: model.KindTieredPolicy, Namespace: k.Tier, Name: k.Name}
	}
	kind, ok := model.PolicyKindStored(k.Type)
	if !ok {
		return model.PolicyID{}
	}
	return model.PolicyID{Kind: kind, Namespace: k.Namespace, Name: k.Name}
}

// Object returns the object that a policy was made of. For a key of the dialect up to v3.31, it is the object that would
// have that name in that tier.
func (k Key) Object() model.PolicyID {
	if k.Kind != KeyTieredPolicy {
		return k.PolicyID()
	}
	return model.PolicyIDOf(k.Tier, k.Name)
}

// String returns the key's text.
func (k Key) String() string {
	host := "/calico/v1/host/" + escape(k.Node)
	switch k.Kind {
	case KeyWorkload:
		return host + "/workload/" + escape(k.Orchestrator) + "/" + escape(k.Workload) + "/endpoint/" + escape(k.Name)
	case KeyHostEndpoint:
		return host + "/endpoint/" + escape(k.Name)
	case KeyHostIP:
		return host + "/bird_ip"
	case KeyHostConfig:
		return host + "/config/" + k.Name
	case KeyHostMetadata:
		return host + "/metadata"
	case KeyWireguard:
		return host + "/wireguard"
	case KeyNetworkSet:
		return "/calico/v1/netset/" + escape(k.Name)
	case KeyTier:
		return "/calico/v1/policy/tier/" + escape(k.Name) + "/metadata"
	case KeyTieredPolicy:
		return "/calico/v1/policy/tier/" + escape(k.Tier) + "/policy/" + escape(k.Name)
	case KeyPolicy:
		return "/calico/v1/policy/" + escape(k.Type) + "/" + escape(k.Namespace) + "/" + escape(k.Name)
	case KeyProfileRules:
		return "/calico/v1/policy/profile/" + escape(k.Name) + "/rules"
	case KeyProfileLabels:
		return "/calico/v1/policy/profile/" + escape(k.Name) + "/labels"
	case KeyPool:
		return "/calico/v1/ipam/v" + family(k.CIDR) + "/pool/" + dashed(k.CIDR)
	case KeyBlock:
		return "/calico/ipam/v2/assignment/ipv" + family(k.CIDR) + "/block/" + dashed(k.CIDR)
	case KeyAffinity:
		return "/calico/ipam/v2/" + escape(k.Type) + "/" + escape(k.Node) + "/ipv" + family(k.CIDR) + "/block/" + dashed(k.CIDR)
	case KeyConfig:
		return "/calico/v1/config/" + k.Name
	case KeyReady:
		return "/calico/v1/Ready"
	case KeyResource:
		if namespaced, _ := resourceNamespaced(k.Type); namespaced {
			return "/calico/resources/v3/projectcalico.org/" + k.Type + "/" + escape(k.Namespace) + "/" + escape(k.Name)
		}
		return "/calico/resources/v3/projectcalico.org/" + k.Type + "/" + escape(k.Name)
	}
	return ""
}

func family(p netip.Prefix) string {
	if p.Addr().Is4() {
		return "4"
	}
	return "6"
}

// dashed returns "10.65.0.0-16".
func dashed(p netip.Prefix) string { return strings.Replace(p.String(), "/", "-", 1) }

func undashed(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(strings.Replace(text, "-", "/", 1))
	return p.Masked(), err == nil && !p.Addr().Is4In6()
}

// escape makes a name one segment of a key. It escapes exactly what Calico escapes.
func escape(s string) string {
	if !strings.ContainsAny(s, "%/") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "%", "%25"), "/", "%2f")
}

func unescape(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "%2f", "/"), "%25", "%")
}

// ParseKey parses a key in either dialect of policies. Its errors wrap ErrUnknownKey.
func ParseKey(path string) (Key, error) {
	rest, ok := strings.CutPrefix(path, "/calico/")
	k, ok2 := Key{}, false
	if area, rest, cut := strings.Cut(rest, "/"); ok && cut {
		switch area {
		case "v1":
			k, ok2 = parseV1(strings.Split(rest, "/"))
		case "ipam":
			k, ok2 = parseIPAM(strings.Split(rest, "/"))
		case "resources":
			k, ok2 = parseResource(strings.Split(rest, "/"))
		}
	}
	if !ok2 {
		return Key{}, fmt.Errorf("%.300q: %w", path, ErrUnknownKey)
	}
	return k, nil
}

// filled reports whether no part is empty, and unescapes the parts.
func filled(parts ...*string) bool {
	for _, p := range parts {
		if *p == "" {
			return false
		}
		*p = unescape(*p)
	}
	return true
}

func parseV1(p []string) (k Key, ok bool) {
	switch {
	case p[0] == "host" && len(p) > 2:
		return parseHost(p[1], p[2], p[3:])
	case p[0] == "policy" && len(p) > 3:
		return parsePolicy(p[1:])
	case p[0] == "netset" && len(p) == 2:
		k = Key{Kind: KeyNetworkSet, Name: p[1]}
		return k, filled(&k.Name)
	case p[0] == "ipam" && len(p) == 4 && (p[1] == "v4" || p[1] == "v6") && p[2] == "pool":
		k.Kind = KeyPool
		k.CIDR, ok = undashed(p[3])
		return k, ok && "v"+family(k.CIDR) == p[1]
	case p[0] == "config" && len(p) > 1:
		k = Key{Kind: KeyConfig, Name: strings.Join(p[1:], "/")}
		return k, k.Name != ""
	case p[0] == "Ready" && len(p) == 1:
		return Key{Kind: KeyReady}, true
	}
	return k, false
}

func parseHost(node, what string, p []string) (k Key, ok bool) {
	k.Node = node
	switch {
	case what == "workload" && len(p) == 4 && p[2] == "endpoint":
		k.Kind, k.Orchestrator, k.Workload, k.Name = KeyWorkload, p[0], p[1], p[3]
		return k, filled(&k.Node, &k.Orchestrator, &k.Workload, &k.Name)
	case what == "endpoint" && len(p) == 1:
		k.Kind, k.Name = KeyHostEndpoint, p[0]
		return k, filled(&k.Node, &k.Name)
	case what == "config" && len(p) > 0:
		k.Kind, k.Name = KeyHostConfig, strings.Join(p, "/")
		return k, k.Name != "" && filled(&k.Node)
	case len(p) > 0:
		return k, false
	case what == "bird_ip":
		k.Kind = KeyHostIP
	case what == "metadata":
		k.Kind = KeyHostMetadata
	case what == "wireguard":
		k.Kind = KeyWireguard
	}
	return k, k.Kind != 0 && filled(&k.Node)
}

func parsePolicy(p []string) (k Key, ok bool) {
	switch {
	case p[0] == "tier" && len(p) == 3 && p[2] == "metadata":
		k = Key{Kind: KeyTier, Name: p[1]}
		return k, filled(&k.Name)
	case p[0] == "tier" && len(p) == 4 && p[2] == "policy":
		k = Key{Kind: KeyTieredPolicy, Tier: p[1], Name: p[3]}
		return k, filled(&k.Tier, &k.Name)
	case p[0] == "profile" && len(p) == 3:
		k = Key{Name: p[1]}
		switch p[2] {
		case "rules":
			k.Kind = KeyProfileRules
		case "labels":
			k.Kind = KeyProfileLabels
		}
		return k, k.Kind != 0 && filled(&k.Name)
	case len(p) == 3:
		k = Key{Kind: KeyPolicy, Type: p[0], Namespace: unescape(p[1]), Name: p[2]}
		for _, kind := range model.PolicyKinds() {
			if kind.Stored == k.Type {
				return k, kind.Namespaced == (k.Namespace != "") && filled(&k.Name)
			}
		}
	}
	return k, false
}

func parseIPAM(p []string) (k Key, ok bool) {
	if p[0] != "v2" || len(p) < 5 {
		return k, false
	}
	var version string
	switch {
	case p[1] == "assignment" && len(p) == 5 && p[3] == "block":
		k.Kind, version = KeyBlock, p[2]
	case (p[1] == "host" || p[1] == "virtual") && len(p) == 6 && p[4] == "block":
		k.Kind, k.Type, k.Node, version = KeyAffinity, p[1], p[2], p[3]
		if !filled(&k.Node) {
			return k, false
		}
	default:
		return k, false
	}
	k.CIDR, ok = undashed(p[len(p)-1])
	return k, ok && "ipv"+family(k.CIDR) == version
}

func parseResource(p []string) (k Key, ok bool) {
	if len(p) < 4 || p[0] != "v3" || p[1] != "projectcalico.org" {
		return k, false
	}
	namespaced, known := resourceNamespaced(p[2])
	k = Key{Kind: KeyResource, Type: p[2], Name: p[len(p)-1]}
	switch {
	case !known:
		return k, false
	case namespaced && len(p) == 5:
		k.Namespace = p[3]
		return k, filled(&k.Namespace, &k.Name)
	case !namespaced && len(p) == 4:
		return k, filled(&k.Name)
	}
	return k, false
}
