package route

import (
	"crypto/sha1"
	"net"
	"net/netip"
	"strings"

	"github.com/contiv-agent/contiv-agent/calc/table"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// tunnelConfig is the part of a node's configuration that describes its VXLAN tunnel endpoint.
type tunnelConfig struct {
	addr4, addr6 string
	mac4, mac6   string // "" if derived from the node's name
}

// vtep is a node's VXLAN tunnel endpoint.
type vtep struct {
	mac4, addr4, parent4 string
	mac6, addr6, parent6 string
}

// VTEPs finds which nodes are VXLAN tunnel endpoints: those with an address and a tunnel address in the same family.
type VTEPs struct {
	parents map[string][2]netip.Addr
	tunnels map[string]tunnelConfig
	wanted  *table.Table[string, vtep]
}

// NewVTEPs returns no tunnel endpoints.
func NewVTEPs() *VTEPs {
	return &VTEPs{
		parents: map[string][2]netip.Addr{}, tunnels: map[string]tunnelConfig{}, wanted: table.New[string](table.Same[vtep]),
	}
}

// SetHost puts a node's addresses; two invalid ones remove it.
func (x *VTEPs) SetHost(node string, v4, v6 netip.Addr) {
	x.parents[node] = [2]netip.Addr{v4, v6}
	if !v4.IsValid() && !v6.IsValid() {
		delete(x.parents, node)
	}
	x.update(node)
}

// SetConfig sets a parameter of a node's configuration and ignores parameters that do not concern tunnels. "" removes
// it.
func (x *VTEPs) SetConfig(node, name, value string) {
	t := x.tunnels[node]
	switch name {
	case "IPv4VXLANTunnelAddr":
		t.addr4 = canonicalAddr(value)
	case "IPv6VXLANTunnelAddr":
		t.addr6 = canonicalAddr(value)
	case "VXLANTunnelMACAddr":
		t.mac4 = value
	case "VXLANTunnelMACAddrV6":
		t.mac6 = value
	default:
		return
	}
	x.tunnels[node] = t
	if t == (tunnelConfig{}) {
		delete(x.tunnels, node)
	}
	x.update(node)
}

func canonicalAddr(text string) string {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String()
	}
	return ""
}

func (x *VTEPs) update(node string) {
	t, parent := x.tunnels[node], x.parents[node]
	var v vtep
	if t.addr4 != "" && parent[0].IsValid() {
		v.mac4, v.addr4, v.parent4 = tunnelMAC(t.mac4, node), t.addr4, parent[0].String()
	}
	if t.addr6 != "" && parent[1].IsValid() {
		v.mac6, v.addr6, v.parent6 = tunnelMAC(t.mac6, node+"-v6"), t.addr6, parent[1].String()
	}
	if v == (vtep{}) {
		x.wanted.Remove(node)
	} else {
		x.wanted.Set(node, v)
	}
}

// Flush returns the messages for the tunnel endpoints that changed, sorted by node.
func (x *VTEPs) Flush() (updates, removes []*felix.ToDataplane) {
	return x.wanted.Flush(strings.Compare, vtepUpdate, vtepRemove)
}

// Held counts what the tunnel endpoints hold, by part.
func (x *VTEPs) Held() map[string]int {
	return map[string]int{"parents": len(x.parents), "tunnels": len(x.tunnels), "wanted": x.wanted.Held()}
}

// tunnelMAC is the configured address, or the one Felix derives: "f" and the start of the name's SHA-1.
func tunnelMAC(given, name string) string {
	if given != "" {
		return given
	}
	sum := sha1.Sum([]byte(name))
	return net.HardwareAddr(append([]byte{'f'}, sum[:5]...)).String()
}

func vtepUpdate(node string, v vtep) *felix.ToDataplane {
	u := &felix.VXLANTunnelEndpointUpdate{
		Node: node, Mac: v.mac4, Ipv4Addr: v.addr4, ParentDeviceIp: v.parent4,
		MacV6: v.mac6, Ipv6Addr: v.addr6, ParentDeviceIpv6: v.parent6,
	}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_VtepUpdate{VtepUpdate: u}}
}

func vtepRemove(node string) *felix.ToDataplane {
	r := &felix.VXLANTunnelEndpointRemove{Node: node}
	return &felix.ToDataplane{Payload: &felix.ToDataplane_VtepRemove{VtepRemove: r}}
}
