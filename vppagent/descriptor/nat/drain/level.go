package drain

import "slices"

// level brings the shares of backends to their weights in the goal, as far as VPP has the weights and pads have the effect.
func (p *planner) level() {
	limit := p.limit()
	for again := true; again; {
		again = false
		for slot := 0; slot < len(p.list); slot++ { // the list may get shorter
			weight := p.weightOf(slot)
			if weight == 0 || p.drained(slot) {
				continue
			}
			high := min(weight, int(p.list[slot].Weight), p.share[slot]+most-p.total())
			switch share := p.share[slot]; {
			case share > limit*weight:
				again = p.toward(slot, weight) || again
			case share < high:
				again = p.toward(slot, high) || again
			}
		}
	}
}

// limit is how many times its weight a backend may have. 2 if twice the weights would not fit into VPP's 8 bits, so that renderer/nat44 could not double
// them: then a Service that grows needs no request for each backend.
func (p *planner) limit() int {
	sum, odd := 0, false
	for _, b := range p.goal.Taking {
		sum, odd = sum+int(b.Weight), odd || b.Weight%2 == 1
	}
	if odd && 2*sum > most {
		return 2
	}
	return 1
}

// toward gives a backend a share, or the next one to it that it can have instead of the present one.
func (p *planner) toward(slot, share int) bool {
	pads := most
	if len(p.list) > 128 { // then all take long
		pads = nearby
	}
	for now := p.share[slot]; share != now; {
		if p.turnWithMore(slot, share, pads) {
			return true
		}
		if share < now {
			share++
		} else {
			share--
		}
	}
	return false
}

// shrink removes pads behind the last backend, as long as the mapping has many more than a new layout.
func (p *planner) shrink() {
	if p.ports != nil { // VPP would have another free slot
		return
	}
	backends := 0
	for _, l := range p.list {
		if !l.isPad() {
			backends++
		}
	}
	for n := len(p.list); n > 2+3*backends+spare && p.list.unused(n-1) && p.list.unused(n-2); n = len(p.list) {
		if !removeLast(p, 1) {
			return
		}
	}
}

// removeLast removes the last n locals if they are unused pads. False: they are not, or a share would change.
func removeLast(p *planner, n int) bool {
	for ; n > 0; n-- {
		last := len(p.list) - 1
		if last < 1 || !p.list.unused(last) || look(p.list[:last], p.share[:last], none) != (outcome{}) {
			return false
		}
		p.plan.Groups = append(slices.Clip(p.plan.Groups), []Request{{false, p.list[last]}})
		p.list, p.share = p.list[:last:last], p.share[:last:last]
	}
	return true
}
