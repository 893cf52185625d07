package podnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
)

// Addresses that clients of host ports have in VPP if VPP would not return the answers by the host link. No node has them: policies that
// isolate a pod permit them only by a range of addresses.
var detour4, detour6 = netip.MustParseAddr("169.254.1.9"), netip.MustParseAddr("fd69:254:1::9")

// hostPorts lead ports of the node to a pod, in each family of the pod that the port is for.
func (b *builder) hostPorts(p *Attachment) {
	for _, m := range p.Ports {
		for _, a := range p.Addresses {
			at := m.HostIP.Unmap()
			if !at.IsValid() {
				at = netip.IPv4Unspecified()
				if a.Is6() {
					at = netip.IPv6Unspecified()
				}
			}
			if at.Is6() != a.Is6() {
				continue
			}
			b.put(&contivlinux.HostPort{
				Protocol: contivlinux.HostPort_Protocol(contivlinux.HostPort_Protocol_value[m.Protocol]), HostAddress: at.String(), HostPort: uint32(m.HostPort),
				Address: a.String(), Port: uint32(m.ContainerPort),
			})
		}
	}
}

// detours are for clients of host ports to which VPP sends answers by another path than the host link: pods, and the other nodes.
func detours(own *model.Node, others []*model.Node) (out []*contivlinux.Handover_Detour) {
	for _, v6 := range []bool{false, true} {
		var sources []netip.Prefix
		for _, n := range append([]*model.Node{own}, others...) {
			for _, p := range n.PodCIDRs {
				if p.Addr().Is6() == v6 {
					sources = append(sources, p.Masked())
				}
			}
			if n == own {
				continue
			}
			for _, a := range n.Addrs() {
				if a.Is6() == v6 {
					sources = append(sources, netip.PrefixFrom(a, a.BitLen()))
				}
			}
		}
		slices.SortFunc(sources, netip.Prefix.Compare)
		d := &contivlinux.Handover_Detour{Address: detour4.String()}
		if v6 {
			d.Address = detour6.String()
		}
		for _, p := range slices.Compact(sources) {
			d.Sources = append(d.Sources, p.String())
		}
		if len(sources) > 0 {
			out = append(out, d)
		}
	}
	return out
}

// collision returns an error if a host port of a request is in use, by another pod or twice; nil: all are free.
func collision(r *protocol.Request, attached map[protocol.Attachment]*Attachment) error {
	for i, p := range r.PortMappings {
		for _, o := range r.PortMappings[:i] {
			if collide(p, o) {
				return protocol.Errorf(protocol.CodeInvalidConfig, "portMappings[%d]: host port %s twice", i, portText(p))
			}
		}
		for _, a := range attached {
			for _, o := range a.Ports {
				if a.Attachment != r.Attachment && collide(p, o) {
					return protocol.Errorf(protocol.CodeTryAgainLater, "host port %s: pod %s has it", portText(p), a.podID())
				}
			}
		}
	}
	return nil
}

// collide reports that a packet may be for both host ports.
func collide(a, b protocol.PortMapping) bool {
	a.HostIP, b.HostIP = a.HostIP.Unmap(), b.HostIP.Unmap()
	return a.Protocol == b.Protocol && a.HostPort == b.HostPort &&
		(a.HostIP == b.HostIP || everyAddress(a, b.HostIP) || everyAddress(b, a.HostIP))
}

// everyAddress reports that a host port is at all addresses of the family of another's; no address is all of both families.
func everyAddress(p protocol.PortMapping, other netip.Addr) bool {
	return !p.HostIP.IsValid() || p.HostIP.IsUnspecified() && (!other.IsValid() || p.HostIP.Is6() == other.Is6())
}

func portText(p protocol.PortMapping) string {
	if !p.HostIP.IsValid() {
		return fmt.Sprintf("%d/%s", p.HostPort, p.Protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(p.HostIP, p.HostPort), p.Protocol)
}
