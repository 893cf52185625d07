package realvpp

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// cluster is a twin per Node; packets cross between the nodes of each kind.
type cluster struct {
	path    string
	config  agent.Config
	nodes   map[string]*twin
	objects map[model.Ref]model.Object
	port    uint16
	rng     *rand.Rand
	keep    bool // VPPs stay when their nodes go
}

func newCluster(path string, cfg agent.Config) *cluster {
	return &cluster{
		path: path, config: cfg, nodes: map[string]*twin{}, objects: map[model.Ref]model.Object{}, port: 40000,
		rng: rand.New(rand.NewPCG(1, 1)),
	}
}

func (c *cluster) close() {
	for name := range c.nodes {
		c.leave(name)
	}
}

func (c *cluster) leave(name string) {
	w := c.nodes[name]
	delete(c.nodes, name)
	w.close()
	w.lab.close()
}

func (c *cluster) join(name string) error {
	l, err := openLab(c.path)
	if err != nil {
		if l != nil {
			l.close()
		}
		return err
	}
	w, err := openTwin(l, name, c.config)
	c.nodes[name] = w
	return err
}

// names of the nodes, sorted.
func (c *cluster) names() []string { return slices.Sorted(maps.Keys(c.nodes)) }

// apply sends the changes to every node; a node that joins receives all objects.
func (c *cluster) apply(changes []event.Change) error {
	joined := map[string]bool{}
	for _, ch := range changes {
		if ch.Object == nil {
			delete(c.objects, ch.Ref)
		} else {
			c.objects[ch.Ref] = ch.Object
		}
		if ch.Ref.Kind != model.KindNode {
			continue
		}
		switch _, have := c.nodes[ch.Ref.Name]; {
		case ch.Object == nil && have && !c.keep:
			c.leave(ch.Ref.Name)
		case ch.Object != nil && !have:
			if err := c.join(ch.Ref.Name); err != nil {
				return fmt.Errorf("node %s: %w", ch.Ref.Name, err)
			}
			joined[ch.Ref.Name] = true
		}
	}
	var errs []error
	for _, name := range c.names() {
		feed := changes
		if joined[name] {
			feed = nil
			for ref, obj := range c.objects {
				feed = append(feed, event.Change{Ref: ref, Object: obj})
			}
			slices.SortFunc(feed, func(a, b event.Change) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
		}
		if err := c.nodes[name].apply(feed); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// object finds one by kind and name.
func object[T model.Object](c *cluster, kind model.Kind, namespace, name string) (T, error) {
	obj, ok := c.objects[model.Ref{Kind: kind, Namespace: namespace, Name: name}].(T)
	if !ok {
		return obj, fmt.Errorf("unknown %s %s/%s", kind, namespace, name)
	}
	return obj, nil
}

func all[T model.Object](c *cluster) []T {
	var out []T
	for _, obj := range c.objects {
		if x, ok := obj.(T); ok {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b T) int { return strings.Compare(a.Ref().String(), b.Ref().String()) })
	return out
}

// place is where packets start or end: behind an interface of a node, with an address.
type place struct {
	node string
	door string
	addr netip.Addr
	// addrs are all addresses of the pod or host, if known.
	addrs []netip.Addr
}

// speaking is the address that talks to another one: of the same family, if there is one. To pods of the node its own processes speak from
// the host link.
func (c *cluster) speaking(p place, to netip.Addr) netip.Addr {
	if p.door == cni.Host && to.Is4() && slices.ContainsFunc(all[*model.Pod](c), func(x *model.Pod) bool {
		return x.NodeName == p.node && !x.HostNetwork && !x.Finished && slices.Contains(x.IPs, to)
	}) {
		return cni.HostLink
	}
	for _, a := range p.addrs {
		if a.Is4() == to.Is4() {
			return a
		}
	}
	return p.addr
}

func (c *cluster) nodeOf(a netip.Addr) string {
	for _, n := range all[*model.Node](c) {
		if slices.Contains(n.Addrs(), a) {
			return n.Name
		}
	}
	return ""
}

// behindOverlay is the node that an address of the cluster network leads to.
func (c *cluster) behindOverlay(a netip.Addr) string {
	for _, n := range all[*model.Node](c) {
		if slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return n.Name
		}
	}
	return c.nodeOf(a)
}

// journey is the end of a packet's way.
type journey struct {
	flight
	end  place
	lost string // why it got nowhere; "" if it did
	way  string // what the sims did with it
}

const (
	maxCrossings = 8
	// quiet is longer than VPP answers the same sender no more.
	quiet = 120 * time.Millisecond
)

// travel follows a packet over as many nodes as it takes.
func (c *cluster) travel(from place, f flight) (journey, error) {
	at, way := from, ""
	for range maxCrossings {
		w := c.nodes[at.node]
		hushed := w.hushed
		out, err := w.send(at.door, f)
		if err == nil && w.hushed > hushed {
			time.Sleep(quiet) // VPP would answer, but has just answered another one
			out, err = w.send(at.door, f)
		}
		switch {
		case err != nil:
			return journey{}, fmt.Errorf("node %s: %w", at.node, err)
		case len(out) == 0:
			return journey{flight: flight{sim: w.seen, real: w.seen}, lost: at.node + ": " + w.hop + "; nothing left VPP: " + w.way}, nil
		case len(out) > 1:
			return journey{}, fmt.Errorf("node %s: %d packets left at once", at.node, len(out))
		}
		f = out[0].flight
		way += " " + at.node + " " + w.way
		end, next := c.onward(at.node, out[0])
		if next == nil {
			end.way = way
			return end, nil
		}
		at = *next
	}
	return journey{lost: "it goes round"}, nil
}

// onward is where a packet that left the VPP of a node enters another node; nil: it ends there.
func (c *cluster) onward(node string, out landing) (end journey, next *place) {
	dst, to := out.sim.Dst, ""
	switch out.at {
	case cni.Overlay:
		if to = c.behindOverlay(dst); to == "" || to == node {
			return journey{lost: "nobody behind the overlay has " + dst.String()}, nil
		}
	case cni.Uplink:
		to = c.nodeOf(dst)
	}
	switch {
	case out.spoil:
		return journey{lost: "wrong checksum"}, nil
	case to == "" || to == node:
		return journey{flight: out.flight, end: place{node: node, door: out.at, addr: dst}}, nil
	}
	return journey{}, &place{node: to, door: out.at}
}

// outcome is what became of one connection attempt.
type outcome struct {
	verdict string
	why     string
	way     string // of what was delivered: what the sims did with it
	address string // the backend's; "" if none got it
	source  string // as the backend sees it
	sent    flight
	// answer is what the backend says, and where it does; not without an address.
	answer flight
	back   place
}

// attempt opens a connection from an unused port.
func (c *cluster) attempt(from place, p packet.Packet) (outcome, error) {
	if c.port++; c.port < 33000 {
		c.port = 33000 // beyond the node ports
	}
	for _, name := range c.names() {
		if err := c.stir(name); err != nil {
			return outcome{}, err
		}
	}
	if p.HasPorts() {
		p.SrcPort = c.port
	} else {
		p.ICMPID = c.port
	}
	return c.exchange(from, same(p))
}

// stir lets VPP draw a random number or not: a port for a connection to the outside that cannot keep its own. One sequence
// serves load balancing and ports, and its last bit alternates (random_u32, VPP 24.06): with two backends and one port per
// connection, every connection would get the same backend.
func (c *cluster) stir(node string) error {
	if c.rng.IntN(2) == 0 {
		return nil
	}
	p := packet.Packet{
		Src: netip.MustParseAddr("10.255.255.1"), Dst: netip.MustParseAddr("198.18.1.1"), Proto: model.UDP,
		SrcPort: 1 + uint16(c.rng.IntN(1000)), DstPort: c.port,
	}
	_, err := c.nodes[node].send(cni.Host, same(p))
	return err
}

// exchange sends a packet and the answer to it.
func (c *cluster) exchange(from place, f flight) (outcome, error) {
	o := outcome{sent: f, verdict: "dropped"}
	there, err := c.travel(from, f)
	if err != nil || there.lost != "" {
		o.why = there.lost
		return o, err
	}
	if there.sim.IsICMPError() {
		if o.why = there.sim.String(); there.end.node == from.node && there.end.door == from.door {
			o.verdict = "rejected"
		}
		return o, nil
	}
	if c.unheard(there) {
		o.verdict, o.why = "rejected", "nobody listens on a node port"
		return o, nil
	}
	if there.sim.Src == there.sim.Dst && f.sim.Src != f.sim.Dst { // who dials himself never leaves his own stack
		o.why = "no host takes packets from its own address"
		return o, nil
	}
	o.address, o.source = there.sim.Dst.String(), there.sim.Src.String()
	if there.sim.HasPorts() {
		o.address = netip.AddrPortFrom(there.sim.Dst, there.sim.DstPort).String()
	}
	back := there.end
	if owner := c.nodeOf(there.sim.Src); back.door == cni.Uplink && owner != "" {
		back.node = owner
	}
	o.answer, o.back = there.reply(), back
	home, err := c.travel(back, o.answer)
	if err != nil || home.lost != "" {
		o.why = "the reply is lost: " + home.lost
		return o, err
	}
	want, got := f.real.Reply(), home.real
	want.TTL, got.TTL = 0, 0
	if home.end.node != from.node || home.end.door != from.door || want.String() != got.String() {
		o.why = fmt.Sprintf("the reply is %s at %s of %s, the client expects %s", &got, home.end.door, home.end.node, &want)
		return o, nil
	}
	o.verdict, o.way = "delivered", there.way
	return o, nil
}

// unheard reports whether a packet reached a node's own stack at a node port, where Kubernetes keeps everybody from listening.
func (c *cluster) unheard(j journey) bool {
	if j.end.door != cni.Host {
		return false
	}
	for _, s := range all[*model.Service](c) {
		for _, p := range s.Ports {
			if p.NodePort != 0 && p.NodePort == j.sim.DstPort && p.Protocol == j.sim.Proto {
				return true
			}
		}
	}
	return false
}
