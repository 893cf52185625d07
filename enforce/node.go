package enforce

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

// Node is what a driver has to know about the node beside Felix's messages. It is given complete each time.
type Node struct {
	View4, View6 View // of IPv4 and IPv6

	// Interfaces are those of local pods by address, as far as they were found. One without an endpoint message is isolated.
	Interfaces map[netip.Addr]string

	// Isolated are further interfaces that nothing may pass through yet: their pods have no address, and policies apply to
	// them; sorted.
	Isolated []string

	Uplink  string // interface to the outside; "" unknown
	Overlay string // interface to the other nodes' pods; "" if that is the uplink
	Host    string // interface to the node's own network stack; "" if there is none

	// Near are ranges of this node's pods, Far those of other nodes' pods, which are behind Overlay; sorted. Whatever else is not the
	// node's own counts as outside where host endpoints judge what leaves.
	Near, Far []netip.Prefix

	// Addrs are the node's own addresses, sorted. Where the view is PreDNAT they are also those that NAT gives to others: nothing that
	// comes from them reaches a pod with policies, unless they are HostAddrs, too. Where the view is PostDNAT they are as HostAddrs.
	Addrs []netip.Addr
	// HostAddrs are the addresses that the node's own processes, and nobody else, send from to pods of this node, sorted: what comes
	// from them may always reach these pods (probes).
	HostAddrs []netip.Addr
	// Hairpin are addresses that stand in for clients whose address a service cannot keep: for a pod that reaches itself, which
	// is let in, and for whoever dials an Outer that hides him.
	Hairpin []netip.Addr
	// Frontends are destinations that may still be translated where the view is PreDNAT, to backends that see the client's
	// address, sorted: cluster IPs. Those that are Addrs, or addresses of other nodes that the caller leaves out, are judged as
	// they are dialled.
	Frontends []netip.Prefix
	// Outer are the ports of services at other addresses, sorted. Such an address is judged as it is dialled at all others.
	Outer []Outer

	// Served are the ports that local pods are known to serve, sorted: of TCP those from LowestClientPort on, of UDP all.
	Served []Served

	// ByteMatch6 says that VPP compares IPv6 prefixes by whole bytes only (before 25.06): all others are written out.
	ByteMatch6 bool
}

// Equal compares all there is.
func (n *Node) Equal(o *Node) bool {
	return n.EqualButPorts(o) && SameOuter(n.Outer, o.Outer) && slices.Equal(n.Served, o.Served)
}

// EqualButPorts compares all but Outer and Served.
func (n *Node) EqualButPorts(o *Node) bool {
	return n.View4 == o.View4 && n.View6 == o.View6 && maps.Equal(n.Interfaces, o.Interfaces) &&
		slices.Equal(n.Isolated, o.Isolated) && n.Uplink == o.Uplink &&
		n.Overlay == o.Overlay && n.Host == o.Host && slices.Equal(n.Near, o.Near) && slices.Equal(n.Far, o.Far) && slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.HostAddrs, o.HostAddrs) && slices.Equal(n.Hairpin, o.Hairpin) &&
		slices.Equal(n.Frontends, o.Frontends) && n.ByteMatch6 == o.ByteMatch6
}

// LowestClientPort is the first port that Linux gives to clients which ask for none (net.ipv4.ip_local_port_range): ports below are
// taken for servers', and so are those in Served.
const LowestClientPort = 32768

// Served is a range of ports that a pod serves.
type Served struct {
	Addr        netip.Addr
	Proto       uint8  // TCP or UDP, as a number
	First, Last uint16 // inclusive
}

// Outer is a port of a service at an address that is no cluster IP: an external one, or a node's.
type Outer struct {
	Addr     netip.Addr
	Proto    uint8 // TCP or UDP, as a number
	Port     uint16
	Hides    bool             // whoever dials it gets a Hairpin address as source, whichever backend it is led to
	Backends []netip.AddrPort // at least one
}

// Equal compares all there is.
func (o *Outer) Equal(p *Outer) bool {
	return o.Addr == p.Addr && o.Proto == p.Proto && o.Port == p.Port && o.Hides == p.Hides && slices.Equal(o.Backends, p.Backends)
}

// SameOuter compares two lists; one that was told again as it is costs nothing.
func SameOuter(a, b []Outer) bool {
	if len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] {
		return true
	}
	return slices.EqualFunc(a, b, func(x, y Outer) bool { return x.Equal(&y) })
}
