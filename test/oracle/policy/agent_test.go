package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/enforce"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	rules "github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// read is a change as the agent's sources tell it.
func read(c policy.Change) (event.Change, error) {
	if c.Object == nil {
		return event.Change{Ref: refOf(c.Key)}, nil
	}
	ch := event.Change{Ref: refOf(c.Key)}
	if o, ok := c.Object.(runtime.Object); ok {
		ch.Object, ch.Err = convert.Object(o)
		return ch, nil
	}
	group, version, _ := strings.Cut(c.Key.APIVersion, "/")
	kind, known := convert.KindOf(group, c.Key.Kind)
	if !known || kind.Version != version {
		return ch, fmt.Errorf("%s: not a kind the agent reads", c.Key)
	}
	text, err := json.Marshal(c.Object)
	if err != nil {
		return ch, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil {
		return ch, err
	}
	var unknown []string
	ch.Object, unknown, ch.Err = kind.Decode(tree)
	if len(unknown) > 0 {
		return ch, fmt.Errorf("%s: fields %v are not known", c.Key, unknown)
	}
	return ch, nil
}

// refOf is the name the agent has for an object.
func refOf(k policy.Key) model.Ref {
	kind := k.Kind
	if kind == "NetworkPolicy" && k.APIVersion == "projectcalico.org/v3" {
		kind = string(model.KindCalicoNetworkPolicy)
	}
	return model.Ref{Kind: model.Kind(kind), Namespace: k.Namespace, Name: k.Name}
}

// driver hears what the policy processor of a node says.
type driver struct {
	*messages
	node enforce.Node
}

func (d *driver) SetNode(n enforce.Node)                                  { d.node = n }
func (d *driver) Apply() bool                                             { return false }
func (d *driver) Resync()                                                 {}
func (d *driver) Cause(string, bool, int, int) (c enforce.Cause, ok bool) { return c, false }

var _ rules.Driver = (*driver)(nil)

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
