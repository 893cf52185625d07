package source

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/outside"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A host outside the node may write any source address. No packet enters by the uplink or the overlay from an address that only this node's
// pods, its NAT or its own processes send from. The check is first at these inputs, before NAT44 makes sessions (ADR 13).

// ownPrefixes returns the sources that no host outside the node has; nil: none is known, or the check is off.
func (g *Checks) ownPrefixes() *lists.Check {
	if g.mode == Off {
		return nil
	}
	if own := outside.Sources(&g.pods.Node.Node, g.pods.Node.OwnSources()); len(own) > 0 {
		return &lists.Check{Not: own}
	}
	return nil
}

// guards reports whether forging an address has a use: policies restrict the packets to a local pod. A closed interface admits nobody.
func (g *Checks) guards() bool {
	for _, i := range g.pods.Ifaces {
		if p := i.Progs[0]; p != nil && !p.Open {
			return true
		}
	}
	return false
}

// Outside decides whether packets from outside are checked, and against which prefixes, and reports whether they are. Enforced: a host endpoint
// makes forging an address useful.
func (g *Checks) Outside(enforced bool) bool {
	var now *lists.Check
	if enforced || g.guards() {
		now = g.ownPrefixes()
	}
	if !now.Same(g.outside) {
		g.outside, g.pods.Leaving = now, true
	}
	return g.outside != nil
}

// InFrontOutside puts the check into the lists of the uplink or the overlay.
func (g *Checks) InFrontOutside(iface string, l lists.Lists) lists.Lists {
	if l.Check = g.outside; l.Check == nil {
		return l
	}
	name := table.OutsideFirst
	if len(l.In)+len(l.Out) == 0 {
		name = table.OutsideOnly
	}
	if iface != g.pods.Node.Uplink {
		name += table.OverlaySuffix
	}
	l.In = append([]lists.Place{{Table: name, SourceCheck: true}}, l.In...)
	return l
}

// FixOutside writes the tables; a list has one of them.
func (g *Checks) FixOutside() {
	for _, name := range []string{table.OutsideOnly, table.OutsideFirst, table.OutsideOnly + table.OverlaySuffix, table.OutsideFirst + table.OverlaySuffix} {
		if g.outside == nil {
			g.pods.Store.Unfix(name)
			continue
		}
		t, denied := &table.Table{Name: name}, outside.AtUplink(g.outside.Not)
		if strings.HasSuffix(name, table.OverlaySuffix) {
			denied = outside.AtOverlay(&g.pods.Node.Node, g.outside.Not)
		}
		for _, a := range denied {
			t.AddWide(a, g.outside.Cause(), g.pods.Node.ByteMatch6)
		}
		if strings.HasPrefix(name, table.OutsideOnly) {
			rest := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "from outside, under an address that is not this node's"}
			for _, f := range match.Families {
				t.Add(match.Atom{Verb: match.Admit, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, rest)
			}
		}
		g.pods.Store.Fix(t)
	}
}
