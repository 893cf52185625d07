package dataplane

import (
	"maps"
	"net/netip"
	"slices"
)

// View says which destination VPP's input hook sees in a packet to a Service.
type View uint8

// The views.
const (
	// PreDNAT is nat44's view: the input hook sees the Service's address. Egress rules are evaluated where such packets
	// leave.
	PreDNAT View = iota
	// PostDNAT is the view with cnat or without translation: the input hook sees the endpoint.
	PostDNAT
)

// String is "pre-dnat" or "post-dnat".
func (v View) String() string {
	if v == PostDNAT {
		return "post-dnat"
	}
	return "pre-dnat"
}

// Node is what a driver knows about its node beside Felix's messages. Each update holds the complete Node.
type Node struct {
	View4, View6 View // for IPv4 and IPv6

	// Interfaces are the interfaces of local pods by pod address, as far as they were found. An interface without an
	// endpoint message is isolated.
	Interfaces map[netip.Addr]string

	// Isolated are further interfaces that let nothing pass, sorted: policies apply to their pods, and the pods have no
	// address yet.
	Isolated []string

	Uplink  string // interface that leads out of the node; "" unknown
	Overlay string // interface that leads to other nodes' pods; "" if the uplink does
	Host    string // interface of the host link, to the node's own network stack; "" if the node has none

	// Near are the ranges of this node's pods. Far are the ranges of other nodes' pods, which Overlay leads to. Both
	// are sorted. Every other address that is not the node's counts as outside where host endpoints' policies are
	// evaluated on packets that leave.
	Near, Far []netip.Prefix

	// Own are the addresses of this node's pods, as ranges where no other node has a pod in the range; sorted. No packet
	// that comes in by Uplink or Overlay has one as its source, unless it is forged.
	Own []netip.Prefix

	// Addrs are the node's own addresses, sorted. In the view PreDNAT, NAT also gives these addresses to other senders
	// as their source. So a packet from one of Addrs reaches no pod with policies, unless the address is one of
	// HostAddrs, too. In the view PostDNAT Addrs are treated like HostAddrs.
	Addrs []netip.Addr
	// HostAddrs are the addresses from which only the node's own processes send to pods of this node, sorted. Packets
	// from them may always reach these pods (probes).
	HostAddrs []netip.Addr
	// Peers are the addresses of other nodes whose NAT also gives them to other senders (view PreDNAT), sorted. A rule that
	// allows some sources does not allow these: who sends from one is unknown. A rule that allows all sources does.
	Peers []netip.Addr
	// Hairpin are the addresses that replace the client's address where a Service cannot keep it: for a pod that
	// reaches itself, which is let in, and for every client of an Outer that has Hides set.
	Hairpin []netip.Addr
	// Frontends are destinations that VPP may still translate in the view PreDNAT, to backends that see the client's
	// address: cluster IPs, sorted. Addresses that are also in Addrs, and addresses of other nodes that the caller
	// leaves out, are evaluated as dialled.
	Frontends []netip.Prefix
	// Outer are the ports of Services at other addresses, sorted. At all other ports such an address is evaluated as
	// dialled.
	Outer []Outer

	// Served are the ports that local pods are known to serve, sorted: of TCP only ports from LowestClientPort on, of
	// UDP all.
	Served []Served

	// ByteMatch6 says that VPP compares IPv6 prefixes by whole bytes only (before 25.06). Other lengths are then
	// written as several rules.
	ByteMatch6 bool
}

// Equal compares all fields.
func (n *Node) Equal(o *Node) bool {
	return n.EqualButPorts(o) && SameOuter(n.Outer, o.Outer) && slices.Equal(n.Served, o.Served)
}

// EqualButPorts compares all fields but Outer and Served.
func (n *Node) EqualButPorts(o *Node) bool {
	return n.View4 == o.View4 && n.View6 == o.View6 && maps.Equal(n.Interfaces, o.Interfaces) &&
		slices.Equal(n.Isolated, o.Isolated) && n.Uplink == o.Uplink &&
		n.Overlay == o.Overlay && n.Host == o.Host && slices.Equal(n.Near, o.Near) && slices.Equal(n.Far, o.Far) && slices.Equal(n.Own, o.Own) && slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.HostAddrs, o.HostAddrs) && slices.Equal(n.Hairpin, o.Hairpin) && slices.Equal(n.Peers, o.Peers) &&
		slices.Equal(n.Frontends, o.Frontends) && n.ByteMatch6 == o.ByteMatch6
}

// Fronts returns the IPv4 addresses of Services and of nodes behind which nat44 may hide a pod, in the view PreDNAT; both sorted, no address in
// both lists. A packet of a protocol that nat44 does not translate, SCTP for one, gets such an address as its source. A packet that the
// receiver then sends to that address reaches the pod.
func (n *Node) Fronts() (services, nodes []netip.Prefix) {
	if n.View4 != PreDNAT {
		return nil, nil
	}
	hides := map[netip.Addr]bool{}
	for _, a := range slices.Concat(n.Addrs, n.Peers) {
		if a.Is4() && !hides[a] {
			hides[a] = true
			nodes = append(nodes, netip.PrefixFrom(a, 32))
		}
	}
	for _, p := range n.Frontends {
		if p = p.Masked(); p.Addr().Is4() && !(p.IsSingleIP() && hides[p.Addr()]) {
			services = append(services, p)
		}
	}
	ranges := len(services)
	for i := range n.Outer {
		a := n.Outer[i].Addr
		if a.Is4() && !hides[a] && !slices.ContainsFunc(services[:ranges], func(p netip.Prefix) bool { return p.Contains(a) }) {
			hides[a] = true
			services = append(services, netip.PrefixFrom(a, 32))
		}
	}
	slices.SortFunc(services, netip.Prefix.Compare)
	slices.SortFunc(nodes, netip.Prefix.Compare)
	return slices.Compact(services), nodes
}

// LowestClientPort is the first port that Linux gives to clients which ask for no port (net.ipv4.ip_local_port_range).
// Lower ports, and the ports in Served, count as ports of servers.
const LowestClientPort = 32768

// Served is a range of ports that a pod serves.
type Served struct {
	Addr        netip.Addr
	Proto       uint8  // TCP or UDP, as a number
	First, Last uint16 // inclusive
}

// Outer is a port of a Service at an address that is no cluster IP: an external IP, or an address of a node.
type Outer struct {
	Addr     netip.Addr
	Proto    uint8 // TCP or UDP, as a number
	Port     uint16
	Hides    bool             // every client gets a Hairpin address as source, whichever backend it reaches
	Backends []netip.AddrPort // at least one
}

// Equal compares all fields.
func (o *Outer) Equal(p *Outer) bool {
	return o.Addr == p.Addr && o.Proto == p.Proto && o.Port == p.Port && o.Hides == p.Hides && slices.Equal(o.Backends, p.Backends)
}

// SameOuter compares two lists. It costs nothing for two references to the same list.
func SameOuter(a, b []Outer) bool {
	if len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] {
		return true
	}
	return slices.EqualFunc(a, b, func(x, y Outer) bool { return x.Equal(&y) })
}
