package nat

import (
	"fmt"
	"slices"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/drain"
)

// keepsFlows reports that a change drains backends of a mapping that an agent without draining made, or gives them other weights.
func (m mapping) keepsFlows(w *descriptor.World, have mapping) bool {
	return m.drains(w) && slices.ContainsFunc(have.locals, func(l local) bool {
		return slices.ContainsFunc(m.drained, l.sameLocal) || slices.ContainsFunc(m.locals, func(o local) bool { return l.sameLocal(o) && l != o })
	})
}

// adopt returns the requests that turn a mapping in which VPP may have free slots into m: pads are added, a dump shows where VPP has put them, and a
// plan follows (drain.Adopt). False: none are known.
func (m mapping) adopt(w *descriptor.World, have mapping) ([]descriptor.Op, bool) {
	if !m.drains(w) {
		return nil, false
	}
	goal, now := m.goal(), toDrain(have.inVPP(w))
	groups, ok := drain.Adopt(now, len(goal.Taking)-drain.Common(goal.Taking, now))
	if !ok {
		return nil, false
	}
	if len(groups) == 0 {
		return []descriptor.Op{m.readLayout(w, have, askForAll())}, true
	}
	return m.groups(w, groups, func() []descriptor.Op { return []descriptor.Op{m.readLayout(w, have, layoutsOf(w).askOnce(m.id))} }, nil), true
}

func askForAll() vpp.Call { return vpp.Call{Dump: true, Msg: &nat44_ed.Nat44LbStaticMappingDump{}} }

// askOnce returns a dump for the first mapping of a batch. The others share it, and ask for something small, so that their answers follow.
func (l *layouts) askOnce(id natID) vpp.Call {
	asked := false // the dump of this batch
	for _, shown := range l.awaited {
		asked = asked || shown == nil
	}
	if l.awaited[id] = nil; asked {
		return vpp.Call{Msg: &nat44_ed.Nat44ShowRunningConfig{}}
	}
	return askForAll()
}

// answered notes the awaited mappings of a dump.
func (l *layouts) answered(r vpp.Reply) {
	for _, d := range r.Details {
		if d, ok := d.(*nat44_ed.Nat44LbStaticMappingDetails); ok {
			id := newNATID(d.ExternalAddr, d.ExternalPort, d.Protocol)
			if _, awaited := l.awaited[id]; awaited {
				l.awaited[id] = localsOf(d)
			}
		}
	}
}

// readLayout makes the request whose answer shows the layout of a mapping. The requests that turn it into m follow.
func (m mapping) readLayout(w *descriptor.World, have mapping, ask vpp.Call) descriptor.Op {
	l := layoutsOf(w)
	var shown drain.Layout
	var plan drain.Plan
	found := false
	return descriptor.Op{
		Asks: true, Call: ask,
		Else: func() []descriptor.Op {
			delete(l.awaited, m.id)
			return nil
		},
		Refuses: func(r vpp.Reply) error {
			if ask.Dump {
				l.awaited[m.id] = nil
				l.answered(r)
			}
			locals := toDrain(l.awaited[m.id])
			delete(l.awaited, m.id)
			ok := false
			if shown, ok = drain.Read(locals); !ok {
				return fmt.Errorf("mapping %s: VPP shows other backends than those that it accepted: %v", m.id, locals)
			}
			plan, found = shown.To(m.goal())
			return nil
		},
		Then: func(vpp.Reply) []descriptor.Op {
			if !found {
				return m.anew(w, have)
			}
			ops := m.groups(w, plan.Groups, m.reached(w, shown, plan), shown.Slots())
			if len(ops) == 0 {
				l.of[m.id] = shown
			}
			return ops
		},
	}
}
