package acl

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/outside"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A host outside the node may write any source address. No packet enters by the uplink or the overlay from an address that only this node's
// pods, its NAT or its own processes send from. The check is first at these inputs, before NAT44 makes sessions (ADR 13).

// The tables of the check of packets from outside. Those of the overlay's input have the suffix.
const (
	outsideOnly   = "outside-only"  // denies the node's own sources, and permits the rest
	outsideFirst  = "outside-check" // denies the node's own sources
	overlaySuffix = "-overlay"
)

// ownPrefixes returns the sources that no host outside the node has; nil: none is known, or the check is off.
func (r *Renderer) ownPrefixes() *sources {
	if r.cfg.SourceCheck == SourceOff {
		return nil
	}
	if own := outside.Sources(&r.node, r.ownSources()); len(own) > 0 {
		return &sources{not: own}
	}
	return nil
}

// guards reports whether forging an address has a use: policies restrict the packets to a local pod. A closed interface admits nobody.
func (r *Renderer) guards() bool {
	for _, i := range r.ifaces {
		if p := i.progs[0]; p != nil && !p.open {
			return true
		}
	}
	return false
}

// checkOutside decides whether packets from outside are checked, and against which prefixes.
func (r *Renderer) checkOutside() {
	var now *sources
	if r.guards() || len(r.hooks)+len(r.exits) > 0 {
		now = r.ownPrefixes()
	}
	if !now.same(r.outside) {
		r.outside, r.dirty.remote = now, true
	}
}

// checkedOutside puts the check into the lists of the uplink or the overlay.
func (r *Renderer) checkedOutside(iface string, l lists) lists {
	if l.check = r.outside; l.check == nil {
		return l
	}
	name := outsideFirst
	if len(l.in)+len(l.out) == 0 {
		name = outsideOnly
	}
	if iface != r.node.Uplink {
		name += overlaySuffix
	}
	l.in = append([]place{{table: name, source: true}}, l.in...)
	return l
}

// fixOutside writes the tables; a list has one of them.
func (r *Renderer) fixOutside() {
	for _, name := range []string{outsideOnly, outsideFirst, outsideOnly + overlaySuffix, outsideFirst + overlaySuffix} {
		if r.outside == nil {
			r.unfix(name)
			continue
		}
		t, denied := &table{name: name}, outside.AtUplink(r.outside.not)
		if strings.HasSuffix(name, overlaySuffix) {
			denied = outside.AtOverlay(&r.node, r.outside.not)
		}
		for _, a := range denied {
			r.addWide(t, a, r.outside.cause())
		}
		if strings.HasPrefix(name, outsideOnly) {
			rest := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "from outside, under an address that is not this node's"}
			for _, f := range match.Families {
				t.add(match.Atom{Verb: match.Admit, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, rest)
			}
		}
		r.fixTable(t)
	}
}
