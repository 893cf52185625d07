package interim

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// The common part of two lists has the rules that both have. A packet that passes before and after a change by different rules does not pass it.
// So a table in front of the common part decides exactly about every packet that matches a rule which one of the lists has and another has not:
//
//	rule of one list alone ─▶ what each list does with its packets ─▶ pairs of rules: permit if both permit
//
// For all other packets both lists and their common part decide by the same rules.

// bothTable is the name of such a table of a direction of an interface.
func bothTable(direction string) string { return kv.InterimACL("both-" + table.NameOf(direction)) }

// Bounds of such a table: its rules, and the comparisons to find them. mostWork bounds the comparisons of a change. Beyond them the interface has none,
// and the packets wait for the rest of the change. Lists whose lengths have a greater product than mostMerge count as different in all rules.
const (
	mostBoth  = 1 << 12
	mostTable = 1 << 22
	mostWork  = 1 << 25
	mostMerge = 1 << 20
)

// mostBroad is how many of the broadest rules may cover others.
const mostBroad = 64

// flatRule is a rule of a list, regardless of tables.
type flatRule struct {
	match.Atom
	cause *dataplane.Cause
	by    *law.Writer // the law of its table; nil: it stands for an empty list, under no law
	apart bool        // it permits a packet only if a filter does so as well
}

// both collects the rules of such a table.
type both struct {
	old, now, common []flatRule

	sctp bool // rules for any protocol permit SCTP as well
	out  *table.Table
	work int // comparisons left
}

// makeTable returns the table for the packets that pass both lists, but not their common part; nil: none is needed, or it would be too big.
func (b *both) makeTable(name string) *table.Table {
	b.out = &table.Table{Name: name}
	differing := b.differing()
	if len(differing) == 0 {
		return nil
	}
	old, now, common := boxed(b.old), boxed(b.now), boxed(b.common)
	for i := range differing {
		if b.decide(&differing[i], &old, &now, &common); b.work < 0 || len(b.out.Rules) > mostBoth {
			return nil
		}
	}
	if len(b.out.Rules) == 0 {
		return nil
	}
	return b.out
}

// differing returns the rules that one of the lists has and the common part has not, or reversed, without those that others cover.
func (b *both) differing() (out []match.Atom) {
	var found []match.Atom
	for _, list := range [2][]flatRule{b.old, b.now} {
		start, end := conflict.Alike(len(list), len(b.common), func(i, j int) bool { return list[i].Atom == b.common[j].Atom })
		was, is := list[start:len(list)-end], b.common[start:len(b.common)-end]
		differs := func(r flatRule, had, will bool) {
			if had != will {
				r.Verb = match.Allow
				found = append(found, r.Atom)
			}
		}
		if len(was)*len(is) > mostMerge {
			for _, r := range slices.Concat(was, is) {
				differs(r, true, false)
			}
			continue
		}
		conflict.Merge(was, is, func(r flatRule) match.Atom { return r.Atom }, differs)
	}
	slices.SortStableFunc(found, func(a, b match.Atom) int { return breadth(&b) - breadth(&a) })
	for i := range found {
		broad := out[:min(len(out), mostBroad)]
		b.work -= len(broad)
		if !slices.ContainsFunc(broad, func(o match.Atom) bool { return covers(&o, &found[i]) }) {
			out = append(out, found[i])
		}
	}
	return out
}

// breadth is greater for a rule that covers another.
func breadth(a *match.Atom) int {
	n := int(a.SrcPorts.Hi) - int(a.SrcPorts.Lo) + int(a.DstPorts.Hi) - int(a.DstPorts.Lo) - a.Src.Bits() - a.Dst.Bits()
	if a.Proto == 0 {
		n++
	}
	return n
}

// decide appends the decisions of both lists about the packets that match a rule. It asks the shorter one first.
func (b *both) decide(a *match.Atom, old, now, common *boxedList) {
	in := boxOf(a)
	if _, permits, denies := b.within(common, a, &in); permits && !denies {
		return
	}
	order := [2]int{0, 1}
	if len(now.rules) < len(old.rules) {
		order = [2]int{1, 0}
	}
	lists, rules := [2]*boxedList{old, now}, [2][]flatRule{}
	for _, i := range order {
		permits := false
		if rules[i], permits, _ = b.within(lists[i], a, &in); !permits {
			return
		}
	}
	b.pairs(rules[0], rules[1])
}

// pairs appends the pairs of rules, and the denials of the first list.
func (b *both) pairs(was, is []flatRule) {
	end := len(b.out.Rules) // behind the last rule that permits: denials after it have no effect
	for i := range was {
		if was[i].Verb == match.Deny {
			b.out.Add(was[i].Atom, was[i].cause)
			continue
		}
		for k := range is {
			b.work--
			r, ok := meet(&was[i].Atom, &is[k].Atom)
			switch {
			case !ok:
				continue
			case is[k].Verb == match.Deny:
				b.out.Add(r, is[k].cause)
			case b.permit(&was[i], &is[k], r):
				end = len(b.out.Rules)
			}
			if covers(&is[k].Atom, &was[i].Atom) {
				break
			}
		}
		if len(b.out.Rules) > mostBoth {
			return
		}
	}
	b.out.Rules, b.out.Causes = b.out.Rules[:end], b.out.Causes[:end]
}

// within returns the rules of a list about the packets that match a rule with its box, as far as the first one that matches all of them. It reports whether one
// of them permits, and whether a packet may be denied.
func (b *both) within(list *boxedList, a *match.Atom, in *box) (out []flatRule, permits, denies bool) {
	for i := range list.boxes {
		b.work--
		if !in.meets(&list.boxes[i]) {
			continue
		}
		c := list.rules[i]
		c.Atom, _ = meet(a, &list.rules[i].Atom)
		out = append(out, c)
		permits, denies = permits || c.Verb != match.Deny, denies || c.Verb == match.Deny
		if covers(&list.rules[i].Atom, a) {
			return out, permits, denies
		}
	}
	return out, permits, true
}

// permit appends a rule that two rules permit, and reports whether it did. The law of the second one decides which of its packets make sessions.
func (b *both) permit(was, is *flatRule, r match.Atom) bool {
	by := is.by
	if by == nil {
		by = was.by
	}
	protos := []uint8{r.Proto}
	switch {
	case was.apart || is.apart || by == nil:
		return false
	case b.sctp:
	case r.Proto == match.SCTP:
		return false
	case r.Proto == 0:
		protos = []uint8{match.TCP, match.UDP, match.FamilyOf(r.Src.Addr()).ICMP()}
	}
	for _, r.Proto = range protos {
		for _, a := range by.AppendTo(nil, r) {
			b.out.Add(a, is.cause)
		}
	}
	return true
}

// meet returns the packets that match both rules, with the verb of the second one; false: none does.
func meet(a, b *match.Atom) (r match.Atom, ok bool) {
	r.Verb, r.Proto, r.SYN = b.Verb, max(a.Proto, b.Proto), a.SYN || b.SYN
	if a.Proto != b.Proto && a.Proto != 0 && b.Proto != 0 {
		return r, false
	}
	if r.Src, ok = netset.Overlap(a.Src, b.Src); !ok {
		return r, false
	}
	if r.Dst, ok = netset.Overlap(a.Dst, b.Dst); !ok {
		return r, false
	}
	if r.SrcPorts, ok = a.SrcPorts.And(b.SrcPorts); !ok {
		return r, false
	}
	r.DstPorts, ok = a.DstPorts.And(b.DstPorts)
	return r, ok
}

// covers reports whether every packet that matches b matches a.
func covers(a, b *match.Atom) bool {
	m, ok := meet(a, b)
	m.Verb = b.Verb
	return ok && m == *b
}

// flatten returns the rules of one direction of lists, behind some places, with the tables that get returns. Rules for all packets stand for an empty list.
func flatten(l *lists.Lists, list []lists.Place, behind int, get func(name string) *table.Table) (out []flatRule) {
	whole := list
	list = list[behind:]
	for _, p := range list {
		t := get(p.Table)
		if t == nil {
			continue
		}
		by := law.Law{Egress: t.Egress, Served: l.ServedAt(p)}.Writer()
		_, reserved := kv.NeedsSCTPPorts(p.Table)
		out = slices.Grow(out, len(t.Rules))
		for i := range t.Rules {
			cause := p.Cause
			if cause == nil {
				cause = t.Causes[i]
			}
			out = append(out, flatRule{t.Rules[i], cause, &by, reserved})
		}
	}
	if len(whole) > 0 {
		return out
	}
	for _, f := range match.Families {
		out = append(out, flatRule{Atom: match.Atom{Src: f.All(), Dst: f.All(), SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause: &dataplane.Cause{}})
	}
	return out
}

// withBoth puts the tables for packets that pass by different rules in front of the common part of two states of an interface. The first change of
// the interim state gets the tables, the second one removes them.
func (o *Output) withBoth(iface string, c *change, old, now, common lists.Lists, first, then *change, work *int) lists.Lists {
	in := func(tables map[string]*table.Table) func(name string) *table.Table {
		return func(name string) *table.Table {
			if t := tables[name]; t != nil {
				return t
			}
			if t := o.acls[name]; t != nil {
				return t
			}
			return o.store.Lookup(name)
		}
	}
	for d, list := range [2]*[]lists.Place{&common.In, &common.Out} {
		had, has, rest := behindChecks(old.Direction(d == 1), *list), behindChecks(now.Direction(d == 1), *list), behindChecks(*list, *list)
		if len(rest) == 0 || len(common.In)+len(common.Out) >= o.most || alike(had, has, in(nil), in(c.tables)) {
			continue
		}
		n := alikeAtFirst(had, has, rest, in(nil), in(c.tables), in(first.tables))
		b := both{
			old: flatten(&old, had, n, in(nil)), now: flatten(&now, has, n, in(c.tables)), common: flatten(&common, rest, n, in(first.tables)),
			sctp: old.Filter == nil && now.Filter == nil, work: min(*work, mostTable),
		}
		t := b.makeTable(bothTable(iface + [2]string{"/input", "/output"}[d]))
		if *work -= min(*work, mostTable) - b.work; t != nil {
			*list = slices.Insert(slices.Clone(*list), len(*list)-len(rest)+n, lists.Place{Table: t.Name, Interim: true})
			first.tables[t.Name], then.tables[t.Name] = t, nil
		}
	}
	return common
}

// alike reports whether two lists have the same rules in the same tables.
func alike(old, now []lists.Place, was, is func(string) *table.Table) bool {
	return slices.EqualFunc(old, now, func(a, b lists.Place) bool { return a.Table == b.Table && was(a.Table) == is(b.Table) })
}

// alikeAtFirst returns the number of places at the beginning of three lists that have the same rules in the same tables: they decide in all of them.
func alikeAtFirst(old, now, common []lists.Place, was, is, between func(string) *table.Table) (n int) {
	for n < min(len(old), len(now), len(common)) && old[n].Table == now[n].Table && old[n].Table == common[n].Table {
		name := old[n].Table
		if was(name) != is(name) || was(name) != between(name) {
			break
		}
		n++
	}
	return n
}

// behindChecks returns a list without the tables that precede all others, as far as the common part has them: the source check and the denial of SCTP.
func behindChecks(list, common []lists.Place) []lists.Place {
	rest := lists.Unchecked(common)
	if len(rest) < len(common) {
		list = lists.Unchecked(list)
	}
	if _, without := lists.Tracked(rest); without {
		list, _ = lists.Tracked(list)
	}
	return list
}
