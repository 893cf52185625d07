package drain

import (
	"cmp"
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp/draw"
)

// Goal is what a mapping is to do.
type Goal struct {
	// Taking are the backends that get new flows by their weights. Empty: packets of new flows are lost. VPP may have other weights of some of them:
	// they keep those, because only a backend that is removed can get another one, and its flows would end.
	Taking []Local
	// Drained are backends that get no new flow. The mapping keeps the flows that they have. A backend that VPP does not have is not added.
	Drained []Local
}

// Request adds or removes a local.
type Request struct {
	Add   bool
	Local Local
}

// Plan are the requests that lead to a goal.
type Plan struct {
	// Groups are the requests in their order. VPP must read those of a group at once.
	Groups [][]Request
	// After is the layout that VPP has then.
	After Layout
	// Lost are backends that should be drained and cannot be: the plan removes them, and their flows end.
	Lost []Local
	// Cut are backends that stay and whose flows end: VPP has no room for their weights beside the others.
	Cut []Local
	// Hurried is how many groups give a drained backend new flows if VPP forwards between two requests of the group, as a VPP with a worker thread
	// does.
	Hurried int
	// Searched is how many lists were simulated in search of several pads that drain together. It is bounded.
	Searched int
	// Reopened reports that all drained backends get new flows until the last group: no other plan was found.
	Reopened bool
	// Squeezed reports that new backends may have taken pads that other backends need to be drained: the layout has no others.
	Squeezed bool
}

// Begun returns how many backends get new flows in the layout from which a plan leads, and are drained after it.
func (p Plan) Begun(from Layout) int {
	taking, _, ok := from.Split()
	if !ok {
		return 0
	}
	_, drained, _ := p.After.Split()
	return Common(drained, taking)
}

// Common returns how many locals of a are in b.
func Common(a, b []Local) (n int) {
	for _, l := range a {
		if contains(b, l) {
			n++
		}
	}
	return n
}

const (
	morePads = 6   // are added at most in search of a layout in which a backend can be drained
	nearby   = 8   // pads are tried to give a backend a smaller or larger share, of which there are many
	spare    = 12  // pads behind the last backend are kept beyond those of a new layout
	most     = 255 // is the largest sum of shares: VPP adds weights up in 8 bits
)

// To returns the requests that lead from a layout to a goal. False: no requests are known, and the mapping must be made anew.
func (l Layout) To(goal Goal) (Plan, bool) {
	if len(goal.Taking) == 0 {
		goal.Taking = []Local{Discard}
	}
	if newPlanner(l, goal) == nil {
		return Plan{}, false
	}
	searched := 0
	for n, steps := range attempts(l.adopted()) {
		p := newPlanner(l, goal)
		p.plan.Squeezed = n >= fewest
		if n > 1 { // the first two search apart
			p.plan.Searched = searched
		}
		if !slices.ContainsFunc(steps, func(step func(*planner) bool) bool { return !step(p) }) {
			return p.done(), true
		}
		searched = max(searched, p.plan.Searched)
	}
	return Plan{Searched: searched}, false
}

// fewest is how many attempts leave the pads that other backends need.
const fewest = 3

// attempts are the steps of plans, in the order in which they are tried.
func attempts(adopted bool) [][]func(*planner) bool {
	all := [][]func(*planner) bool{
		{(*planner).takeMore, (*planner).removeGone, (*planner).drainMore},
		{(*planner).reopenAll, (*planner).takeMore, (*planner).removeGone, (*planner).drainMore},
		{(*planner).reopenAll, (*planner).takeMore, removeAll},
	}
	if adopted {
		all = append(all, all...)
	}
	return all
}

// planner makes a plan move by move. Between two moves, VPP gives every backend its share.
type planner struct {
	list  Layout
	share []int // of each slot: how many of VPP's numbers choose the local. 0: a pad, or a drained backend
	goal  Goal
	plan  Plan
	ports []uint16 // of the pad of each slot; nil: it is the number of the slot
}

// newPlanner returns nil if the layout is none of this package.
func newPlanner(l Layout, goal Goal) *planner {
	share, ok := l.shares()
	if !ok {
		return nil
	}
	return &planner{list: l, share: share, goal: goal, ports: l.portsOfPads()}
}

// padOf is the pad of a slot.
func padOf(p *planner, slot int, weight uint8) Local {
	if p.ports == nil {
		return padAt(slot, weight)
	}
	return Local{Addr: draw.PadAddr, Port: p.ports[slot], Weight: weight}
}

func (p *planner) done() Plan {
	p.level()
	p.shrink()
	p.plan.After = p.list
	return p.plan
}

func contains(list []Local, l Local) bool { return slices.ContainsFunc(list, l.same) }

// drained reports that a backend gets no new flow.
func (p *planner) drained(slot int) bool { return p.share[slot] == 0 }

// total is the sum of shares.
func (p *planner) total() (sum int) {
	for _, s := range p.share {
		sum += s
	}
	return sum
}

// takeMore makes all backends that are to get new flows get them, and makes room for them if VPP has none.
func (p *planner) takeMore() bool {
	for _, b := range p.goal.Taking {
		for !p.take(b) {
			if !p.makeRoom(int(b.Weight)) {
				return false
			}
		}
	}
	return true
}

func (p *planner) take(b Local) bool {
	at := p.list.find(b)
	switch {
	case at >= 0 && !p.drained(at):
		return true
	case p.total()+int(b.Weight) > most:
		return false
	case at < 0:
		return p.put(b)
	}
	share := min(int(b.Weight), int(p.list[at].Weight))
	return p.turn(at, share, most) || p.joint(move{{at, p.list[at], share}})
}

// makeRoom removes a backend that is not wanted, or lowers the share of one that has more than its weight in the goal. The last resort is to add one
// with that weight again.
func (p *planner) makeRoom(weight int) bool {
	if at := p.gone(); at >= 0 {
		return p.remove(at)
	}
	lowered := p.abundant(func(slot, weight int) int { return int(p.list[slot].Weight) - max(p.share[slot], weight) })
	if need := p.total() + weight - most; need > 0 {
		rich := p.abundant(func(slot, weight int) int { return p.share[slot] - weight })
		for _, turn := range []func(slot, share, pads int) bool{p.turn, p.turnWithMore} {
			for _, slot := range rich {
				if turn(slot, max(p.weightOf(slot), p.share[slot]-need), nearby) {
					return true
				}
			}
		}
		lowered = append(rich, lowered...)
	}
	for _, slot := range lowered { // a pad that lowers its share is free then
		b := p.list[slot]
		b.Weight = uint8(p.weightOf(slot))
		if p.withPad(edit{slot, b, int(b.Weight)}, nearby) {
			p.plan.Cut = append(p.plan.Cut, b)
			return true
		}
	}
	return false
}

// weightOf is the weight that the goal has for a backend that gets new flows; 0: there is no such backend.
func (p *planner) weightOf(slot int) int {
	if i := slices.IndexFunc(p.goal.Taking, p.list[slot].same); i >= 0 {
		return int(p.goal.Taking[i].Weight)
	}
	return 0
}

// abundant returns the slots of backends that get new flows and have more than the goal says, those with most first.
func (p *planner) abundant(excess func(slot, weight int) int) (slots []int) {
	more := make([]int, len(p.list))
	for i := range p.list {
		if weight := p.weightOf(i); weight > 0 && !p.drained(i) {
			if more[i] = excess(i, weight); more[i] > 0 {
				slots = append(slots, i)
			}
		}
	}
	slices.SortStableFunc(slots, func(a, b int) int { return cmp.Compare(more[b], more[a]) })
	return slots
}

// put adds a backend: in the place of one that is not wanted, or of a pad that other pads surround, or behind the last local with pads around it, or in
// the place of any pad.
func (p *planner) put(b Local) bool {
	if p.putAmongPads(b, p.try) || p.putAmongPads(b, p.joint) {
		return true
	}
	if p.list.adopted() && p.list.hasRoom() && !p.plan.Squeezed { // a pad beside another backend may drain that one
		return false
	}
	for _, i := range p.spareFirst() {
		if p.try(move{{i, b, int(b.Weight)}}) {
			return true
		}
	}
	return false
}

// putAmongPads adds a backend where it has pads on both sides, by a change that may fail.
func (p *planner) putAmongPads(b Local, change func(move) bool) bool {
	share := int(b.Weight)
	if at := p.gone(); at >= 0 && p.share[at] == int(p.list[at].Weight) && p.list.padsAround(at) && change(move{{at, b, share}}) {
		return true
	}
	for i := 3; i < len(p.list); i++ {
		if p.list.unused(i) && p.list.padsAround(i) && change(move{{i, b, share}}) {
			return true
		}
	}
	for extra := range placesOf(p, morePads) {
		m := p.pads(extra + 1)
		m = append(m, edit{len(p.list) + len(m), b, share})
		m = append(m, edit{len(p.list) + len(m), padAt(len(p.list)+len(m), 0), 0})
		if change(m) {
			return true
		}
	}
	return false
}

// spareFirst returns the unused pads. Those beside a backend that may have to yield a part of its share, and needs a pad for that, are the last.
func (p *planner) spareFirst() (slots []int) {
	var needed []int
	rich := p.abundant(func(slot, weight int) int { return p.share[slot] - weight })
	for i := range p.list {
		switch {
		case !p.list.unused(i):
		case slices.Contains(rich, i-1) || slices.Contains(rich, i+1):
			needed = append(needed, i)
		default:
			slots = append(slots, i)
		}
	}
	return append(slots, needed...)
}

// unused reports that a slot has a pad that may leave it. The first one of an adopted layout stays.
func (l Layout) unused(slot int) bool {
	return l[slot].isPad() && l[slot].Weight == 0 && (slot > 0 || !l.adopted())
}

// padsAround reports that the two places before and behind a slot have pads, or do not exist.
func (l Layout) padsAround(slot int) bool {
	for _, i := range []int{slot - 2, slot - 1, slot + 1, slot + 2} {
		if i >= 0 && i < len(l) && !l[i].isPad() {
			return false
		}
	}
	return true
}

// placesOf is n, or 0 if VPP may have a free slot, so that nothing can be added behind the last local.
func placesOf(p *planner, n int) int {
	if p.ports != nil {
		return 0
	}
	return n
}

// pads adds n pads behind the last local.
func (p *planner) pads(n int) (m move) {
	for range n {
		slot := len(p.list) + len(m)
		m = append(m, edit{slot, padAt(slot, 0), 0})
	}
	return m
}

// drainMore drains the backends that are to be drained, and removes those that cannot be.
func (p *planner) drainMore() bool {
	for _, b := range p.goal.Drained {
		at := p.list.find(b)
		if at < 0 || p.drained(at) || p.turnWithMore(at, 0, most) || p.joint(move{{at, p.list[at], 0}}) {
			continue
		}
		p.plan.Lost = append(p.plan.Lost, p.list[at])
		if !p.remove(at) {
			return false
		}
	}
	return true
}

// turnWithMore is turn, if necessary with more pads behind the last local, or with fewer if none can be added.
func (p *planner) turnWithMore(slot, share, pads int) bool {
	for n := range morePads + 1 {
		had := *p
		ready := p.try(p.pads(placesOf(p, n)))
		if placesOf(p, n) < n {
			ready = removeLast(p, n)
		}
		if ready && p.turn(slot, share, pads) {
			return true
		}
		*p = had
	}
	return false
}

// removeGone removes all backends that are not wanted.
func (p *planner) removeGone() bool {
	for at := p.gone(); at >= 0; at = p.gone() {
		if !p.remove(at) {
			return false
		}
	}
	return true
}

// removeAll removes all backends that are not to get new flows.
func removeAll(p *planner) bool {
	for _, b := range p.goal.Drained {
		if at := p.list.find(b); at >= 0 {
			p.plan.Lost = append(p.plan.Lost, p.list[at])
		}
	}
	p.goal.Drained = nil
	return p.removeGone()
}

// gone returns the slot of a backend that is not wanted, -1 if there is none.
func (p *planner) gone() int {
	return slices.IndexFunc(p.list, func(l Local) bool { return !l.isPad() && !contains(p.goal.Taking, l) && !contains(p.goal.Drained, l) })
}

// remove puts a pad in the place of a backend. If the backend has less than its weight, the pad that takes the rest is reset.
func (p *planner) remove(slot int) bool {
	e := edit{slot, padOf(p, slot, 0), 0}
	return p.withPad(e, most) || p.joint(move{e})
}

// turn gives a backend another share by one of so many pads.
func (p *planner) turn(slot, share, pads int) bool {
	return p.withPad(edit{slot, p.list[slot], share}, pads)
}

// withPad makes an edit of a slot that exists, and changes the weight of a pad so that all other backends keep their shares: the nearest pad that has
// this effect, of so many. A pad takes from VPP's sum what a backend has of its weight beyond its share.
func (p *planner) withPad(e edit, pads int) bool {
	weight := func(l Local) int {
		if l.isPad() {
			return 0
		}
		return int(l.Weight)
	}
	difference := weight(p.list[e.slot]) - p.share[e.slot] - weight(e.to) + e.share
	if difference == 0 {
		return p.try(move{e})
	}
	var second move
	near := p.nearest(e.slot, uint8(-difference))
	for _, pad := range near[:min(pads, len(near))] {
		change := edit{pad, padOf(p, pad, p.list[pad].Weight+uint8(difference)), 0}
		moves := []move{{change, e}}
		if p.list[e.slot] != e.to {
			moves = append(moves, move{e, change})
		}
		for _, m := range moves {
			switch p.judge(m) {
			case clean:
				return p.do(m)
			case hurried:
				if second == nil {
					second = m
				}
			}
		}
	}
	if second == nil {
		return false
	}
	p.plan.Hurried++
	return p.do(second)
}

// nearest returns the slots of all pads, the nearest to a slot first, and of all those with a certain weight before the others.
func (p *planner) nearest(slot int, weight uint8) (pads []int) {
	var others []int
	for d := 1; d < len(p.list); d++ {
		for _, i := range []int{slot - d, slot + d} {
			switch {
			case i < 0 || i >= len(p.list) || !p.list[i].isPad():
			case p.list[i].Weight == weight:
				pads = append(pads, i)
			default:
				others = append(others, i)
			}
		}
	}
	return append(pads, others...)
}

// reopenAll resets all pads in one group, so that all backends get new flows.
func (p *planner) reopenAll() bool {
	var m move
	for i, l := range p.list {
		switch {
		case l.isPad() && l.Weight != 0:
			m = append(m, edit{i, padOf(p, i, 0), 0})
		case !l.isPad() && p.share[i] != int(l.Weight):
			m = append(m, edit{i, l, int(l.Weight)})
		}
	}
	if len(m) == 0 {
		return true
	}
	if p.judge(m) == refused {
		return false
	}
	p.plan.Reopened = true
	return p.do(m)
}
