package verify

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
)

// lowestClientPort is the first port that clients get from their kernel; lower ones are a server's (ADR 12).
const lowestClientPort = 32768

// udpLite is a protocol whose ports VPP does not compare.
const udpLite = 136

// Uncompared is the headers that no check compares: protocols about which more than access lists decides or whose ports VPP does not read, and what no
// packet has.
func Uncompared(s *space.Space) (set space.Set) {
	add := func(b space.Box, list ...uint16) {
		for _, p := range list {
			b.Protocols = space.One(p)
			set = s.Union(set, s.Box(b))
		}
	}
	add(space.All4(), 0, space.SCTP, udpLite, space.ICMPv6)
	add(space.All6(), 0, space.SCTP, udpLite, space.ICMP)
	for _, b := range []space.Box{space.All4(), space.All6()} { // types and codes of ICMP are bytes
		types, codes := b, b
		types.SrcPorts, codes.DstPorts = space.Span{First: 256, Last: 65535}, space.Span{First: 256, Last: 65535}
		add(types, space.ICMP, space.ICMPv6)
		add(codes, space.ICMP, space.ICMPv6)
	}
	return set
}

// readRegions finds the headers that checks leave out.
func (n *node) readRegions() {
	s := n.space
	n.blind = Uncompared(s)
	var hosts, services []netip.Prefix
	one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
	for _, node := range n.cluster.Nodes {
		for _, a := range node.Addrs() {
			hosts = append(hosts, one(a))
		}
		hosts = append(hosts, uplinkOf(node)...)
	}
	for _, a := range n.state.Pool {
		hosts = append(hosts, one(a))
	}
	for _, a := range n.cfg.HostAddresses {
		hosts = append(hosts, one(a))
	}
	hosts = append(hosts, netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"))
	for _, service := range n.cluster.Services {
		for _, a := range service.ClusterIPs {
			services = append(services, one(a))
		}
		for _, a := range service.ExternalIPs {
			services = append(services, one(a))
		}
		for _, a := range service.LoadBalancerIPs {
			services = append(services, one(a.Addr))
		}
	}
	services = append(append(services, n.cluster.Ranges...), n.cfg.Services.ServiceCIDRs...)
	n.fromSpecial = s.Union(s.Sources(hosts...), s.Sources(services...))
	n.toSpecial = s.Union(s.Destinations(hosts...), s.Destinations(services...))
	n.readServed()
}

// readServed finds the ports of UDP from which a pod may send as a server, although they are in the clients' range.
func (n *node) readServed() {
	add := func(protocol model.Protocol, port space.Span) {
		if protocol != model.UDP || port.Last < lowestClientPort {
			return
		}
		for _, b := range []space.Box{space.All4(), space.All6()} {
			b.Protocols, b.SrcPorts = space.One(space.UDP), port
			n.udpServed = n.space.Union(n.udpServed, n.space.Box(b))
		}
	}
	for _, p := range n.cluster.Pods {
		for _, port := range p.ContainerPorts {
			add(port.Protocol, space.One(port.Port))
		}
	}
	for _, slice := range n.cluster.Slices {
		for _, port := range slice.Ports {
			add(port.Protocol, space.One(port.Port))
		}
	}
	for _, q := range n.cluster.Policies {
		for i := range q.InboundRules {
			for _, m := range q.InboundRules[i].Destination.Ports {
				add(model.UDP, space.Span{First: m.First, Last: m.Last})
			}
		}
	}
}

// uplinkOf is the addresses that a node's VPP has at its interface to other nodes.
func uplinkOf(node *model.Node) (list []netip.Prefix) {
	for text := range splitComma(node.Uplink) {
		if p, err := netip.ParsePrefix(text); err == nil {
			list = append(list, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	return list
}

// alwaysPasses is the headers that pass whatever the policies are: ICMP errors, and neighbour discovery. A pod may ask for routers, and receive
// their answers.
func (n *node) alwaysPasses(egress bool) (set space.Set) {
	add := func(b space.Box, protocol uint16, types ...uint16) {
		b.Protocols = space.One(protocol)
		for _, t := range types {
			b.SrcPorts = space.One(t)
			set = n.space.Union(set, n.space.Box(b))
		}
	}
	add(space.All4(), space.ICMP, 3, 11, 12)
	add(space.All6(), space.ICMPv6, 1, 2, 3, 4, 135, 136)
	if egress {
		add(space.All6(), space.ICMPv6, 133)
	} else {
		add(space.All6(), space.ICMPv6, 134)
	}
	return set
}

// discovery is the neighbour discovery that a pod sends from link-local addresses, and from the unspecified one.
func (n *node) discovery() (set space.Set) {
	b := space.All6()
	b.Protocols = space.One(space.ICMPv6)
	for _, from := range []string{"fe80::/10", "::/128"} {
		b.Src = netip.MustParsePrefix(from)
		set = n.space.Union(set, n.space.Box(b))
	}
	return set
}

// translated is the headers that nat44 may make of packets to a Service.
func (n *node) translated() space.Set {
	tcp, udp := space.All4(), space.All4()
	tcp.Protocols, udp.Protocols = space.One(space.TCP), space.One(space.UDP)
	return n.space.Union(n.space.Box(tcp), n.space.Box(udp))
}

// begins is the headers that begin a flow of TCP, or of UDP between a client's port and a server's.
func (n *node) begins(egress bool) (set space.Set) {
	for _, b := range []space.Box{space.All4(), space.All6()} {
		tcp, udp := b, b
		tcp.Protocols, tcp.FlagMask, tcp.FlagBits = space.One(space.TCP), space.SYN|space.ACK, space.SYN
		udp.Protocols, udp.SrcPorts, udp.DstPorts = space.One(space.UDP), space.Span{First: lowestClientPort, Last: 65535}, space.Span{Last: lowestClientPort - 1}
		set = n.space.Union(set, n.space.Box(tcp), n.space.Box(udp))
	}
	if egress {
		return n.space.Minus(set, n.udpServed)
	}
	return set
}
