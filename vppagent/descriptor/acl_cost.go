package descriptor

import (
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// context is the lookup context of one direction of an interface: the rules of each access list, foreign ones too.
func (w *World) context(indices []uint32) cost.Context {
	out := make(cost.Context, len(indices))
	for i, index := range indices {
		out[i] = w.acls.rules[index]
	}
	return out
}

// contexts are the lookup contexts that have an access list, and its place in each.
func (w *World) contexts(index uint32) (all []cost.Context, at []int) {
	for _, l := range w.lists {
		for _, list := range [2][]uint32{l.in, l.out} {
			if i := slices.Index(list, index); i >= 0 {
				all, at = append(all, w.context(list)), append(at, i)
			}
		}
	}
	return all, at
}

// costOfReplace is the time VPP takes to give an access list other rules in place.
func (w *World) costOfReplace(index uint32, rules int) time.Duration {
	all, at := w.contexts(index)
	return w.Cost.Replace(rules, all, at)
}

// costOfSwitch is the time VPP takes to give an interface other lists.
func (w *World) costOfSwitch(has, want attached) time.Duration {
	return w.Cost.Switch([2]cost.Context{w.context(has.in), w.context(has.out)}, [2]cost.Context{w.context(want.in), w.context(want.out)})
}

// costOfACL is the time that the longest request takes if an access list changes in place, and if it is replaced beside: the second
// access list is written, and each interface is switched to it.
func costOfACL(w *World, have, want any) (inPlace, beside time.Duration) {
	l := want.(*accessList)
	index, ok := w.acls.index[l.key]
	if !ok {
		return 0, 0
	}
	beside = w.Cost.Write(len(l.rules))
	for _, a := range w.lists {
		in, out := slices.Index(a.in, index), slices.Index(a.out, index)
		if in < 0 && out < 0 {
			continue
		}
		before := [2]cost.Context{w.context(a.in), w.context(a.out)}
		after := [2]cost.Context{slices.Clone(before[0]), slices.Clone(before[1])}
		for dir, place := range [2]int{in, out} {
			if place >= 0 {
				after[dir][place] = len(l.rules)
			}
		}
		beside = max(beside, w.Cost.Switch(before, after))
	}
	return w.costOfReplace(index, len(l.rules)), beside
}
