package interim

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// change is a set of tables and lists to send together. A nil table is removed, and so are empty lists.
type change struct {
	tables map[string]*table.Table
	lists  map[string]lists.Lists
}

func newChange() change {
	return change{tables: map[string]*table.Table{}, lists: map[string]lists.Lists{}}
}

// effect is the effect of a change on the packets that a hook lets pass.
type effect struct{ opens, closes bool }

// A packet passes one input hook and one output hook, of different interfaces, and interfaces change one after the other. If one
// hook opens before another closes, packets pass in between that neither state lets pass. So if a change opens one of them and closes the
// other for one packet (package conflict), these interfaces close first: the common part of the old and the new state replaces their tables
// and lists. Their openings follow when VPP has that. So do openings for packets that an earlier change closes. Others do not wait.

// eachHook calls f for each interface that the change may concern, with its present and its future lists.
func (o *Output) eachHook(c *change, f func(name string, old, now lists.Lists)) {
	for name, old := range o.sent {
		now, changes := c.lists[name]
		switch {
		case changes:
			f(name, old, now)
		case old.Contains(func(p lists.Place) bool { _, has := c.tables[p.Table]; return has }):
			f(name, old, old)
		}
	}
	for name, now := range c.lists {
		if _, known := o.sent[name]; !known {
			f(name, o.was(name, now), now)
		}
	}
}

// was returns the present lists of an interface. A new interface that gets lists counts as closed before: its openings need not
// precede the closings that they depend on.
func (o *Output) was(name string, now lists.Lists) lists.Lists {
	old, known := o.sent[name]
	_, pod := o.pods.Addrs(name)
	if _, listed := o.listed[name]; known || !pod || listed {
		return old
	}
	var l lists.Lists
	if !(lists.NoneButSCTP(lists.Unchecked(now.In)) && lists.NoneButSCTP(now.Out)) {
		l = o.pods.Isolated()
		l.Filter = now.Filter
	}
	l.Check = now.Check
	return l
}

// interim divides a change in two. In the first one the torn interfaces pass only what both the state before and the change let pass; the
// second one has the rest of their change.
func (o *Output) interim(c *change, s *shifter, torn map[string]bool) (first, then change) {
	first, then = newChange(), newChange()
	for name, now := range c.tables {
		old := o.acls[name]
		if first.tables[name] = now; old != nil && now != nil && slices.ContainsFunc(s.users[name], func(i string) bool { return torn[i] }) {
			first.tables[name], then.tables[name] = table.Common(old, now), now
		}
	}
	for name, now := range c.lists {
		if !torn[name] {
			first.lists[name] = now
		}
	}
	work := mostWork
	for _, name := range slices.Sorted(maps.Keys(torn)) {
		o.commonLists(c, name, &first, &then, &work)
	}
	o.keepTables(&first, &then)
	return first, then
}

// commonLists divides the change of one interface.
func (o *Output) commonLists(c *change, name string, first, then *change, work *int) {
	now, changes := c.lists[name]
	if !changes { // only the contents of its tables change
		now = o.sent[name]
	}
	old := o.was(name, now)
	l := o.bounded(lists.Lists{
		In: lists.CommonInput(old, now), Out: lists.CommonDirection(old.Out, now.Out), Filter: table.CommonFilter(old.Filter, now.Filter), Served: now.Served, Check: now.Check,
	})
	with := o.withBoth(name, c, old, now, l, first, then, work)
	if changes || !lists.SameTables(with, now) {
		first.lists[name], then.lists[name] = with, now
	}
}

// keepTables keeps the tables that the lists of the first change have, until the second one.
func (o *Output) keepTables(first, then *change) {
	kept := map[string]bool{}
	for _, l := range first.lists {
		l.Each(func(p lists.Place) { kept[p.Table] = true })
	}
	for name, now := range first.tables {
		if o.acls[name] == nil && !kept[name] {
			delete(first.tables, name)
			then.tables[name] = now
		}
	}
	for name := range kept {
		now, changes := first.tables[name]
		switch {
		case now == nil && o.acls[name] == nil: // for now
			first.tables[name], then.tables[name] = o.store.Lookup(name), o.wantedTable(name)
		case changes && now == nil: // it is removed at the end
			delete(first.tables, name)
			then.tables[name] = nil
		}
	}
}

// bounded returns lists that fit: the tables beyond the limit are replaced by a denial.
func (o *Output) bounded(l lists.Lists) lists.Lists {
	most := o.most
	if len(l.In)+len(l.Out) <= most {
		return l
	}
	for _, list := range []*[]lists.Place{&l.In, &l.Out} {
		if len(*list) > most/2 {
			cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}
			*list = append(slices.Clone((*list)[:most/2-1]), lists.Place{Table: table.DenyAll, Denies: true, Cause: cause})
		}
	}
	return l
}
