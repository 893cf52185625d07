package generate

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// Shrink removes parts of objects while they still fail: whole objects, then fields and elements of lists. The status of an
// object stays. The result is small enough to be understood, and to be copied into a story.
func Shrink(objects []policy.Object, fails func([]policy.Object) bool) []policy.Object {
	for {
		smaller := shrinkEach(shrinkList(objects, fails), fails)
		if weight(smaller) == weight(objects) {
			return smaller
		}
		objects = smaller
	}
}

// weight is how much there is.
func weight(objects []policy.Object) int {
	n := 0
	for _, o := range objects {
		if text, err := json.Marshal(o); err == nil {
			n += len(text)
		}
	}
	return n
}

func shrinkList(objects []policy.Object, fails func([]policy.Object) bool) []policy.Object {
	for i := len(objects) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(objects), i, i+1); fails(fewer) {
			objects = fewer
		}
	}
	return objects
}

func shrinkEach(objects []policy.Object, fails func([]policy.Object) bool) []policy.Object {
	for i := range objects {
		t, err := policy.ToTree(objects[i])
		if err != nil {
			continue
		}
		try := func() bool {
			o := policy.FromTree(t)
			if o == nil {
				return false
			}
			others := slices.Clone(objects)
			others[i] = o
			if !fails(others) {
				return false
			}
			objects = others
			return true
		}
		for _, part := range []string{"spec", "metadata", "endpoints", "ports"} {
			shrinkTree(t, part, try)
		}
	}
	return objects
}

// shrinkTree takes away t[key], or, if that must stay, parts of it.
func shrinkTree(t map[string]any, key string, try func() bool) {
	v, has := t[key]
	if !has {
		return
	}
	delete(t, key)
	if try() {
		return
	}
	t[key] = v
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			shrinkTree(v, k, try)
		}
	case []any:
		for i := len(v) - 1; i >= 0; i-- {
			t[key] = slices.Delete(slices.Clone(v), i, i+1)
			if try() {
				v = t[key].([]any)
				continue
			}
			t[key] = v
			if m, isMap := v[i].(map[string]any); isMap {
				for _, k := range slices.Sorted(maps.Keys(m)) {
					shrinkTree(m, k, try)
				}
			}
		}
	}
}
