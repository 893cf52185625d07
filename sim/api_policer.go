package sim

import (
	"strings"

	"go.fd.io/govpp/binapi/policer"

	engine "github.com/contiv-agent/contiv-agent/sim/policer"
)

func policerMessages(t *apiTable) {
	onWrite(t, func(q *call, m *policer.PolicerAddDel) *policer.PolicerAddDelReply {
		return q.features.policers.AddDel(m)
	})
	onWrite(t, func(q *call, m *policer.PolicerInput) *policer.PolicerInputReply {
		return &policer.PolicerInputReply{Retval: q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			return q.features.policers.Apply(m.Name, engine.Place{Interface: f.index}, m.Apply)
		})}
	})
	onWrite(t, func(q *call, m *policer.PolicerOutput) *policer.PolicerOutputReply {
		return &policer.PolicerOutputReply{Retval: q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			return q.features.policers.Apply(m.Name, engine.Place{Interface: f.index, Output: true}, m.Apply)
		})}
	})
	onDump(t, func(q *call, _ *policer.PolicerDump, send func(*policer.PolicerDetails)) {
		q.features.policers.Each(send)
	})
}

// addPolicer puts the nodes in their places. The policer of incoming packets is no node of these arcs: see limits.
func addPolicer(a *arcs, v *VPP) {
	for _, id := range []arcID{ip4Output, ip6Output} {
		a.addFeature(id, feature{
			name: "policer-output", on: func(swIf uint32) bool { return v.features.policers.On(engine.Place{Interface: swIf, Output: true}) },
			run: func(f *flow) bool { return limits(f, "policer-output", engine.Place{Interface: f.tx, Output: true}) },
		})
	}
}

// limits lets a policer decide about a packet, with the length of its frame; false: it is dropped. A packet without bytes always passes.
func limits(f *flow, node string, p engine.Place) bool {
	if f.cargo == nil || !f.v.features.policers.On(p) || f.v.features.policers.Passes(p, len(f.cargo.load.Bytes)+14, f.v.now) {
		return true
	}
	return f.drop(node, "more than the policer allows")
}

func (v *VPP) dumpPolicers(b *strings.Builder) {
	b.WriteString(strings.Join(v.features.policers.Lines(v.ifs.name), ""))
}
