// Package hops turns the hops of a packet through simulated VPPs into records with fields, and each record into one line of text.
//
// Invariant: the line is made of fields, and every number is a number.
package hops

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/sim/hop"
)

// Kind says which part of VPP acted.
type Kind string

// The kinds of hops.
const (
	Input      Kind = "input"      // the packet came by Interface
	AccessList Kind = "acl"        // an access list decided
	Classifier Kind = "classifier" // tables about ports of SCTP decided
	NAT44      Kind = "nat44"
	CNAT       Kind = "cnat"
	Lookup     Kind = "route"  // a lookup in the FIB
	Output     Kind = "output" // the packet left by Interface
	Other      Kind = "other"  // Text alone says what happened
)

// Hop is what one graph node of one node's VPP did to a packet.
type Hop struct {
	Node      string `json:"node"`      // of the cluster
	GraphNode string `json:"graphNode"` // of VPP: "nat44-ed-out2in"
	Kind      Kind   `json:"kind"`
	Text      string `json:"text"` // what the graph node did
	// Interface is that of the packet's arrival or departure, or of the access list or classifier.
	Interface string `json:"interface,omitempty"`
	Direction string `json:"direction,omitempty"` // of an access list or classifier: input or output, as VPP sees it
	// Packet is the header of a packet that came or left.
	Packet *Header `json:"packet,omitempty"`
	ACL    *ACL    `json:"acl,omitempty"`
	Table  *Table  `json:"table,omitempty"`
	// Decision is the reason of an access list's or a classifier's verdict; nil: the list is foreign, or the packet belongs to a session.
	Decision *flows.Decision `json:"decision,omitempty"`
	// Translation is what NAT44 or cnat changed; nil: nothing.
	Translation *Translation `json:"translation,omitempty"`
	Route       *Route       `json:"route,omitempty"`
	Dropped     bool         `json:"dropped,omitempty"` // the packet ended here
	// DeliveredTo is the party that got the packet: pod:<ns>/<name>, node:<name>, or an address outside.
	DeliveredTo string `json:"deliveredTo,omitempty"`
}

// Header has the addresses and ports of a packet.
type Header struct {
	Protocol        string `json:"protocol"`
	Source          string `json:"source"` // an address
	SourcePort      uint16 `json:"sourcePort,omitempty"`
	Destination     string `json:"destination"`
	DestinationPort uint16 `json:"destinationPort,omitempty"`
	Identifier      uint16 `json:"identifier,omitempty"` // of an echo request or reply
	TTL             uint8  `json:"ttl"`
}

// ACL is the verdict of an access list.
type ACL struct {
	List    int    `json:"list"`          // its place among those of the interface and direction, from 0; -1: no rule matched
	Tag     string `json:"tag,omitempty"` // of the list
	Rule    int    `json:"rule"`          // in the list, from 0; -1: no rule matched
	Session bool   `json:"session"`       // the packet belongs to a session, which the rule made when it began
	Permit  bool   `json:"permit"`
}

// Table is the verdict of a chain of classifier tables.
type Table struct {
	Place  int  `json:"place"` // in the chain, from 0
	Hit    bool `json:"hit"`
	Permit bool `json:"permit"`
}

// Translation is a header before and after NAT.
type Translation struct {
	Before Header `json:"before"`
	After  Header `json:"after"`
}

// Route is the route that a lookup chose.
type Route struct {
	Prefix    string `json:"prefix"`
	Via       string `json:"via,omitempty"` // the next hop
	Interface string `json:"interface,omitempty"`
	Type      string `json:"type"` // forward, local, drop, unreachable or prohibited
}

// String returns "node: graph node: text (reason)".
func (h Hop) String() string {
	line := h.Node + ": " + h.GraphNode + ": " + h.Text
	if h.Decision != nil {
		line += " (" + h.Decision.Text + ")"
	}
	return line
}

// Lines returns the line of each hop.
func Lines(list []Hop) []string {
	var out []string
	for _, h := range list {
		out = append(out, h.String())
	}
	return out
}

// Of returns the hops through one node's VPP as records. decide returns the reason of a verdict, or nil.
func Of(node string, list []hop.Hop, decide func(*hop.Hop) *flows.Decision) []Hop {
	out := make([]Hop, 0, len(list))
	var before hop.Header
	for i := range list {
		h := &list[i]
		r := Hop{Node: node, GraphNode: h.Node, Kind: kindOf(h), Text: h.Text, Dropped: h.Dropped, Decision: decide(h)}
		r.fillFields(h)
		next := i + 1
		if r.Kind == NAT44 && next < len(list) && kindOf(&list[next]) == NAT44 {
			out = append(out, r) // its nodes act together: the last one has what they changed
			continue
		}
		if (r.Kind == NAT44 || r.Kind == CNAT) && before.Src.IsValid() && isTranslated(before, h.Left) {
			r.Translation = &Translation{headerOf(before), headerOf(h.Left)}
		}
		before = h.Left
		out = append(out, r)
	}
	return out
}

// kindOf returns the kind of a hop. Interfaces, whose names contain those of pods, have nodes of the kinds input and output only.
func kindOf(h *hop.Hop) Kind {
	switch {
	case h.Received != "":
		return Input
	case h.Sent != "":
		return Output
	case h.ACL != nil:
		return AccessList
	case h.Classify != nil:
		return Classifier
	case h.Route != nil || h.Node == "ip4-lookup" || h.Node == "ip6-lookup":
		return Lookup
	case strings.HasPrefix(h.Node, "nat44-ed"):
		return NAT44
	case strings.HasPrefix(h.Node, "cnat-"), h.Node == "ip4-cnat-tx", h.Node == "ip6-cnat-tx":
		return CNAT
	}
	return Other
}

// fillFields adds the fields of the hop's kind.
func (r *Hop) fillFields(h *hop.Hop) {
	switch r.Kind {
	case Input, Output:
		left := headerOf(h.Left)
		r.Interface, r.Packet = h.Received+h.Sent, &left
	case AccessList:
		m := h.ACL
		r.Interface, r.Direction = m.Interface, direction(m.Output)
		r.ACL = &ACL{List: m.Place, Tag: m.Tag, Rule: m.Rule, Session: m.Session, Permit: m.Permit}
	case Classifier:
		m := h.Classify
		r.Interface, r.Direction = m.Interface, direction(m.Output)
		r.Table = &Table{Place: m.Place, Hit: m.Hit, Permit: m.Permit}
	case Lookup:
		if h.Route != nil {
			r.Route = &Route{Prefix: h.Route.Prefix.String(), Interface: h.Route.Interface, Type: h.Route.Type}
			if h.Route.Via.IsValid() {
				r.Route.Via = h.Route.Via.String()
			}
		}
	}
}

func direction(output bool) string {
	if output {
		return "output"
	}
	return "input"
}

// isTranslated reports whether NAT changed a header; it does not count the TTL.
func isTranslated(before, after hop.Header) bool {
	before.TTL = after.TTL
	return before != after
}

func headerOf(h hop.Header) Header {
	return Header{h.Proto.String(), h.Src.String(), h.SrcPort, h.Dst.String(), h.DstPort, h.ICMPID, h.TTL}
}
