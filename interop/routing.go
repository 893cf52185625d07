package interop

import (
	"net/netip"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	nodes "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/encap"
	v1 "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
)

// Pool changes a pool; nil takes it away. Felix names it by its prefix.
func Pool(cidr netip.Prefix, p *model.Pool) Change {
	key := v1.IPPoolKey{CIDR: ipNet(cidr)}
	id := strings.ReplaceAll(cidr.String(), "/", "-")
	ours := func(g *calc.Graph) { g.SetPool(id, p) }
	if p == nil {
		return change("no pool "+id, ours, put(key, nil))
	}
	return change("pool "+id, ours, put(key, &v1.IPPool{
		CIDR: key.CIDR, Masquerade: p.Masquerade, IPIPMode: encap.Mode(p.IPIPMode), VXLANMode: encap.Mode(p.VXLANMode),
	}))
}

// Block changes a block; nil takes it away.
func Block(cidr netip.Prefix, b *model.Block) Change {
	key := v1.BlockKey{CIDR: ipNet(cidr)}
	ours := func(g *calc.Graph) { g.SetBlock(cidr, b) }
	if b == nil {
		return change("no block "+cidr.String(), ours, put(key, nil))
	}
	value := &v1.AllocationBlock{CIDR: key.CIDR, Allocations: make([]*int, 1<<(cidr.Addr().BitLen()-cidr.Bits()))}
	if b.Node != "" {
		affinity := "host:" + b.Node
		value.Affinity = &affinity
	}
	for i, borrowed := range b.Borrowed {
		place := 0
		for a := cidr.Addr(); a != borrowed.Addr; a = a.Next() {
			place++
		}
		value.Allocations[place] = &i
		value.Attributes = append(value.Attributes, v1.AllocationAttribute{
			AttrSecondary: map[string]string{"node": borrowed.Node},
		})
	}
	return change("block "+cidr.String(), ours, put(key, value))
}

// HostIP changes the IPv4 address of a node; the zero Addr takes it away.
func HostIP(node string, a netip.Addr) Change {
	key := v1.HostIPKey{Hostname: node}
	ours := func(g *calc.Graph) { g.SetHostIP(node, a) }
	if !a.IsValid() {
		return change("no address of "+node, ours, put(key, nil))
	}
	return change("address of "+node, ours, put(key, ipPointer(a)))
}

// Host changes a node; nil takes it away.
func Host(node string, h *model.Host) Change {
	key := v1.ResourceKey{Kind: nodes.KindNode, Name: node}
	ours := func(g *calc.Graph) { g.SetHost(node, h) }
	if h == nil {
		return change("no node "+node, ours, put(key, nil))
	}
	value := nodes.NewNode()
	value.Name, value.Labels = node, h.Labels
	value.Spec.BGP = &nodes.NodeBGPSpec{
		IPv4Address: text(h.Net4), IPv6Address: text(h.Net6), IPv4IPIPTunnelAddr: addrText(h.IPIP),
	}
	if h.ASNumber != "" {
		number, err := numorstring.ASNumberFromString(h.ASNumber)
		if err != nil {
			panic(err)
		}
		value.Spec.BGP.ASNumber = &number
	}
	value.Spec.IPv4VXLANTunnelAddr, value.Spec.IPv6VXLANTunnelAddr = addrText(h.VXLAN4), addrText(h.VXLAN6)
	value.Spec.Wireguard = &nodes.NodeWireguardSpec{
		InterfaceIPv4Address: addrText(h.Wireguard4), InterfaceIPv6Address: addrText(h.Wireguard6),
	}
	return change("node "+node, ours, put(key, value))
}

func text(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// Wireguard changes a node's WireGuard keys; nil takes them away.
func Wireguard(node string, w *model.Wireguard) Change {
	key := v1.WireguardKey{NodeName: node}
	ours := func(g *calc.Graph) { g.SetWireguard(node, w) }
	if w == nil {
		return change("no wireguard of "+node, ours, put(key, nil))
	}
	return change("wireguard of "+node, ours, put(key, &v1.Wireguard{
		PublicKey: w.PublicKey, PublicKeyV6: w.PublicKeyV6,
		InterfaceIPv4Addr: ipPointer(w.IPv4), InterfaceIPv6Addr: ipPointer(w.IPv6),
	}))
}

// Config changes a parameter, of one node or (node "") of all; "" takes it away.
func Config(node, name, value string) Change {
	var key v1.Key = v1.HostConfigKey{Hostname: node, Name: name}
	ours := func(g *calc.Graph) { g.SetHostConfig(node, name, value) }
	if node == "" {
		key = v1.GlobalConfigKey{Name: name}
		ours = func(g *calc.Graph) { g.SetConfig(name, value) }
	}
	if value == "" {
		return change("no parameter "+node+"/"+name, ours, put(key, nil))
	}
	return change("parameter "+node+"/"+name, ours, put(key, value))
}

// Slice changes an EndpointSlice; nil takes it away.
func Slice(id model.SliceID, s *model.EndpointSlice) Change {
	key := v1.ResourceKey{Kind: v1.KindKubernetesEndpointSlice, Name: id.Name, Namespace: id.Namespace}
	ours := func(g *calc.Graph) { g.SetSlice(id, s) }
	if s == nil {
		return change("no slice "+id.String(), ours, put(key, nil))
	}
	value := &discovery.EndpointSlice{}
	value.Name, value.Namespace = id.Name, id.Namespace
	value.Labels = map[string]string{discovery.LabelServiceName: s.Service.Name}
	for _, p := range s.Ports {
		name, port, proto := p.Name, int32(p.Port), core.Protocol(p.Protocol.String())
		value.Ports = append(value.Ports, discovery.EndpointPort{Name: &name, Port: &port, Protocol: &proto})
	}
	value.AddressType = discovery.AddressTypeIPv4
	for _, e := range s.Endpoints {
		if e.Addr.Is6() {
			value.AddressType = discovery.AddressTypeIPv6
		}
		value.Endpoints = append(value.Endpoints, discovery.Endpoint{Addresses: []string{e.Addr.String()}})
	}
	return change("slice "+id.String(), ours, put(key, value))
}

// Service changes a Service; nil takes it away.
func Service(id model.ServiceID, s *model.Service) Change {
	key := v1.ResourceKey{Kind: v1.KindKubernetesService, Name: id.Name, Namespace: id.Namespace}
	ours := func(g *calc.Graph) { g.SetService(id, s) }
	if s == nil {
		return change("no service "+id.String(), ours, put(key, nil))
	}
	value := &core.Service{}
	value.Name, value.Namespace = id.Name, id.Namespace
	value.Spec.Type = []core.ServiceType{
		core.ServiceTypeClusterIP, core.ServiceTypeNodePort, core.ServiceTypeLoadBalancer, core.ServiceTypeExternalName,
	}[s.Type]
	if s.Type == model.ExternalName {
		value.Spec.ExternalName = "elsewhere.example"
	}
	for _, a := range s.ClusterIPs {
		value.Spec.ClusterIPs = append(value.Spec.ClusterIPs, a.String())
	}
	if s.Headless {
		value.Spec.ClusterIPs = []string{core.ClusterIPNone}
	}
	for _, a := range s.ExternalIPs {
		value.Spec.ExternalIPs = append(value.Spec.ExternalIPs, a.String())
	}
	for _, a := range s.LoadBalancerIPs[:min(1, len(s.LoadBalancerIPs))] {
		value.Spec.LoadBalancerIP = a.Addr.String() // Felix knows but this one
		value.Status.LoadBalancer.Ingress = []core.LoadBalancerIngress{{IP: a.Addr.String()}}
	}
	for _, p := range s.Ports {
		value.Spec.Ports = append(value.Spec.Ports, core.ServicePort{
			Name: p.Name, Protocol: core.Protocol(p.Protocol.String()), Port: int32(p.Port), NodePort: int32(p.NodePort),
		})
	}
	return change("service "+id.String(), ours, put(key, value))
}

// BGPConfig changes the default BGP configuration; nil takes it away.
func BGPConfig(c *model.BGPConfig) Change {
	key := v1.ResourceKey{Kind: apiv3.KindBGPConfiguration, Name: "default"}
	ours := func(g *calc.Graph) { g.SetBGPConfig(c) }
	if c == nil {
		return change("no bgp configuration", ours, put(key, nil))
	}
	value := apiv3.NewBGPConfiguration()
	value.Name = "default"
	for _, p := range c.ServiceClusterIPs {
		value.Spec.ServiceClusterIPs = append(value.Spec.ServiceClusterIPs, apiv3.ServiceClusterIPBlock{CIDR: p.String()})
	}
	for _, p := range c.ServiceExternalIPs {
		value.Spec.ServiceExternalIPs = append(value.Spec.ServiceExternalIPs, apiv3.ServiceExternalIPBlock{CIDR: p.String()})
	}
	for _, p := range c.ServiceLoadBalancerIPs {
		value.Spec.ServiceLoadBalancerIPs = append(value.Spec.ServiceLoadBalancerIPs, apiv3.ServiceLoadBalancerIPBlock{CIDR: p.String()})
	}
	value.Spec.LocalWorkloadPeeringIPV4 = addrText(c.WorkloadPeering4)
	value.Spec.LocalWorkloadPeeringIPV6 = addrText(c.WorkloadPeering6)
	return change("bgp configuration", ours, put(key, value))
}
