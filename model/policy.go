package model

import (
	"math"
	"net/netip"
	"strings"
	"time"
)

// PolicyKind names where a policy comes from; it decides how the policy is called on Felix's wire.
type PolicyKind string

// The kinds of policies.
const (
	KindNetworkPolicy        PolicyKind = "NetworkPolicy"              // networking.k8s.io/v1
	KindAdminNetworkPolicy   PolicyKind = "AdminNetworkPolicy"         // policy.networking.k8s.io/v1alpha1
	KindBaselinePolicy       PolicyKind = "BaselineAdminNetworkPolicy" // policy.networking.k8s.io/v1alpha1
	KindClusterNetworkPolicy PolicyKind = "ClusterNetworkPolicy"       // policy.networking.k8s.io/v1alpha2
	KindCalicoNetworkPolicy  PolicyKind = "CalicoNetworkPolicy"        // projectcalico.org/v3 NetworkPolicy
	KindGlobalNetworkPolicy  PolicyKind = "GlobalNetworkPolicy"        // projectcalico.org/v3
	// Staged policies are listed like any other, and never enforced: a data plane skips them.
	KindStagedKubernetesPolicy PolicyKind = "StagedKubernetesNetworkPolicy" // projectcalico.org/v3
	KindStagedNetworkPolicy    PolicyKind = "StagedNetworkPolicy"           // projectcalico.org/v3
	KindStagedGlobalPolicy     PolicyKind = "StagedGlobalNetworkPolicy"     // projectcalico.org/v3
	// KindTieredPolicy is a policy of Felix's own datastore up to v3.31, where names are unique within a tier: Name is
	// the name on the wire, as it is, and Namespace is the tier.
	KindTieredPolicy PolicyKind = "TieredPolicy"
)

// PolicyID names a policy. Its tier is data, not name: a policy may move.
type PolicyID struct {
	Kind      PolicyKind
	Namespace string // "" for cluster-wide kinds
	Name      string
}

// String is "Kind namespace/name", or "Kind name".
func (id PolicyID) String() string { return Ref{Kind(id.Kind), id.Namespace, id.Name}.String() }

// Ref is the identifier as a reference, for notes.
func (id PolicyID) Ref() Ref { return Ref{Kind(id.Kind), id.Namespace, id.Name} }

// Compare orders by kind, namespace, name.
func (id PolicyID) Compare(o PolicyID) int { return id.Ref().Compare(o.Ref()) }

// Felix's names of the tiers the Kubernetes kinds live in (Calico v3.31, libcalico-go/lib/names; the two of
// ClusterNetworkPolicy as from Calico v3.32).
const (
	TierAdmin        = "adminnetworkpolicy"
	TierKubeAdmin    = "kube-admin"
	TierDefault      = "default"
	TierBaseline     = "baselineadminnetworkpolicy"
	TierKubeBaseline = "kube-baseline"
)

// BuiltinTiers are the tiers that are there without an object, in their order. Tiers of equal order go by name: an
// AdminNetworkPolicy comes before a ClusterNetworkPolicy of tier Admin, and its Pass hands over to that tier. Unmatched
// traffic falls through the tiers of the cluster's administrator; in the default tier it is denied where a policy applies.
func BuiltinTiers() []*Tier {
	return []*Tier{
		{TierAdmin, OrderOf(1_000), TierPass},
		{TierKubeAdmin, OrderOf(1_000), TierPass},
		{TierDefault, OrderOf(1_000_000), TierDeny},
		{TierBaseline, OrderOf(10_000_000), TierPass},
		{TierKubeBaseline, OrderOf(10_000_000), TierPass},
	}
}

// OrderKubernetes is the order of a Kubernetes NetworkPolicy in the default tier (Calico v3.31).
func OrderKubernetes() Order { return OrderOf(1000) }

// FelixName is the policy's name within its tier as Felix v3.31 writes it: "prod/knp.default.web",
// "kanp.adminnetworkpolicy.x", "prod/sec.web", "prod/staged:sec.web". Names of Calico's own policies stay as they are (up
// to v3.31 they start with their tier), so that names differ where identifiers do. Felix v3.31 knows no
// ClusterNetworkPolicy: "kcnp.<tier>.x".
func (id PolicyID) FelixName(tier string) string {
	name := id.Name
	switch id.Kind {
	case KindTieredPolicy:
		return name
	case KindAdminNetworkPolicy:
		return "kanp." + TierAdmin + "." + name
	case KindBaselinePolicy:
		return "kbanp." + TierBaseline + "." + name
	case KindClusterNetworkPolicy:
		return "kcnp." + tier + "." + name
	case KindNetworkPolicy, KindStagedKubernetesPolicy:
		name = "knp.default." + name
	}
	if id.Kind == KindStagedKubernetesPolicy || id.Kind == KindStagedNetworkPolicy || id.Kind == KindStagedGlobalPolicy {
		name = "staged:" + name
	}
	if id.Namespace != "" {
		name = id.Namespace + "/" + name
	}
	return name
}

// Order ranks tiers, and policies in a tier: lower first. The zero value is "no order" and comes last.
type Order struct {
	Value float64
	Set   bool
}

// OrderOf is the order v.
func OrderOf(v float64) Order { return Order{Value: v, Set: true} }

// Compare puts lower values first and no order last.
func (o Order) Compare(p Order) int {
	a, b := o.sortValue(), p.sortValue()
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (o Order) sortValue() float64 {
	if o.Set {
		return o.Value
	}
	return math.Inf(1)
}

// Action is what a rule, or the end of a tier, does with a packet. Sources use the constants; other spellings are
// passed on as they are.
type Action string

// The actions. The empty action of a rule means allow, that of a tier means deny.
const (
	ActionAllow Action = "allow"
	ActionDeny  Action = "deny"
	ActionLog   Action = "log"       // and go on with the next rule
	ActionPass  Action = "next-tier" // Calico's Pass: leave this tier, go on with the next
	// TierDeny and TierPass are the two default actions of a tier, as Felix spells them there.
	TierDeny Action = "Deny"
	TierPass Action = "Pass"
)

// Denies tells that the action is deny in any case of letters.
func (a Action) Denies() bool { return strings.EqualFold(string(a), string(ActionDeny)) }

// Passes tells that the action is Pass, in either of its spellings.
func (a Action) Passes() bool {
	return strings.EqualFold(string(a), string(ActionPass)) || strings.EqualFold(string(a), string(TierPass))
}

// Allows tells that the action is allow, in any case of letters, or none, which means allow.
func (a Action) Allows() bool { return a == "" || strings.EqualFold(string(a), string(ActionAllow)) }

// Tier is a group of policies with a place in the order. A tier that policies name and that has no object sorts after
// all others.
type Tier struct {
	Name          string
	Order         Order
	DefaultAction Action // "": as if Deny
}

// Policy is a policy of any kind, as Felix's calculation reads it.
type Policy struct {
	ID             PolicyID
	Created        time.Time // metadata.creationTimestamp, in whole seconds; zero: not known, as in a manifest
	UID            string    // metadata.uid; "": not known
	Tier           string
	Order          Order
	Namespace      string // of a namespaced policy; "" for cluster-wide ones
	Selector       string // of the endpoints it applies to, in the selector language; "" is all()
	Ingress        bool   // governs ingress. Neither Ingress nor Egress means both
	Egress         bool
	InboundRules   []Rule
	OutboundRules  []Rule
	Untracked      bool // host endpoints: before connection tracking
	PreDNAT        bool // host endpoints: before DNAT, ingress only
	ApplyOnForward bool // host endpoints: forwarded traffic too
	Everywhere     bool // performance hint AssumeNeededOnEveryNode: active before it has endpoints
}

// FelixName is the name of the policy on Felix's wire.
func (p *Policy) FelixName() string { return p.ID.FelixName(p.Tier) }

// Profile is rules and labels endpoints refer to by name: a Kubernetes namespace is profile "kns.<ns>", a service
// account "ksa.<ns>.<name>".
type Profile struct {
	Name   string
	Labels map[string]string // inherited by endpoints and network sets that name the profile
	// Rules is nil while the profile has none of its own: it then denies everything, as a missing profile does.
	Rules *ProfileRules
}

// ProfileRules are the rules of a profile.
type ProfileRules struct {
	Inbound, Outbound []Rule
}

// Rule is one rule with all of Felix's match criteria: a packet has to meet all that are given.
type Rule struct {
	Action      Action
	IPVersion   uint8 // 4, 6, or 0 for both
	Protocol    RuleProtocol
	NotProtocol RuleProtocol
	ICMP        *ICMPMatch
	NotICMP     *ICMPMatch
	Source      Peer
	Destination Peer
	HTTP        *HTTPMatch        // layer 7: no data plane of ours can tell
	Annotations map[string]string // rule metadata, passed on
	// Origin names the rule in the words of the object it comes from, "ingress rule 2", for whoever asks which rule
	// decided; "" if the place in the list says it.
	Origin string
}

// RuleProtocol is a protocol by number or by Felix's lower-case name; the zero value matches any.
type RuleProtocol struct {
	Number uint8
	Name   string // tcp, udp, icmp, icmpv6, sctp, udplite; wins over Number
}

// ICMPMatch matches an ICMP type and, if HasCode, a code.
type ICMPMatch struct {
	Type, Code uint8
	HasCode    bool
}

// PortMatch is an inclusive range of ports, or the name of a port of the endpoint.
type PortMatch struct {
	First, Last uint16
	Name        string // not "": First and Last are unused
}

// Peer is one side of a rule. Nets are or-ed, ports (numbers and names) are or-ed; all else is and-ed.
type Peer struct {
	Nets        []netip.Prefix
	Ports       []PortMatch
	Selector    string // "" none
	NotNets     []netip.Prefix
	NotPorts    []PortMatch
	NotSelector string
	// Service stands for its endpoints: addresses and ports as a destination, addresses alone as a source.
	Service ServiceID
	// What the user wrote, before it was combined into Selector; passed on for display.
	OriginalSelector          string
	OriginalNamespaceSelector string
	OriginalNotSelector       string
	ServiceAccountNames       []string
	ServiceAccountSelector    string
}

// HTTPMatch is Felix's layer-7 match.
type HTTPMatch struct {
	Methods []string
	Paths   []HTTPPath
}

// HTTPPath is a path, exact or a prefix.
type HTTPPath struct {
	Exact, Prefix string // one of the two
}
