package acl

import (
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// change is a set of tables and lists to send together. A nil table is removed, and so are empty lists.
type change struct {
	tables map[string]*table
	lists  map[string]lists
}

func newChange() change { return change{tables: map[string]*table{}, lists: map[string]lists{}} }

// effect is the effect of a change on the packets that a hook lets pass.
type effect struct{ opens, closes bool }

// A packet passes one input hook and one output hook, of different interfaces, and interfaces change one after the other. If one
// hook opens before another closes, packets pass in between that neither state lets pass. So if a change opens one of them and closes the
// other for one packet (package conflict), these interfaces close first: the common part of the old and the new state replaces their tables
// and lists. Their openings follow when VPP has that. So do openings for packets that an earlier change closes. Others do not wait.

// eachHook calls f for each interface with its present and its future lists.
func (r *Renderer) eachHook(c *change, f func(name string, old, now lists)) {
	for name, old := range r.out.sent {
		now, changes := c.lists[name]
		if !changes {
			now = old
		}
		f(name, old, now)
	}
	for name, now := range c.lists {
		if _, known := r.out.sent[name]; !known {
			f(name, r.was(name, now), now)
		}
	}
}

// was returns the present lists of an interface. A new interface that gets lists counts as closed before: its openings need not
// precede the closings that they depend on.
func (r *Renderer) was(name string, now lists) lists {
	old, known := r.out.sent[name]
	if i := r.ifaces[name]; known || i == nil || i.listed {
		return old
	}
	var l lists
	if !(noneButSCTP(unchecked(now.in)) && noneButSCTP(now.out)) {
		l = r.isolated()
		l.filter = now.filter
	}
	l.check = now.check
	return l
}

func placeTable(p place) string { return p.table }

// none reports whether a list lets everything pass.
func none(list []place) bool { return len(list) == 0 || permitsAll(list[0].table) }

// deciding returns a list without the places that repeat what the packet's receiver decides.
func deciding(list []place) []place {
	repeats := func(p place) bool { return p.repeats }
	if !slices.ContainsFunc(list, repeats) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), repeats)
}

// denies reports whether a table denies. All rules of a table have one verb, except in mixed tables.
func (t *table) denies() bool { return len(t.rules) > 0 && t.rules[0].Verb == match.Deny }

// mixed reports whether a table both denies and permits: then it always has the same place in its list.
func (t *table) mixed() bool {
	for i := range t.rules {
		if (t.rules[i].Verb == match.Deny) != t.denies() {
			return true
		}
	}
	return false
}

// interim divides a change in two. In the first one the torn interfaces pass only what both the state before and the change let pass; the
// second one has the rest of their change.
func (r *Renderer) interim(c *change, s *shifter, torn map[string]bool) (first, then change) {
	first, then = newChange(), newChange()
	for name, now := range c.tables {
		old := r.out.acls[name]
		if first.tables[name] = now; old != nil && now != nil && slices.ContainsFunc(s.users[name], func(i string) bool { return torn[i] }) {
			first.tables[name], then.tables[name] = common(old, now), now
		}
	}
	kept := map[string]bool{}
	for name, now := range c.lists {
		l := now
		if torn[name] {
			old := r.was(name, now)
			l = r.bounded(lists{
				in: commonInput(old, now), out: commonDirection(old.out, now.out), filter: commonFilter(old.filter, now.filter), served: now.served, check: now.check,
			})
			then.lists[name] = now
		}
		first.lists[name] = l
		for _, p := range slices.Concat(l.in, l.out) {
			kept[p.table] = true
		}
	}
	for name, now := range first.tables {
		if r.out.acls[name] == nil && !kept[name] {
			delete(first.tables, name)
			then.tables[name] = now
		}
	}
	for name := range kept {
		now, changes := first.tables[name]
		switch {
		case now == nil && r.out.acls[name] == nil: // for now
			first.tables[name], then.tables[name] = r.lookup(name), r.table(name)
		case changes && now == nil: // it is removed at the end
			delete(first.tables, name)
			then.tables[name] = nil
		}
	}
	return first, then
}

// bounded returns lists that fit: the tables beyond the limit are replaced by a denial.
func (r *Renderer) bounded(l lists) lists {
	most := r.cfg.maxACLs()
	if len(l.in)+len(l.out) <= most {
		return l
	}
	for _, list := range []*[]place{&l.in, &l.out} {
		if len(*list) > most/2 {
			cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}
			*list = append(slices.Clone((*list)[:most/2-1]), place{table: denyAll, denies: true, cause: cause})
		}
	}
	return l
}

// common returns the rules of both tables if they permit, of either if they deny.
func common(old, now *table) *table {
	mixed := old.mixed() || now.mixed()
	switch {
	case mixed:
	case now.denies() && !old.denies():
		return now
	case old.denies() && !now.denies():
		return old
	}
	start, end := alike(old.rules, now.rules)
	out := &table{name: now.name, egress: now.egress, join6: now.join6}
	out.grow(len(now.rules) + len(old.rules) - start - end)
	out.take(now, 0, start)
	if had, has := old.between(start, end), now.between(start, end); mixed {
		out.takeCommonMixed(had, has)
	} else {
		out.takeCommon(had, has)
	}
	out.take(now, len(now.rules)-end, len(now.rules))
	if len(out.rules) == 0 { // some agents cannot handle an ACL without rules
		nobody := netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 32)
		out.add(match.Atom{Verb: match.Deny, Src: nobody, Dst: nobody, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true})
	}
	return out
}

// between returns a table without the given numbers of rules at the beginning and at the end.
func (t *table) between(start, end int) *table {
	return &table{rules: t.rules[start : len(t.rules)-end], causes: t.causes[start : len(t.causes)-end]}
}

// takeCommon appends the rules of both tables if they permit, of either if they deny. All rules have one verb.
func (t *table) takeCommon(old, now *table) {
	count := map[match.Atom]int{}
	for _, a := range old.rules {
		count[a]++
	}
	denies := old.denies() || now.denies() // one of them may be empty
	for i, a := range now.rules {
		had := count[a] > 0
		if count[a]--; had || denies {
			t.take(now, i, i+1)
		}
	}
	for i, a := range old.rules {
		if denies && count[a] > 0 {
			count[a]--
			t.take(old, i, i+1)
		}
	}
}

// takeCommonMixed puts all denials first: for a packet that none of them matches, either table decides by its permissions alone.
func (t *table) takeCommonMixed(old, now *table) {
	had := map[match.Atom]bool{}
	for i, a := range old.rules {
		if had[a] = true; a.Verb == match.Deny {
			t.take(old, i, i+1)
		}
	}
	for i, a := range now.rules {
		if a.Verb == match.Deny && !had[a] {
			t.take(now, i, i+1)
		}
	}
	for i, a := range now.rules {
		if a.Verb != match.Deny && had[a] {
			t.take(now, i, i+1)
		}
	}
}

// commonList returns the tables of both lists, and those of either list that deny.
func commonList(old, now []place) []place {
	switch {
	case none(now):
		return old
	case none(old):
		return now
	}
	var out []place
	seen := map[string]bool{} // a table that changed its place occurs twice: the first counts if it denies
	conflict.Merge(old, now, placeTable, func(p place, had, will bool) {
		keep := had && will || p.denies && !p.mixed
		if p.mixed && !keep {
			p, keep = place{table: denyAll, denies: true, cause: &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "on the way to other policies"}}, true
		}
		if keep && !seen[p.table] && !seen[denyAll] {
			seen[p.table] = true
			out = append(out, p)
		}
	})
	return out
}
