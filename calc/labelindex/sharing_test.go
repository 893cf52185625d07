package labelindex

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Each list gets the right result, no list is changed, and lists that were one slice stay one slice.
func TestSharedListsStayShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const id = 5
		insert := rapid.Bool().Draw(t, "insert")
		var lists [][]uint32
		for range 4 {
			list := rapid.SliceOfNDistinct(rapid.Uint32Range(0, 9), 0, 5, rapid.ID).Draw(t, "list")
			list = slices.DeleteFunc(list, func(x uint32) bool { return insert && x == id })
			slices.Sort(list)
			lists = append(lists, list)
		}
		var x sharing
		became := map[int][]uint32{}
		for range 12 {
			i := rapid.IntRange(0, len(lists)-1).Draw(t, "which")
			before := slices.Clone(lists[i])
			var got []uint32
			had := slices.Contains(before, id)
			if insert {
				got = x.insert(lists[i], id)
				before = append(before, id)
				slices.Sort(before)
			} else {
				var ok bool
				if got, ok = x.removeNumber(lists[i], id); ok != had {
					t.Fatalf("remove from %v reports %v", before, ok)
				}
				before = slices.DeleteFunc(before, func(x uint32) bool { return x == id })
			}
			if !slices.Equal(got, before) || slices.Contains(lists[i], id) != had {
				t.Fatalf("got %v, want %v; the list is %v now", got, before, lists[i])
			}
			if again, ok := became[i]; ok && head(again) != head(got) {
				t.Fatalf("list %d became two lists", i)
			}
			became[i] = got
		}
	})
}
