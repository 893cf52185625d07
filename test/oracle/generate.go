package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// World is a random cluster that changes step by step. Every draw comes from its generator, so a seed determines everything.
type World struct {
	rng      *rand.Rand
	Nodes    []*model.Node
	Pods     map[model.PodID]*model.Pod
	Services map[model.ServiceID]*model.Service
	Slices   map[model.SliceID]*model.EndpointSlice
	CIDR     *model.ServiceCIDR
	families Families

	Extras // none, unless NewWorldWithExtras made it
	extra  *rand.Rand
}

// Families says which kinds of addresses nodes, pods and services of a cluster have.
type Families uint8

// The families. A Service of a cluster with both has one of them, or both in either order.
const (
	IPv4 Families = 1 << iota
	IPv6
	Dual = IPv4 | IPv6
)

// each are the families there are, IPv4 first.
func (f Families) each() []Families {
	var out []Families
	for _, one := range []Families{IPv4, IPv6} {
		if f&one != 0 {
			out = append(out, one)
		}
	}
	return out
}

// pickAddr is one of two addresses.
func (f Families) pickAddr(v4, v6 string) netip.Addr {
	if f == IPv6 {
		return netip.MustParseAddr(v6)
	}
	return netip.MustParseAddr(v4)
}

func familyOf(a netip.Addr) Families {
	if a.Is6() {
		return IPv6
	}
	return IPv4
}

// pickAddrs are the addresses of a family.
func (f Families) pickAddrs(list []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return familyOf(a)&f == 0 })
}

// addrs is an address of each family.
func (f Families) addrs(v4, v6 string) []netip.Addr {
	var out []netip.Addr
	for _, one := range f.each() {
		out = append(out, one.pickAddr(v4, v6))
	}
	return out
}

// Bounds of the random clusters: small, so that collisions and corner cases are frequent.
const (
	maxPodsPerNode = 4
	maxServices    = 5
	outsideClient  = "198.51.100.7"
	outsideClient6 = "2001:db8:51::7"
)

// NewWorld returns a cluster with nodes and pods, all of IPv4, no services yet.
func NewWorld(seed uint64) *World { return NewWorldOf(seed, IPv4) }

// NewWorldOf is NewWorld with addresses of other families.
func NewWorldOf(seed uint64, families Families) *World {
	w := &World{
		families: families,
		rng:      rand.New(rand.NewPCG(seed, 0)),
		Pods:     map[model.PodID]*model.Pod{},
		Services: map[model.ServiceID]*model.Service{},
		Slices:   map[model.SliceID]*model.EndpointSlice{},
		CIDR:     &model.ServiceCIDR{Name: "kubernetes", CIDRs: families.prefixes("10.96.0.0/16", "fd00:96::/112")},
	}
	for i := range 1 + w.rng.IntN(3) {
		n := &model.Node{
			Name:        fmt.Sprintf("node-%d", i+1),
			InternalIPs: families.addrs(fmt.Sprintf("192.168.16.%d", i+1), fmt.Sprintf("fd00:16::%d", i+1)),
			PodCIDRs:    families.prefixes(fmt.Sprintf("10.1.%d.0/24", i+1), fmt.Sprintf("fd00:1:%d::/64", i+1)),
		}
		w.Nodes = append(w.Nodes, n)
		for j := range 1 + w.rng.IntN(maxPodsPerNode) {
			w.addPod(n, families.addrs(fmt.Sprintf("10.1.%d.%d", i+1, j+2), fmt.Sprintf("fd00:1:%d::%d", i+1, j+2)))
		}
	}
	return w
}

func (f Families) prefixes(v4, v6 string) []netip.Prefix {
	var out []netip.Prefix
	for _, one := range f.each() {
		text := v4
		if one == IPv6 {
			text = v6
		}
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func addr(format string, args ...any) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, args...))
}

// addPod names a pod by its first address, without dots: VPP's command line takes what follows a dot for the number of a sub-interface.
func (w *World) addPod(n *model.Node, ips []netip.Addr) {
	id := model.PodID{Namespace: "default", Name: fmt.Sprintf("pod-%s-%s", n.Name, strings.NewReplacer(".", "-", ":", "-").Replace(ips[0].String()))}
	w.Pods[id] = &model.Pod{ID: id, NodeName: n.Name, IPs: ips}
}

// Objects are all objects of the cluster, sorted by reference.
func (w *World) Objects() []model.Object {
	out := []model.Object{w.CIDR}
	for _, n := range w.Nodes {
		out = append(out, n)
	}
	for _, p := range w.Pods {
		out = append(out, p)
	}
	for _, s := range w.Services {
		out = append(out, s)
	}
	for _, s := range w.Slices {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b model.Object) int {
		return compareText(a.Ref().String(), b.Ref().String())
	})
	return out
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Cluster is the oracle's view.
func (w *World) Cluster() *Cluster {
	c := &Cluster{Nodes: w.Nodes, CIDRs: w.CIDR.CIDRs, Extras: w.Extras}
	for _, o := range w.Objects() {
		switch o := o.(type) {
		case *model.Service:
			c.Services = append(c.Services, o)
		case *model.EndpointSlice:
			c.Slices = append(c.Slices, o)
		case *model.Pod:
			c.Pods = append(c.Pods, o)
		}
	}
	return c
}

// Step changes one thing and returns the objects put and the references removed.
func (w *World) Step() (put []model.Object, removed []model.Ref) {
	switch {
	case len(w.Services) == 0 || len(w.Services) < maxServices && w.chance(3):
		return w.addService()
	case w.chance(6):
		return w.removeService()
	case w.chance(4):
		svc := w.mutateService(w.anyService())
		w.Services[svc.ID] = svc
		return []model.Object{svc}, nil
	}
	return w.changeEndpoints()
}

func (w *World) chance(n int) bool { return w.rng.IntN(n) == 0 }

func pick[T any](w *World, list []T) T { return list[w.rng.IntN(len(list))] }

func (w *World) anyService() *model.Service {
	ids := make([]model.ServiceID, 0, len(w.Services))
	for id := range w.Services {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, model.ServiceID.Compare)
	return w.Services[pick(w, ids)]
}

func (w *World) addService() ([]model.Object, []model.Ref) {
	var n int
	for n = 1; ; n++ {
		if _, taken := w.Services[model.ServiceID{Namespace: "default", Name: fmt.Sprintf("svc-%d", n)}]; !taken {
			break
		}
	}
	svc := &model.Service{ID: model.ServiceID{Namespace: "default", Name: fmt.Sprintf("svc-%d", n)}}
	svc.ClusterIPs = w.someFamilies().addrs(fmt.Sprintf("10.96.0.%d", 10+n), fmt.Sprintf("fd00:96::%d", 10+n))
	if len(svc.ClusterIPs) > 1 && w.chance(2) {
		slices.Reverse(svc.ClusterIPs)
	}
	for i := range 1 + w.rng.IntN(2) {
		svc.Ports = append(svc.Ports, model.ServicePort{
			Name: fmt.Sprintf("p%d", i), Protocol: pick(w, []model.Protocol{model.TCP, model.TCP, model.UDP}), Port: uint16(80 + i),
		})
	}
	svc = w.mutateService(svc)
	w.Services[svc.ID] = svc
	put := []model.Object{svc}
	for i := range 1 + w.rng.IntN(2) {
		for _, ip := range svc.ClusterIPs {
			slice := w.newSlice(svc, i, familyOf(ip))
			w.Slices[slice.ID] = slice
			put = append(put, slice)
		}
	}
	return put, nil
}

// someFamilies are those of one Service.
func (w *World) someFamilies() Families {
	if w.families != Dual {
		return w.families
	}
	return pick(w, []Families{IPv4, IPv6, Dual, Dual})
}

// mutateService returns a copy with new properties.
func (w *World) mutateService(old *model.Service) *model.Service {
	svc := *old
	svc.Ports = slices.Clone(old.Ports)
	svc.Type = pick(w, []model.ServiceType{model.ClusterIP, model.NodePort, model.LoadBalancer})
	svc.ProxyName = ""
	switch w.rng.IntN(15) {
	case 0:
		svc.Type = model.ExternalName // an old cluster IP may stay in the object
	case 1:
		svc.ProxyName = "somebody-else"
	}
	svc.ExternalIPs, svc.LoadBalancerIPs = nil, nil
	n := number(svc.ClusterIPs[0])
	for i := range svc.Ports {
		svc.Ports[i].NodePort = 0
		if svc.Type != model.ClusterIP {
			svc.Ports[i].NodePort = uint16(30000 + 10*n + i)
		}
	}
	if w.chance(3) {
		x := 1 + w.rng.IntN(3) // shared now and then
		svc.ExternalIPs = w.families.addrs(fmt.Sprintf("203.0.113.%d", x), fmt.Sprintf("2001:db8:cb::%d", x))
	}
	if svc.Type == model.LoadBalancer {
		proxy := w.chance(5)
		for _, a := range w.families.addrs(fmt.Sprintf("203.0.113.%d", 100+n), fmt.Sprintf("2001:db8:cb::%d", 100+n)) {
			svc.LoadBalancerIPs = append(svc.LoadBalancerIPs, model.LoadBalancerIP{Addr: a, Proxy: proxy})
		}
	}
	svc.LoadBalancerSourceRanges = nil
	for svc.Type == model.LoadBalancer && w.chance(2) {
		svc.LoadBalancerSourceRanges = append(svc.LoadBalancerSourceRanges, netip.MustParsePrefix(pick(w, sourceRangesAtRandom())))
	}
	svc.ExternalTrafficPolicy = pick(w, []model.TrafficPolicy{model.PolicyCluster, model.PolicyLocal})
	svc.InternalTrafficPolicy = pick(w, []model.TrafficPolicy{model.PolicyCluster, model.PolicyCluster, model.PolicyLocal})
	svc.SessionAffinityTimeout = 0
	if w.chance(4) {
		svc.SessionAffinityTimeout = 3 * time.Hour
	}
	w.steal(&svc)
	return &svc
}

// sourceRangesAtRandom have some clients, none, or all.
func sourceRangesAtRandom() []string {
	return []string{
		"198.51.100.0/24", outsideClient + "/32", "10.1.1.0/24", "10.1.0.0/16", "10.1.2.2/31", "192.168.16.0/24", "192.0.2.0/24", "0.0.0.0/0",
		"0.0.0.0/1", "2001:db8:51::/48", "fd00:1:1::/64", "::/0",
	}
}

// number numbers Services.
func number(clusterIP netip.Addr) int {
	b := clusterIP.As16()
	return int(b[15])
}

func (w *World) newSlice(svc *model.Service, n int, f Families) *model.EndpointSlice {
	slice := &model.EndpointSlice{
		ID:      model.SliceID{Namespace: "default", Name: fmt.Sprintf("%s-%d", svc.ID.Name, n)},
		Service: svc.ID,
	}
	if f == IPv6 {
		slice.IPv6 = true
		slice.ID.Name += "-v6"
	}
	for _, p := range svc.Ports {
		slice.Ports = append(slice.Ports, model.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port + 8000})
	}
	for range w.rng.IntN(4) {
		slice.Endpoints = append(slice.Endpoints, w.endpoint(f))
	}
	return slice
}

// endpoint is a random pod, now and then a node itself.
func (w *World) endpoint(f Families) model.Endpoint {
	ep := model.Endpoint{Ready: true, Serving: true}
	switch w.rng.IntN(6) {
	case 0:
		ep.Ready, ep.Serving = false, false
	case 1:
		ep.Ready, ep.Terminating = false, true
	}
	if w.chance(6) {
		n := pick(w, w.Nodes)
		ep.Addr, ep.NodeName = f.pickAddrs(n.InternalIPs)[0], n.Name
		w.hint(&ep)
		return ep
	}
	p := w.anyPod()
	ep.Addr, ep.NodeName, ep.Pod = f.pickAddrs(p.IPs)[0], p.NodeName, p.ID
	w.hint(&ep)
	return ep
}

func (w *World) anyPod() *model.Pod {
	ids := make([]model.PodID, 0, len(w.Pods))
	for id := range w.Pods {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, model.PodID.Compare)
	return w.Pods[pick(w, ids)]
}

func (w *World) removeService() ([]model.Object, []model.Ref) {
	svc := w.anyService()
	delete(w.Services, svc.ID)
	removed := []model.Ref{svc.Ref()}
	for id, slice := range w.Slices {
		if slice.Service == svc.ID {
			delete(w.Slices, id)
			removed = append(removed, slice.Ref())
		}
	}
	slices.SortFunc(removed, func(a, b model.Ref) int { return compareText(a.String(), b.String()) })
	return nil, removed
}

func (w *World) changeEndpoints() ([]model.Object, []model.Ref) {
	svc := w.anyService()
	var ids []model.SliceID
	for id, slice := range w.Slices {
		if slice.Service == svc.ID {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		slice := w.newSlice(svc, 0, familyOf(svc.ClusterIPs[0]))
		w.Slices[slice.ID] = slice
		return []model.Object{slice}, nil
	}
	slices.SortFunc(ids, func(a, b model.SliceID) int { return compareText(a.String(), b.String()) })
	slice := *w.Slices[pick(w, ids)]
	slice.Endpoints = slices.Clone(slice.Endpoints)
	if n := len(slice.Endpoints); n > 0 && w.chance(2) {
		slice.Endpoints = slices.Delete(slice.Endpoints, 0, 1+w.rng.IntN(n))
	} else {
		slice.Endpoints = append(slice.Endpoints, w.endpoint(map[bool]Families{false: IPv4, true: IPv6}[slice.IPv6]))
	}
	w.Slices[slice.ID] = &slice
	return []model.Object{&slice}, nil
}

// Packets are n random packets, most of them towards services.
func (w *World) Packets(n int) []Packet {
	out := make([]Packet, 0, n)
	for range n {
		out = append(out, w.packet())
	}
	return out
}

func (w *World) packet() Packet {
	p := Packet{Proto: pick(w, []model.Protocol{model.TCP, model.TCP, model.UDP})}
	node := pick(w, w.Nodes)
	f := w.families
	if f == Dual {
		f = pick(w, f.each())
	}
	switch w.rng.IntN(4) {
	case 0:
		p.Class, p.Node, p.Src = Outside, node.Name, f.pickAddr(outsideClient, outsideClient6)
	case 1:
		p.Class, p.Node, p.Src = Host, node.Name, f.pickAddrs(node.InternalIPs)[0]
	default:
		pod := w.anyPod()
		p.Class, p.Node, p.Src = Pod, pod.NodeName, f.pickAddrs(pod.IPs)[0]
	}
	p.Dst = w.destination(&p, f)
	return p
}

// destination is a frontend of some service, at times with a wrong port, at times a pod.
func (w *World) destination(p *Packet, f Families) netip.AddrPort {
	if len(w.Services) == 0 || w.chance(10) {
		pod := w.anyPod()
		for p.Class == Outside && pod.NodeName != p.Node { // nobody promises pods to the outside; the own node's work
			pod = w.anyPod()
		}
		return netip.AddrPortFrom(f.pickAddrs(pod.IPs)[0], 8080)
	}
	svc := w.anyService()
	port := pick(w, svc.Ports)
	p.Proto = port.Protocol
	var all []netip.AddrPort
	clusterIPs := f.pickAddrs(svc.ClusterIPs)
	for _, ip := range slices.Concat(clusterIPs, f.pickAddrs(svc.ExternalIPs)) {
		all = append(all, netip.AddrPortFrom(ip, port.Port))
	}
	for _, lb := range svc.LoadBalancerIPs {
		if !lb.Proxy && familyOf(lb.Addr) == f {
			all = append(all, netip.AddrPortFrom(lb.Addr, port.Port))
		}
	}
	all = slices.DeleteFunc(all, func(at netip.AddrPort) bool { return p.Class == Outside && w.isPod(at.Addr()) }) // as above
	if port.NodePort != 0 && len(clusterIPs) > 0 {
		all = append(all, w.nodePort(p, port, f))
	}
	if len(clusterIPs) > 0 && w.chance(12) {
		return netip.AddrPortFrom(clusterIPs[0], 9)
	}
	if len(all) == 0 { // nothing of it is of this family
		return netip.AddrPortFrom(f.pickAddr("10.96.0.200", "fd00:96::200"), port.Port)
	}
	return pick(w, all)
}

func (w *World) isPod(a netip.Addr) bool {
	for _, pod := range w.Pods {
		if slices.Contains(pod.IPs, a) {
			return true
		}
	}
	return false
}

// nodePort is a node's address and the node port: clients outside and the node itself dial the node they enter at.
func (w *World) nodePort(p *Packet, port model.ServicePort, f Families) netip.AddrPort {
	node := pick(w, w.Nodes)
	if p.Class != Pod {
		for _, n := range w.Nodes {
			if n.Name == p.Node {
				node = n
			}
		}
	}
	return netip.AddrPortFrom(f.pickAddrs(node.InternalIPs)[0], port.NodePort)
}
