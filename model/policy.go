package model

import (
	"math"
	"net/netip"
	"strings"
	"time"
)

// PolicyKind names the API a policy comes from. It decides how the policy is named on Felix's wire.
type PolicyKind string

// The kinds of policies.
const (
	KindNetworkPolicy        PolicyKind = "NetworkPolicy"              // networking.k8s.io/v1
	KindAdminNetworkPolicy   PolicyKind = "AdminNetworkPolicy"         // policy.networking.k8s.io/v1alpha1
	KindBaselinePolicy       PolicyKind = "BaselineAdminNetworkPolicy" // policy.networking.k8s.io/v1alpha1
	KindClusterNetworkPolicy PolicyKind = "ClusterNetworkPolicy"       // policy.networking.k8s.io/v1alpha2
	KindCalicoNetworkPolicy  PolicyKind = "CalicoNetworkPolicy"        // projectcalico.org/v3 NetworkPolicy
	KindGlobalNetworkPolicy  PolicyKind = "GlobalNetworkPolicy"        // projectcalico.org/v3
	// Staged policies are listed like all others and never enforced: a data plane skips them.
	KindStagedKubernetesPolicy PolicyKind = "StagedKubernetesNetworkPolicy" // projectcalico.org/v3
	KindStagedNetworkPolicy    PolicyKind = "StagedNetworkPolicy"           // projectcalico.org/v3
	KindStagedGlobalPolicy     PolicyKind = "StagedGlobalNetworkPolicy"     // projectcalico.org/v3
	// KindTieredPolicy is a policy of Felix's datastore up to v3.31, where names are unique within a tier. Name is the
	// name on the wire, unchanged, and Namespace is the tier.
	KindTieredPolicy PolicyKind = "TieredPolicy"
)

// PolicyID names a policy. It does not contain the tier, because a policy may move to another tier.
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

// Felix's names of the tiers of the Kubernetes kinds (Calico v3.31, libcalico-go/lib/names; the two of
// ClusterNetworkPolicy as from Calico v3.32).
const (
	TierAdmin        = "adminnetworkpolicy"
	TierKubeAdmin    = "kube-admin"
	TierDefault      = "default"
	TierBaseline     = "baselineadminnetworkpolicy"
	TierKubeBaseline = "kube-baseline"
)

// BuiltinTiers are the tiers that exist without an object, in their order. Tiers of equal order are sorted by name: an
// AdminNetworkPolicy precedes a ClusterNetworkPolicy of tier Admin, and its Pass leads to that tier. Traffic that no
// policy matches passes through the tiers of the cluster's administrator; the default tier denies it where one of its
// policies applies.
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
// "kanp.adminnetworkpolicy.x", "prod/sec.web", "prod/staged:sec.web". Names of Calico's own policies are not changed
// (up to v3.31 they start with their tier), so different policies have different names. Felix v3.31 has no
// ClusterNetworkPolicy: its name is "kcnp.<tier>.x".
func (id PolicyID) FelixName(tier string) string {
	if id.Kind == KindTieredPolicy {
		return id.Name
	}
	k, _ := id.Kind.Info() // a kind of a newer Calico's has no mark
	name := k.mark
	if k.tiered {
		name += tier + "."
	}
	name += id.Name
	if id.Namespace != "" {
		name = id.Namespace + "/" + name
	}
	return name
}

// Order ranks tiers, and policies within a tier: lower first. The zero value is "no order" and sorts last.
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

// Action says what a rule, or the end of a tier, does with a packet. Sources use the constants; other spellings are
// passed on unchanged.
type Action string

// The actions. The empty action of a rule means allow, that of a tier means deny.
const (
	ActionAllow Action = "allow"
	ActionDeny  Action = "deny"
	ActionLog   Action = "log"       // log, then continue with the next rule
	ActionPass  Action = "next-tier" // Calico's Pass: leave this tier, continue with the next
	// TierDeny and TierPass are the default actions of a tier, as Felix spells them there.
	TierDeny Action = "Deny"
	TierPass Action = "Pass"
)

// Denies reports whether the action is deny, ignoring case.
func (a Action) Denies() bool { return strings.EqualFold(string(a), string(ActionDeny)) }

// Passes reports whether the action is Pass, in either spelling.
func (a Action) Passes() bool {
	return strings.EqualFold(string(a), string(ActionPass)) || strings.EqualFold(string(a), string(TierPass))
}

// Allows reports whether the action is allow, ignoring case, or empty, which means allow.
func (a Action) Allows() bool { return a == "" || strings.EqualFold(string(a), string(ActionAllow)) }

// Tier is an ordered group of policies. A tier that policies name but that has no object sorts after all others.
type Tier struct {
	Name          string
	Order         Order
	DefaultAction Action // "" means Deny
}

// Policy is a policy of any kind, as Felix's calculation reads it.
type Policy struct {
	ID PolicyID
	Birth
	Staged         StagedAction // of a staged policy whose kind does not say so, or whose action is not Set; see StagedAction
	Tier           string
	Order          Order
	Namespace      string // of a namespaced policy; "" for cluster-wide ones
	Selector       string // selects the endpoints the policy applies to, in the selector language; "" is all()
	Ingress        bool   // governs ingress. If neither Ingress nor Egress is set, the policy governs both
	Egress         bool
	InboundRules   []Rule
	OutboundRules  []Rule
	Untracked      bool // host endpoints: before connection tracking
	PreDNAT        bool // host endpoints: before DNAT, ingress only
	ApplyOnForward bool // host endpoints: forwarded traffic too
	Everywhere     bool // performance hint AssumeNeededOnEveryNode: active before it has endpoints
}

// Birth distinguishes objects that have the same name one after the other.
type Birth struct {
	Created time.Time // metadata.creationTimestamp, in whole seconds; zero: not known, as in a manifest
	UID     string    // metadata.uid; "": not known
}

// FelixName is the name of the policy on Felix's wire.
func (p *Policy) FelixName() string { return p.ID.FelixName(p.Tier) }

// Profile holds rules and labels that endpoints inherit by naming it. A Kubernetes namespace is profile "kns.<ns>", a
// service account "ksa.<ns>.<name>".
type Profile struct {
	Name   string
	Labels map[string]string // inherited by endpoints and network sets that name the profile
	// Rules is nil while the profile has no rules. It then denies everything, as a missing profile does.
	Rules *ProfileRules
}

// ProfileRules are the rules of a profile.
type ProfileRules struct {
	Inbound, Outbound []Rule
}

// Rule is one rule with all of Felix's match criteria. A packet must meet all that are set.
type Rule struct {
	Action      Action
	IPVersion   uint8 // 4, 6, or 0 for both
	Protocol    RuleProtocol
	NotProtocol RuleProtocol
	ICMP        *ICMPMatch
	NotICMP     *ICMPMatch
	Source      Peer
	Destination Peer
	HTTP        *HTTPMatch        // layer 7: no data plane of ours can evaluate it
	Annotations map[string]string // rule metadata, passed on
	// Origin names the rule as in its object, "ingress rule 2", to explain which rule decided. "" if the position in
	// the list is enough.
	Origin string
}

// RuleProtocol is a protocol by number or by Felix's lower-case name. The zero value matches any.
type RuleProtocol struct {
	Number uint8
	Name   string // tcp, udp, icmp, icmpv6, sctp, udplite; takes precedence over Number
}

// ICMPMatch matches an ICMP type and, if HasCode, a code.
type ICMPMatch struct {
	Type, Code uint8
	HasCode    bool
}

// PortMatch is an inclusive range of ports, or the name of a port of the endpoint.
type PortMatch struct {
	First, Last uint16
	Name        string // if set, First and Last are unused
}

// Peer is one side of a rule. Nets are or-ed, ports (numbers and names) are or-ed; everything else is and-ed.
type Peer struct {
	Nets        []netip.Prefix
	Ports       []PortMatch
	Selector    string // "" for none
	NotNets     []netip.Prefix
	NotPorts    []PortMatch
	NotSelector string
	// Service stands for its endpoints: addresses and ports as a destination, addresses alone as a source.
	Service ServiceID
	// The text the user wrote, before it was combined into Selector; passed on for display.
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
