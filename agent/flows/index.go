package flows

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// index are the objects at each address; it belongs to the loop. Most addresses have one.
type index map[netip.Addr]owners

// owners are the objects at an address, in the order of model.Ref, with pods before others: the first one names the address.
type owners struct {
	first model.Object
	rest  []model.Object
}

// Changed replaces an object by its next state, in the loop; nil: it did not exist, or is removed. A nil Watcher keeps nothing.
func (w *Watcher) Changed(was, now model.Object) {
	if w == nil {
		return
	}
	w.changes.note(was, now)
	for _, a := range addrsOf(was) {
		w.index.remove(a, was)
	}
	for _, a := range addrsOf(now) {
		w.index.insert(a, now)
	}
	if n, ok := was.(*model.Node); ok {
		delete(w.nodes, n.Name)
	}
	if n, ok := now.(*model.Node); ok {
		w.nodes[n.Name] = n
	}
}

// Nodes returns the nodes of the cluster in any order, in the loop.
func (w *Watcher) Nodes() []*model.Node { return slices.Collect(maps.Values(w.nodes)) }

// addrsOf returns the addresses that an object has for itself. A pod of the host's network has those of its node.
func addrsOf(object model.Object) []netip.Addr {
	switch o := object.(type) {
	case *model.Pod:
		if !o.Finished && !o.HostNetwork {
			return o.IPs
		}
	case *model.Service:
		out := slices.Concat(o.ClusterIPs, o.ExternalIPs)
		for _, lb := range o.LoadBalancerIPs {
			out = append(out, lb.Addr)
		}
		return out
	case *model.Node:
		return o.Addrs()
	}
	return nil
}

func (x index) insert(a netip.Addr, object model.Object) {
	at, known := x[a]
	if !known {
		x[a] = owners{first: object}
		return
	}
	all := append([]model.Object{at.first}, at.rest...)
	place, twice := slices.BinarySearchFunc(all, object, compareOwners)
	if !twice { // an object may list an address twice
		all = slices.Insert(all, place, object)
	}
	x[a] = owners{all[0], all[1:]}
}

func (x index) remove(a netip.Addr, object model.Object) {
	at, known := x[a]
	if !known {
		return
	}
	all := append([]model.Object{at.first}, at.rest...)
	place, found := slices.BinarySearchFunc(all, object, compareOwners)
	switch {
	case !found:
	case len(all) == 1:
		delete(x, a)
	default:
		all = slices.Delete(all, place, place+1)
		x[a] = owners{all[0], all[1:]}
	}
}

// compareOwners sorts pods before others.
func compareOwners(a, b model.Object) int {
	_, aPod := a.(*model.Pod)
	_, bPod := b.(*model.Pod)
	switch {
	case aPod && !bPod:
		return -1
	case bPod && !aPod:
		return 1
	}
	return a.Ref().Compare(b.Ref())
}

// ownerAt returns the end of a flow at an address.
func (x index) ownerAt(a netip.Addr) flows.Peer {
	p := flows.Peer{Kind: flows.Outside}
	switch o := x[a].first.(type) {
	case *model.Pod:
		p = flows.Peer{Kind: flows.Pod, Namespace: o.ID.Namespace, Name: o.ID.Name, Workload: class.Workload(o), Node: o.NodeName, Labels: o.Labels}
	case *model.Service:
		p = flows.Peer{Kind: flows.Service, Namespace: o.ID.Namespace, Name: o.ID.Name}
	case *model.Node:
		p = flows.Peer{Kind: flows.Node, Name: o.Name}
	}
	p.Address = a
	return p
}
