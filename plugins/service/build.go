package service

import (
	"cmp"
	"fmt"
	"net"
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
	families := familiesOf(spec.ClusterIPs)
	var room [16]candidate
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
		found := gather(room[:], port, parts, families, env.node)
		here.countEndpoints(found)
		all, near, derived := endpointsOf(found, env)
		svc.Backends[port.Name] = all
		svc.BackendNodes = appendNodes(svc.BackendNodes, found)
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
	slices.SortFunc(svc.BackendNodes, renderer.BackendNode.Compare)
	svc.BackendNodes = slices.CompactFunc(svc.BackendNodes, func(a, b renderer.BackendNode) bool { return a.Addr == b.Addr })
	return svc, notes
}

// appendNodes appends the nodes of the endpoints that a port uses.
func appendNodes(nodes []renderer.BackendNode, found []candidate) []renderer.BackendNode {
	nodes = slices.Grow(nodes, len(found))
	for _, c := range found {
		if (c.wide || c.near) && c.ep.NodeName != "" {
			nodes = append(nodes, renderer.BackendNode{Addr: c.at.Addr(), Node: c.ep.NodeName})
		}
	}
	return nodes
}

// fillLocal completes the local sets of the ports before the first one that needed them.
func fillLocal(svc *renderer.ContivService, local map[string][]*renderer.ServiceBackend) {
	for name := range svc.Ports {
		if _, has := local[name]; !has {
			local[name] = svc.Local(name)
		}
	}
	svc.LocalBackends = local
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

// candidate is one endpoint of one port, as one slice names it.
type candidate struct {
	at    netip.AddrPort
	ep    *model.Endpoint
	local bool
	// wide and near: policy Cluster and policy Local may use it; see categorize.
	wide, near bool
}

// gather lists the endpoints of a port from all slices, sorted by address and port, each once. If two slices have the same endpoint,
// the more useful one counts: not terminating, then ready, then serving, then local. The list uses room if it fits.
func gather(room []candidate, port model.ServicePort, parts []*model.EndpointSlice, fam families, node string) []candidate {
	n := 0
	for _, part := range parts {
		n += len(part.Endpoints)
	}
	found := slices.Grow(room[:0], n)
	for _, part := range parts {
		number, has := portOf(part, port)
		if !has {
			continue
		}
		for i := range part.Endpoints {
			ep := &part.Endpoints[i]
			if ep.Addr.Is6() != part.IPv6 || !fam.hasFamily(ep.Addr) {
				continue
			}
			found = append(found, candidate{at: netip.AddrPortFrom(ep.Addr, number), ep: ep, local: node != "" && ep.NodeName == node})
		}
	}
	if !slices.IsSortedFunc(found, compareCandidates) {
		slices.SortStableFunc(found, compareCandidates)
	}
	return slices.CompactFunc(found, func(a, b candidate) bool { return a.at == b.at })
}

func compareCandidates(a, b candidate) int {
	if c := a.at.Compare(b.at); c != 0 {
		return c
	}
	return cmp.Or(falseFirst(a.ep.Terminating, b.ep.Terminating), falseFirst(!a.ep.Ready, !b.ep.Ready),
		falseFirst(!a.ep.Serving, !b.ep.Serving), falseFirst(!a.local, !b.local))
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// portOf returns the slice's number for a service's port, by name and protocol, never by number.
func portOf(part *model.EndpointSlice, port model.ServicePort) (uint16, bool) {
	for _, p := range part.Ports {
		if p.Name == port.Name && p.Protocol == port.Protocol && p.Port != 0 {
			return p.Port, true
		}
	}
	return 0, false
}

// endpointsOf returns the two sets of a port, for policy Cluster and for policy Local, and whether the second is exactly the local
// part of the first. It evaluates address families separately, as separate proxies would.
func endpointsOf(found []candidate, env surroundings) (all, local []*renderer.ServiceBackend, derived bool) {
	first6 := len(found)
	for i := range found {
		if found[i].at.Addr().Is6() {
			first6 = i
			break
		}
	}
	near := categorize(found[:first6], env) + categorize(found[first6:], env)
	slab := make([]renderer.ServiceBackend, 0, len(found))
	bytes := make([]byte, 0, 4*first6+16*(len(found)-first6))
	all = make([]*renderer.ServiceBackend, 0, len(found))
	if near > 0 {
		local = make([]*renderer.ServiceBackend, 0, near)
	}
	derived = true
	for _, c := range found {
		if !c.wide && !c.near {
			continue
		}
		from := len(bytes)
		bytes = appendAddr(bytes, c.at.Addr())
		slab = append(slab, renderer.ServiceBackend{
			IP: net.IP(bytes[from:len(bytes):len(bytes)]), Port: c.at.Port(), Local: c.local,
			HostNetwork: env.isNode(c.at.Addr()),
		})
		b := &slab[len(slab)-1]
		if c.wide {
			all = append(all, b)
		}
		if c.near {
			local = append(local, b)
		}
		derived = derived && c.near == (c.wide && c.local)
	}
	return all, local, derived
}

func appendAddr(out []byte, a netip.Addr) []byte {
	if a.Is4() {
		b := a.As4()
		return append(out, b[:]...)
	}
	b := a.As16()
	return append(out, b[:]...)
}

// categorize marks the endpoints that policy Cluster and policy Local may use, and counts the latter. In each set, terminating
// endpoints that still serve count only if none is ready, unless they are kept; topology hints narrow the ready ones of policy
// Cluster.
func categorize(eps []candidate, env surroundings) (near int) {
	fits, stays := hints(eps, env)
	var anyWide, anyNear bool
	for i := range eps {
		c := &eps[i]
		c.wide = c.ep.Ready && fits(c.ep)
		c.near = c.ep.Ready && c.local
		anyWide, anyNear = anyWide || c.wide, anyNear || c.near
	}
	for i := range eps {
		c := &eps[i]
		last := c.ep.Serving && c.ep.Terminating
		c.wide = c.wide || last && (!anyWide || env.keepTerminating && stays(c.ep))
		c.near = c.near || last && c.local && (!anyNear || env.keepTerminating)
		if c.near {
			near++
		}
	}
	return near
}

// hints returns which ready endpoints this node uses: those with a hint for this node, if all have node hints and one names this
// node; else those with a hint for its zone under the same condition; else all. Stays does the same for terminating endpoints that
// are kept. Kubernetes gives these no hints any more, so their location decides.
func hints(eps []candidate, env surroundings) (fits, stays func(*model.Endpoint) bool) {
	allNodes, thisNode, allZones, thisZone := true, false, true, false
	for i := range eps {
		ep := eps[i].ep
		if !ep.Ready {
			continue
		}
		allNodes = allNodes && len(ep.ForNodes) > 0
		thisNode = thisNode || slices.Contains(ep.ForNodes, env.node)
		allZones = allZones && len(ep.ForZones) > 0
		thisZone = thisZone || slices.Contains(ep.ForZones, env.zone)
	}
	switch {
	case allNodes && thisNode:
		return func(ep *model.Endpoint) bool { return slices.Contains(ep.ForNodes, env.node) },
			func(ep *model.Endpoint) bool { return ep.NodeName == env.node }
	case allZones && thisZone && env.zone != "":
		return func(ep *model.Endpoint) bool { return slices.Contains(ep.ForZones, env.zone) },
			func(ep *model.Endpoint) bool { return ep.Zone == env.zone }
	}
	all := func(*model.Endpoint) bool { return true }
	return all, all
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
