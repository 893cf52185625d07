package policy_test

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	rules "github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// driver hears what the policy processor of a node says.
type driver struct {
	*messages
	node dataplane.Node
}

func (d *driver) SetNode(n dataplane.Node)                                  { d.node = n }
func (d *driver) Apply() bool                                               { return false }
func (d *driver) Resync()                                                   {}
func (d *driver) Cause(string, bool, int, int) (c dataplane.Cause, ok bool) { return c, false }

var _ dataplane.Driver = (*driver)(nil)

// graphs is the policy processors of all nodes, and what their messages say.
type graphs struct {
	nodes      map[string]*driver
	processors map[string]*rules.Processor
}

func newGraphs(nodes []string) *graphs {
	g := &graphs{nodes: map[string]*driver{}, processors: map[string]*rules.Processor{}}
	for _, name := range nodes {
		g.nodes[name] = &driver{messages: newMessages()}
		g.processors[name] = rules.New(rules.Config{NodeName: name}, g.nodes[name])
	}
	return g
}

func (g *graphs) apply(changes []event.Change) error {
	for name, p := range g.processors {
		for _, ch := range changes {
			p.Apply(ch)
		}
		if err := p.Flush(); err != nil {
			return err
		}
		if broken := g.nodes[name].broken; len(broken) > 0 {
			return fmt.Errorf("%s: %v", name, broken)
		}
	}
	return nil
}

// allows is the verdict of the messages: what the source's node says of its egress, and the destination's of its ingress.
func (g *graphs) allows(f *policy.Flow, own map[string][]string) bool {
	for name, d := range g.nodes {
		if w := d.endpoint(f.Src); w != nil && !d.allows(w, true, f) {
			return false
		}
		if w := d.endpoint(f.Dst); w != nil {
			fromNode := f.Node == name && slices.Contains(own[name], f.Src.String())
			if !fromNode && !d.allows(w, false, f) {
				return false
			}
		}
		if name == f.Node && !g.uplinkAllows(d, f, own) {
			return false
		}
	}
	return true
}

// uplinkAllows is the verdict of the host endpoints of a node on a flow that comes from outside or goes there.
func (g *graphs) uplinkAllows(d *driver, f *policy.Flow, own map[string][]string) bool {
	place := func(a netip.Addr) (inside, here bool) {
		for name, n := range g.nodes {
			inside = inside || n.endpoint(a) != nil || slices.Contains(own[name], a.String())
		}
		return inside, slices.Contains(own[f.Node], a.String())
	}
	srcIn, srcHere := place(f.Src)
	dstIn, dstHere := place(f.Dst)
	if !dstIn || !srcIn {
		return srcIn == dstIn || hostsAllow(d, !dstIn, dstIn && dstHere || srcIn && srcHere, f)
	}
	pod := false
	for _, n := range g.nodes {
		pod = pod || n.endpoint(f.Dst) != nil
	}
	return pod || dstHere || hostsAllow(d, true, srcHere, f) // another node itself
}

// hostsAllow is the verdict of the host endpoints of a node on what is its own, or what it passes on.
func hostsAllow(d *driver, egress, local bool, f *policy.Flow) bool {
	for _, h := range d.hosts {
		switch {
		case local && policy.Failsafe(egress, f):
		case local && !d.run(h.Tiers, h.ProfileIds, false, egress, f), !local && !d.run(h.ForwardTiers, nil, true, egress, f):
			return false
		}
	}
	return true
}
