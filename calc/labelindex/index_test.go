package labelindex

import (
	"fmt"
	"testing"

	"github.com/contiv-agent/contiv-agent/selector"
)

func podLabels(i int) map[string]string {
	return map[string]string{
		"orchestrator": "k8s", "namespace": fmt.Sprint("ns-", i%50), "app": fmt.Sprint("app-", i%500), "pod": fmt.Sprint(i),
	}
}

func mustParse(t *testing.T, text string) *selector.Selector {
	t.Helper()
	s, err := selector.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// comparedSelectors is the number of selectors with which item h is compared when it changes.
func (x *Index) comparedSelectors(h uint32) int {
	n := x.unanchored.len()
	for _, id := range x.viewKind(x.items[h].Kind).ids {
		p := &x.labels.pairs[id]
		n += p.key.selectors.len()
		if p.more != nil {
			n += p.more.selectors.len()
		}
	}
	return n
}

func (x *Index) comparedItems(s uint32) (n int) {
	x.candidates(s, func(uint32) { n++ })
	return n
}

// A change is compared with few selectors, however many ask for labels that all items have. A new selector is compared
// with few items, however many exist. Both hold in either order of arrival.
func TestChangeMeetsFewSelectors(t *testing.T) {
	const items, selectors = 5_000, 5_000
	for _, selectorsFirst := range []bool{true, false} {
		x := New()
		addItems := func() {
			for i := range items {
				x.SetItem(uint32(i), podLabels(i), nil)
			}
		}
		if !selectorsFirst {
			addItems()
		}
		for i := range selectors {
			text := fmt.Sprintf("orchestrator == 'k8s' && namespace == 'ns-%d' && app == 'app-%d' && has(pod)", i%50, i)
			x.AddSelector(uint32(i), mustParse(t, text), func(uint32) {})
		}
		if selectorsFirst {
			addItems()
		}
		for _, h := range []uint32{0, 17, items - 1} {
			if n := x.comparedSelectors(h); n > 10 {
				t.Errorf("selectors first %v: item %d meets %d of %d selectors", selectorsFirst, h, n, selectors)
			}
			if len(x.Matches(h)) != 1 {
				t.Errorf("item %d matches %v", h, x.Matches(h))
			}
		}
		for _, s := range []uint32{0, 499, selectors - 1} {
			if n := x.comparedItems(s); n > items/500 {
				t.Errorf("selectors first %v: selector %d looks at %d of %d items", selectorsFirst, s, n, items)
			}
		}
	}
}

// The item's own labels take precedence, then the parents' in the order of the list. Removing a label uncovers the
// next.
func TestInheritance(t *testing.T) {
	x := New()
	for i, v := range []string{"own", "first", "second"} {
		x.AddSelector(uint32(i), mustParse(t, "a == '"+v+"'"), func(uint32) {})
	}
	none := func(uint32, []uint32, []uint32) {}
	x.SetParent("p1", map[string]string{"a": "first"}, true, none)
	x.SetParent("p2", map[string]string{"a": "second"}, true, none)
	expect := func(what string, want uint32) {
		t.Helper()
		if m := x.Matches(7); len(m) != 1 || m[0] != want {
			t.Errorf("%s: matches %v, want %d", what, m, want)
		}
	}
	x.SetItem(7, map[string]string{"a": "own"}, []string{"p1", "p2"})
	expect("own", 0)
	x.SetItem(7, nil, []string{"p1", "p2"})
	expect("first parent", 1)
	x.SetItem(7, nil, []string{"p2", "p1"})
	expect("the other order", 2)
	calls := 0
	x.SetParent("p2", nil, false, func(h uint32, added, removed []uint32) {
		calls++
		if h != 7 || len(added) != 1 || added[0] != 1 || len(removed) != 1 || removed[0] != 2 {
			t.Errorf("item %d: added %v, removed %v", h, added, removed)
		}
	})
	expect("parent gone", 1)
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
	if added, removed := x.SetItem(7, nil, []string{"p2", "p1"}); added != nil || removed != nil {
		t.Errorf("no change changes %v, %v", added, removed)
	}
}

func TestIDSet(t *testing.T) {
	var s idSet
	want := map[uint32]bool{}
	for i := range uint32(80) {
		in, out := i%40*7, i%14*7 // several blocks, and neighbours within one
		s.addID(in)
		want[in] = true
		if i%3 == 0 {
			s.removeID(out)
			delete(want, out)
		}
		n := 0
		s.each(func(id uint32) {
			if n++; !want[id] {
				t.Errorf("step %d: %d is a member", i, id)
			}
		})
		if n != len(want) || s.len() != n {
			t.Errorf("step %d: %d members, len %d, want %d", i, n, s.len(), len(want))
		}
	}
}
