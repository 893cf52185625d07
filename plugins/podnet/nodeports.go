package podnet

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	linuxl3 "github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
)

// Front is the first part of the names of the owners of NewFront's values.
const Front = "podnet-front"

// NewFront returns a renderer of the kernel's part of Services: which packets for the node's addresses and for external addresses it hands over to
// VPP, where the other renderers serve them. All else that arrives at the NIC stays the kernel's.
func NewFront(sink renderer.Sink) renderer.ServiceRendererAPI {
	return adapter.New(adapter.Functions{
		Name: Front,
		Service: func(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses) (kv.Values, []model.Note) {
			return frontOf(svc, node, nodeIPs), nil
		},
		Node: func(node renderer.NodeState, _ *renderer.IPAddresses, _, _ renderer.Interfaces) (kv.Values, []model.Note) {
			return nodePorts(node), nil
		},
		NodeMatters: func(old, now renderer.NodeState) bool { return !slices.Equal(old.PodCIDRs, now.PodCIDRs) },
		Concerns:    func(*renderer.ContivService) bool { return true },
	}, sink)
}

// Addresses that stand in for those of the node, in order: within the kernel only, so they are the same on every node.
var (
	standIns4 = netip.MustParsePrefix("169.254.1.128/25")
	standIns6 = netip.MustParsePrefix("fd69:254:1::80/121")
)

// Addresses that stand in for the node's host address in packets of the node's processes that VPP sends to the kernel again: to an endpoint on the node's network,
// or outside of the cluster.
var return4, return6 = netip.MustParseAddr("169.254.1.10"), netip.MustParseAddr("fd69:254:1::a")

func returnOf(v6 bool) netip.Addr {
	if v6 {
		return return6
	}
	return return4
}

// nodePorts are the addresses with node ports, each with a stand-in that the kernel routes to VPP.
func nodePorts(node renderer.NodeState) kv.Values {
	values := kv.Values{}
	ports := &contivlinux.NodePorts{Interface: hostLink}
	next := map[bool]netip.Addr{false: standIns4.Addr(), true: standIns6.Addr()}
	seen := map[netip.Addr]bool{}
	for _, a := range node.IPs {
		host, standIn := hostAddr(&model.Node{PodCIDRs: node.PodCIDRs}, a.Is6()), next[a.Is6()]
		if seen[a] || !node.ServesNodePorts(a) || !host.IsValid() || !standIns4.Contains(standIn) && !standIns6.Contains(standIn) {
			continue
		}
		seen[a], next[a.Is6()] = true, standIn.Next()
		ports.Addresses = append(ports.Addresses, &contivlinux.NodePorts_Address{NodeAddress: a.String(), StandIn: standIn.String(), HostAddress: host.String()})
		values.Put(toVPP(standIn))
	}
	for _, v6 := range []bool{false, true} {
		if host, standIn := hostAddr(&model.Node{PodCIDRs: node.PodCIDRs}, v6), returnOf(v6); host.IsValid() {
			ports.Returns = append(ports.Returns, &contivlinux.NodePorts_Return{HostAddress: host.String(), StandIn: standIn.String()})
			values.Put(toVPP(standIn))
		}
	}
	values.Put(ports)
	return values
}

// toVPP is a route of the kernel that leads one address to VPP.
func toVPP(a netip.Addr) *linuxl3.Route {
	return &linuxl3.Route{OutgoingInterface: hostLink, DstNetwork: single(a), GwAddr: gatewayOf(a).String()}
}

// frontOf are the node ports of a Service that have endpoints, and routes to its external addresses. A node port without endpoints stays the
// node's, which refuses connections unless a process has the port.
func frontOf(svc *renderer.ContivService, node renderer.NodeState, nodeIPs *renderer.IPAddresses) kv.Values {
	values := kv.Values{}
	for _, name := range svc.PortNames() {
		port := svc.Ports[name]
		protocol, known := protocols[port.Protocol]
		if _, taken := svc.ConflictWith(renderer.Frontend{Port: port.NodePort, Protocol: port.Protocol}, true); port.NodePort == 0 || taken || !known {
			continue
		}
		p := &contivlinux.NodePort{Protocol: protocol, Port: uint32(port.NodePort), Ipv4: clientsOf(svc, name, false), Ipv6: clientsOf(svc, name, true)}
		if p.Ipv4 != contivlinux.NodePort_NOBODY || p.Ipv6 != contivlinux.NodePort_NOBODY {
			values.Put(p)
		}
	}
	for _, a := range svc.ExternalIPs.Addrs() {
		if !nodeIPs.Contains(a) && !svc.PodIPs.Contains(a) && hostAddr(&model.Node{PodCIDRs: node.PodCIDRs}, a.Is6()).IsValid() {
			values.Put(toVPP(a))
		}
	}
	return values
}

var protocols = map[renderer.ProtocolType]contivlinux.NodePort_Protocol{
	renderer.TCP: contivlinux.NodePort_TCP, renderer.UDP: contivlinux.NodePort_UDP, renderer.SCTP: contivlinux.NodePort_SCTP,
}

// clientsOf are the clients of a node port in a family: with external policy Local and no endpoint here, the node's own processes and pods only, as
// kube-proxy has it.
func clientsOf(svc *renderer.ContivService, port string, v6 bool) contivlinux.NodePort_Clients {
	in := func(list []*renderer.ServiceBackend) bool {
		return slices.ContainsFunc(list, func(b *renderer.ServiceBackend) bool { return b.Addr().IsValid() && b.Addr().Is6() == v6 })
	}
	switch {
	case !in(svc.Backends[port]):
		return contivlinux.NodePort_NOBODY
	case svc.TrafficPolicy == renderer.NodeLocal && !in(svc.Local(port)):
		return contivlinux.NodePort_NODE
	}
	return contivlinux.NodePort_ALL
}

// RefusalOf returns the kernel, at the other end of the underlay. It refuses all packets from there that are no tunnel's. Without tunnels VPP has no
// underlay, and refuses packets itself.
func RefusalOf(n *Network) renderer.Refusal {
	if n.cfg.refuse() == "" {
		return renderer.Refusal{}
	}
	return renderer.Refusal{Interface: underlay, IPv4: tunnelHost4.Addr(), IPv6: tunnelHost6.Addr()}
}

// refuse is the kernel's link with packets that it refuses; "": there is none.
func (s *Settings) refuse() string {
	if s.Direct.On() {
		return ""
	}
	return vxlanLink
}
