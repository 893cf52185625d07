package nat

import (
	"slices"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// To remove one backend VPP walks all NAT sessions once, and to remove a mapping once for each of its locals, in one message
// (nat44_ed_del_lb_static_mapping, VPP 24.06 to 26.06). So a mapping that would take long loses its backends first, one by one:
//
//	pads, 10 backends ─▶ + dropPad ─▶ − backend ─▶ … ─▶ − backend ─▶ mapping with pads and dropPad is removed: 3 walks

// dropPads are the locals of a mapping that is about to be removed. Two are needed for a mapping with affinity: see keepingClients.
var dropPads = [2]local{dropPad, {addr: [4]byte{192, 0, 2, 4}, port: 1, weight: 1}}

// removeMapping returns the requests that remove a mapping.
func removeMapping(w *descriptor.World, m mapping) []descriptor.Op {
	sessions, known := w.NATSessions()
	have := m.inVPP(w)
	if !known || m.single || w.Cost.EndSessions(sessions)+w.Cost.WalkSessions(len(have)*sessions) <= cost.Stall {
		return []descriptor.Op{m.removalRequest(w, len(have))}
	}
	last, steps, ok := emptied(have, padded(w), m.affinity != 0)
	if !ok || len(last) >= len(have) {
		return []descriptor.Op{m.removalRequest(w, len(have))}
	}
	ops := m.addDelLocals(w, steps)
	for i := range ops {
		ops[i].Frees = m.frees() // they stay with the removal, and in front of it
	}
	return append(ops, m.removalRequest(w, len(last)))
}

// emptied returns the steps that replace all backends by drop pads, and the locals after them. With affinity and several NAT workers no such
// steps exist: without pads VPP would have less than two locals for a moment.
func emptied(have []local, padded, affinity bool) (last []local, steps []step, ok bool) {
	last = dropPads[:]
	switch {
	case padded && affinity:
		last = slices.Concat(pads[:], dropPads[:])
	case padded:
		last = append(padsIn(have), dropPad)
	}
	if hasDuplicate(have) {
		return nil, nil, false
	}
	c := changer{adds: without(last, have), dels: without(have, last), n: len(have), sum: weights(have)}
	if affinity {
		steps, ok = c.keepingClients(last)
	} else {
		steps, ok = c.addingFirst()
	}
	return last, steps, ok
}

// padsIn returns two pads of a list of locals; if it has none, those that the agent would add.
func padsIn(have []local) []local {
	var found []local
	for _, l := range have {
		if l.drains() && l.weight == 0 && len(found) < 2 {
			found = append(found, l)
		}
	}
	if len(found) < 2 {
		return slices.Clone(pads[:])
	}
	return found
}

func (m mapping) frees() descriptor.Claim { return descriptor.Claim{ID: uint64(m.id)} }

// removalRequest is the request that removes a mapping with so many locals. It repeats the flags: VPP looks the mapping up with those of the
// request.
func (m mapping) removalRequest(w *descriptor.World, locals int) descriptor.Op {
	op := descriptor.Op{Frees: m.frees(), Gone: true}
	if m.single {
		op.Call = descriptor.Write(m.singleMessage(false))
	} else {
		op.Call = descriptor.Write(&nat44_ed.Nat44AddDelLbStaticMapping{
			Flags: m.flags, ExternalAddr: m.id.addr(), ExternalPort: m.id.externalPort(), Protocol: m.id.proto(), Affinity: m.affinity, Tag: m.tag,
		})
		op.Then = func(vpp.Reply) []descriptor.Op {
			delete(layoutsOf(w).of, m.id)
			delete(layoutsOf(w).refused, m.id)
			return nil
		}
	}
	return m.endsSessions(w, op, locals)
}

// addDelLocals are the requests of steps.
func (m mapping) addDelLocals(w *descriptor.World, steps []step) []descriptor.Op {
	ops := make([]descriptor.Op, len(steps))
	for i, s := range steps {
		ops[i].Call = descriptor.Write(&nat44_ed.Nat44LbStaticMappingAddDelLocal{
			IsAdd: s.add, ExternalAddr: m.id.addr(), ExternalPort: m.id.externalPort(), Protocol: m.id.proto(), Local: lbAddrPort(s.l),
		})
		if _, known := w.NATSessions(); s.add && known {
			ops[i].Cost = w.Cost.Message(ops[i].Call.Msg.GetMessageName())
		} else if !s.add {
			ops[i] = m.endsSessions(w, ops[i], 1)
		}
	}
	return ops
}

// endsSessions gives a request the cost of so many walks. The cost of ending sessions is not in it, because the number of sessions of
// each backend is unknown. So two requests for one mapping, which may have all sessions, are not sent together.
func (m mapping) endsSessions(w *descriptor.World, op descriptor.Op, walks int) descriptor.Op {
	if sessions, known := w.NATSessions(); known {
		op.Cost = w.Cost.Message(op.Call.Msg.GetMessageName()) + w.Cost.WalkSessions(walks*sessions)
		op.Apart = uint64(m.id)
	}
	return op
}

// Cut returns the backends whose sessions VPP ends when one state of a DNat44 becomes another: backends removed from a mapping, even if they are added
// again, and all backends of a recreated mapping. want may be nil. Other kinds of value cut no sessions that can be counted.
func Cut(w *descriptor.World, have, want any) (out []sessions.Backend) {
	h, ok := have.(*dnat)
	if !ok {
		return nil
	}
	next, _ := want.(*dnat)
	if next == nil {
		next = &dnat{}
	}
	for _, m := range h.mappings {
		var ops []descriptor.Op
		i := slices.IndexFunc(next.mappings, func(n mapping) bool { return n.id == m.id })
		if i >= 0 {
			ops = updateMapping(w, m, next.mappings[i])
		}
		if ends, all := removals(ops); i >= 0 && !all {
			out = append(out, ends...)
			continue
		}
		for _, l := range slices.Concat(m.locals, m.drained) {
			out = append(out, sessions.Backend{Addr: l.addr, Port: l.port})
		}
	}
	return out
}

// removals returns the backends that requests remove. True: they remove the mapping.
func removals(ops []descriptor.Op) (out []sessions.Backend, all bool) {
	for _, op := range ops {
		switch m := op.Call.Msg.(type) {
		case *nat44_ed.Nat44AddDelLbStaticMapping:
			all = all || !m.IsAdd
		case *nat44_ed.Nat44AddDelStaticMappingV2:
			all = all || !m.IsAdd
		case *nat44_ed.Nat44LbStaticMappingAddDelLocal:
			if addr := m.Local.Addr; !m.IsAdd && [3]byte(addr[:]) != [3]byte(dropPad.addr[:]) {
				out = append(out, sessions.Backend{Addr: addr, Port: m.Local.Port})
			}
		}
		more, last := removals(op.Next)
		out, all = append(out, more...), all || last
	}
	return out, all
}
