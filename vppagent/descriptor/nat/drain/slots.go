package drain

import "slices"

// Slots are VPP's slots of a mapping during a change of which VPP may refuse a part.
type Slots struct {
	locals []Local
	taken  []bool
	free   []int    // the last one is taken next
	ports  []uint16 // of pads of an adopted layout, by slot
}

// Slots returns the slots of a layout.
func (l Layout) Slots() *Slots {
	s := &Slots{locals: slices.Clone(l), taken: make([]bool, len(l)), ports: l.portsOfPads()}
	for i := range s.taken {
		s.taken[i] = true
	}
	return s
}

// Did notes a request that VPP has accepted.
func (s *Slots) Did(r Request) {
	switch n := len(s.free); {
	case !r.Add:
		if at := slices.IndexFunc(s.locals, r.Local.same); at >= 0 {
			s.locals[at], s.taken[at], s.free = Local{}, false, append(s.free, at)
		}
	case n > 0:
		at := s.free[n-1]
		s.locals[at], s.taken[at], s.free = r.Local, true, s.free[:n-1]
	default:
		s.locals, s.taken = append(s.locals, r.Local), append(s.taken, true)
	}
}

// Show reports that a dump shows these slots.
func (s *Slots) Show(dumped []Local) bool {
	var list []Local
	for i, l := range s.locals {
		if s.taken[i] {
			list = append(list, l)
		}
	}
	return slices.Equal(list, dumped)
}

// Repair returns the requests after which no slot is free and each pad has the number of its slot, and the layout then: pads of weight 0 take the free slots,
// and pads that VPP put behind the last local in place of refused ones leave. False: no such requests are known.
func (s *Slots) Repair() (group []Request, l Layout, ok bool) {
	now := Slots{locals: slices.Clone(s.locals), taken: slices.Clone(s.taken), free: slices.Clone(s.free)}
	do := func(r Request) {
		now.Did(r)
		group = append(group, r)
	}
	for len(now.free) > 0 {
		pad := padAt(now.free[len(now.free)-1], 0)
		if s.ports != nil {
			pad.Port = s.ports[now.free[len(now.free)-1]]
		}
		do(Request{true, pad})
	}
	last := func() int { return len(now.locals) - 1 }
	for s.ports == nil && len(now.locals) > 3 && now.locals[last()].isPad() && now.locals[last()] != padAt(last(), now.locals[last()].Weight) {
		group = append(group, Request{false, now.locals[last()]})
		now.locals = now.locals[:last()]
	}
	l, ok = Read(now.locals)
	if _, even := l.shares(); !ok || !even {
		return nil, nil, false
	}
	return group, l, true
}
