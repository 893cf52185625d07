// Package example turns the header of a counterexample, and what policies decide about it, into fields for programs.
//
// Invariant: the fields say what the lines beside them say.
package example

import (
	"net/netip"
	"strconv"

	"github.com/contiv-agent/contiv-agent/fields"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// Header is the header of a packet. Ports are 0 for protocols without ports.
type Header struct {
	Protocol        string     `json:"protocol"` // TCP, UDP, SCTP, ICMP, ICMPv6, or the number
	Source          netip.Addr `json:"source"`
	SourcePort      uint16     `json:"sourcePort,omitempty"`
	Destination     netip.Addr `json:"destination"`
	DestinationPort uint16     `json:"destinationPort,omitempty"`
	Flags           []string   `json:"flags,omitempty"` // of TCP: SYN
	ICMP            *ICMP      `json:"icmp,omitempty"`  // nil for other protocols
}

// ICMP is type and code of a message of ICMP or ICMPv6.
type ICMP struct {
	Type uint16 `json:"type"`
	Code uint16 `json:"code"`
}

// HeaderOf returns the fields of a header.
func HeaderOf(h space.Header) *Header {
	out := &Header{Protocol: strconv.Itoa(int(h.Protocol)), Source: h.Src, Destination: h.Dst}
	switch p := model.Protocol(h.Protocol); p {
	case model.TCP, model.UDP, model.SCTP:
		out.Protocol, out.SourcePort, out.DestinationPort = p.String(), h.SrcPort, h.DstPort
	case model.ICMP, model.ICMPv6:
		out.Protocol, out.ICMP = p.String(), &ICMP{h.SrcPort, h.DstPort}
	}
	if h.Protocol == space.TCP {
		out.Flags = h.FlagNames()
	}
	return out
}

// Decision is what the policies of a pod decide about a packet in one direction.
type Decision struct {
	Pod       string `json:"pod"`       // namespace/name
	Direction string `json:"direction"` // ingress or egress
	Allowed   bool   `json:"allowed"`
	// Policies is the policy whose rule decides, or the policies of the tier at whose end the packet is denied. None: no policy decides.
	Policies []fields.Object `json:"policies,omitempty"`
	Tier     string          `json:"tier,omitempty"`
	Rule     *fields.Rule    `json:"rule,omitempty"` // nil: no rule decides
	Text     string          `json:"text"`
}

// DecisionOf returns the fields of a decision.
func DecisionOf(pod model.PodID, egress bool, d *meaning.Decision) Decision {
	out := Decision{Pod: pod.String(), Direction: "ingress", Allowed: d.Allowed, Tier: d.Tier, Rule: fields.RuleOf(d.Rule), Text: d.Text}
	if egress {
		out.Direction = "egress"
	}
	for _, q := range d.Policies {
		out.Policies = append(out.Policies, fields.Object{Kind: string(q.ID.Kind), Namespace: q.ID.Namespace, Name: q.ID.Name})
	}
	return out
}
