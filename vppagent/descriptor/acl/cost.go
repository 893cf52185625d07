package acl

import (
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent/cost"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// lookupContext is the lookup context of one direction of an interface: the rules of each access list, foreign ones too.
func lookupContext(w *descriptor.World, indices []uint32) cost.Context {
	out, rules := make(cost.Context, len(indices)), factsOf(w).acls.rules
	for i, index := range indices {
		out[i] = rules[index]
	}
	return out
}

// lookupContexts are the lookup contexts that have an access list, and its place in each.
func lookupContexts(w *descriptor.World, index uint32) (all []cost.Context, at []int) {
	for _, l := range factsOf(w).lists {
		for _, list := range [2][]uint32{l.in, l.out} {
			if i := slices.Index(list, index); i >= 0 {
				all, at = append(all, lookupContext(w, list)), append(at, i)
			}
		}
	}
	return all, at
}

// costOfReplace is the time that VPP takes to replace the rules of an access list in place.
func costOfReplace(w *descriptor.World, index uint32, rules int) time.Duration {
	all, at := lookupContexts(w, index)
	return w.Cost.Replace(rules, all, at)
}

// costOfSwitch is the time that VPP takes to change the lists of an interface.
func costOfSwitch(w *descriptor.World, has, want attached) time.Duration {
	return w.Cost.Switch([2]cost.Context{lookupContext(w, has.in), lookupContext(w, has.out)}, [2]cost.Context{lookupContext(w, want.in), lookupContext(w, want.out)})
}

// costOfACL returns the times that the longest request takes: if an access list changes in place, and if it is replaced beside,
// where VPP writes the second access list and switches each interface to it.
func costOfACL(w *descriptor.World, have, want any) (inPlace, beside time.Duration) {
	l := want.(*accessList)
	index, ok := factsOf(w).acls.index[l.key]
	if !ok {
		return 0, 0
	}
	beside = w.Cost.Write(len(l.rules))
	for _, a := range factsOf(w).lists {
		in, out := slices.Index(a.in, index), slices.Index(a.out, index)
		if in < 0 && out < 0 {
			continue
		}
		before := [2]cost.Context{lookupContext(w, a.in), lookupContext(w, a.out)}
		after := [2]cost.Context{slices.Clone(before[0]), slices.Clone(before[1])}
		for dir, place := range [2]int{in, out} {
			if place >= 0 {
				after[dir][place] = len(l.rules)
			}
		}
		beside = max(beside, w.Cost.Switch(before, after))
	}
	return costOfReplace(w, index, len(l.rules)), beside
}
