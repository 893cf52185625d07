package acl

import (
	"maps"
	"net/netip"
	"slices"
)

// View says what VPP's input hook sees of a packet to a service.
type View uint8

// The views.
const (
	// PreDNAT is nat44's: the input hook sees the service's address. Egress of such packets is judged where they leave.
	PreDNAT View = iota
	// PostDNAT is cnat's, or that of no translation at all: the input hook sees the endpoint.
	PostDNAT
)

// String is "pre-dnat" or "post-dnat".
func (v View) String() string {
	if v == PostDNAT {
		return "post-dnat"
	}
	return "pre-dnat"
}

// Node is what the renderer has to know beside the messages. It is given complete each time; the renderer keeps it, so it must
// not be changed afterwards.
type Node struct {
	View4, View6 View // of IPv4 and IPv6

	// Interfaces are those of local pods by address. One without an endpoint message is isolated.
	Interfaces map[netip.Addr]string

	// Isolated are further interfaces that nothing may pass through yet: those of pods without an address; sorted.
	Isolated []string

	Uplink  string // interface to the outside; "" unknown
	Overlay string // interface to the other nodes' pods; "" if that is the uplink
	Host    string // interface to the node's own network stack; "" if there is none

	// Addrs are the node's own addresses: what comes from them may always reach pods of this node (probes).
	Addrs []netip.Addr
	// Hairpin are addresses that stand in for clients whose address a service cannot keep: for a pod that reaches itself, which
	// is let in, and for whoever dials an Outer that hides him.
	Hairpin []netip.Addr
	// Frontends are destinations that may still be translated where the view is PreDNAT, to backends that see the client's
	// address. Those that are Addrs, or addresses of other nodes that the caller leaves out, are judged as they are dialled.
	Frontends []netip.Prefix
	// Outer are the ports of services at other addresses, sorted. Such an address is judged as it is dialled at all others.
	Outer []Outer

	// ByteMatch6 says that VPP compares IPv6 prefixes by whole bytes only (before 25.06): all others are written out.
	ByteMatch6 bool
}

// trusted are the protocols whose source address is the sender's; 0 is any. nat44 gives packets of protocols it does not
// translate the node's address (24.06, nat44-ed-in2out-slowpath).
func (n *Node) trusted(f family) []uint8 {
	if n.view(f) == PreDNAT {
		return []uint8{protoTCP, protoUDP, f.icmp()}
	}
	return []uint8{0}
}

func (n *Node) view(f family) View {
	if f == v4 {
		return n.View4
	}
	return n.View6
}

// equal compares all but Outer.
func (n *Node) equal(o *Node) bool {
	return n.View4 == o.View4 && n.View6 == o.View6 && maps.Equal(n.Interfaces, o.Interfaces) &&
		slices.Equal(n.Isolated, o.Isolated) && n.Uplink == o.Uplink &&
		n.Overlay == o.Overlay && n.Host == o.Host && slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.Hairpin, o.Hairpin) &&
		slices.Equal(n.Frontends, o.Frontends) && n.ByteMatch6 == o.ByteMatch6
}
