package transient_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// node is one node: its VPP, its CNI, and its agent.
type node struct {
	name   string
	object *model.Node
	vpp    *sim.VPP
	cni    *cni.CNI
	agent  *agent.Stepper

	committed func(*event.Committed) // nil: not called
	refused   bool                   // VPP refused a list or a mapping
}

// cluster is all nodes. The nodes of a random cluster never change except for their labels.
type cluster struct {
	nodes map[string]*node
	names []string
	pods  map[model.Ref][]netip.Addr // their addresses, also of deleted pods
	end   end                        // of the last packet that arrived nowhere
}

// end is where a packet was dropped.
type end struct {
	dst  netip.AddrPort // its destination there
	text string
}

const source = "objects"

// newCluster returns a settled cluster of these objects.
func newCluster(objects []policy.Object, seed uint64) (*cluster, error) {
	return newClusterWith(objects, seed, 0)
}

// newDividedCluster returns one whose agents divide transactions after each interface.
func newDividedCluster(objects []policy.Object, seed uint64) (*cluster, error) {
	return newClusterWith(objects, seed, time.Nanosecond)
}

func newClusterWith(objects []policy.Object, seed uint64, stall time.Duration) (*cluster, error) {
	c := &cluster{nodes: map[string]*node{}, pods: map[model.Ref][]netip.Addr{}}
	changes, err := hear.All(generate.Since(nil, objects))
	if err != nil {
		return nil, err
	}
	c.know(changes)
	for _, ch := range changes {
		obj, ok := ch.Object.(*model.Node)
		if !ok {
			continue
		}
		v := sim.New(sim.Config{Seed: seed, PuntLocal: true, LogLimit: 1})
		n := &node{name: obj.Name, object: obj, vpp: v, cni: cni.New(v, obj.Name)}
		n.agent, err = agent.NewStepper(context.Background(), agent.Config{
			NodeName: obj.Name, VPP: vpp.Config{Dial: v.Dial}, Sources: map[string]agent.Source{source: agent.Fed{}},
			Override: cni.Located(), Process: config.Process{Now: v.Now, OnCommitted: n.onCommitted}, Policies: config.Policies{PostDNAT: postDNAT(seed)}, VPPAgent: vppagent.Config{Stall: stall},
		})
		if err != nil {
			c.close()
			return nil, err
		}
		c.nodes[obj.Name] = n
		c.names = append(c.names, obj.Name)
	}
	for _, n := range c.nodes {
		err := n.cni.Apply(changes)
		if err == nil {
			err = n.feed(changes)
		}
		if err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

// postDNAT returns the view of a seed: in every third cluster lists see packets after the translation.
func postDNAT(seed uint64) bool { return seed%3 == 0 }

func (c *cluster) close() {
	for _, n := range c.nodes {
		n.agent.Close()
		n.vpp.Close()
	}
}

func (n *node) onCommitted(ev *event.Committed) {
	if n.committed != nil {
		n.committed(ev)
	}
}

func (n *node) feed(changes []event.Change) error {
	return n.agent.Feed(context.Background(), &event.Update{Source: source, Changes: changes}, &event.SyncStatus{Source: source, Status: event.InSync})
}

// arrival is where a packet arrived, and the packet.
type arrival struct {
	node, door string // the interface that sent it; "" is the node's own network stack
	src, dst   netip.Addr
	port       uint16
}

func (a arrival) String() string {
	return fmt.Sprintf("%s -> %s:%d at %s %s", a.src, a.dst, a.port, a.node, a.door)
}

// maxCrossings bounds how often a packet crosses between nodes.
const maxCrossings = 8

// walk sends a packet, and follows it over the nodes until it arrives; false: it does not.
func (c *cluster) walk(at *node, door string, p sim.Packet) (arrival, sim.Packet, bool) {
	for range maxCrossings {
		fate := at.vpp.Send(door, p)
		if len(fate.Out) == 0 || fate.Out[0].Origin != sim.Forwarded {
			c.end = end{netip.AddrPortFrom(fate.Last.Dst, fate.Last.DstPort), fmt.Sprintf("%s: %v", at.name, fate.Hops)}
			return arrival{}, p, false
		}
		out := fate.Out[0]
		p, door = out.Packet, out.Interface
		next := c.next(at, out)
		if next == nil {
			if door == cni.Overlay {
				c.end = end{netip.AddrPortFrom(p.Dst, p.DstPort), "no receiver behind the overlay"}
				return arrival{}, p, false
			}
			if out.Local || door == cni.Host {
				door = ""
			}
			return arrivalOf(at, door, &p), p, true
		}
		at = next
	}
	return arrival{}, p, false
}

// arrivalOf returns a packet's place of arrival. Of SCTP the source is left out: nat44 gives it any address of its pool, by sessions of other protocols,
// or, where it is not on the sender's interface yet, none. Sender and receiver are the same.
func arrivalOf(at *node, door string, p *sim.Packet) arrival {
	a := arrival{at.name, door, p.Src, p.Dst, p.DstPort}
	if p.Proto == model.SCTP {
		a.src = netip.Addr{}
	}
	return a
}

// next returns the node that a packet enters after leaving another; nil: none, it has arrived.
func (c *cluster) next(at *node, out sim.Output) *node {
	if out.Local || out.Interface != cni.Overlay && out.Interface != cni.Uplink {
		return nil
	}
	for _, n := range c.nodes {
		if n == at {
			continue
		}
		if slices.Contains(n.object.Addrs(), out.Packet.Dst) {
			return n
		}
		if out.Interface == cni.Overlay && slices.ContainsFunc(n.object.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(out.Packet.Dst) }) {
			return n
		}
	}
	return nil
}

// meanwhile runs a function and restores the sessions afterwards.
func (c *cluster) meanwhile(do func()) {
	marks := make([]sim.Mark, len(c.names))
	for i, name := range c.names {
		marks[i] = c.nodes[name].vpp.Snapshot()
	}
	do()
	for i, name := range c.names {
		c.nodes[name].vpp.Restore(marks[i])
		c.nodes[name].vpp.Release()
	}
}

// outcome is what becomes of a packet for all choices of the load balancers.
type outcome struct {
	at   []arrival
	lost []end // where it is dropped for some choices
}

// whole reports whether the packet arrives for every choice.
func (o *outcome) whole() bool { return len(o.at) > 0 && len(o.lost) == 0 }

// arrivals returns all places where a packet may arrive.
func (c *cluster) arrivals(p *probe) []arrival { return c.outcome(p).at }

// outcome sends a packet once for each choice of the load balancers, and undoes the sessions.
func (c *cluster) outcome(p *probe) (out outcome) {
	c.choices(p, func() bool {
		a, _, ok := c.walk(c.nodes[p.node], p.door, p.packet)
		switch {
		case !ok:
			out.lost = append(out.lost, c.end)
		case !slices.Contains(out.at, a):
			out.at = append(out.at, a)
		}
		return false
	})
	return out
}

// choices calls f for each sequence of choices of the load balancers, until it returns true, and undoes the sessions after each.
func (c *cluster) choices(p *probe, f func() bool) {
	for script, done := []int{}, false; script != nil && !done; {
		var options []int
		if p.service {
			c.choose(func(n int) int {
				options = append(options, n)
				if k := len(options) - 1; k < len(script) {
					return min(script[k], n-1)
				}
				return 0
			})
		}
		c.meanwhile(func() { done = f() })
		script = next(script, options)
	}
	if p.service {
		c.choose(nil)
	}
}

func (c *cluster) choose(f func(int) int) {
	for _, n := range c.nodes {
		n.vpp.SetChoice(f)
	}
}

// next returns the next sequence of choices in counting order; nil after the last.
func next(script, options []int) []int {
	out := make([]int, len(options))
	copy(out, script)
	for k := len(out) - 1; k >= 0; k-- {
		if out[k]+1 < options[k] {
			out[k]++
			return out[:k+1]
		}
	}
	return nil
}
