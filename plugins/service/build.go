package service

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// RendererAnnotation names the only renderer that may serve a Service, nat44 or cnat. Addresses of a family that this renderer does
// not have on a node are not served there.
const RendererAnnotation = "contiv-agent.io/service-renderer"

// surroundings are the facts about the cluster that the building of one service depends on.
type surroundings struct {
	node   string // name of this node
	zone   string // its zone
	isNode func(netip.Addr) bool
	// closed returns why an address may not be an external IP; "": it may. Nil: all may.
	closed func(netip.Addr) string
	// keepTerminating: terminating endpoints that still serve are used beside ready ones.
	keepTerminating bool
}

// skipReason returns why a service is not rendered; "": it is rendered.
func skipReason(spec *model.Service, proxyName string) string {
	switch {
	case spec == nil:
		return "there are endpoints only"
	case spec.ProxyName != proxyName:
		return fmt.Sprintf("it is left to proxy %q", spec.ProxyName)
	case spec.Type == model.ExternalName:
		return "it is an ExternalName"
	case spec.Headless:
		return "it is headless"
	case len(spec.ClusterIPs) == 0:
		return "it has no cluster IP yet"
	}
	return ""
}

// build joins a service with its slices, which must be sorted by name. It leaves out refused addresses, each with the reason. The
// caller fills in conflicts.
func build(spec *model.Service, parts []*model.EndpointSlice, env surroundings, refused map[netip.Addr]string) (*renderer.ContivService, []model.Note) {
	svc := &renderer.ContivService{
		ID:                     spec.ID,
		TrafficPolicy:          policyOf(spec.ExternalTrafficPolicy),
		InternalTrafficPolicy:  policyOf(spec.InternalTrafficPolicy),
		SessionAffinityTimeout: seconds(spec.SessionAffinityTimeout),
		Ports:                  make(map[string]*renderer.ServicePort, len(spec.Ports)),
		Backends:               make(map[string][]*renderer.ServiceBackend, len(spec.Ports)),
		Renderer:               spec.Annotations[RendererAnnotation],
	}
	notes := fillAddresses(svc, spec, env.closed, refused)
	ports := make([]renderer.ServicePort, 0, len(spec.Ports))
	var local map[string][]*renderer.ServiceBackend
	var few [16]candidate
	var joined [16]endpoint
	room := few[:]
	endpoints := join(joined[:], parts, familiesOf(spec.ClusterIPs), env)
	here := healthCheck{svc: svc, port: spec.HealthCheckNodePort}
	for _, port := range spec.Ports {
		if _, twice := svc.Ports[port.Name]; twice {
			notes = append(notes, noteOn(spec, true, "port name %q is used twice: only the first is served", port.Name))
			continue
		}
		ports = append(ports, renderer.ServicePort{
			Protocol: renderer.ProtocolType(port.Protocol), Port: port.Port, NodePort: port.NodePort,
		})
		svc.Ports[port.Name] = &ports[len(ports)-1]
		found := gather(room, port, parts, endpoints)
		room = found // the next port has as many, or fewer
		here.countEndpoints(endpoints, found)
		all, near, derived := endpointsOf(endpoints, found, env)
		svc.Backends[port.Name] = all
		if port.Protocol == model.TCP {
			fillDraining(svc, port.Name, draining(endpoints, found))
		}
		if !derived && local == nil {
			local = map[string][]*renderer.ServiceBackend{}
		}
		if local != nil {
			local[port.Name] = near
		}
	}
	if local != nil {
		fillLocal(svc, local)
	}
	here.done()
	svc.BackendNodes = nodesOf(endpoints)
	return svc, notes
}

// fillLocal completes the local sets of the ports before the first one that needed them.
func fillLocal(svc *renderer.ContivService, local map[string][]*renderer.ServiceBackend) {
	for name := range svc.Ports {
		if _, has := local[name]; !has {
			local[name] = svc.Local(name)
		}
	}
	svc.Other.Local = local
}

// fillDraining notes the endpoints of a port that terminate or are not ready.
func fillDraining(svc *renderer.ContivService, port string, list []*renderer.ServiceBackend) {
	if len(list) == 0 {
		return
	}
	if svc.Other.Draining == nil {
		svc.Other.Draining = map[string][]*renderer.ServiceBackend{}
	}
	svc.Other.Draining[port] = list
}

// fillAddresses fills in the addresses that are not refused.
func fillAddresses(svc *renderer.ContivService, spec *model.Service, closed func(netip.Addr) string, refused map[netip.Addr]string) []model.Note {
	var notes []model.Note
	refuse := func(format string, args ...any) { notes = append(notes, noteOn(spec, true, format, args...)) }
	inner := keepAddrs("cluster IP", spec.ClusterIPs, refused, refuse)
	addrs, balancer := externalAddrs(spec, closed, refuse)
	first := len(addrs) - len(balancer)
	plain := keepAddrs("external IP", addrs[:first], refused, refuse)
	balancer = keepAddrs("load-balancer IP", balancer, refused, refuse)
	svc.ClusterIPs = renderer.IPAddressesOf(inner...)
	svc.ExternalIPs = renderer.IPAddressesOf(slices.Concat(plain, balancer)...)
	if len(balancer) > 0 {
		svc.LoadBalancerIPs = renderer.IPAddressesOf(balancer...)
		svc.LoadBalancerSourceRanges = spec.LoadBalancerSourceRanges
	}
	return notes
}

// keepAddrs returns the addresses of a list that are not refused; it calls refuse for the others.
func keepAddrs(what string, addrs []netip.Addr, refused map[netip.Addr]string, refuse func(format string, args ...any)) []netip.Addr {
	if len(refused) == 0 {
		return addrs
	}
	var out []netip.Addr
	for _, a := range addrs {
		if why := refused[a.Unmap().WithZone("")]; why != "" {
			refuse("%s %s is not served: %s", what, a, why)
			continue
		}
		out = append(out, a)
	}
	return out
}

// externalAddrs returns the addresses other than cluster IPs, of the families in which the service has a cluster IP. Load-balancer
// addresses are the last of them, and are also returned separately. It calls refuse for each omitted address.
func externalAddrs(spec *model.Service, closed func(netip.Addr) string, refuse func(format string, args ...any)) (addrs, balancer []netip.Addr) {
	families := familiesOf(spec.ClusterIPs)
	take := func(a netip.Addr, what string) {
		if !families.hasFamily(a) {
			refuse("%s %s is not served: there is no cluster IP of its family", what, a)
			return
		}
		addrs = append(addrs, a)
	}
	for _, a := range spec.ExternalIPs {
		if closed != nil {
			if why := closed(a); why != "" {
				refuse("external IP %s is not served: %s", a, why)
				continue
			}
		}
		take(a, "external IP")
	}
	first := len(addrs)
	for _, lb := range spec.LoadBalancerIPs {
		if spec.Type == model.LoadBalancer && !lb.Proxy {
			take(lb.Addr, "load-balancer IP")
		}
	}
	return addrs, addrs[first:]
}

// families is a set of address families.
type families struct{ v4, v6 bool }

func familiesOf(addrs []netip.Addr) families {
	var f families
	for _, a := range addrs {
		f.v4 = f.v4 || a.Is4()
		f.v6 = f.v6 || a.Is6()
	}
	return f
}

func (f families) hasFamily(a netip.Addr) bool { return a.Is4() && f.v4 || a.Is6() && f.v6 }

func policyOf(p model.TrafficPolicy) renderer.TrafficPolicyType {
	if p == model.PolicyLocal {
		return renderer.NodeLocal
	}
	return renderer.ClusterWide
}

// seconds rounds up, so that a positive affinity remains positive.
func seconds(d time.Duration) uint32 { return uint32((d + time.Second - 1) / time.Second) }

func noteOn(obj model.Object, refused bool, format string, args ...any) model.Note {
	return model.Note{Ref: obj.Ref(), Reason: fmt.Sprintf(format, args...), Refused: refused}
}
