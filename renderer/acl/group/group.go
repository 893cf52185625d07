// Package group turns what several owners contribute at a place into tables that places with equal contributions share.
//
//	owner ─▶ its part of Parts ─▶ contributions of one part at a place ─▶ Group: one table, for all places where they are equal
//
// Invariant: the name of a group's table depends on its owners and the signatures of their contributions alone. A group without a place has no table.
package group

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/renderer/acl/index"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// Parts is the number of parts that owners are distributed over: a change of one owner affects few others.
const Parts = 16

// PartOf returns the part of an owner with this key, the same in every process.
func PartOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % Parts)
}

// Owner contributes to groups.
type Owner interface {
	comparable
	// GroupKey is the owner's name. It is equal for owners with equal contributions in other processes.
	GroupKey() string
	// Part is PartOf(GroupKey()).
	Part() int
}

// Contribution is what one owner contributes.
type Contribution interface {
	// Signature is equal for contributions with equal rules.
	Signature() string
}

// Member is an owner with its contribution.
type Member[O Owner, C Contribution] struct {
	Owner        O
	Contribution C
}

// Group is one table.
type Group[O Owner, C Contribution] struct {
	Name    string
	Members []Member[O, C] // sorted by the owners' keys
	places  int
}

// Groups has the groups of one kind, by name.
type Groups[O Owner, C Contribution] struct {
	prefix  string
	store   *table.Store
	write   func(*Group[O, C]) *table.Table
	all     map[string]*Group[O, C]
	ofOwner index.Of[O, *Group[O, C]]
}

// New returns groups whose tables are in a store, and have the prefix, of which the first letter is a part of the hashed name; write writes the table of a group.
func New[O Owner, C Contribution](prefix string, store *table.Store, write func(*Group[O, C]) *table.Table) *Groups[O, C] {
	return &Groups[O, C]{prefix: prefix, store: store, write: write, all: map[string]*Group[O, C]{}, ofOwner: index.Of[O, *Group[O, C]]{}}
}

// Named returns the group with a table of that name; nil: none.
func (g *Groups[O, C]) Named(name string) *Group[O, C] { return g.all[name] }

// Replace returns the groups of the contributions at a place, and gives up the old ones of that place.
func (g *Groups[O, C]) Replace(old []*Group[O, C], at map[O]C) (now []*Group[O, C]) {
	var parts [Parts][]Member[O, C]
	for o, c := range at {
		parts[o.Part()] = append(parts[o.Part()], Member[O, C]{o, c})
	}
	for n, members := range parts {
		if len(members) > 0 {
			slices.SortFunc(members, func(a, b Member[O, C]) int { return cmp.Compare(a.Owner.GroupKey(), b.Owner.GroupKey()) })
			now = append(now, g.groupOf(n, members))
		}
	}
	g.Release(old)
	return now
}

// groupOf returns the group of a part with these members, and counts one more place.
func (g *Groups[O, C]) groupOf(part int, members []Member[O, C]) *Group[O, C] {
	role := g.prefix[:1] + strconv.Itoa(part)
	for _, m := range members {
		key, sig := m.Owner.GroupKey(), m.Contribution.Signature()
		role += "\x00" + strconv.Itoa(len(key)) + key + strconv.Itoa(len(sig)) + sig
	}
	name := g.prefix + table.NameOf(role)
	q := g.all[name]
	if q == nil {
		q = &Group[O, C]{Name: name, Members: members}
		g.all[name] = q
		for _, m := range members {
			g.ofOwner.Add(m.Owner, q)
		}
		g.store.Fix(g.write(q))
	}
	q.places++
	return q
}

// Release gives up groups of a place. A group without a place has no table.
func (g *Groups[O, C]) Release(list []*Group[O, C]) {
	for _, q := range list {
		if q.places--; q.places > 0 {
			continue
		}
		for _, m := range q.Members {
			g.ofOwner.Remove(m.Owner, q)
		}
		delete(g.all, q.Name)
		g.store.Unfix(q.Name)
	}
}

// Rewrite writes the tables of the groups that an owner contributes to, because they depend on more than the contributions.
func (g *Groups[O, C]) Rewrite(o O) {
	for q := range g.ofOwner[o] {
		g.store.Fix(g.write(q))
	}
}
