// Package intent turns the objects of manifests and assertions about them into answers for all packet headers: policies allow no packet of a
// new connection between two sides, or every one, or a counterexample shows that they do not.
//
//	objects ── class ─▶ classes of pods that no policy distinguishes, with one pod for each
//	                      │ meaning
//	                      ▼
//	what senders may send ∩ what receivers may receive ── compared with ── all new connections from one side to the other
//
// Invariant: the verdict Holds covers every header of a new connection between the sides. docs/verify.md lists what a new connection is.
package intent

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// Cluster is the objects of manifests. It is not safe for concurrent use.
type Cluster struct {
	Space   *space.Space
	Classes []*Class
	Full    *meaning.Cluster // every pod
	small   *meaning.Cluster // the first member of each class
	fresh   space.Set
	inside  []netip.Prefix // what is not outside
	nodes   []netip.Prefix // addresses of nodes
	rights  map[right]*rights
	byAddr  map[netip.Addr]place
	may     map[string]space.Set // what policies permit a side, by the side without its ports
}

// Class is pods that no policy distinguishes. The first stands for all.
type Class struct{ Members []class.Member }

// Addrs are the addresses that stand for the class in sets.
func (k *Class) Addrs() []netip.Addr { return k.Members[0].Addrs }

// Nets are the same as prefixes.
func (k *Class) Nets() []netip.Prefix { return single(k.Addrs()...) }

type right struct {
	class  *Class
	egress bool
}

// rights is what policies allow in one direction of a class.
type rights struct {
	set   space.Set
	doubt string // "": none
}

// place is an address of a pod.
type place struct {
	class         *Class
	member, index int
}

// Read groups the pods of objects. Pods without an address get a placeholder.
func Read(objects []model.Object) *Cluster { return ReadInto(space.New(), objects) }

// ReadInto is Read with the sets of a space.
func ReadInto(s *space.Space, objects []model.Object) *Cluster {
	objects = class.Complete(objects)
	c := &Cluster{Space: s, Full: meaning.Read(s, objects), fresh: newConnections(s), rights: map[right]*rights{}, byAddr: map[netip.Addr]place{}, may: map[string]space.Set{}}
	known := map[string]*Class{}
	for _, m := range class.Members(c.Full) {
		k := known[m.Key]
		if k == nil {
			k = &Class{}
			known[m.Key] = k
			c.Classes = append(c.Classes, k)
		}
		k.Members = append(k.Members, m)
	}
	first := map[model.PodID]bool{}
	for _, k := range c.Classes {
		first[k.Members[0].ID] = true
		for m := range k.Members {
			for i, a := range k.Members[m].Addrs {
				c.byAddr[a] = place{k, m, i}
			}
		}
	}
	c.small = meaning.Read(s, slices.DeleteFunc(slices.Clone(objects), func(o model.Object) bool {
		p, isPod := o.(*model.Pod)
		return isPod && !first[p.ID]
	}))
	c.readAddresses()
	return c
}

func single(addrs ...netip.Addr) (nets []netip.Prefix) {
	for _, a := range addrs {
		nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
	}
	return nets
}

// special are networks whose addresses no host outside has: this host, loopback, link-local, multicast, reserved.
var special = []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::/127", "100::/63", "fe80::/10", "ff00::/8"} // read only

// readAddresses finds what is not outside: pods, nodes, Services, and the ranges of their addresses.
func (c *Cluster) readAddresses() {
	for _, text := range special {
		c.inside = append(c.inside, netip.MustParsePrefix(text))
	}
	for _, n := range c.Full.Nodes {
		c.nodes = append(c.nodes, single(n.Addrs()...)...)
		c.inside = append(c.inside, n.PodCIDRs...)
	}
	c.inside = append(append(c.inside, c.nodes...), c.Full.Ranges...)
	for _, o := range c.Full.Services {
		c.inside = append(append(c.inside, single(o.ClusterIPs...)...), single(o.ExternalIPs...)...)
		for _, a := range o.LoadBalancerIPs {
			c.inside = append(c.inside, single(a.Addr)...)
		}
	}
	ranges := slices.Clone(c.inside)
	for a := range c.byAddr {
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
			c.inside = append(c.inside, single(a)...)
		}
	}
}

// Outside is the headers from, or to, addresses outside the cluster.
func (c *Cluster) Outside(destination bool) space.Set {
	return c.Space.Complement(c.at(destination, c.inside))
}

// Fresh is the headers of packets that begin a connection, with any addresses.
func (c *Cluster) Fresh() space.Set { return c.fresh }

func (c *Cluster) at(destination bool, nets []netip.Prefix) space.Set {
	if destination {
		return c.Space.Destinations(nets...)
	}
	return c.Space.Sources(nets...)
}

// Allowed is what policies allow in a direction of a class, without regard to the class's own addresses. The doubt, unless "", says why the
// set is not complete.
func (c *Cluster) Allowed(k *Class, egress bool) (set space.Set, doubt string) {
	r := c.rights[right{k, egress}]
	if r == nil {
		r = &rights{}
		var doubts []string
		if r.set, doubts = c.small.Allowed(k.Members[0].Pod, egress); len(doubts) > 0 {
			r.doubt = doubts[0]
		}
		c.rights[right{k, egress}] = r
	}
	return r.set, r.doubt
}

// reasonFor adds who decides about a header in a direction of a member, and returns it in words. The header has the addresses that stand for classes.
func (c *Cluster) reasonFor(e *Example, m *class.Member, egress bool, h space.Header) string {
	d := c.small.Decide(m.Pod, egress, h)
	e.Decisions = append(e.Decisions, example.DecisionOf(m.ID, egress, &d))
	return d.Text
}

// Connections is the new connections that policies allow between all classes, and between classes and hosts: the headers from, and to, addresses
// that are no pods.
func (c *Cluster) Connections(fromHosts, toHosts space.Set) space.Set {
	s := c.Space
	var all []pick
	for _, k := range c.Classes {
		p := pick{class: k}
		for range k.Addrs() {
			p.at = append(p.at, []int{0})
		}
		all = append(all, p)
	}
	sent, received := s.Union(fromHosts, c.permitted(all, false)), s.Union(toHosts, c.permitted(all, true))
	return s.Minus(s.Intersect(s.Intersect(sent, received), c.fresh), s.Intersect(fromHosts, toHosts))
}

// newConnections is the headers that begin connections: TCP with SYN alone; UDP and SCTP; messages of ICMP that are neither errors, answers
// to an echo, nor neighbour discovery; all other protocols, which have no ports.
func newConnections(s *space.Space) (set space.Set) {
	for _, all := range []space.Box{space.All4(), space.All6()} {
		icmp, quiet := uint16(space.ICMP), []uint16{0, 3, 11, 12}
		if all.Src.Addr().Is6() {
			icmp, quiet = space.ICMPv6, []uint16{1, 2, 3, 4, 129, 133, 134, 135, 136, 137}
		}
		tcp, message := all, all
		tcp.Protocols, tcp.FlagMask, tcp.FlagBits = space.One(space.TCP), 255, space.SYN
		message.Protocols, message.SrcPorts, message.DstPorts = space.One(icmp), space.Span{Last: 255}, space.Span{Last: 255}
		messages := s.Box(message)
		for _, kind := range quiet {
			message.SrcPorts = space.One(kind)
			messages = s.Minus(messages, s.Box(message))
		}
		set = s.Union(set, s.Box(tcp), messages)
		for _, number := range []uint16{space.UDP, space.SCTP} {
			ports := all
			ports.Protocols = space.One(number)
			set = s.Union(set, s.Box(ports))
		}
		var known space.Set
		for _, number := range []uint16{space.ICMP, space.TCP, space.UDP, space.ICMPv6, space.SCTP} {
			ports := all
			ports.Protocols = space.One(number)
			known = s.Union(known, s.Box(ports))
		}
		rest := all
		rest.SrcPorts, rest.DstPorts = space.One(0), space.One(0)
		set = s.Union(set, s.Minus(s.Box(rest), known))
	}
	return set
}
