// Package cni turns Nodes and Pods into the interfaces, addresses and routes that a CNI would make in a VPP.
//
//	pod ── pod-<ns>/<name> ─┐                 ┌─ overlay ── pods and addresses of the other nodes
//	pod ── pod-<ns>/<name> ─┤   VPP of a node ├─ uplink ─── the world outside
//	                        └─────────────────┴─ host ───── the node's network stack, and its addresses
//
// Invariant: the objects in the VPP depend on the Kubernetes objects only, not on the order in which they came.
package cni

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
)

// The interfaces every node has.
const (
	Uplink  = "uplink"
	Overlay = "overlay"
	Host    = "host"
	Gateway = "loop0" // has the addresses that pods use as their router
)

// gateways are the pods' routers on every node, and the source addresses of VPP's ICMP errors. No pod is in their ranges.
func gateways() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("169.254.1.1/32"), netip.MustParsePrefix("fd69:254:1::1/128")}
}

// HostLink is the address from which a node's processes reach its pods. Nothing else has it, so NAT never uses it. It is the same on
// every node. In IPv6, which nat44 does not translate, the processes send from the node's address.
var HostLink = netip.MustParseAddr("169.254.1.2") // read only

// maxName is the longest interface name of VPP (interface.api: string name[64], with its final zero).
const maxName = 63

// PodInterface is the name of a pod's interface: pod-<ns>/<name>, with a hash in place of the end if that is too long.
func PodInterface(id model.PodID) string {
	name := "pod-" + id.String()
	if len(name) <= maxName {
		return name
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id.String())) // never fails
	return fmt.Sprintf("%s-%08x", name[:maxName-9], h.Sum32())
}

// Located names the interfaces of every node, for agents that need no lookup.
func Located() event.Located {
	return event.Located{Uplink: Uplink, Overlay: Overlay, Host: Host, HostIPs: []netip.Addr{HostLink}}
}

// VPP is the VPP that a CNI configures: a simulated one, or a real one under test.
type VPP interface {
	AddInterface(sim.Interface) (swIfIndex uint32)
	RemoveInterface(name string)
	AddRoute(sim.Route) error
	RemoveRoute(vrf uint32, p netip.Prefix)
}

// CNI is the CNI of one node. It is not safe for concurrent use.
type CNI struct {
	vpp   VPP
	name  string
	nodes map[string]*model.Node
	pods  map[model.PodID]*model.Pod
}

// New makes the interfaces every node has; addresses and routes come with Apply.
func New(v VPP, nodeName string) *CNI {
	v.AddInterface(sim.Interface{Name: Gateway, Addresses: gateways()})
	for _, name := range []string{Uplink, Overlay, Host} {
		v.AddInterface(sim.Interface{Name: name, Unnumbered: Gateway, Bridges: name == Overlay})
	}
	c := &CNI{vpp: v, name: nodeName, nodes: map[string]*model.Node{}, pods: map[model.PodID]*model.Pod{}}
	for _, out := range []string{"0.0.0.0/0", "::/0"} {
		route := sim.Route{Prefix: netip.MustParsePrefix(out), Paths: []sim.Path{{Interface: Uplink}}}
		if err := v.AddRoute(route); err != nil {
			panic(fmt.Sprintf("cni: the uplink made above is not there: %v", err))
		}
	}
	if err := v.AddRoute(sim.Route{Prefix: netip.PrefixFrom(HostLink, 32), Paths: []sim.Path{{Interface: Host}}}); err != nil {
		panic(fmt.Sprintf("cni: the host interface made above is not there: %v", err))
	}
	return c
}

// SourceOf returns the address from which a node's processes dial dst. The kernel has a route to the node's pods through VPP, with
// HostLink as its source, but none to services and other nodes' pods.
func (c *CNI) SourceOf(own, dst netip.Addr) netip.Addr {
	for _, p := range c.pods {
		if dst.Is4() && slices.Contains(p.IPs, dst) {
			return HostLink
		}
	}
	return own
}

// Apply handles changes of Nodes and Pods, and ignores other objects.
func (c *CNI) Apply(changes []event.Change) error {
	for _, ch := range changes {
		var err error
		switch ch.Ref.Kind {
		case model.KindNode:
			node, _ := ch.Object.(*model.Node)
			err = c.setNode(ch.Ref.Name, node)
		case model.KindPod:
			pod, _ := ch.Object.(*model.Pod)
			err = c.setPod(model.PodID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}, pod)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ch.Ref, err)
		}
	}
	return nil
}

func (c *CNI) setNode(name string, node *model.Node) error {
	affected := c.prefixesBehind(name, c.nodes[name])
	if node == nil {
		delete(c.nodes, name)
	} else {
		c.nodes[name] = node
	}
	return c.route(append(affected, c.prefixesBehind(name, node)...)...)
}

// prefixesBehind returns the prefixes that a node adds to the routes. For this node these are its addresses, which are in its network stack:
// VPP forwards to them and does not own them. (VPP checks packets to its addresses at arrival: it drops those from a source without
// a route, such as a cluster IP, before the stack receives them.) For another node these are its pods and its addresses. (A node's
// processes reach pods of other nodes from its address, so the reply must not leave by the uplink, which would masquerade it.)
func (c *CNI) prefixesBehind(name string, n *model.Node) []netip.Prefix {
	switch {
	case n == nil:
		return nil
	case name == c.name:
		return hosts(n)
	}
	return slices.Concat(n.PodCIDRs, hosts(n))
}

// hosts returns the addresses of a node as prefixes.
func hosts(n *model.Node) []netip.Prefix { return prefixes(n.Addrs()) }

func prefixes(addrs []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		out[i] = netip.PrefixFrom(a, a.BitLen())
	}
	return out
}

// plumbed reports whether the pod has a separate interface on this node.
func (c *CNI) plumbed(p *model.Pod) bool {
	return p != nil && p.NodeName == c.name && !p.HostNetwork && !p.Finished && len(p.IPs) > 0
}

func (c *CNI) setPod(id model.PodID, pod *model.Pod) error {
	old := c.pods[id]
	if c.plumbed(old) && c.plumbed(pod) && slices.Equal(old.IPs, pod.IPs) {
		c.pods[id] = pod
		return nil
	}
	if c.plumbed(old) {
		if err := c.unplumb(old); err != nil {
			return err
		}
	}
	if !c.plumbed(pod) {
		return nil
	}
	c.pods[id] = pod
	return c.plumb(pod)
}

func (c *CNI) plumb(p *model.Pod) error {
	i := sim.Interface{Name: PodInterface(p.ID), Tag: p.ID.String(), DevType: "af-packet", Unnumbered: Gateway}
	if len(i.Tag) > maxName {
		i.Tag = "" // VPP would truncate it, and a truncated name identifies no pod
	}
	c.vpp.AddInterface(i)
	return c.route(prefixes(p.IPs)...)
}

func (c *CNI) unplumb(p *model.Pod) error {
	delete(c.pods, p.ID)
	if err := c.route(prefixes(p.IPs)...); err != nil {
		return err
	}
	c.vpp.RemoveInterface(PodInterface(p.ID))
	return nil
}

// route updates the routes of some prefixes to match the present objects.
func (c *CNI) route(affected ...netip.Prefix) error {
	for _, p := range affected {
		path, wanted := c.path(p)
		if !wanted {
			c.vpp.RemoveRoute(0, p)
			continue
		}
		if err := c.vpp.AddRoute(sim.Route{Prefix: p, Paths: []sim.Path{path}}); err != nil {
			return err
		}
	}
	return nil
}

// path returns the path of a prefix: to its pod (of two with the prefix, to the one that sorts first), else to this node's network
// stack, else over the overlay.
func (c *CNI) path(p netip.Prefix) (path sim.Path, wanted bool) {
	var owner *model.Pod
	for _, pod := range c.pods {
		if p.IsSingleIP() && slices.Contains(pod.IPs, p.Addr()) && (owner == nil || pod.ID.Compare(owner.ID) < 0) {
			owner = pod
		}
	}
	if owner != nil {
		return sim.Path{Interface: PodInterface(owner.ID), Via: p.Addr()}, true
	}
	for name, n := range c.nodes {
		if !slices.Contains(c.prefixesBehind(name, n), p) {
			continue
		}
		if name == c.name {
			return sim.Path{Interface: Host}, true
		}
		path, wanted = sim.Path{Interface: Overlay}, true
	}
	return path, wanted
}

// Source is a source of objects, as an agent has.
type Source interface {
	Run(ctx context.Context, emit func(event.Event)) error
}

// Before returns a source with the events of another: before each update it configures the VPP, so that pods get their interfaces before the agent
// receives the pods. It calls failed for each object that the VPP refused.
func (c *CNI) Before(source Source, failed func(error)) Source { return plumbed{source, c, failed} }

type plumbed struct {
	source Source
	cni    *CNI
	failed func(error)
}

// Run implements Source.
func (p plumbed) Run(ctx context.Context, emit func(event.Event)) error {
	return p.source.Run(ctx, func(ev event.Event) {
		if up, ok := ev.(*event.Update); ok {
			if err := p.cni.Apply(up.Changes); err != nil {
				p.failed(err)
			}
		}
		emit(ev)
	})
}
