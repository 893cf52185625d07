package encode

import (
	"encoding/json"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/model"
)

// v3Node is projectcalico.org/v3 Node.
type v3Node struct {
	Kind       string       `json:"kind,omitempty"`
	APIVersion string       `json:"apiVersion,omitempty"`
	Metadata   meta         `json:"metadata"`
	Spec       v3NodeSpec   `json:"spec"`
	Status     v3NodeStatus `json:"status"`
}

type v3NodeSpec struct {
	BGP                  *v3NodeBGP        `json:"bgp,omitempty"`
	IPv4VXLANTunnelAddr  string            `json:"ipv4VXLANTunnelAddr,omitempty"`
	VXLANTunnelMACAddr   string            `json:"vxlanTunnelMACAddr,omitempty"`
	IPv6VXLANTunnelAddr  string            `json:"ipv6VXLANTunnelAddr,omitempty"`
	VXLANTunnelMACAddrV6 string            `json:"vxlanTunnelMACAddrV6,omitempty"`
	OrchRefs             []v3OrchRef       `json:"orchRefs,omitempty"`
	Wireguard            *v3NodeWireguard  `json:"wireguard,omitempty"`
	Addresses            []v3NodeAddress   `json:"addresses,omitempty"`
	Interfaces           []v3NodeInterface `json:"interfaces,omitempty"`
}

type v3NodeBGP struct {
	ASNumber                *uint32 `json:"asNumber,omitempty"`
	IPv4Address             string  `json:"ipv4Address,omitempty"`
	IPv6Address             string  `json:"ipv6Address,omitempty"`
	IPv4IPIPTunnelAddr      string  `json:"ipv4IPIPTunnelAddr,omitempty"`
	RouteReflectorClusterID string  `json:"routeReflectorClusterID,omitempty"`
}

type v3OrchRef struct {
	NodeName     string `json:"nodeName,omitempty"`
	Orchestrator string `json:"orchestrator"`
}

type v3NodeWireguard struct {
	InterfaceIPv4Address string `json:"interfaceIPv4Address,omitempty"`
	InterfaceIPv6Address string `json:"interfaceIPv6Address,omitempty"`
}

type v3NodeAddress struct {
	Address string `json:"address"`
	Type    string `json:"type,omitempty"` // CalicoNodeIP, InternalIP, ExternalIP
}

type v3NodeInterface struct {
	Name      string   `json:"name,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
}

type v3NodeStatus struct {
	WireguardPublicKey   string   `json:"wireguardPublicKey,omitempty"`
	WireguardPublicKeyV6 string   `json:"wireguardPublicKeyV6,omitempty"`
	PodCIDRs             []string `json:"podCIDRs,omitempty"`
}

// encodeNode writes a Node as felix reads it: its address, its tunnels, the whole resource, its Wireguard keys.
func encodeNode(o *corev1.Node) ([]calico.KV, error) {
	n, err := calicoNode(o)
	if err != nil {
		return nil, err
	}
	var list []func() (calico.KV, error)
	config := func(name, v string) {
		if v != "" {
			list = append(list, deferText(datastore.Key{Kind: datastore.KeyHostConfig, Node: o.Name, Name: name}, v))
		}
	}
	if ip := n.address(); ip.IsValid() {
		list = append(list, deferText(datastore.Key{Kind: datastore.KeyHostIP, Node: o.Name}, ip.String()))
	}
	if n.Spec.BGP != nil {
		config("IpInIpTunnelAddr", plainAddr(n.Spec.BGP.IPv4IPIPTunnelAddr))
	}
	config("IPv4VXLANTunnelAddr", plainAddr(n.Spec.IPv4VXLANTunnelAddr))
	config("VXLANTunnelMACAddr", n.Spec.VXLANTunnelMACAddr)
	config("IPv6VXLANTunnelAddr", plainAddr(n.Spec.IPv6VXLANTunnelAddr))
	config("VXLANTunnelMACAddrV6", n.Spec.VXLANTunnelMACAddrV6)
	resource := deferValue(datastore.Key{Kind: datastore.KeyResource, Type: datastore.ResourceNodes, Name: o.Name}, n)
	list = append(list, func() (calico.KV, error) {
		kv, err := resource()
		kv.V3ResourceVersion = o.ResourceVersion
		return kv, err
	})
	if w := n.wireguard(); w != (datastore.Wireguard{}) {
		list = append(list, deferValue(datastore.Key{Kind: datastore.KeyWireguard, Node: o.Name}, w))
	}
	return values(list...)
}

// calicoNode converts a Node to Calico's form, with Calico's settings from annotations.
func calicoNode(o *corev1.Node) (*v3Node, error) {
	const p = "projectcalico.org/"
	a := o.Annotations
	n := &v3Node{Kind: "Node", APIVersion: apiVersion, Metadata: meta{
		Name: o.Name, UID: o.UID, CreationTimestamp: o.CreationTimestamp,
		Labels: textMap(a[p+"labels"]), Annotations: textMap(a[p+"annotations"]),
	}}
	kubeLabels, err := json.Marshal(o.Labels)
	if err != nil {
		return nil, err
	}
	n.Metadata.Labels = merged(n.Metadata.Labels, o.Labels)
	n.Metadata.Annotations = merged(n.Metadata.Annotations, map[string]string{p + "kube-labels": string(kubeLabels)})
	n.Spec.OrchRefs = []v3OrchRef{{NodeName: o.Name, Orchestrator: model.OrchestratorKubernetes}}

	bgp := v3NodeBGP{
		IPv4Address: checked(a[p+"IPv4Address"], hostIn4), IPv6Address: checked(a[p+"IPv6Address"], hostIn6),
		IPv4IPIPTunnelAddr:      checked(a[p+"IPv4IPIPTunnelAddr"], network4),
		RouteReflectorClusterID: checked(a[p+"RouteReflectorClusterID"], network4),
		ASNumber:                parseASNumber(a[p+"ASNumber"]),
	}
	if bgp != (v3NodeBGP{}) {
		n.Spec.BGP = &bgp
	}
	wireguard := v3NodeWireguard{
		InterfaceIPv4Address: checked(a[p+"IPv4WireguardInterfaceAddr"], network4),
		InterfaceIPv6Address: checked(a[p+"IPv6WireguardInterfaceAddr"], network6),
	}
	if wireguard != (v3NodeWireguard{}) {
		n.Spec.Wireguard = &wireguard
	}
	mac := func(s string) bool { _, err := net.ParseMAC(s); return err == nil }
	n.Spec.IPv4VXLANTunnelAddr = checked(a[p+"IPv4VXLANTunnelAddr"], network4)
	n.Spec.VXLANTunnelMACAddr = checked(a[p+"VXLANTunnelMACAddr"], mac)
	n.Spec.IPv6VXLANTunnelAddr = checked(a[p+"IPv6VXLANTunnelAddr"], network6)
	n.Spec.VXLANTunnelMACAddrV6 = checked(a[p+"VXLANTunnelMACAddrV6"], mac)
	n.Status = v3NodeStatus{
		WireguardPublicKey: a[p+"WireguardPublicKey"], WireguardPublicKeyV6: a[p+"WireguardPublicKeyV6"], PodCIDRs: o.Spec.PodCIDRs,
	}
	n.listAddresses(o)
	n.interfaces(a[p+"Interfaces"])
	return n, nil
}

// listAddresses lists the BGP addresses first, then those that Kubernetes reports.
func (n *v3Node) listAddresses(o *corev1.Node) {
	if b := n.Spec.BGP; b != nil {
		for _, a := range []string{b.IPv4Address, b.IPv6Address} {
			if a != "" {
				n.Spec.Addresses = append(n.Spec.Addresses, v3NodeAddress{a, "CalicoNodeIP"})
			}
		}
	}
	for _, a := range o.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			n.Spec.Addresses = append(n.Spec.Addresses, v3NodeAddress{a.Address, string(a.Type)})
		}
	}
}

func (n *v3Node) interfaces(annotation string) {
	if annotation == "" || json.Unmarshal([]byte(annotation), &n.Spec.Interfaces) != nil {
		return
	}
	for i := range n.Spec.Interfaces {
		var valid []string
		for _, a := range n.Spec.Interfaces[i].Addresses {
			if net.ParseIP(a) != nil {
				valid = append(valid, a)
			}
		}
		n.Spec.Interfaces[i].Addresses = valid
	}
}

// address returns the node's IPv4 address: that of BGP, else the first internal one, else the first external one.
func (n *v3Node) address() netip.Addr {
	if n.Spec.BGP != nil {
		if a := hostAddr(n.Spec.BGP.IPv4Address); a.IsValid() {
			return a
		}
	}
	for _, kind := range []string{"InternalIP", "ExternalIP"} {
		for _, a := range n.Spec.Addresses {
			if ip := hostAddr(a.Address); a.Type == kind && ip.Is4() {
				return ip
			}
		}
	}
	return netip.Addr{}
}

func (n *v3Node) wireguard() datastore.Wireguard {
	w := datastore.Wireguard{PublicKey: n.Status.WireguardPublicKey, PublicKeyV6: n.Status.WireguardPublicKeyV6}
	if s := n.Spec.Wireguard; s != nil {
		w.InterfaceIPv4Addr, w.InterfaceIPv6Addr = plainAddr(s.InterfaceIPv4Address), plainAddr(s.InterfaceIPv6Address)
	}
	return w
}

func checked(s string, valid func(string) bool) string {
	if s == "" || !valid(s) {
		return ""
	}
	return s
}

// hostAddr returns the address in "10.0.0.1" or "10.0.0.1/24".
func hostAddr(s string) netip.Addr {
	s, _, _ = strings.Cut(s, "/")
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap()
}

func hostIn4(s string) bool {
	_, err := encodeNet(s)
	return err == nil && hostAddr(s).Is4()
}

func hostIn6(s string) bool {
	_, err := encodeNet(s)
	return err == nil && hostAddr(s).Is6()
}

// network4 and network6 report whether s is an address, or a range without host bits.
func network4(s string) bool {
	p, err := encodeNet(s)
	return err == nil && p.Addr().Is4() && p.Addr() == hostAddr(s)
}

func network6(s string) bool {
	p, err := encodeNet(s)
	return err == nil && p.Addr().Is6() && p.Addr() == hostAddr(s)
}

// plainAddr returns an address in its canonical form; "" for anything else.
func plainAddr(s string) string {
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.Unmap().String()
	}
	return ""
}

// parseASNumber reads "65000" or "1.10".
func parseASNumber(s string) *uint32 {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		v := uint32(n)
		return &v
	}
	high, low, ok := strings.Cut(s, ".")
	h, errH := strconv.ParseUint(high, 10, 16)
	l, errL := strconv.ParseUint(low, 10, 16)
	if !ok || errH != nil || errL != nil {
		return nil
	}
	v := uint32(h<<16 + l)
	return &v
}

// textMap parses a map in an annotation.
func textMap(s string) (m map[string]string) {
	if json.Unmarshal([]byte(s), &m) != nil {
		return nil
	}
	return m
}
