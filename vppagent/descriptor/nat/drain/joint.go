package drain

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp/draw"
)

// mostLooks bounds the lists that all searches of a plan simulate. Without a bound their time doubles with each drained backend.
const mostLooks = 20_000

// joint makes edits, and changes the pads beside all backends that get less than their weights, in one group, so that all have their shares afterwards.
//
// A pad of weight 256 − w behind a backend of weight w drains it, unless VPP's search for the next backend looks at the backend's slot. A pad before the
// backend drains it, unless the search for the one before looks at the pad's slot. Of two neighbouring slots, one is looked at last of all, so
// that it has only its neighbour to decide about. So one of the two pads has the effect for every backend with two pads on either side,
// however many others are drained.
func (p *planner) joint(edits move) bool {
	_, share := p.sharesOf(edits)
	s := search{planner: p, edits: edits, list: slices.Clone(p.list), share: share, verdict: refused}
	for _, e := range edits {
		if e.slot < len(s.list) {
			s.list[e.slot] = e.to
		} else {
			s.list = append(s.list, e.to)
		}
	}
	if len(s.list) > draw.Most {
		return false
	}
	had := make([]int, len(s.list)) // shares without the pads' weights
	for i, l := range s.list {
		if l.isPad() {
			s.list[i] = padOf(p, i, 0)
		} else {
			had[i] = int(l.Weight)
		}
	}
	if !s.from(0, had) {
		return false
	}
	if s.verdict == hurried {
		p.plan.Hurried++
	}
	return p.do(s.found)
}

// search looks for weights of pads, one backend after the other that gets less than its weight.
type search struct {
	*planner
	edits   move
	list    Layout
	share   []int // that backends are to have
	found   move
	verdict verdict // of found
}

// from continues at a slot. Backends before it have their shares in the list, the others have their weights.
func (s *search) from(slot int, has []int) bool {
	for slot < len(s.list) && (s.list[slot].isPad() || s.share[slot] == int(s.list[slot].Weight)) {
		slot++
	}
	if slot == len(s.list) {
		return s.reach()
	}
	has = slices.Clone(has)
	less := uint8(has[slot] - s.share[slot])
	has[slot] = s.share[slot]
	for _, pad := range []int{slot + 1, slot - 1} {
		if pad < 0 || pad >= len(s.list) || !s.list[pad].isPad() {
			continue
		}
		if s.plan.Searched >= mostLooks {
			return false
		}
		s.plan.Searched++
		s.list[pad].Weight -= less
		if look(s.list, has, none) == (outcome{}) && s.from(slot+1, has) {
			return true
		}
		s.list[pad].Weight += less
	}
	return false
}

// reach looks for an order of the edits in which VPP gets the list.
func (s *search) reach() bool {
	var resets, sets move
	for i, l := range s.list {
		switch {
		case i >= len(s.planner.list) || !l.isPad() || !s.planner.list[i].isPad() || l == s.planner.list[i]:
		case l.Weight == 0:
			resets = append(resets, edit{i, l, 0})
		default:
			sets = append(sets, edit{i, l, 0})
		}
	}
	edits := slices.Clone(s.edits)
	for i, e := range edits { // pads that are added get their weight at once
		if e.to.isPad() {
			edits[i].to = s.list[e.slot]
		}
	}
	for _, m := range []move{slices.Concat(edits, sets, resets), slices.Concat(sets, edits, resets), slices.Concat(resets, edits, sets)} {
		if v := s.judge(m); v < s.verdict {
			s.found, s.verdict = m, v
		}
	}
	if s.verdict == refused {
		if s.found = s.order(nil, slices.Concat(resets, edits, sets), s.planner.list); s.found != nil {
			s.verdict = s.judge(s.found)
		}
	}
	return s.verdict != refused
}

// order appends edits to a move, so that no list in between harms; nil: it finds no such order.
func (s *search) order(done, rest move, list Layout) move {
	if len(rest) == 0 {
		return done
	}
	any := make([]int, len(s.list))
	for i := range any {
		any[i] = whatever
	}
	for i, e := range rest {
		if s.plan.Searched >= mostLooks {
			return nil
		}
		s.plan.Searched++
		next := slices.Clone(list)
		switch {
		case e.slot > len(list):
			continue
		case e.slot == len(list):
			next = append(next, e.to)
		case list[e.slot] != e.to && look(list, any, e.slot).harms:
			continue
		default:
			next[e.slot] = e.to
		}
		if look(next, any, none).harms {
			continue
		}
		if all := s.order(append(slices.Clip(done), e), slices.Delete(slices.Clone(rest), i, i+1), next); all != nil {
			return all
		}
	}
	return nil
}
