package nat

import (
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// perRequest is the time that a request takes beyond VPP's: the agent makes it and reads the reply.
const perRequest = 10 * time.Microsecond

// Toward implements descriptor.Gradual. A part of the mappings is as wanted, in the order of the requests of updateDNat: changed and new mappings
// first, and then removals. A mapping is not cut.
func (*dnat) Toward(w *descriptor.World, have, want any, most time.Duration) any {
	from, to := &dnat{}, &dnat{}
	if have != nil {
		from = have.(*dnat)
	}
	if want != nil {
		to = want.(*dnat)
	}
	if len(from.mappings)+len(to.mappings) < 2 {
		return nil
	}
	mid := &dnat{key: to.key, label: to.label, identities: from.identities}
	if want == nil {
		mid.key, mid.label = from.key, from.label
	}
	p := portion{w: w, most: most}
	gone := map[natID]bool{}
	h := from.mappings
	for _, m := range to.mappings {
		for len(h) > 0 && h[0].id < m.id {
			gone[h[0].id], mid.mappings, h = true, append(mid.mappings, h[0]), h[1:]
		}
		switch {
		case len(h) == 0 || h[0].id != m.id:
			if p.takes(m.create(w)) {
				mid.mappings = append(mid.mappings, m)
			}
			continue
		case p.takes(updateMapping(w, h[0], m)...):
			mid.mappings = append(mid.mappings, m)
		default:
			mid.mappings = append(mid.mappings, h[0])
		}
		h = h[1:]
	}
	for _, m := range h {
		gone[m.id], mid.mappings = true, append(mid.mappings, m)
	}
	if !p.full {
		mid.identities = to.identities
		mid.mappings = slices.DeleteFunc(mid.mappings, func(m mapping) bool { return gone[m.id] && p.takes(removeMapping(w, m)...) })
	}
	if !p.full {
		return nil
	}
	return mid
}

// portion collects requests until they take too long.
type portion struct {
	w         *descriptor.World
	most, sum time.Duration
	full      bool
}

func (p *portion) count(ops []descriptor.Op) {
	for i := range ops {
		p.sum += max(ops[i].Cost, p.w.Cost.Message(ops[i].Call.Msg.GetMessageName())) + perRequest
		p.count(ops[i].Next)
	}
}

// takes reports whether a mapping's requests are in the portion; the first ones always are.
func (p *portion) takes(ops ...descriptor.Op) bool {
	if len(ops) == 0 {
		return true
	}
	if p.full {
		return false
	}
	first := p.sum == 0
	p.count(ops)
	p.full = p.sum > p.most && !first
	return !p.full
}
