package acl

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A host outside the node may write any source address. No packet enters by the uplink or the overlay from an address that only this node's
// pods, its NAT or its own processes send from. The check is first at these inputs, before NAT44 makes sessions (ADR 13).
//
// If the overlay's interface is the routed interface of a bridge domain (BVI), VPP evaluates its input list for the packets that leave by it, too
// (l2-input-feat-arc, 24.06 to 26.06). Those go to other nodes, so there the check denies packets to destinations of this node alone.

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
	c := &sources{not: slices.Clone(r.node.Own)}
	list := slices.Clone(r.node.Hairpin)
	if r.node.Host != "" && r.node.Host != r.node.Uplink && r.node.Host != r.node.Overlay {
		list = append(list, r.ownSources()...)
	}
	for _, a := range list {
		c.not = append(c.not, netip.PrefixFrom(a, a.BitLen()))
	}
	if c.not = netset.Separate(c.not); len(c.not) == 0 {
		return nil
	}
	return c
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
	for _, name := range []string{outsideOnly, outsideFirst} {
		r.fixOutsideTable(name, []netip.Prefix{match.V4.All(), match.V6.All()})
		r.fixOutsideTable(name+overlaySuffix, r.homes())
	}
}

// homes are the destinations of packets that the node takes for itself or its pods, perhaps by a Service.
func (r *Renderer) homes() []netip.Prefix {
	out := slices.Concat(r.node.Own, r.node.Frontends)
	for _, a := range slices.Concat(r.node.Hairpin, r.node.HostAddrs, r.node.Addrs) {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	for _, o := range r.node.Outer {
		out = append(out, netip.PrefixFrom(o.Addr, o.Addr.BitLen()))
	}
	return netset.Separate(out)
}

// fixOutsideTable writes a table of the check, which denies the node's own sources at some destinations.
func (r *Renderer) fixOutsideTable(name string, to []netip.Prefix) {
	if r.outside == nil {
		r.unfix(name)
		return
	}
	t := &table{name: name}
	for _, p := range r.outside.not {
		for _, dst := range to {
			r.addWide(t, match.Atom{Verb: match.Deny, Src: p, Dst: dst, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, r.outside.cause())
		}
	}
	if strings.HasPrefix(name, outsideOnly) {
		rest := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "from outside, under an address that is not this node's"}
		for _, f := range match.Families {
			t.add(match.Atom{Verb: match.Admit, Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, rest)
		}
	}
	r.fixTable(t)
}
