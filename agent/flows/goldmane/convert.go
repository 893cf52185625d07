package goldmane

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/calico/goldmane"
)

// Felix's texts for a field that does not apply, and for a policy if none decided (NoMatchNameStr of its policy_lookup_cache.go).
const (
	none    = "-"
	noMatch = "__NO_MATCH__"
)

// keyOf returns the key of a flow, as Felix would write it. False: another flow has the same connections.
func keyOf(f *flows.Flow) (*goldmane.FlowKey, bool) {
	if f.Verdict == flows.Allowed && f.Translation == nil && f.Destination.Kind == flows.Service {
		return nil, false // the sender's session before NAT; the flow of NAT's table has the endpoint, and the Service
	}
	from, to := endOf(&f.Source), endOf(&f.Destination)
	k := &goldmane.FlowKey{
		SourceName: from.name, SourceNamespace: from.namespace, SourceType: from.kind, DestName: to.name, DestNamespace: to.namespace, DestType: to.kind,
		DestPort: int64(f.Port), DestServiceName: none, DestServiceNamespace: none, DestServicePortName: none,
		Proto: protocolName(f.Protocol), Reporter: reporterOf(f), Action: goldmane.Action_ALLOW,
	}
	if f.Verdict == flows.Dropped {
		k.Action = goldmane.Action_DENY
	}
	switch {
	case f.Translation != nil && f.Translation.Service != "":
		k.DestServiceNamespace, k.DestServiceName, _ = strings.Cut(f.Translation.Service, "/")
		k.DestServicePort = int64(f.Translation.Dialled.Port())
	case f.Destination.Kind == flows.Service: // dropped before NAT chose an endpoint
		k.DestServiceNamespace, k.DestServiceName, k.DestServicePort = f.Destination.Namespace, f.Destination.Name, int64(f.Port)
	}
	enforced := hitOf(&f.Decision, k.Action)
	pending := enforced
	if s := f.Decision.Staged; s != nil {
		pending = pendingOf(s)
	}
	k.Policies = &goldmane.PolicyTrace{EnforcedPolicies: []*goldmane.PolicyHit{enforced}, PendingPolicies: []*goldmane.PolicyHit{pending}}
	return k, true
}

// pendingOf returns the rule that would decide if staged policies were enforced. A staged policy has its staged kind.
func pendingOf(s *flows.Staged) *goldmane.PolicyHit {
	d, action := flows.Decision{Tier: s.Tier, Rule: s.Rule}, goldmane.Action_ALLOW
	if s.Verdict == flows.Dropped {
		action = goldmane.Action_DENY
	}
	switch _, name, _ := strings.Cut(s.Policy, " "); {
	case s.Rule == "" && s.Tier != "":
		d.Trigger = s.By
	case strings.HasSuffix(s.By, " "+name):
		d.Policy = s.By
	default:
		d.Policy = s.Policy
	}
	return hitOf(&d, action)
}

// end is an end as Felix names it.
type end struct {
	name, namespace string
	kind            goldmane.EndpointType
}

func endOf(p *flows.Peer) end {
	switch p.Kind {
	case flows.Pod:
		return end{podsLike(p), p.Namespace, goldmane.EndpointType_WORKLOAD_ENDPOINT}
	case flows.Node:
		return end{p.Name, none, goldmane.EndpointType_HOST_ENDPOINT}
	}
	name := "pub"
	if isPrivate(p.Address) {
		name = "pvt"
	}
	return end{name, none, goldmane.EndpointType_NETWORK}
}

// isPrivate reports whether Felix calls the network of an address "pvt": the private blocks of IPv4.
func isPrivate(a netip.Addr) bool { return a.Unmap().Is4() && a.Unmap().IsPrivate() }

// podsLike is the name of a pod with "*" in place of what its controller generated, by the labels that controllers set.
func podsLike(p *flows.Peer) string {
	if hash := p.Labels["pod-template-hash"]; hash != "" {
		if before, _, found := strings.Cut(p.Name, "-"+hash+"-"); found {
			return before + "-" + hash + "-*"
		}
	}
	job, index := p.Labels["batch.kubernetes.io/job-name"], p.Labels["batch.kubernetes.io/job-completion-index"]
	if index != "" && strings.HasPrefix(p.Name, job+"-"+index+"-") {
		return job + "-" + index + "-*"
	}
	controlled := job != "" || p.Labels["controller-revision-hash"] != "" || p.Labels["statefulset.kubernetes.io/pod-name"] == p.Name
	if at := strings.LastIndexByte(p.Name, '-'); controlled && at > 0 {
		return p.Name[:at] + "-*"
	}
	return p.Name
}

// protocolName is Felix's name of a protocol.
func protocolName(name string) string {
	switch name {
	case "ICMPv6":
		return "icmp6"
	case "TCP", "UDP", "SCTP", "ICMP":
		return strings.ToLower(name)
	}
	return strings.TrimPrefix(name, "proto-")
}

// reporterOf is the end at which the flow was seen. Without a policy's direction it is the sender, if that is a pod of this node.
func reporterOf(f *flows.Flow) goldmane.Reporter {
	if f.Direction == "egress" || f.Direction == "" && f.Source.Kind == flows.Pod && f.Source.Node == f.Node {
		return goldmane.Reporter_SRC
	}
	return goldmane.Reporter_DST
}

// kinds are Goldmane's kinds of policies.
var kinds = map[string]goldmane.PolicyKind{
	"NetworkPolicy":                 goldmane.PolicyKind_NETWORK_POLICY,
	"StagedNetworkPolicy":           goldmane.PolicyKind_STAGED_NETWORK_POLICY,
	"StagedGlobalNetworkPolicy":     goldmane.PolicyKind_STAGED_GLOBAL_NETWORK_POLICY,
	"StagedKubernetesNetworkPolicy": goldmane.PolicyKind_STAGED_KUBERNETES_NETWORK_POLICY,
	"CalicoNetworkPolicy":           goldmane.PolicyKind_CALICO_NETWORK_POLICY,
	"GlobalNetworkPolicy":           goldmane.PolicyKind_GLOBAL_NETWORK_POLICY,
	"AdminNetworkPolicy":            goldmane.PolicyKind_ADMIN_NETWORK_POLICY,
	"BaselineAdminNetworkPolicy":    goldmane.PolicyKind_BASELINE_ADMIN_NETWORK_POLICY,
	"ClusterNetworkPolicy":          goldmane.PolicyKind_CLUSTER_NETWORK_POLICY,
}

// hitOf returns the rule that decided. If no policy did, or the agent does not know which, it is a profile without a name: Whisker's page ends with an
// error when a reader opens a flow that has no hit.
func hitOf(d *flows.Decision, action goldmane.Action) *goldmane.PolicyHit {
	switch {
	case d.Policy != "":
		hit := policyOf(d.Policy, d.Tier)
		hit.Action, hit.RuleIndex = action, ruleIndex(d.Rule)
		return hit
	case d.Trigger != "":
		return &goldmane.PolicyHit{Kind: goldmane.PolicyKind_END_OF_TIER, Tier: d.Tier, Action: action, RuleIndex: -1, Trigger: policyOf(d.Trigger, d.Tier)}
	case d.Profile != "":
		return &goldmane.PolicyHit{Kind: goldmane.PolicyKind_PROFILE, Name: d.Profile, Action: action}
	}
	return &goldmane.PolicyHit{Kind: goldmane.PolicyKind_PROFILE, Name: noMatch, Action: action}
}

// policyOf returns the policy "Kind namespace/name", or "Kind name", of a tier. Calico's names have the tier as prefix, which Goldmane's lack.
func policyOf(ref, tier string) *goldmane.PolicyHit {
	kind, name, _ := strings.Cut(ref, " ")
	namespace, rest, found := strings.Cut(name, "/")
	if !found {
		namespace, rest = "", name
	}
	return &goldmane.PolicyHit{Kind: kinds[kind], Namespace: namespace, Name: strings.TrimPrefix(rest, tier+"."), Tier: tier}
}

// ruleIndex is the number of a rule from 0: that of "ingress rule 2 (dns)" is 1.
func ruleIndex(rule string) int64 {
	_, rest, _ := strings.Cut(rule, "rule ")
	digits, _, _ := strings.Cut(rest, " ")
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return 0
	}
	return max(n-1, 0)
}

// labelsOf returns labels as Goldmane writes them, sorted. Goldmane separates them by commas, which no label has.
func labelsOf(labels map[string]string) []string {
	out := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, key+"="+labels[key])
	}
	return out
}
