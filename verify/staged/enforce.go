// Package staged turns objects and a packet into two decisions: that of the policies that are enforced, and that of the policies that would be
// enforced if no policy were staged.
//
//	objects ─┬──────────────────────▶ meaning ─▶ the decision now ──┐
//	         └─ Enforce: set, delete ─▶ meaning ─▶ the decision then ─┴▶ Outcome, and the staged policy that makes the difference
//
// Invariant: the decision then is the decision now of the objects that Enforce returns.
package staged

import (
	"cmp"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// Policies returns the staged policies that would change something, in the order in which they would be enforced: annotations first, then the
// staged kinds. If two have the same target, the later one counts.
func Policies(objects []model.Object) (list []*model.Policy) {
	for _, o := range objects {
		if p, ok := o.(*model.Policy); ok {
			if a := p.StagedAction(); a != "" && a != model.StagedIgnore {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list, func(a, b *model.Policy) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), a.ID.Compare(b.ID)) })
	return list
}

func rank(p *model.Policy) int {
	if p.Target() == p.ID {
		return 0
	}
	return 1
}

// Enforce returns the objects as they would be if all staged policies were enforced: no policy of them is staged. It does not change the objects.
func Enforce(objects []model.Object) []model.Object {
	would := map[model.PolicyID]*model.Policy{} // by target; nil: deleted
	for _, p := range Policies(objects) {
		if p.StagedAction() == model.StagedDelete {
			would[p.Target()] = nil
			continue
		}
		enforced := *p
		enforced.ID, enforced.Staged = p.Target(), ""
		would[p.Target()] = &enforced
	}
	var out []model.Object
	for _, o := range objects {
		if p, ok := o.(*model.Policy); ok {
			if _, replaced := would[p.ID]; replaced || p.StagedAction() != "" {
				continue
			}
		}
		out = append(out, o)
	}
	for _, p := range Policies(objects) {
		if q := would[p.Target()]; q != nil {
			out = append(out, q)
			delete(would, p.Target())
		}
	}
	return out
}
