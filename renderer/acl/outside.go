package acl

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
func (r *Renderer) ownPrefixes() *lists.Check {
	if r.cfg.SourceCheck == SourceOff {
		return nil
	}
	if own := outside.Sources(&r.pods.Node.Node, r.pods.Node.OwnSources()); len(own) > 0 {
		return &lists.Check{Not: own}
	}
	return nil
}

// guards reports whether forging an address has a use: policies restrict the packets to a local pod. A closed interface admits nobody.
func (r *Renderer) guards() bool {
	for _, i := range r.pods.Ifaces {
		if p := i.Progs[0]; p != nil && !p.Open {
			return true
		}
	}
	return false
}

// checkOutside decides whether packets from outside are checked, and against which prefixes.
func (r *Renderer) checkOutside() {
	var now *lists.Check
	if r.guards() || len(r.hooks)+len(r.exits) > 0 {
		now = r.ownPrefixes()
	}
	if !now.Same(r.outside) {
		r.outside, r.pods.Leaving = now, true
	}
}

// checkedOutside puts the check into the lists of the uplink or the overlay.
func (r *Renderer) checkedOutside(iface string, l lists.Lists) lists.Lists {
	if l.Check = r.outside; l.Check == nil {
		return l
	}
	name := table.OutsideFirst
	if len(l.In)+len(l.Out) == 0 {
		name = table.OutsideOnly
	}
	if iface != r.pods.Node.Uplink {
		name += table.OverlaySuffix
	}
	l.In = append([]lists.Place{{Table: name, SourceCheck: true}}, l.In...)
	return l
}

// fixOutside writes the tables; a list has one of them.
func (r *Renderer) fixOutside() {
	for _, name := range []string{table.OutsideOnly, table.OutsideFirst, table.OutsideOnly + table.OverlaySuffix, table.OutsideFirst + table.OverlaySuffix} {
		if r.outside == nil {
			r.pods.Store.Unfix(name)
			continue
		}
		t, denied := &table.Table{Name: name}, outside.AtUplink(r.outside.Not)
		if strings.HasSuffix(name, table.OverlaySuffix) {
			denied = outside.AtOverlay(&r.pods.Node.Node, r.outside.Not)
		}
		for _, a := range denied {
			t.AddWide(a, r.outside.Cause(), r.pods.Node.ByteMatch6)
		}
		if strings.HasPrefix(name, table.OutsideOnly) {
			rest := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "from outside, under an address that is not this node's"}
			for _, f := range match.Families {
				t.Add(match.Atom{Verb: match.Admit, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, rest)
			}
		}
		r.pods.Store.Fix(t)
	}
}
