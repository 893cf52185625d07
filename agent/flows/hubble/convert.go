package hubble

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
)

// cluster is Cilium's name of a cluster that has none.
const cluster = "default"

// Reserved identities of Cilium, and the range of the others.
const (
	hostIdentity, worldIdentity, remoteNodeIdentity = 1, 2, 6
	firstIdentity, identities                       = 256, 1<<24 - 256
)

// Types of Cilium's events, and what a verdict of a policy was about: addresses and ports.
const (
	dropEvent, traceEvent, policyEvent = 1, 4, 5
	matchL3L4                          = 2
)

// converter turns flows into Hubble's. The era is that of one run of the agent: numbers of flows begin again with each.
type converter struct{ era string }

// flow converts one flow.
func (c converter) flow(f *flows.Flow) *flow.Flow {
	out := &flow.Flow{
		Time: timestamppb.New(f.Last), Uuid: c.uuid(f), Verdict: flow.Verdict_FORWARDED, IP: headerOf(f), L4: layer4(f), Type: flow.FlowType_L3_L4,
		Source: endpointOf(f, &f.Source), Destination: endpointOf(f, &f.Destination), SourceService: serviceOf(&f.Source),
		DestinationService: serviceOf(&f.Destination), NodeName: f.Node, Summary: summaryOf(f),
	}
	if t := f.Translation; t != nil && t.Service != "" {
		namespace, name, _ := strings.Cut(t.Service, "/")
		out.DestinationService = &flow.Service{Namespace: namespace, Name: name}
	}
	switch f.Direction {
	case "ingress":
		out.TrafficDirection = flow.TrafficDirection_INGRESS
	case "egress":
		out.TrafficDirection = flow.TrafficDirection_EGRESS
	}
	if f.Verdict == flows.Dropped {
		describeDrop(f, out)
	} else {
		out.IsReply = wrapperspb.Bool(false)
		describePass(f, out)
	}
	namePolicy(f, out)
	return out
}

// uuid names a change of a flow: the same change has the same name in each answer.
func (c converter) uuid(f *flows.Flow) string {
	b := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", c.era, f.Node, f.Number))
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // version 8: made as we like
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func headerOf(f *flows.Flow) *flow.IP {
	out := &flow.IP{Source: textOf(f.Source.Address), Destination: textOf(f.Destination.Address), IpVersion: flow.IPVersion_IPv4}
	if f.Destination.Address.Is6() {
		out.IpVersion = flow.IPVersion_IPv6
	}
	if t := f.Translation; t != nil && t.Source.Addr() != f.Source.Address {
		out.SourceXlated = textOf(t.Source.Addr())
	}
	return out
}

func textOf(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

func layer4(f *flows.Flow) *flow.Layer4 {
	from, to := uint32(f.SourcePort), uint32(f.Port)
	switch f.Protocol {
	case "TCP":
		return &flow.Layer4{Protocol: &flow.Layer4_TCP{TCP: &flow.TCP{SourcePort: from, DestinationPort: to}}}
	case "UDP":
		return &flow.Layer4{Protocol: &flow.Layer4_UDP{UDP: &flow.UDP{SourcePort: from, DestinationPort: to}}}
	case "SCTP":
		return &flow.Layer4{Protocol: &flow.Layer4_SCTP{SCTP: &flow.SCTP{SourcePort: from, DestinationPort: to}}}
	case "ICMP":
		return &flow.Layer4{Protocol: &flow.Layer4_ICMPv4{ICMPv4: &flow.ICMPv4{}}}
	case "ICMPv6":
		return &flow.Layer4{Protocol: &flow.Layer4_ICMPv6{ICMPv6: &flow.ICMPv6{}}}
	}
	return nil
}

func endpointOf(f *flows.Flow, p *flows.Peer) *flow.Endpoint {
	switch {
	case p.Kind == flows.Pod:
		out := &flow.Endpoint{Namespace: p.Namespace, PodName: p.Name, ClusterName: cluster, Labels: labelsOf(p)}
		out.Identity = identityOf(out.Labels)
		if p.Workload != "" {
			out.Workloads = []*flow.Workload{{Name: p.Workload}}
		}
		return out
	case p.Kind == flows.Node && p.Name == f.Node:
		return &flow.Endpoint{Identity: hostIdentity, ClusterName: cluster, Labels: []string{"reserved:host"}}
	case p.Kind == flows.Node:
		return &flow.Endpoint{Identity: remoteNodeIdentity, ClusterName: cluster, Labels: []string{"reserved:remote-node"}}
	}
	return &flow.Endpoint{Identity: worldIdentity, Labels: []string{"reserved:world"}}
}

// ofOnePod matches keys of labels that differ between pods of one workload, or between its revisions: Cilium leaves them out
// (defaultLabelPrefixCfg of its labelsfilter).
var ofOnePod = regexp.MustCompile(`^(io\.kubernetes|kubernetes\.io|statefulset\.kubernetes\.io/pod-name|apps\.kubernetes\.io/pod-index|batch\.kubernetes\.io/job-completion-index|` +
	`batch\.kubernetes\.io/controller-uid|.*beta\.kubernetes\.io|k8s\.io|pod-template-generation|pod-template-hash|controller-revision-hash|controller-uid|annotation|etcd_node|topology\.kubernetes\.io)`)

// labelsOf returns the namespace and the labels of a pod that all pods of its workload have.
func labelsOf(p *flows.Peer) []string {
	out := []string{"k8s:io.kubernetes.pod.namespace=" + p.Namespace}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if !ofOnePod.MatchString(key) {
			out = append(out, "k8s:"+key+"="+p.Labels[key])
		}
	}
	return out
}

// identityOf is a number of labels. All agents give the same number to the same labels.
func identityOf(labels []string) uint32 {
	h := fnv.New64a()
	for _, l := range labels {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(l)))) // a hash returns no error
		_, _ = h.Write([]byte(l))
	}
	return firstIdentity + uint32(h.Sum64()%identities)
}

func serviceOf(p *flows.Peer) *flow.Service {
	if p.Kind != flows.Service {
		return nil
	}
	return &flow.Service{Namespace: p.Namespace, Name: p.Name}
}

// summaryOf is the text that hubble prints in brackets.
func summaryOf(f *flows.Flow) string {
	out := f.Protocol
	if f.Decision.Text != "" {
		out += ", " + f.Decision.Text
	}
	if counts := f.Counts.Text(); counts != "" {
		out += "; " + counts
	}
	return out
}

// describeDrop says that packets were dropped, and why: only policies give flows of dropped packets a direction.
func describeDrop(f *flows.Flow, out *flow.Flow) {
	out.Verdict = flow.Verdict_DROPPED
	if f.Direction != "" {
		out.DropReasonDesc = flow.DropReason_POLICY_DENIED
	}
	out.DropReason = uint32(out.DropReasonDesc.Number()) //nolint:gosec // 0 or 133
	out.EventType = &flow.CiliumEventType{Type: dropEvent, SubType: int32(out.DropReasonDesc.Number())}
}

// describePass says what saw the connections: the rule of a policy that allowed them, or a place.
func describePass(f *flows.Flow, out *flow.Flow) {
	if f.Decision.Policy != "" {
		out.EventType, out.PolicyMatchType = &flow.CiliumEventType{Type: policyEvent}, matchL3L4
		return
	}
	// Cilium's numbers of places in events differ from those of the field.
	out.EventType = &flow.CiliumEventType{Type: traceEvent}
	switch {
	case f.Direction == "egress" || f.Direction == "" && f.Source.Kind == flows.Pod && f.Source.Node == f.Node:
		out.TraceObservationPoint, out.EventType.SubType = flow.TraceObservationPoint_FROM_ENDPOINT, 5
	case f.Direction == "ingress" || f.Destination.Kind == flows.Pod && f.Destination.Node == f.Node:
		out.TraceObservationPoint, out.EventType.SubType = flow.TraceObservationPoint_TO_ENDPOINT, 0
	default:
		out.TraceObservationPoint, out.EventType.SubType = flow.TraceObservationPoint_FROM_NETWORK, 10
	}
}

// namePolicy names the policy whose rule decided, or the one that isolates the pod and has no rule that allows the packets.
func namePolicy(f *flows.Flow, out *flow.Flow) {
	decided := f.Decision.Policy
	if decided == "" && f.Verdict == flows.Dropped {
		decided = f.Decision.Trigger
	}
	kind, name, found := strings.Cut(decided, " ")
	if !found {
		return
	}
	p := &flow.Policy{Kind: kind, Name: name}
	if namespace, short, found := strings.Cut(name, "/"); found {
		p.Namespace, p.Name = namespace, short
	}
	for _, l := range [][2]string{{"tier", f.Decision.Tier}, {"rule", f.Decision.Rule}} {
		if l[1] != "" {
			p.Labels = append(p.Labels, "contiv:"+l[0]+"="+l[1])
		}
	}
	field := &out.IngressAllowedBy
	switch denied := f.Verdict == flows.Dropped; {
	case f.Direction == "egress" && denied:
		field = &out.EgressDeniedBy
	case f.Direction == "egress":
		field = &out.EgressAllowedBy
	case denied:
		field = &out.IngressDeniedBy
	}
	*field = []*flow.Policy{p}
}
