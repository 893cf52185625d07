package nat

import (
	"errors"
	"maps"
	"slices"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/draw"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/drain"
)

// layouts are the locals of mappings in the order of VPP's slots, as far as they are not those of a new mapping with the same backends. nil: an
// agent without draining made the mapping, and their order does not matter until a backend drains: see adopt. A dump replaces all of them.
type layouts struct {
	of map[natID]drain.Layout
	// refused are the slots of mappings since VPP refused a part of their last change.
	refused map[natID]*drain.Slots
	// awaited are the locals of mappings that a dump is to show, nil until then: see adopt.
	awaited map[natID][]local
}

func layoutsOf(w *descriptor.World) *layouts {
	return descriptor.FactsOf(w, func() *layouts {
		return &layouts{of: map[natID]drain.Layout{}, refused: map[natID]*drain.Slots{}, awaited: map[natID][]local{}}
	})
}

// Clone implements descriptor.Facts. Layouts are never changed.
func (l *layouts) Clone() descriptor.Facts {
	return &layouts{of: maps.Clone(l.of), refused: maps.Clone(l.refused), awaited: map[natID][]local{}}
}

// drains reports whether a mapping that is made now can drain backends. With affinity, clients are pinned to slots; with several NAT workers,
// VPP chooses among a worker's locals by the sums of all.
func (m mapping) drains(w *descriptor.World) bool { return !m.single && m.affinity == 0 && padded(w) }

// layout returns what VPP has of a mapping found or made; nil: it cannot drain.
func (m mapping) layout(w *descriptor.World) drain.Layout {
	if m.raw != nil || !m.drains(w) {
		return nil
	}
	if l, known := layoutsOf(w).of[m.id]; known {
		return l
	}
	return drain.New(toDrain(m.locals))
}

// fresh returns the locals of a new mapping: no backend is drained, because VPP has no flows to keep.
func (m mapping) fresh(w *descriptor.World) []local {
	if m.drains(w) {
		return allFromDrain(drain.New(toDrain(m.locals)))
	}
	return represent(padded(w), m.locals)
}

// goal is what package drain is to reach.
func (m mapping) goal() drain.Goal {
	return drain.Goal{Taking: toDrain(m.locals), Drained: toDrain(m.drained)}
}

// from returns the requests that turn a layout into that of the mapping. False: none are known.
func (m mapping) from(w *descriptor.World, have mapping, l drain.Layout) ([]descriptor.Op, bool) {
	plan, ok := l.To(m.goal())
	if l.Lacks(plan, ok) {
		if ops, adopts := m.adopt(w, have); adopts {
			return ops, true
		}
	}
	if !ok {
		return nil, false
	}
	if len(plan.Groups) == 0 {
		layoutsOf(w).of[m.id] = l
	}
	return m.groups(w, plan.Groups, m.reached(w, l, plan), l.Slots()), true
}

// reached returns what is noted when VPP has accepted a whole plan.
func (m mapping) reached(w *descriptor.World, from drain.Layout, plan drain.Plan) func() []descriptor.Op {
	return func() []descriptor.Op {
		delete(layoutsOf(w).refused, m.id)
		layoutsOf(w).hold(m, plan.After)
		w.NATDrained(plan.Begun(from), len(plan.Lost))
		return nil
	}
}

// resume returns the requests that finish a change of which VPP has refused a part. False: VPP has something else.
func (m mapping) resume(w *descriptor.World, raw []local) ([]descriptor.Op, bool) {
	slots := layoutsOf(w).refused[m.id]
	if slots == nil || !m.drains(w) || !slots.Show(toDrain(raw)) {
		return nil, false
	}
	group, l, ok := slots.Repair()
	if !ok || len(group) == 0 {
		return nil, false
	}
	plan, ok := l.To(m.goal())
	return m.groups(w, slices.Concat([][]drain.Request{group}, plan.Groups), m.reached(w, l, plan), slots), ok
}

// serves reports that a mapping found in VPP does what another one wants although weights differ: backends keep the weights with which they were added.
func (m mapping) serves(w *descriptor.World, want mapping) bool {
	l := m.layout(w)
	if l == nil || m.flags != want.flags || len(m.locals) != len(want.locals) || !slices.EqualFunc(m.locals, want.locals, local.sameLocal) {
		return false
	}
	plan, ok := l.To(want.goal())
	if !ok || len(plan.Groups) > 0 {
		return false
	}
	layoutsOf(w).of[m.id] = l
	return true
}

// groups returns the requests of the first group. When VPP has accepted all, those that done returns follow. Those of the others follow when VPP has accepted all before:
// after a refusal they could leave it no backend to choose. slots are VPP's before the requests.
func (m mapping) groups(w *descriptor.World, groups [][]drain.Request, done func() []descriptor.Op, slots *drain.Slots) []descriptor.Op {
	if len(groups) == 0 {
		return nil
	}
	steps := make([]step, len(groups[0]))
	for i, r := range groups[0] {
		steps[i] = step{add: r.Add, l: fromDrain(r.Local)}
	}
	ops := m.addDelLocals(w, steps)
	refused := false
	for i := range ops {
		ops[i].Call.Joined = i < len(ops)-1
		ops[i].Call.AtOnce = i == 0 && len(ops) > 1
		ops[i].Refuses = func(vpp.Reply) error {
			if slots != nil {
				slots.Did(groups[0][i])
			}
			if refused && i == len(ops)-1 {
				return errors.New("VPP has refused an earlier request of this change")
			}
			return nil
		}
		ops[i].Else = func() []descriptor.Op {
			if refused = true; slots != nil {
				layoutsOf(w).refused[m.id] = slots
			}
			return nil
		}
	}
	last := &ops[len(ops)-1]
	if last.Next = m.groups(w, groups[1:], done, slots); last.Next == nil {
		last.Then = func(vpp.Reply) []descriptor.Op { return done() }
	}
	return ops
}

// hold notes what VPP has of a mapping.
func (l *layouts) hold(m mapping, now drain.Layout) {
	if slices.Equal(now, drain.New(toDrain(m.locals))) {
		delete(l.of, m.id)
	} else {
		l.of[m.id] = now
	}
}

// dumped forgets all layouts, because a dump has all mappings, and the refused changes of mappings that it does not have.
func (l *layouts) dumped(all []*nat44_ed.Nat44LbStaticMappingDetails) {
	clear(l.of)
	clear(l.awaited)
	maps.DeleteFunc(l.refused, func(id natID, _ *drain.Slots) bool {
		return !slices.ContainsFunc(all, func(m *nat44_ed.Nat44LbStaticMappingDetails) bool {
			return newNATID(m.ExternalAddr, m.ExternalPort, m.Protocol) == id
		})
	})
}

func toDrain(in []local) []drain.Local { return appendDrain(make([]drain.Local, 0, len(in)), in) }

func appendDrain(out []drain.Local, in []local) []drain.Local {
	for _, l := range in {
		out = append(out, drain.Local{Addr: l.addr, Port: l.port, Weight: l.weight, VRF: l.vrf})
	}
	return out
}

// drains reports that the local is a pad of package drain.
func (l local) drains() bool { return l.addr == draw.PadAddr }

func fromDrain(l drain.Local) local {
	return local{addr: l.Addr, port: l.Port, weight: l.Weight, vrf: l.VRF}
}

func allFromDrain(in []drain.Local) []local {
	out := make([]local, len(in))
	for i, l := range in {
		out[i] = fromDrain(l)
	}
	return out
}
