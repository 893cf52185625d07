package kube

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

// Differ are the changes that lead from some objects to others.
func Differ(before, after []policy.Object) []generate.Change {
	var out []generate.Change
	was := map[policy.Key]string{}
	for _, o := range before {
		was[policy.KeyOf(o)] = Text(o)
	}
	is := map[policy.Key]bool{}
	for _, o := range after {
		k := policy.KeyOf(o)
		if is[k] = true; was[k] != Text(o) {
			out = append(out, generate.Change{Key: k, Object: o})
		}
	}
	var gone []generate.Change
	for _, o := range before {
		if k := policy.KeyOf(o); !is[k] {
			gone = append(gone, generate.Change{Key: k})
		}
	}
	return append(gone, out...)
}

// Text is an object as JSON.
func Text(o policy.Object) string {
	b, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Change applies changes to a list of objects.
func Change(objects []policy.Object, changes []generate.Change) []policy.Object {
	out := slices.Clone(objects)
	for _, ch := range changes {
		out = slices.DeleteFunc(out, func(o policy.Object) bool { return policy.KeyOf(o) == ch.Key })
		if ch.Object != nil {
			out = append(out, ch.Object)
		}
	}
	policy.Sort(out)
	return out
}

// Endpoints are where the packet of a check may arrive: one pod, or all endpoints of the Service whose cluster IP it is.
func Endpoints(objects []policy.Object, dialled string) []netip.AddrPort {
	to, err := netip.ParseAddrPort(dialled)
	if err != nil {
		return []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(dialled), 0)}
	}
	for _, o := range objects {
		svc, ok := o.(*corev1.Service)
		if !ok || !slices.Contains(svc.Spec.ClusterIPs, to.Addr().String()) {
			continue
		}
		return slices.DeleteFunc(endpointsOf(objects, svc), func(e netip.AddrPort) bool { return e.Addr().Is4() != to.Addr().Is4() })
	}
	return []netip.AddrPort{to}
}

// Backends are all endpoints, of both families, of Services with that port or node port.
func Backends(objects []policy.Object, port uint16) (out []netip.AddrPort) {
	for _, o := range objects {
		svc, ok := o.(*corev1.Service)
		if !ok || !slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == int32(port) || p.NodePort == int32(port) }) {
			continue
		}
		out = append(out, endpointsOf(objects, svc)...)
	}
	return out
}

// endpointsOf are the endpoints of a Service.
func endpointsOf(objects []policy.Object, svc *corev1.Service) (out []netip.AddrPort) {
	for _, o := range objects {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok || slice.Namespace != svc.Namespace || slice.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		for _, ep := range slice.Endpoints {
			out = append(out, netip.AddrPortFrom(netip.MustParseAddr(ep.Addresses[0]), uint16(*slice.Ports[0].Port)))
		}
	}
	return out
}

// AskSCTP reports whether a policy names SCTP.
func AskSCTP(objects []policy.Object) bool {
	return slices.ContainsFunc(objects, func(o policy.Object) bool {
		switch o.(type) {
		case *corev1.Pod, *corev1.Service, *discoveryv1.EndpointSlice:
			return false
		}
		return strings.Contains(Text(o), "SCTP")
	})
}

// ServicesText is all there are with their endpoints, as text.
func ServicesText(objects []policy.Object) string {
	var b strings.Builder
	for _, o := range objects {
		switch o.(type) {
		case *corev1.Service, *discoveryv1.EndpointSlice:
			b.WriteString(Text(o))
		}
	}
	return b.String()
}

// Bounds are ports between which policies make no difference: the numbers in objects, and their neighbours.
func Bounds(objects []policy.Object) []uint16 {
	set := map[uint16]bool{1: true, 65535: true}
	for _, o := range objects {
		for _, digits := range strings.FieldsFunc(Text(o), func(r rune) bool { return r < '0' || r > '9' }) {
			if n, err := strconv.ParseUint(digits, 10, 16); err == nil {
				set[uint16(max(n, 2)-1)], set[uint16(max(n, 1))], set[uint16(min(n, 65534)+1)] = true, true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Plumbing are addresses that every node has.
func Plumbing() []netip.Addr { return append(Routers(), cni.HostLink) }

// Routers are the addresses of VPP as its pods' router.
func Routers() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fd69:254:1::1")}
}

// PodNetworks are the networks of each node's pods, by the node's name.
func PodNetworks(objects []policy.Object) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for _, o := range objects {
		n, is := o.(*corev1.Node)
		if !is {
			continue
		}
		for _, text := range n.Spec.PodCIDRs {
			out[n.Name] = append(out[n.Name], netip.MustParsePrefix(text))
		}
	}
	return out
}

// Special are addresses of the plumbing: the host link, NAT loopbacks, gateways, the last and the first of a node's range.
func Special(objects []policy.Object) []netip.Addr {
	list := Plumbing()
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok {
			for _, text := range n.Spec.PodCIDRs {
				if p := netip.MustParsePrefix(text); p.Addr().Is4() {
					b := p.Addr().As4()
					list = append(list, netip.AddrFrom4([4]byte{b[0], b[1], b[2], 254}), p.Addr().Next())
				}
			}
		}
	}
	return list
}

// Ports are ports that policies and containers name.
func Ports(objects []policy.Object) []int32 {
	out := []int32{80, 81, 8080}
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			for _, c := range p.Spec.Containers {
				for _, port := range c.Ports {
					out = append(out, port.ContainerPort)
				}
			}
		}
	}
	return out
}

// HasHosts reports whether a host endpoint is among objects.
func HasHosts(objects []policy.Object) bool {
	return slices.ContainsFunc(objects, func(o policy.Object) bool {
		_, is := o.(*policy.CalicoHostEndpoint)
		return is
	})
}

// NodesOf is the number of nodes among objects.
func NodesOf(objects []policy.Object) (n int) {
	for _, o := range objects {
		if _, ok := o.(*corev1.Node); ok {
			n++
		}
	}
	return n
}
