package datastore

import (
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

func (r *reader) pool(data []byte) *model.Pool {
	var v IPPool
	r.unmarshal(data, &v)
	return &model.Pool{ // Felix does not compare this range with the key's either
		ID: dashed(r.key.CIDR), CIDR: r.network("cidr", v.CIDR).Masked(), Masquerade: v.Masquerade,
		IPIPMode: r.mode("ipip_mode", v.IPIPMode), VXLANMode: r.mode("vxlan_mode", v.VXLANMode),
	}
}

// mode reads when a pool's packets are encapsulated.
func (r *reader) mode(field, text string) string {
	switch text = strings.ToLower(text); text {
	case "", "always", "cross-subnet":
		return text
	case "never":
		return ""
	case "crosssubnet":
		return "cross-subnet"
	}
	r.failField(field, "%.100q must be always, cross-subnet or empty", text)
	return ""
}

func (r *reader) block(data []byte) *model.Block {
	var v AllocationBlock
	r.unmarshal(data, &v)
	b := &model.Block{CIDR: r.network("cidr", v.CIDR).Masked()}
	if b.CIDR != r.key.CIDR {
		r.failField("cidr", "%s differs from the range in the key", v.CIDR)
		return nil
	}
	if v.Affinity != nil {
		kind, node, ok := strings.Cut(*v.Affinity, ":")
		if ok && (kind == "host" || kind == "virtual") {
			b.Node = node
		}
	}
	addr := b.CIDR.Addr()
	for i, attr := range v.Allocations {
		if !b.CIDR.Contains(addr) {
			r.failField("allocations", "more entries than the block has addresses")
			return nil
		}
		if attr != nil {
			if *attr < 0 || *attr >= len(v.Attributes) {
				r.failField(fieldAt("allocations", i), "attribute %d does not exist", *attr)
				return nil
			}
			if node := v.Attributes[*attr].Secondary["node"]; node != "" && node != b.Node {
				b.Borrowed = append(b.Borrowed, model.BorrowedAddr{Addr: addr, Node: node})
			}
		}
		addr = addr.Next()
	}
	return b
}

func (r *reader) wireguard(data []byte) *model.Wireguard {
	var v Wireguard
	r.unmarshal(data, &v)
	return &model.Wireguard{
		PublicKey: v.PublicKey, PublicKeyV6: v.PublicKeyV6,
		IPv4: r.optionalAddr("interfaceIPv4Addr", v.InterfaceIPv4Addr), IPv6: r.optionalAddr("interfaceIPv6Addr", v.InterfaceIPv6Addr),
	}
}

// nodeResource has the fields of Calico's Node that matter here.
type nodeResource struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		BGP struct {
			ASNumber           *ASNumber `json:"asNumber"`
			IPv4Address        string    `json:"ipv4Address"`
			IPv6Address        string    `json:"ipv6Address"`
			IPv4IPIPTunnelAddr string    `json:"ipv4IPIPTunnelAddr"`
		} `json:"bgp"`
		IPv4VXLANTunnelAddr string `json:"ipv4VXLANTunnelAddr"`
		IPv6VXLANTunnelAddr string `json:"ipv6VXLANTunnelAddr"`
		Wireguard           struct {
			IPv4 string `json:"interfaceIPv4Address"`
			IPv6 string `json:"interfaceIPv6Address"`
		} `json:"wireguard"`
		Addresses []nodeAddress `json:"addresses"`
	} `json:"spec"`
}

type nodeAddress struct {
	Address string `json:"address"`
	Type    string `json:"type"`
}

// addr returns the address without its mask; false: it is a name, which Felix also ignores.
func (a *nodeAddress) addr() (netip.Addr, bool) {
	p := (&reader{}).network("", a.Address)
	return p.Addr(), p.IsValid()
}

// firstAddr returns the first internal address of a family, else the first external one.
func firstAddr(list []nodeAddress, v4 bool) netip.Addr {
	for _, kind := range []string{"InternalIP", "ExternalIP"} {
		for i := range list {
			if a, ok := list[i].addr(); ok && list[i].Type == kind && a.Is4() == v4 {
				return a
			}
		}
	}
	return netip.Addr{}
}

func (r *reader) readNode(data []byte) *model.Host {
	var v nodeResource
	r.unmarshal(data, &v)
	s := &v.Spec
	h := &model.Host{
		Name: r.key.Name, Labels: v.Metadata.Labels,
		IPIP:       r.optionalAddr("spec.bgp.ipv4IPIPTunnelAddr", s.BGP.IPv4IPIPTunnelAddr),
		VXLAN4:     r.optionalAddr("spec.ipv4VXLANTunnelAddr", s.IPv4VXLANTunnelAddr),
		VXLAN6:     r.optionalAddr("spec.ipv6VXLANTunnelAddr", s.IPv6VXLANTunnelAddr),
		Wireguard4: r.optionalAddr("spec.wireguard.interfaceIPv4Address", s.Wireguard.IPv4),
		Wireguard6: r.optionalAddr("spec.wireguard.interfaceIPv6Address", s.Wireguard.IPv6),
	}
	h.IPv4, h.Net4 = r.addrAndNet("spec.bgp.ipv4Address", s.BGP.IPv4Address)
	h.IPv6, h.Net6 = r.addrAndNet("spec.bgp.ipv6Address", s.BGP.IPv6Address)
	if s.BGP.ASNumber != nil {
		h.ASNumber = strconv.FormatUint(uint64(*s.BGP.ASNumber), 10)
	}
	for i := range s.Addresses {
		if a, ok := s.Addresses[i].addr(); ok {
			h.Addrs = append(h.Addrs, a)
		}
	}
	if !h.IPv4.IsValid() && !h.IPv6.IsValid() { // no BGP addresses
		h.IPv4, h.IPv6 = firstAddr(s.Addresses, true), firstAddr(s.Addresses, false)
	}
	return h
}

func (r *reader) addrAndNet(field, text string) (netip.Addr, netip.Prefix) {
	if text == "" {
		return netip.Addr{}, netip.Prefix{}
	}
	p := r.network(field, text)
	if !strings.Contains(text, "/") {
		return p.Addr(), netip.Prefix{}
	}
	return p.Addr(), p
}

// profileResource reads the labels of Calico's Profile; its rules have a separate key.
func (r *reader) profileResource(data []byte) Labels {
	var v struct {
		Spec struct {
			LabelsToApply Labels `json:"labelsToApply"`
		} `json:"spec"`
	}
	r.unmarshal(data, &v)
	if v.Spec.LabelsToApply == nil {
		return Labels{}
	}
	return v.Spec.LabelsToApply
}

type cidrBlock struct {
	CIDR string `json:"cidr"`
}

func (r *reader) bgp(data []byte) *model.BGPConfig {
	var v struct {
		Spec struct {
			ServiceClusterIPs        []cidrBlock `json:"serviceClusterIPs"`
			ServiceExternalIPs       []cidrBlock `json:"serviceExternalIPs"`
			ServiceLoadBalancerIPs   []cidrBlock `json:"serviceLoadBalancerIPs"`
			LocalWorkloadPeeringIPV4 string      `json:"localWorkloadPeeringIPV4"`
			LocalWorkloadPeeringIPV6 string      `json:"localWorkloadPeeringIPV6"`
		} `json:"spec"`
	}
	r.unmarshal(data, &v)
	cidrs := func(field string, list []cidrBlock) (out []netip.Prefix) {
		for i, b := range list {
			out = append(out, r.network("spec."+fieldAt(field, i)+".cidr", b.CIDR).Masked())
		}
		return out
	}
	return &model.BGPConfig{
		ServiceClusterIPs:      cidrs("serviceClusterIPs", v.Spec.ServiceClusterIPs),
		ServiceExternalIPs:     cidrs("serviceExternalIPs", v.Spec.ServiceExternalIPs),
		ServiceLoadBalancerIPs: cidrs("serviceLoadBalancerIPs", v.Spec.ServiceLoadBalancerIPs),
		WorkloadPeering4:       r.optionalAddr("spec.localWorkloadPeeringIPV4", v.Spec.LocalWorkloadPeeringIPV4),
		WorkloadPeering6:       r.optionalAddr("spec.localWorkloadPeeringIPV6", v.Spec.LocalWorkloadPeeringIPV6),
	}
}

// slice reads a Kubernetes EndpointSlice under the key's name. A slice of host names has no value.
func (r *reader) slice(data []byte) any {
	o := &discoveryv1.EndpointSlice{}
	r.unmarshal(data, o)
	o.Namespace, o.Name = r.key.Namespace, r.key.Name
	if o.AddressType == "" { // an API server would refuse it; Felix does not check
		o.AddressType = discoveryv1.AddressTypeIPv4
		if len(o.Endpoints) > 0 && len(o.Endpoints[0].Addresses) > 0 && strings.Contains(o.Endpoints[0].Addresses[0], ":") {
			o.AddressType = discoveryv1.AddressTypeIPv6
		}
	}
	object, err := convert.Object(o)
	if s, ok := object.(*model.EndpointSlice); ok && err == nil {
		return s
	}
	if err != nil {
		r.failField("", "%s", err)
	}
	return nil
}

// service reads a Kubernetes Service under the key's name.
func (r *reader) service(data []byte) any {
	o := &corev1.Service{}
	r.unmarshal(data, o)
	o.Namespace, o.Name = r.key.Namespace, r.key.Name
	object, err := convert.Object(o)
	if s, ok := object.(*model.Service); ok && err == nil {
		return s
	}
	if err != nil {
		r.failField("", "%s", err)
	}
	return nil
}
