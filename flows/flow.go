// Package flows keeps records of connections that passed and of packets that were dropped, added up by their ends, in bounded memory.
//
//	observations ─▶ Store.Add: equal ends and decisions are one Flow ─▶ Store.Select: the flows that match a Filter, from a number on
//
// Invariant: a Store holds at most its limit of flows, and counts those that it forgets.
package flows

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/fields"
)

// Verdict says whether VPP passed the packets of a flow.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	Dropped Verdict = "dropped"
)

// Kinds of peers.
const (
	Pod     = "pod"
	Service = "service"
	Node    = "node"
	Outside = "outside"
)

// Peer is one end of a flow.
type Peer struct {
	Kind      string            `json:"kind"`
	Address   netip.Addr        `json:"address"`
	Namespace string            `json:"namespace,omitempty"` // of a pod or a Service
	Name      string            `json:"name,omitempty"`      // of a pod, a Service or a node
	Workload  string            `json:"workload,omitempty"`  // of a pod: the Deployment, StatefulSet, DaemonSet or Job that made it
	Node      string            `json:"node,omitempty"`      // of a pod
	Labels    map[string]string `json:"labels,omitempty"`    // of a pod
}

// String is "prod/web-0" for a pod, "service prod/web", "node node-1", or the address.
func (p Peer) String() string {
	switch p.Kind {
	case Pod:
		return p.Namespace + "/" + p.Name
	case Service:
		return "service " + p.Namespace + "/" + p.Name
	case Node:
		return "node " + p.Name
	}
	return p.Address.String()
}

// Decision is the reason of a verdict.
type Decision struct {
	Text   string `json:"text,omitempty"`   // one line, as trace says it
	Policy string `json:"policy,omitempty"` // "NetworkPolicy prod/web"; "": no rule of a policy decides
	Tier   string `json:"tier,omitempty"`
	Rule   string `json:"rule,omitempty"` // "ingress rule 2"
	// Trigger is, at the end of a tier, the first policy of the tier that applies: "NetworkPolicy prod/web" isolates the pod.
	Trigger string `json:"trigger,omitempty"`
	Profile string `json:"profile,omitempty"` // whose rule decides: "kns.prod", of a namespace
	// Staged is the decision that would be made if all staged policies were enforced; nil: the same.
	Staged *Staged `json:"staged,omitempty"`
}

// Staged is a decision that staged policies would make.
type Staged struct {
	Verdict Verdict `json:"verdict"`
	By      string  `json:"by"` // the staged policy that changes the decision: "StagedNetworkPolicy prod/web"
	Text    string  `json:"text"`
	Policy  string  `json:"policy,omitempty"` // whose rule would decide, under the name that it would have
	Tier    string  `json:"tier,omitempty"`
	Rule    string  `json:"rule,omitempty"`
}

// MarshalJSON adds the fields of the policies and rules that the texts name.
func (d Decision) MarshalJSON() ([]byte, error) {
	type plain Decision
	return json.Marshal(struct {
		plain
		PolicyRef  *fields.Object `json:"policyRef,omitempty"`
		RuleRef    *fields.Rule   `json:"ruleRef,omitempty"`
		TriggerRef *fields.Object `json:"triggerRef,omitempty"`
	}{plain(d), fields.ObjectOf(d.Policy), fields.RuleOf(d.Rule), fields.ObjectOf(d.Trigger)})
}

// MarshalJSON adds the fields of the policies and the rule that the texts name.
func (s Staged) MarshalJSON() ([]byte, error) {
	type plain Staged
	return json.Marshal(struct {
		plain
		ByRef     *fields.Object `json:"byRef,omitempty"`
		PolicyRef *fields.Object `json:"policyRef,omitempty"`
		RuleRef   *fields.Rule   `json:"ruleRef,omitempty"`
	}{plain(s), fields.ObjectOf(s.By), fields.ObjectOf(s.Policy), fields.RuleOf(s.Rule)})
}

// WouldChange returns the verdict that staged policies would change the flow's verdict to; "": they would not change it.
func (f *Flow) WouldChange() Verdict {
	if s := f.Decision.Staged; s != nil && s.Verdict != f.Verdict {
		return s.Verdict
	}
	return ""
}

// Translation is a flow beside NAT.
type Translation struct {
	Dialled netip.AddrPort `json:"dialled"`           // the destination before NAT
	Source  netip.AddrPort `json:"source"`            // the source after NAT
	Service string         `json:"service,omitempty"` // that has the dialled address: "prod/web"; "": none, as for node ports
}

// Counts are numbers since the first observation of a flow. A source that counts no packets or bytes leaves them 0.
type Counts struct {
	Connections uint64 `json:"connections,omitempty"`
	Packets     uint64 `json:"packets,omitempty"`
	Bytes       uint64 `json:"bytes,omitempty"` // of IP packets
}

// Text is "3 connections, 7 packets, 612 bytes", without what is 0.
func (c Counts) Text() string {
	var out []string
	for _, part := range []struct {
		n    uint64
		name string
	}{{c.Connections, "connections"}, {c.Packets, "packets"}, {c.Bytes, "bytes"}} {
		if part.n > 0 {
			out = append(out, fmt.Sprintf("%d %s", part.n, part.name))
		}
	}
	return strings.Join(out, ", ")
}

func (c *Counts) raise(by Counts) {
	c.Connections += by.Connections
	c.Packets += by.Packets
	c.Bytes += by.Bytes
}

// Flow is all connections, or dropped packets, with the same ends, destination port, verdict and decision.
type Flow struct {
	Number      uint64       `json:"number"` // grows with each change of any flow
	First       time.Time    `json:"first"`  // observation
	Last        time.Time    `json:"last"`
	Node        string       `json:"node"` // whose VPP it is
	Source      Peer         `json:"source"`
	Destination Peer         `json:"destination"`
	Protocol    string       `json:"protocol"`             // "TCP"
	SourcePort  uint16       `json:"sourcePort,omitempty"` // of the latest connection
	Port        uint16       `json:"port,omitempty"`       // of the destination
	Verdict     Verdict      `json:"verdict"`
	Direction   string       `json:"direction,omitempty"` // ingress or egress, as the pod of this node sees it
	Decision    Decision     `json:"decision"`
	Translation *Translation `json:"translation,omitempty"` // of the latest connection
	Counts
	SeenBy string `json:"seenBy"` // the source of the record
}

// String is one line: "allowed TCP prod/client:40000 -> prod/web:80 egress, allowed by NetworkPolicy prod/web ingress rule 1; 3 connections".
func (f *Flow) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s -> %s", f.Verdict, f.Protocol, withPort(f.Source, f.SourcePort), withPort(f.Destination, f.Port))
	if t := f.Translation; t != nil {
		fmt.Fprintf(&b, " (dialled %s, source %s)", t.Dialled, t.Source)
	}
	if f.Direction != "" {
		b.WriteString(" " + f.Direction)
	}
	if f.Decision.Text != "" {
		b.WriteString(", " + f.Decision.Text)
	}
	if v := f.WouldChange(); v != "" {
		fmt.Fprintf(&b, " (with %s: %s, %s)", f.Decision.Staged.By, v, f.Decision.Staged.Text)
	}
	if counts := f.Counts.Text(); counts != "" {
		b.WriteString("; " + counts)
	}
	return b.String()
}

func withPort(p Peer, port uint16) string {
	if port == 0 {
		return p.String()
	}
	if p.Kind == Outside {
		return netip.AddrPortFrom(p.Address, port).String()
	}
	return fmt.Sprintf("%s:%d", p, port)
}
