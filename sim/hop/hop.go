// Package hop holds what one graph node of the simulated VPP did to a packet: as a line of text, and as fields.
//
// Invariant: text and fields say the same, and a hop does not change after the next one was recorded.
package hop

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Hop is the action of one graph node.
type Hop struct {
	Node string // VPP's name, e.g. nat44-ed-out2in
	Text string
	ACL  *ACLMatch // result of an ACL node; nil for all other nodes
	// Classify is the result of a node of the classifier; nil for all other nodes.
	Classify *ClassifyMatch
	// Route is the result of a lookup that found a route; nil for all other nodes.
	Route *Route
	// Received is the interface by which the packet came, at the node of its arrival; "" for all other nodes.
	Received string
	// Sent is the interface by which the packet left, at the node that sent it; "" for all other nodes.
	Sent string
	// Dropped: the packet ended here.
	Dropped bool
	// Left is the header that the packet left with. The nodes of NAT44 on one arc act together: all have the header after the last.
	Left Header
}

// String is "node: text".
func (h Hop) String() string { return h.Node + ": " + h.Text }

// Receive records the interface by which the packet came. h may be nil, as for the methods below: the packet's hops are not recorded.
func (h *Hop) Receive(by string) {
	if h != nil {
		h.Received = by
	}
}

// Send records the interface by which the packet left.
func (h *Hop) Send(by string) {
	if h != nil {
		h.Sent = by
	}
}

// End records that the packet ended here.
func (h *Hop) End() {
	if h != nil {
		h.Dropped = true
	}
}

// Follow records the route that a lookup found, and its type.
func (h *Hop) Follow(r Route, kind string) {
	if h != nil {
		r.Type = kind
		h.Route = &r
	}
}

// Header is the part of a packet's header that translations change, and its TTL.
type Header struct {
	Src, Dst         netip.Addr
	Proto            model.Protocol
	SrcPort, DstPort uint16 // TCP, UDP, SCTP
	ICMPID           uint16 // echo request and reply
	TTL              uint8
}

// HeaderOf returns the header of a packet.
func HeaderOf(p *packet.Packet) Header {
	return Header{p.Src, p.Dst, p.Proto, p.SrcPort, p.DstPort, p.ICMPID, p.Life()}
}

// ACLMatch is the result of an interface's ACL node for a packet. Interface, Output, Place and Rule identify a rule by its place,
// all counted from 0.
type ACLMatch struct {
	Interface string
	Output    bool // the output list; else the input list
	Place     int  // of the ACL in the list; -1: no rule matched
	Tag       string
	Rule      int // in the ACL; -1: no rule matched
	// Session: the packet belongs to an established flow. The rule is the one that permitted the flow's first packet, possibly in
	// the interface's other list (the hop's node shows where the packet is), with its place at that time.
	Session bool
	Permit  bool // the packet continues
}

// ClassifyMatch is the result of an interface's classifier for a packet.
type ClassifyMatch struct {
	Interface string
	Output    bool
	Place     int  // of the table in the chain, from 0
	Hit       bool // a session matched
	Opaque    uint32
	Permit    bool          // the packet continues
	Packet    packet.Packet // at that time
}

// Route is the route and the path of it that a lookup chose.
type Route struct {
	Prefix    netip.Prefix
	Via       netip.Addr // the next hop; not valid: none
	Interface string     // "": none, as for packets that VPP answers or drops
	Type      string     // forward, local, drop, unreachable or prohibited
}
