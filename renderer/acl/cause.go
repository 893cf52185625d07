package acl

import (
	"net/netip"

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
	if h := r.hosts.Hook(iface); h != nil && !output && c.Kind != dataplane.CauseStatic && !l.Repeats(place) {
		c.Endpoint, c.Host, c.Egress = h.Endpoint, true, h.Egress
		return c, true
	}
	if c.Kind != dataplane.CauseStatic && rule >= 0 {
		if src, ok := r.elsewhere(iface, l, output, place, rule, &c); ok {
			c.Endpoint = r.workloadAt(src)
			return c, true
		}
	}
	if i := r.pods.Ifaces[iface]; i != nil && c.Kind != dataplane.CauseStatic && c.Endpoint == "" && len(i.Work) == 1 {
		c.Endpoint, c.Egress = i.Work[0].ID.Workload, !output
	}
	return c, true
}

// elsewhere reports whether a rule belongs to another pod's program, and to which pod's.
func (r *Renderer) elsewhere(iface string, l lists.Lists, output bool, place, rule int, c *dataplane.Cause) (src netip.Addr, ok bool) {
	i := r.pods.Ifaces[iface]
	if place == dataplane.PortsPlace {
		return l.Filter.Direction(match.InOut(output))[rule].Src.Addr(), i == nil
	}
	table := l.Direction(output)[place].Table
	if i == nil {
		t := r.out.Table(table)
		if !output && l.Repeats(place) {
			return t.Rules[rule].Dst.Addr(), true
		}
		return t.Rules[rule].Src.Addr(), r.pods.Store.Fixed(table) == nil
	}
	if src, ok = r.egress.Cause(i, table, rule, c); ok {
		return src, true
	}
	return r.closed.Cause(i, table, rule, c)
}

// workloadAt returns the workload with an address, "" if none has it.
func (r *Renderer) workloadAt(a netip.Addr) string {
	if i := r.pods.Ifaces[r.pods.Node.Interfaces[a]]; i != nil && len(i.Work) == 1 {
		return i.Work[0].ID.Workload
	}
	return ""
}
