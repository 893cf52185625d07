package attachment

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// An agent with an external dataplane driver calculates policies, and does not enforce them.
//
//	plugins/policy ─┬─▶ felix.Supervisor ─ fd 3 ─▶ driver ─▶ access lists in VPP
//	NodeFeed ───────┘                    ◀─ fd 4 ─┘ state of endpoints
//	plugins/service ─▶ renderer/nat44 ─▶ vppagent ─▶ everything else in VPP

// NodeFeed sends a driver the messages that Felix sends beside policies: the nodes' addresses, their pod prefixes, and the
// Services.
type NodeFeed struct {
	driver Sink
	graph  *calc.Graph
	nodes  map[string]*model.Node
}

// Sink receives the messages; felix.Supervisor implements it.
type Sink interface {
	OnUpdate(*pb.ToDataplane)
	Apply() (again bool)
}

// NewNodeFeed returns a feed for the driver of a node.
func NewNodeFeed(node string, driver Sink) *NodeFeed {
	return &NodeFeed{driver: driver, graph: calc.New(calc.Config{Node: node, NodeResources: true}), nodes: map[string]*model.Node{}}
}

// Apply implements controller.Processor.
func (t *NodeFeed) Apply(ch event.Change) {
	switch ch.Ref.Kind {
	case model.KindService:
		s, _ := ch.Object.(*model.Service)
		t.graph.SetService(model.ServiceID{Namespace: ch.Ref.Namespace, Name: ch.Ref.Name}, s)
	case model.KindNode:
		n, _ := ch.Object.(*model.Node)
		t.sendNode(ch.Ref.Name, n)
	}
}

// sendNode sends a Node in Calico's form: one address of each family, and the prefixes of its pods as blocks.
func (t *NodeFeed) sendNode(name string, n *model.Node) {
	if old := t.nodes[name]; old != nil {
		for _, p := range old.PodCIDRs {
			if n == nil || !slices.Contains(n.PodCIDRs, p) {
				t.graph.SetBlock(p, nil)
			}
		}
	}
	if delete(t.nodes, name); n == nil {
		t.graph.SetHostIP(name, netip.Addr{})
		t.graph.SetHost(name, nil)
		return
	}
	t.nodes[name] = n
	h := &model.Host{Name: name, Labels: n.Labels, Addrs: n.Addrs()}
	for _, a := range h.Addrs {
		switch p := netip.PrefixFrom(a, a.BitLen()); {
		case a.Is4() && !h.IPv4.IsValid():
			h.IPv4, h.Net4 = a, p
		case a.Is6() && !h.IPv6.IsValid():
			h.IPv6, h.Net6 = a, p
		}
	}
	t.graph.SetHostIP(name, h.IPv4)
	t.graph.SetHost(name, h)
	for _, p := range n.PodCIDRs {
		t.graph.SetBlock(p, &model.Block{CIDR: p, Node: name})
	}
}

// Located implements controller.Processor.
func (*NodeFeed) Located(*event.Located) {}

// Flush implements controller.Processor. This graph is never in sync: the other one sends policies, endpoints and
// configuration.
func (t *NodeFeed) Flush() error {
	for _, m := range t.graph.Flush() {
		t.driver.OnUpdate(m)
	}
	t.driver.Apply()
	return nil
}

// Resync implements controller.Processor.
func (t *NodeFeed) Resync() error { return t.Flush() }
