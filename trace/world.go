package trace

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// frontend is the address, port and protocol that a client dials.
type frontend struct {
	addr  netip.Addr
	port  uint16
	proto model.Protocol
}

type portProto struct {
	port  uint16
	proto model.Protocol
}

// world has all objects, with the indexes that questions need; refresh rebuilds the indexes after a change.
type world struct {
	objects map[model.Ref]model.Object
	refused map[model.Ref]event.Change // refused objects that have not been corrected
	stale   bool

	pods      map[netip.Addr]*model.Pod
	behind    map[string]*model.Pod // node + interface
	nodeAddrs map[netip.Addr]string
	nodePorts map[portProto]model.ServiceID
	vips      map[netip.Addr]model.ServiceID
	fronts    map[frontend]model.ServiceID
}

func newWorld() *world {
	return &world{objects: map[model.Ref]model.Object{}, refused: map[model.Ref]event.Change{}}
}

func (w *world) applyChanges(changes []event.Change) {
	for _, ch := range changes {
		delete(w.objects, ch.Ref)
		delete(w.refused, ch.Ref)
		switch {
		case ch.Err != nil:
			w.refused[ch.Ref] = ch
		case ch.Object != nil:
			w.objects[ch.Ref] = ch.Object
		}
	}
	w.stale = true
}

// allChanges returns the objects as changes, and the refused ones, sorted: the first events of a node that joins.
func (w *world) allChanges() []event.Change {
	out := make([]event.Change, 0, len(w.objects)+len(w.refused))
	for ref, obj := range w.objects {
		out = append(out, event.Change{Ref: ref, Object: obj})
	}
	for _, ch := range w.refused {
		out = append(out, ch)
	}
	slices.SortFunc(out, func(a, b event.Change) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return out
}

func (w *world) refresh() {
	if !w.stale {
		return
	}
	w.stale = false
	w.pods, w.behind = map[netip.Addr]*model.Pod{}, map[string]*model.Pod{}
	w.nodeAddrs = map[netip.Addr]string{}
	w.nodePorts, w.vips, w.fronts = map[portProto]model.ServiceID{}, map[netip.Addr]model.ServiceID{}, map[frontend]model.ServiceID{}
	for _, ch := range w.allChanges() {
		switch obj := ch.Object.(type) {
		case *model.Node:
			for _, addr := range obj.Addrs() {
				w.nodeAddrs[addr] = obj.Name
			}
		case *model.Pod:
			w.addPod(obj)
		}
	}
	w.addServices()
}

// addServices assigns frontends to Services by precedence, as plugins/service does: cluster IPs first, then by the age of
// the Service.
func (w *world) addServices() {
	var list []*model.Service
	for _, obj := range w.objects {
		if svc, ok := obj.(*model.Service); ok && svc.Type != model.ExternalName && !svc.Headless && svc.ProxyName == "" {
			list = append(list, svc)
		}
	}
	slices.SortFunc(list, (*model.Service).CompareAge)
	for _, svc := range list {
		w.addFrontends(svc, svc.ClusterIPs)
	}
	inner := maps.Clone(w.vips)
	for _, svc := range list {
		addrs := slices.Clone(svc.ExternalIPs)
		for _, lb := range svc.LoadBalancerIPs {
			if !lb.Proxy {
				addrs = append(addrs, lb.Addr)
			}
		}
		w.addFrontends(svc, slices.DeleteFunc(addrs, func(a netip.Addr) bool { // another owner has it
			_, isInner := inner[a]
			return isInner || w.nodeAddrs[a] != "" || w.pods[a] != nil
		}))
		w.addNodePorts(svc)
	}
}

func (w *world) addPod(p *model.Pod) {
	if p.HostNetwork || p.Finished || p.NodeName == "" {
		return
	}
	for _, ip := range p.IPs {
		if _, taken := w.pods[ip]; !taken {
			w.pods[ip] = p
		}
	}
	w.behind[p.NodeName+" "+cni.PodInterface(p.ID)] = p
}

func (w *world) addFrontends(svc *model.Service, addrs []netip.Addr) {
	for _, addr := range addrs {
		own(w.vips, addr, svc.ID)
		for _, port := range svc.Ports {
			own(w.fronts, frontend{addr, port.Port, port.Protocol}, svc.ID)
		}
	}
}

func (w *world) addNodePorts(svc *model.Service) {
	for _, port := range svc.Ports {
		if port.NodePort == 0 {
			continue
		}
		own(w.nodePorts, portProto{port.NodePort, port.Protocol}, svc.ID)
		for addr := range w.nodeAddrs {
			own(w.fronts, frontend{addr, port.NodePort, port.Protocol}, svc.ID)
		}
	}
}

// own assigns key to id unless another Service already has it.
func own[K comparable](m map[K]model.ServiceID, key K, id model.ServiceID) {
	if _, taken := m[key]; !taken {
		m[key] = id
	}
}

// name returns the text for an address: pod:<ns>/<name>, node:<name>, or the address.
func (w *world) name(addr netip.Addr) string {
	if p := w.pods[addr]; p != nil {
		return "pod:" + p.ID.String()
	}
	if n := w.nodeAddrs[addr]; n != "" {
		return "node:" + n
	}
	return addr.String()
}

func (w *world) nodeOf(addr netip.Addr) string { return w.nodeAddrs[addr] }

func (w *world) podBehind(node, ifName string) *model.Pod { return w.behind[node+" "+ifName] }

// behindOverlay returns the node that an address of the cluster network leads to: by the node's address or its pod range.
func (w *world) behindOverlay(addr netip.Addr, nodes map[string]*node) *node {
	if n := nodes[w.nodeAddrs[addr]]; n != nil {
		return n
	}
	for _, n := range nodes {
		for _, cidr := range n.object.PodCIDRs {
			if cidr.Contains(addr) {
				return n
			}
		}
	}
	return nil
}

// resolve resolves the names of a question into a place and a packet.
func (c *Cluster) resolve(q Question) (place, sim.Packet, error) {
	c.world.refresh()
	proto, err := model.ParseProtocol(q.Protocol)
	if err != nil {
		return place{}, sim.Packet{}, err
	}
	to, err := c.destinations(q.To, proto)
	if err != nil {
		return place{}, sim.Packet{}, err
	}
	var from place
	var first error
	for _, t := range to {
		if from, err = c.origin(q.From, t.addr); err == nil {
			return from, firstPacket(proto, from.addr, t), nil
		}
		if first == nil {
			first = err
		}
	}
	return place{}, sim.Packet{}, first
}

// origin resolves Question.From; the place has its sender's address for a packet to dst.
func (c *Cluster) origin(s string, dst netip.Addr) (place, error) {
	p, err := c.originOf(s, dst.Is4())
	if err == nil && p.pod == nil && !p.outside {
		p.addr = p.node.cni.SourceOf(p.addr, dst)
	}
	return p, err
}

func (c *Cluster) originOf(s string, v4 bool) (place, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "pod":
		ns, name, ok := strings.Cut(rest, "/")
		if !ok {
			return place{}, fmt.Errorf("from %q: want pod:<namespace>/<name>", s)
		}
		return c.podPlace(model.PodID{Namespace: ns, Name: name}, v4)
	case "node":
		n := c.nodes[rest]
		if n == nil {
			return place{}, fmt.Errorf("from %q: unknown node %q", s, rest)
		}
		addr, err := ofFamily(n.object.Addrs(), v4)
		if err != nil {
			return place{}, fmt.Errorf("from %q: node %s: %w", s, rest, err)
		}
		return place{node: n, addr: addr}, nil
	case "external":
		ip, name, ok := strings.Cut(rest, "@")
		addr, err := netip.ParseAddr(ip)
		if !ok || err != nil {
			return place{}, fmt.Errorf("from %q: want external:<ip>@<node>", s)
		}
		n := c.nodes[name]
		if n == nil {
			return place{}, fmt.Errorf("from %q: unknown node %q", s, name)
		}
		return place{node: n, outside: true, addr: addr}, nil
	}
	return place{}, fmt.Errorf("from %q: want pod:<ns>/<name>, node:<name> or external:<ip>@<node>", s)
}

func (c *Cluster) podPlace(id model.PodID, v4 bool) (place, error) {
	p, err := c.pod(id)
	if err != nil {
		return place{}, err
	}
	n := c.nodes[p.NodeName]
	if n == nil {
		return place{}, fmt.Errorf("pod %s: its node %q is not among the objects", id, p.NodeName)
	}
	if p.HostNetwork {
		addr, err := ofFamily(n.object.Addrs(), v4)
		if err != nil {
			return place{}, fmt.Errorf("pod %s: node %s: %w", id, n.name, err)
		}
		return place{node: n, addr: addr}, nil
	}
	addr, err := ofFamily(p.IPs, v4)
	if err != nil {
		return place{}, fmt.Errorf("pod %s: %w", id, err)
	}
	return place{pod: p, node: n, addr: addr}, nil
}

func (c *Cluster) pod(id model.PodID) (*model.Pod, error) {
	obj, ok := c.world.objects[model.Ref{Kind: model.KindPod, Namespace: id.Namespace, Name: id.Name}]
	if !ok {
		return nil, fmt.Errorf("unknown pod %s", id)
	}
	p := obj.(*model.Pod)
	if p.Finished {
		return nil, fmt.Errorf("pod %s has finished: it no longer has an address", id)
	}
	return p, nil
}

func ofFamily(addrs []netip.Addr, v4 bool) (netip.Addr, error) {
	for _, a := range addrs {
		if a.Is4() == v4 {
			return a, nil
		}
	}
	family := map[bool]string{true: "IPv4", false: "IPv6"}[v4]
	return netip.Addr{}, fmt.Errorf("has no %s address", family)
}

// destinations resolves Question.To to addresses, in the order in which a client tries those of its families. It returns at
// least one.
func (c *Cluster) destinations(s string, proto model.Protocol) ([]target, error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "pod":
		ns, name, port, err := objectPort(rest, proto == model.ICMP)
		if err != nil {
			return nil, err
		}
		return c.podTargets(model.PodID{Namespace: ns, Name: name}, port)
	case "service":
		ns, name, port, err := objectPort(rest, proto == model.ICMP)
		if err != nil {
			return nil, err
		}
		obj, ok := c.world.objects[model.Ref{Kind: model.KindService, Namespace: ns, Name: name}]
		if !ok {
			return nil, fmt.Errorf("unknown service %s/%s", ns, name)
		}
		var out []target
		for _, a := range obj.(*model.Service).ClusterIPs {
			out = append(out, target{addr: a, port: port})
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("service %s/%s has no cluster IP", ns, name)
		}
		return out, nil
	}
	to, err := addressPort(s, proto)
	return []target{to}, err
}

// podTargets returns a pod's addresses, the IPv4 one first.
func (c *Cluster) podTargets(id model.PodID, port uint16) ([]target, error) {
	var out []target
	var first error
	for _, v4 := range []bool{true, false} {
		to, err := c.podPlace(id, v4)
		if err == nil {
			out = append(out, target{addr: to.addr, port: port})
		} else if first == nil {
			first = err
		}
	}
	if len(out) == 0 {
		return nil, first
	}
	return out, nil
}

// place is the start or end of a packet's path: a pod, a node's own network stack, or an address outside the cluster.
type place struct {
	pod     *model.Pod // not nil: that pod
	node    *node      // the pod's node, the node itself, or, for an outside address, the node of the uplink
	outside bool
	addr    netip.Addr // its source address, or the address it was reached at
}
