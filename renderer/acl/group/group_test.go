package group

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

type owner string

func (o owner) GroupKey() string { return string(o) }
func (o owner) Part() int        { return PartOf(string(o)) }

type text string

func (t text) Signature() string { return string(t) }

// Places with equal contributions share a table, which exists as long as one of them does.
func TestPlacesShareTables(t *testing.T) {
	store, written := table.NewStore(), 0
	g := New("closed-", store, func(q *Group[owner, text]) *table.Table {
		written++
		out := &table.Table{Name: q.Name}
		out.Add(match.Atom{Verb: match.Deny, Src: match.V4.All(), Dst: match.V4.All()}, &dataplane.Cause{})
		return out
	})
	one := g.Replace(nil, map[owner]text{"a": "1"})
	two := g.Replace(nil, map[owner]text{"a": "1"})
	if len(one) != 1 || one[0] != two[0] || written != 1 || g.Named(one[0].Name) != one[0] {
		t.Fatalf("%v and %v, written %d times", one, two, written)
	}
	other := g.Replace(one, map[owner]text{"a": "2"})
	if other[0] == two[0] || store.Fixed(two[0].Name) == nil || store.Fixed(other[0].Name) == nil {
		t.Errorf("another signature: %v", other)
	}
	g.Release(two)
	if store.Fixed(two[0].Name) != nil || g.Named(two[0].Name) != nil {
		t.Error("a table without a place")
	}
	written = 0
	if g.Rewrite("b"); written != 0 {
		t.Error("an owner without groups")
	}
	if g.Rewrite("a"); written != 1 {
		t.Errorf("written %d times", written)
	}
	if got := g.Replace(other, nil); len(got) != 0 || store.Fixed(other[0].Name) != nil {
		t.Errorf("%v is left", got)
	}
}

// Contributions of different parts are in different tables.
func TestPartsHaveTheirTables(t *testing.T) {
	g := New("egress-", table.NewStore(), func(q *Group[owner, text]) *table.Table { return &table.Table{Name: q.Name} })
	at, parts := map[owner]text{}, map[int]bool{}
	for _, o := range []owner{"a", "b", "c", "d", "e", "f"} {
		at[o] = "1"
		parts[o.Part()] = true
	}
	if got := g.Replace(nil, at); len(got) != len(parts) {
		t.Errorf("%d tables for %d parts", len(got), len(parts))
	}
}
