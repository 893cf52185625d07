package trace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// Config configures the agents of a cluster.
type Config struct {
	// Agent is the common configuration of all agents; NodeName, Dial and Sources are set per node. Journal, unless empty,
	// is a folder with one file per node.
	Agent agent.Config
	// Seed seeds the simulated VPPs' random choices.
	Seed uint64
	// ToReply adds the hops of the reply to those of an outcome.
	ToReply bool
	// Progress receives how many nodes have received the objects of Apply, of how many: before each node, and at the end. Nil: nothing does.
	Progress func(done, all int)
}

// Cluster has one agent and one simulated VPP per Node. It is not safe for concurrent use.
type Cluster struct {
	cfg     Config
	toReply bool
	world   *world
	nodes   map[string]*node
	names   []string            // of nodes, sorted
	arrived map[datagram]pieces // fragments of which the rest has not arrived
	given   uint16              // the last identification of fragments that a step did not name
}

// node is one node of the cluster.
type node struct {
	name   string
	object *model.Node
	sim    *sim.VPP
	cni    *cni.CNI
	agent  *agent.Stepper
	away   bool   // the agent is stopped
	before uint64 // generation of its connection before CrashVPP
}

// NewCluster returns a cluster without nodes; Apply adds them. The caller must Close it.
func NewCluster(cfg Config) *Cluster {
	return &Cluster{cfg: cfg, toReply: cfg.ToReply, world: newWorld(), nodes: map[string]*node{}, arrived: map[datagram]pieces{}}
}

// Apply changes objects and waits until every agent has programmed its VPP. An error is about a VPP that could not be
// programmed at all; answers and the agents' status report problems of single objects.
func (c *Cluster) Apply(ctx context.Context, changes []event.Change) error {
	c.world.applyChanges(changes)
	joined := map[string]bool{}
	for _, ch := range changes {
		if ch.Ref.Kind != model.KindNode {
			continue
		}
		obj, _ := ch.Object.(*model.Node)
		n := c.nodes[ch.Ref.Name]
		switch {
		case obj == nil && n != nil:
			c.removeNode(n)
		case obj != nil && n == nil:
			if err := c.addNode(ctx, obj); err != nil {
				return err
			}
			joined[obj.Name] = true
		case obj != nil:
			n.object = obj
		}
	}
	progress := c.cfg.Progress
	if progress == nil {
		progress = func(int, int) {}
	}
	var errs []error
	for i, name := range c.names {
		progress(i, len(c.names))
		n := c.nodes[name]
		feed := changes
		if joined[name] {
			feed = c.world.allChanges()
		}
		if err := n.cni.Apply(feed); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		}
		if n.away {
			continue
		}
		err := n.agent.Feed(ctx, &event.Update{Source: sourceName, Changes: feed}, &event.SyncStatus{Source: sourceName, Status: event.InSync})
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		}
	}
	progress(len(c.names), len(c.names))
	return errors.Join(errs...)
}

// maxPause bounds the reconnect pause: these VPPs always run, and restart only on request.
const maxPause = time.Millisecond

// sourceName is the name of the objects' source, for agents.
const sourceName = "manifest"

func (c *Cluster) addNode(ctx context.Context, obj *model.Node) error {
	v := sim.New(sim.Config{Seed: c.cfg.Seed, PuntLocal: true})
	a, err := c.start(ctx, obj.Name, v)
	if err != nil {
		return err
	}
	n := &node{name: obj.Name, object: obj, sim: v, cni: cni.New(v, obj.Name), agent: a}
	c.nodes[n.name] = n
	at, _ := slices.BinarySearch(c.names, n.name)
	c.names = slices.Insert(c.names, at, n.name)
	return nil
}

// start starts the agent of a node.
func (c *Cluster) start(ctx context.Context, name string, v *sim.VPP) (*agent.Stepper, error) {
	cfg := c.cfg.Agent
	cfg.NodeName, cfg.VPP.Dial, cfg.Sources = name, v.Dial, map[string]agent.Source{sourceName: agent.Fed{}}
	cfg.Override, cfg.Process.Now, cfg.VPP.MaxBackoff, cfg.VPPAgent.Journal = cni.Located(), v.Now, maxPause, c.journal(name)
	ctx, stop := v.Living(ctx)
	defer stop()
	a, err := agent.NewStepper(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", name, err)
	}
	return a, nil
}

func (c *Cluster) journal(name string) string {
	if c.cfg.Agent.VPPAgent.Journal == "" {
		return ""
	}
	return filepath.Join(c.cfg.Agent.VPPAgent.Journal, name)
}

func (c *Cluster) removeNode(n *node) {
	if file := c.journal(n.name); file != "" {
		_ = os.Remove(file) // a later node of that name has another VPP
	}
	n.close()
	delete(c.nodes, n.name)
	c.names = slices.DeleteFunc(c.names, func(s string) bool { return s == n.name })
}

func (n *node) close() {
	n.agent.Close()
	n.sim.Close()
}

// Close ends all agents and VPPs.
func (c *Cluster) Close() {
	for _, n := range c.nodes {
		n.close()
	}
	clear(c.nodes)
	c.names = nil
}

// Nodes returns the names of the nodes, sorted.
func (c *Cluster) Nodes() []string { return slices.Clone(c.names) }

// Sim returns the VPP of a node; nil for an unknown node.
func (c *Cluster) Sim(name string) *sim.VPP {
	if n := c.nodes[name]; n != nil {
		return n.sim
	}
	return nil
}

// Agent returns the agent of a node; nil for an unknown node.
func (c *Cluster) Agent(name string) *agent.Stepper {
	if n := c.nodes[name]; n != nil {
		return n.agent
	}
	return nil
}

// StopAgent ends the agent of a node, until RestartAgent. VPP keeps its state; objects and interfaces change without the
// agent.
func (c *Cluster) StopAgent(name string) {
	n := c.nodes[name]
	n.agent.Close()
	n.away = true
}

// Reconfigure changes the configuration of agents that start later: those of new nodes, and those that RestartAgent starts.
func (c *Cluster) Reconfigure(change func(*agent.Config)) { change(&c.cfg.Agent) }

// RestartAgent ends the agent of a node and starts another one on the same VPP. The new agent has only the objects and the
// journal.
func (c *Cluster) RestartAgent(ctx context.Context, name string) error {
	n := c.nodes[name]
	n.agent.Close()
	n.away = true
	a, err := c.start(ctx, name, n.sim)
	if err != nil {
		return err
	}
	n.agent, n.away = a, false
	return a.Feed(ctx, &event.Update{Source: sourceName, Changes: c.world.allChanges()}, &event.SyncStatus{Source: sourceName, Status: event.InSync})
}

// RestartVPP restarts the VPP of a node and waits until the agent has programmed it again.
func (c *Cluster) RestartVPP(ctx context.Context, name string) error {
	n := c.nodes[name]
	before := n.agent.Generation()
	n.sim.Restart()
	if n.away {
		return nil
	}
	if err := n.connected(ctx, before+1); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return n.agent.Feed(ctx)
}

// CrashVPP restarts the VPP of a node without the CNI's interfaces and routes. Each returned function restores one of them;
// the seed draws their order. They may be called from sim.VPP's After. Then call AwaitAgent.
func (c *Cluster) CrashVPP(name string, seed uint64) ([]func(), error) {
	n := c.nodes[name]
	if n == nil {
		return nil, fmt.Errorf("unknown node %q", name)
	}
	n.before = n.agent.Generation()
	ifs, routes, neighbors := n.sim.RestartBare()
	var out []func()
	rng := rand.New(rand.NewPCG(seed, 0))
	// Others borrow the address of the gateway, so it is first; a route needs its interfaces first.
	gateway := func(i sim.Interface) bool { return i.Name == cni.Gateway }
	rng.Shuffle(len(ifs), func(i, j int) { ifs[i], ifs[j] = ifs[j], ifs[i] })
	if i := slices.IndexFunc(ifs, gateway); i > 0 {
		ifs[0], ifs[i] = ifs[i], ifs[0]
	}
	made := map[string]bool{}
	rng.Shuffle(len(routes), func(i, j int) { routes[i], routes[j] = routes[j], routes[i] })
	for _, i := range ifs {
		made[i.Name] = true
		out = append(out, func() { n.sim.AddInterface(i) })
		routes = slices.DeleteFunc(routes, func(r sim.Route) bool {
			ready := rng.IntN(2) == 0 && !slices.ContainsFunc(r.Paths, func(p sim.Path) bool { return p.Interface != "" && !made[p.Interface] })
			if ready {
				out = append(out, func() { _ = n.sim.AddRoute(r) })
			}
			return ready
		})
	}
	for _, r := range routes {
		out = append(out, func() { _ = n.sim.AddRoute(r) })
	}
	for _, nb := range neighbors {
		out = append(out, func() { _ = n.sim.AddNeighbor(nb) })
	}
	return out, nil
}

// AwaitAgent waits until the agent of a node has a new connection after CrashVPP, and has programmed its VPP.
func (c *Cluster) AwaitAgent(ctx context.Context, name string) error {
	n := c.nodes[name]
	if n.away {
		return nil
	}
	if err := n.connected(ctx, n.before+1); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	return n.agent.Feed(ctx)
}

// beginTrace marks the dynamic state of every VPP, and makes choose decide for the load balancers.
func (c *Cluster) beginTrace(choose func(int) int) map[string]sim.Mark {
	marks := make(map[string]sim.Mark, len(c.nodes))
	for name, n := range c.nodes {
		marks[name] = n.sim.Snapshot()
		n.sim.SetChoice(choose)
	}
	return marks
}

func (c *Cluster) rollback(marks map[string]sim.Mark) {
	for name, m := range marks {
		c.nodes[name].sim.Restore(m)
		c.nodes[name].sim.Release()
		c.nodes[name].sim.SetChoice(nil)
	}
}

// connected waits until the agent has a connection of at least that generation. It is an error if VPP crashes, or has crashed: it stays
// away until RestartVPP. An agent may still believe in the connection of a VPP that crashed a moment ago.
func (n *node) connected(ctx context.Context, generation uint64) error {
	ctx, stop := n.sim.Living(ctx)
	defer stop()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return n.agent.WaitConnected(ctx, generation)
}
