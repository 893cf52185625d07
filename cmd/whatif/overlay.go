package whatif

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Overlay returns the objects of a cluster after the given ones are created or replaced, as kubectl apply does. An object that is given but not understood
// replaces nothing, and its error stays.
func Overlay(present, given []event.Change) []event.Change {
	after, at := slices.Clone(present), map[model.Ref]int{}
	for i, ch := range after {
		at[ch.Ref] = i
	}
	for _, ch := range given {
		i, exists := at[ch.Ref]
		switch {
		case !exists:
			at[ch.Ref] = len(after)
			after = append(after, ch)
		case ch.Object == nil:
			after[i].Err = ch.Err
		default:
			ch.Object = keepAssigned(after[i].Object, ch.Object)
			after[i] = ch
		}
	}
	return after
}

// keepAssigned returns the given object with what the cluster has assigned to the present one and a manifest leaves out: the addresses and the node of a
// Pod, the cluster IPs, node ports and load balancer's addresses of a Service, the addresses and networks of a Node.
func keepAssigned(present, given model.Object) model.Object {
	switch now := given.(type) {
	case *model.Pod:
		if old, ok := present.(*model.Pod); ok && len(now.IPs) == 0 {
			pod := *now
			if pod.IPs, pod.Finished = old.IPs, old.Finished; pod.NodeName == "" {
				pod.NodeName = old.NodeName
			}
			return &pod
		}
	case *model.Service:
		if old, ok := present.(*model.Service); ok {
			return keepService(old, now)
		}
	case *model.Node:
		if old, ok := present.(*model.Node); ok && len(now.Addrs()) == 0 {
			node := *now
			if node.InternalIPs, node.ExternalIPs = old.InternalIPs, old.ExternalIPs; len(node.PodCIDRs) == 0 {
				node.PodCIDRs = old.PodCIDRs
			}
			return &node
		}
	}
	return given
}

func keepService(old, given *model.Service) *model.Service {
	now := *given
	now.Created, now.UID = old.Created, old.UID // they decide which Service owns an address
	if !now.Headless && len(now.ClusterIPs) == 0 {
		now.ClusterIPs = old.ClusterIPs
	}
	if now.Type != old.Type {
		return &now
	}
	if len(now.LoadBalancerIPs) == 0 {
		now.LoadBalancerIPs = old.LoadBalancerIPs
	}
	now.Ports = slices.Clone(now.Ports)
	for i := range now.Ports {
		p := &now.Ports[i]
		same := slices.IndexFunc(old.Ports, func(o model.ServicePort) bool { return o.Port == p.Port && o.Protocol == p.Protocol })
		if p.NodePort == 0 && same >= 0 {
			p.NodePort = old.Ports[same].NodePort
		}
	}
	return &now
}
