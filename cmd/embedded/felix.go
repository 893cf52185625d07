package embedded

import (
	"log/slog"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// PlumbMessages gives the endpoints in Felix's messages interfaces of the embedded VPP before the agent receives the
// messages, and the node its addresses.
func PlumbMessages(c *cni.CNI, node string, log *slog.Logger) func(event.Event) {
	name := node
	return func(ev event.Event) {
		said, ok := ev.(*event.Dataplane)
		if !ok {
			return
		}
		for _, m := range said.Messages {
			if own := m.GetConfigUpdate().GetConfig()["FelixHostname"]; own != "" {
				name = own
			}
			for _, ch := range plumbing(m, node, name) {
				if err := c.Apply([]event.Change{ch}); err != nil {
					log.Error("cni", "err", err)
				}
			}
		}
	}
}

// plumbing converts a message to changes for a CNI; own is Felix's name for the node.
func plumbing(m *felix.ToDataplane, node, own string) []event.Change {
	pod := func(id *felix.WorkloadEndpointID, p *model.Pod) []event.Change {
		namespace, name := "", id.GetWorkloadId()
		for i := range name {
			if name[i] == '/' {
				namespace, name = name[:i], name[i+1:]
				break
			}
		}
		ch := event.Change{Ref: model.Ref{Kind: model.KindPod, Namespace: namespace, Name: name}}
		if p != nil {
			p.ID = model.PodID{Namespace: namespace, Name: name}
			ch.Object = p
		}
		return []event.Change{ch}
	}
	host := func(called string, addrs ...string) []event.Change {
		n := &model.Node{Name: called}
		if called == own {
			n.Name = node
		}
		for _, text := range addrs {
			if a, err := netip.ParseAddr(text); err == nil {
				n.InternalIPs = append(n.InternalIPs, a)
			}
		}
		return []event.Change{{Ref: n.Ref(), Object: n}}
	}
	switch m := m.Payload.(type) {
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		p := &model.Pod{NodeName: node}
		for _, nets := range [][]string{m.WorkloadEndpointUpdate.GetEndpoint().GetIpv4Nets(), m.WorkloadEndpointUpdate.GetEndpoint().GetIpv6Nets()} {
			for _, text := range nets {
				if n, err := netip.ParsePrefix(text); err == nil && n.IsSingleIP() {
					p.IPs = append(p.IPs, n.Addr())
				}
			}
		}
		return pod(m.WorkloadEndpointUpdate.GetId(), p)
	case *felix.ToDataplane_WorkloadEndpointRemove:
		return pod(m.WorkloadEndpointRemove.GetId(), nil)
	case *felix.ToDataplane_HostMetadataUpdate:
		return host(m.HostMetadataUpdate.GetHostname(), m.HostMetadataUpdate.GetIpv4Addr())
	case *felix.ToDataplane_HostMetadataV4V6Update:
		u := m.HostMetadataV4V6Update
		return host(u.GetHostname(), u.GetIpv4Addr(), u.GetIpv6Addr())
	}
	return nil
}
