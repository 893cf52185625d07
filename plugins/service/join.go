package service

import (
	"cmp"
	"net"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// endpoint is one endpoint of one slice, with all that is the same for every port of the Service. A Service may have 128 ports and 2,048
// endpoints, so whatever is done once for each endpoint is not done again for each port.
type endpoint struct {
	*model.Endpoint
	ip    net.IP // its address
	part  int    // index of its slice
	local bool   // it runs on this node
	host  bool   // its address is a node's
	used  bool   // some port uses it
}

// join lists the endpoints of all slices that have a wanted family, sorted by address. Of those with the same address the most useful
// ones are first: not terminating, then ready, then serving, then local. The list uses room if it fits.
func join(room []endpoint, parts []*model.EndpointSlice, fam families, env surroundings) []endpoint {
	n := 0
	for _, part := range parts {
		n += len(part.Endpoints)
	}
	all := slices.Grow(room[:0], n)
	size := 0
	for p, part := range parts {
		for i := range part.Endpoints {
			ep := &part.Endpoints[i]
			if ep.Addr.Is6() != part.IPv6 || !fam.hasFamily(ep.Addr) {
				continue
			}
			all = append(all, endpoint{Endpoint: ep, part: p, local: env.node != "" && ep.NodeName == env.node})
			size += ep.Addr.BitLen() / 8
		}
	}
	if !slices.IsSortedFunc(all, compareEndpoints) {
		slices.SortStableFunc(all, compareEndpoints)
	}
	bytes := make([]byte, 0, size)
	for i := range all {
		e, from := &all[i], len(bytes)
		bytes = appendAddr(bytes, e.Addr)
		e.ip, e.host = net.IP(bytes[from:len(bytes):len(bytes)]), env.isNode(e.Addr)
	}
	return all
}

func compareEndpoints(a, b endpoint) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	return compareUse(&a, &b)
}

// compareUse puts the more useful endpoint first.
func compareUse(a, b *endpoint) int {
	return cmp.Or(falseFirst(a.Terminating, b.Terminating), falseFirst(!a.Ready, !b.Ready), falseFirst(!a.Serving, !b.Serving), falseFirst(!a.local, !b.local))
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

// nodesOf returns the nodes of the endpoints that some port uses, sorted by address.
func nodesOf(all []endpoint) []renderer.BackendNode {
	nodes := slices.Grow([]renderer.BackendNode(nil), len(all))
	for i := range all {
		if e := &all[i]; e.used && e.NodeName != "" {
			nodes = append(nodes, renderer.BackendNode{Addr: e.Addr, Node: e.NodeName})
		}
	}
	slices.SortFunc(nodes, renderer.BackendNode.Compare)
	return slices.CompactFunc(nodes, func(a, b renderer.BackendNode) bool { return a.Addr == b.Addr })
}

// candidate is one endpoint of one port. It has an index and no pointer, so that a short joined list stays on the stack.
type candidate struct {
	at   int // in the joined list
	port uint16
	// wide and near: policy Cluster and policy Local may use it; see categorize.
	wide, near bool
}

// gather lists the endpoints of a port, sorted by address and port, each once: the first of a joined list. The list uses room if it fits.
func gather(room []candidate, port model.ServicePort, parts []*model.EndpointSlice, all []endpoint) []candidate {
	var few [16]uint16
	numbers := few[:0]
	for _, part := range parts {
		n, _ := portOf(part, port)
		numbers = append(numbers, n)
	}
	found := slices.Grow(room[:0], len(all))
	last, again := netip.Addr{}, false // whether several slices have an address, perhaps with different numbers
	for i := range all {
		if n := numbers[all[i].part]; n != 0 {
			again = again || all[i].Addr == last
			found, last = append(found, candidate{at: i, port: n}), all[i].Addr
		}
	}
	if !again {
		return found
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		x, y := &all[a.at], &all[b.at]
		if c := x.Addr.Compare(y.Addr); c != 0 {
			return c
		}
		return cmp.Compare(a.port, b.port) // stable: the more useful one stays first
	})
	return slices.CompactFunc(found, func(a, b candidate) bool { return a.port == b.port && all[a.at].Addr == all[b.at].Addr })
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

// backend is the endpoint of a port as renderers get it.
func (e *endpoint) backend(port uint16) renderer.ServiceBackend {
	return renderer.ServiceBackend{IP: e.ip, Port: port, Local: e.local, HostNetwork: e.host}
}

// endpointsOf returns the two sets of a port, for policy Cluster and for policy Local, and whether the second is exactly the local
// part of the first. It evaluates address families separately, as separate proxies would.
func endpointsOf(endpoints []endpoint, found []candidate, env surroundings) (all, local []*renderer.ServiceBackend, derived bool) {
	first6 := len(found)
	for i := range found {
		if endpoints[found[i].at].Addr.Is6() {
			first6 = i
			break
		}
	}
	near := categorize(endpoints, found[:first6], env) + categorize(endpoints, found[first6:], env)
	slab := make([]renderer.ServiceBackend, 0, len(found))
	all = make([]*renderer.ServiceBackend, 0, len(found))
	if near > 0 {
		local = make([]*renderer.ServiceBackend, 0, near)
	}
	derived = true
	for _, c := range found {
		if !c.wide && !c.near {
			continue
		}
		e := &endpoints[c.at]
		e.used = true
		slab = append(slab, e.backend(c.port))
		b := &slab[len(slab)-1]
		if c.wide {
			all = append(all, b)
		}
		if c.near {
			local = append(local, b)
		}
		derived = derived && c.near == (c.wide && e.local)
	}
	return all, local, derived
}

// draining returns the endpoints of a port that terminate or are not ready: they may have connections.
func draining(endpoints []endpoint, found []candidate) (list []*renderer.ServiceBackend) {
	for _, c := range found {
		if e := &endpoints[c.at]; e.Terminating || !e.Ready {
			b := e.backend(c.port)
			list = append(list, &b)
		}
	}
	return list
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
func categorize(all []endpoint, eps []candidate, env surroundings) (near int) {
	fits, stays := hints(all, eps, env)
	var anyWide, anyNear bool
	for i := range eps {
		c := &eps[i]
		e := &all[c.at]
		c.wide = e.Ready && fits(e.Endpoint)
		c.near = e.Ready && e.local
		anyWide, anyNear = anyWide || c.wide, anyNear || c.near
	}
	for i := range eps {
		c := &eps[i]
		e := &all[c.at]
		last := e.Serving && e.Terminating
		c.wide = c.wide || last && (!anyWide || env.keepTerminating && stays(e.Endpoint))
		c.near = c.near || last && e.local && (!anyNear || env.keepTerminating)
		if c.near {
			near++
		}
	}
	return near
}

// hints returns which ready endpoints this node uses: those with a hint for this node, if all have node hints and one names this
// node; else those with a hint for its zone under the same condition; else all. Stays does the same for terminating endpoints that
// are kept. Kubernetes gives these no hints any more, so their location decides.
func hints(all []endpoint, eps []candidate, env surroundings) (fits, stays func(*model.Endpoint) bool) {
	allNodes, thisNode, allZones, thisZone := true, false, true, false
	for i := range eps {
		ep := all[eps[i].at].Endpoint
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
	every := func(*model.Endpoint) bool { return true }
	return every, every
}
