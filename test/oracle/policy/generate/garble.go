package generate

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// Garble returns a copy of a policy with one thing in its spec that is not as it should be, most likely; nil if it has come
// out as no object of its kind, which this package does not read.
func (w *World) Garble(o policy.Object) map[string]any {
	t, err := policy.ToTree(o)
	if err != nil {
		return nil
	}
	spec, _ := t["spec"].(map[string]any)
	if len(spec) == 0 {
		return nil
	}
	w.garble(spec)
	return t
}

// garble changes one thing somewhere below.
func (w *World) garble(m map[string]any) {
	key := pick(w, slices.Sorted(maps.Keys(m))...)
	switch v := m[key].(type) {
	case map[string]any:
		if len(v) > 0 && !w.chance(4) {
			w.garble(v)
			return
		}
	case []any:
		if len(v) > 0 && !w.chance(4) {
			i := w.rng.IntN(len(v))
			if below, is := v[i].(map[string]any); is && len(below) > 0 {
				w.garble(below)
			} else {
				v[i] = w.nonsense()
			}
			return
		}
	}
	if w.chance(4) {
		m[pick(w, "bogus", "portz", "ipBlocks", "Selector")] = w.nonsense()
		return
	}
	m[key] = w.nonsense()
}

func (w *World) nonsense() any {
	return pick[any](w, "nonsense!", "", -1, 70000, 1.5, true, []any{}, []any{"x y"}, map[string]any{}, map[string]any{"bogus": "x"}, "10.0.0.0/99", "== 'a'")
}

// Policies are the objects with rules.
func (w *World) Policies() []policy.Object { return w.policies() }
