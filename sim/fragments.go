package sim

import (
	"slices"
	"time"

	"go.fd.io/govpp/binapi/ip"

	"github.com/contiv-agent/contiv-agent/sim/reassembly"
)

// reassemblyMessages: limits of reassembly. Those of shallow virtual reassembly of IPv6 have no effect here.
func reassemblyMessages(t *apiTable) {
	onWrite(t, func(q *call, m *ip.IPReassemblySet) *ip.IPReassemblySetReply {
		limits := reassembly.Limits{Timeout: time.Duration(m.TimeoutMs) * time.Millisecond, Most: int(m.MaxReassemblies), Waiting: int(m.MaxReassemblyLength)}
		q.held.SetLimits(m.Type == ip.IP_REASS_TYPE_FULL, m.IsIP6, limits)
		return &ip.IPReassemblySetReply{}
	})
}

// addReassembly puts the nodes of shallow virtual reassembly in their places. NAT44 enables them.
func addReassembly(a *arcs, v *VPP) {
	put := func(id arcID, name string, on func(uint32) bool) {
		a.addFeature(id, feature{name: name, on: on, run: func(f *flow) bool { return !f.p.Fragment.Any() || reassemble(f, id, name) }})
	}
	put(ip4Unicast, "ip4-sv-reassembly-feature", v.nat.Reassembles)
	put(ip4Output, "ip4-sv-reassembly-output-feature", func(swIf uint32) bool { return v.nat.Arc(swIf).OnOutput() })
}

// reassemble is a node for a fragment. False: it waits for the first one, is dropped, or has left the arc: a first one is, with those
// that wait for it before it, the vector of the next nodes. Those of an interface that is gone are lost.
func reassemble(f *flow, id arcID, node string) bool {
	r := f.v.held.Arrive(f.v.ifs.get(f.rx).table[ip4], &f.p, f.v.now, *f)
	f.first = r.First
	switch {
	case r.Why != "":
		return f.drop(node, "%s", r.Why)
	case r.Waits:
		f.hop(node, "waits for the first fragment")
		f.fate.Last = f.p.Clone()
		return false
	case len(r.Waited) == 0:
		return true
	}
	behind := 1 + slices.IndexFunc(f.v.arcs[id], func(n feature) bool { return n.name == node })
	reassembly.Together(slices.Concat(r.Waited, []flow{*f}), func(g flow, pause func()) {
		g.fate, g.first, g.pause, g.reported = f.fate, f.first, pause, f.reported
		swIf, proceed := g.rx, g.lookup
		if id == ip4Output {
			swIf, proceed = g.tx, func() { g.transmit(g.v.ifs.get(g.tx)) }
		}
		g.hop(node, "%s in a vector", &g.p)
		if g.v.ifs.get(swIf) != nil && g.v.arcs.runFrom(behind, id, swIf, &g) {
			proceed()
		}
	})
	return false
}
