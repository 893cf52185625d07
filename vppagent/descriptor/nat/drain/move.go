package drain

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp/draw"
)

// edit puts a local into a slot: in the place of another, or behind the last one. It needs no request if the slot has the local already.
type edit struct {
	slot  int
	to    Local
	share int // how many of VPP's numbers choose the local after the move
}

// move is a list of edits whose requests VPP reads at once.
type move []edit

// verdict says what VPP does with new flows during a move, and after it.
type verdict uint8

const (
	clean   verdict = iota // after the move, every backend has its share; between its requests drained ones get nothing
	hurried                // the same, but between its requests drained ones get new flows
	refused                // otherwise: some list gives backends other shares, a pad gets new flows, or VPP ends
)

// whatever is the share of a local that may have any.
const whatever = -1

// try makes a move if it is clean.
func (p *planner) try(m move) bool { return p.judge(m) == clean && p.do(m) }

// do makes a move.
func (p *planner) do(m move) bool {
	var group []Request
	list, share := slices.Clone(p.list), slices.Clone(p.share)
	for _, e := range m {
		switch {
		case e.slot == len(list):
			list, share = append(list, e.to), append(share, e.share)
			group = append(group, Request{true, e.to})
			continue
		case list[e.slot] != e.to:
			group = append(group, Request{false, list[e.slot]}, Request{true, e.to})
		}
		list[e.slot], share[e.slot] = e.to, e.share
	}
	p.list, p.share = list, share
	if len(group) > 0 {
		p.plan.Groups = append(p.plan.Groups, group)
	}
	return true
}

// judge simulates a move.
func (p *planner) judge(m move) verdict {
	during, after := p.sharesOf(m)
	if len(after) > draw.Most {
		return refused
	}
	list := slices.Grow(slices.Clone(p.list), len(m))
	leaks := false
	harmless := func(without int) bool {
		o := look(list, during, without)
		leaks = leaks || o.leaks
		return !o.harms
	}
	for i, e := range m {
		switch {
		case e.slot == len(list):
			list = append(list, e.to)
		case list[e.slot] == e.to:
			continue
		case !harmless(e.slot):
			return refused
		default:
			list[e.slot] = e.to
		}
		if i < len(m)-1 && !harmless(none) {
			return refused
		}
	}
	switch {
	case look(list, after, none) != (outcome{}):
		return refused
	case leaks:
		return hurried
	}
	return clean
}

// sharesOf returns the shares of all slots during a move and after it. During it, a backend that is drained before and after gets nothing.
func (p *planner) sharesOf(m move) (during, after []int) {
	after = slices.Grow(slices.Clone(p.share), len(m))
	during = make([]int, len(p.share), len(p.share)+len(m))
	for _, e := range m {
		if e.slot == len(after) {
			after, during = append(after, e.share), append(during, whatever)
			continue
		}
		after[e.slot] = e.share
		if !p.list[e.slot].same(e.to) {
			during[e.slot] = whatever
		}
	}
	for i, share := range p.share {
		if share != 0 || after[i] != 0 {
			during[i] = whatever
		}
	}
	return during, after
}

// outcome says what VPP does with new flows while it has a list. The zero value: every backend has its share, and nothing else gets a flow.
type outcome struct {
	harms  bool // VPP ends, or a pad gets a flow
	leaks  bool // a drained backend gets a flow
	uneven bool // another backend gets less or more than its share
}

// none is the slot of no local.
const none = -1

// look returns the outcome of a list, or of the list without one of its locals.
func look(list Layout, share []int, without int) (o outcome) {
	var room [draw.Most + 1]uint8
	var shares [draw.Most + 1]int
	weights := list.weights(room[:])
	if without != none {
		weights = slices.Delete(weights, without, without+1)
	}
	out := draw.Of(shares[:], weights)
	o.harms = out.Total == 0
	at := 0
	for i, l := range list {
		if i == without {
			continue
		}
		got := out.Shares[at]
		at++
		switch {
		case l.isPad():
			o.harms = o.harms || got > 0
		case share[i] == 0:
			o.leaks = o.leaks || got > 0
		case share[i] != whatever:
			o.uneven = o.uneven || got != share[i]
		}
	}
	return o
}
