package acl

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Cause returns the cause of a rule in the sink: the rule with that number in the table at a place of the interface's list
// (output: of packets that leave VPP there); -1 is the end of the list. False: no such rule exists.
func (r *Renderer) Cause(iface string, output bool, place, rule int) (dataplane.Cause, bool) {
	l, ok := r.out.Sent(iface)
	if !ok {
		return dataplane.Cause{}, false
	}
	if rule, ok = r.out.RuleOf(l, output, place, rule); !ok {
		return dataplane.Cause{}, false
	}
	c, ok := r.out.CauseIn(l, output, place, rule)
	if !ok {
		return c, false
	}
	if c.Host { // of an exit
		return c, true
	}
	if h := r.hooks[iface]; h != nil && !output && c.Kind != dataplane.CauseStatic && !l.Repeats(place) {
		c.Endpoint, c.Host, c.Egress = h.endpoint, true, h.egress
		return c, true
	}
	if c.Kind != dataplane.CauseStatic && rule >= 0 {
		if src, ok := r.elsewhere(iface, l, output, place, rule, &c); ok {
			c.Endpoint = r.workloadAt(src)
			return c, true
		}
	}
	if i := r.ifaces[iface]; i != nil && c.Kind != dataplane.CauseStatic && c.Endpoint == "" && len(i.work) == 1 {
		c.Endpoint, c.Egress = i.work[0].id.workload, !output
	}
	return c, true
}

// elsewhere reports whether a rule belongs to another pod's program, and to which pod's.
func (r *Renderer) elsewhere(iface string, l lists.Lists, output bool, place, rule int, c *dataplane.Cause) (src netip.Addr, ok bool) {
	i := r.ifaces[iface]
	if place == dataplane.PortsPlace {
		return l.Filter.Direction(match.InOut(output))[rule].Src.Addr(), i == nil
	}
	table := l.Direction(output)[place].Table
	g := r.groups.Named(table)
	if i == nil {
		t := r.out.Table(table)
		if !output && l.Repeats(place) {
			return t.Rules[rule].Dst.Addr(), true
		}
		return t.Rules[rule].Src.Addr(), r.store.Fixed(table) == nil
	}
	if g == nil {
		return r.refuser.cause(i, table, rule, c)
	}
	n := 0
	r.eachDenial(g, func(s netip.Addr, _ denial.Rect, p *program, line, k int) {
		if res := i.residues[p]; n == rule && res != nil && line < len(res.lines) && k < len(res.lines[line].rects) {
			src, ok = s, true
			*c = *res.lines[line].rects[k].Cause // equal rules may have other causes elsewhere
		}
		n++
	})
	return src, ok
}

// workloadAt returns the workload with an address, "" if none has it.
func (r *Renderer) workloadAt(a netip.Addr) string {
	if i := r.ifaces[r.node.Interfaces[a]]; i != nil && len(i.work) == 1 {
		return i.work[0].id.workload
	}
	return ""
}
