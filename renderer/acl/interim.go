package acl

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// change is a set of tables and lists to send together. A nil table is removed, and so are empty lists.
type change struct {
	tables map[string]*table
	lists  map[string]lists
}

// effect is the effect of a change on the packets that a hook lets pass.
type effect struct{ opens, closes bool }

func (e *effect) add(o effect) { e.opens, e.closes = e.opens || o.opens, e.closes || o.closes }

// A packet passes one input hook and one output hook, of different interfaces, and interfaces change one after the other. If one
// hook opens before another closes, packets pass in between that neither state lets pass. So if some input opens and some output
// closes, or the other way round, everything closes first: the common part of the old and the new state replaces each table and
// list. Then closings and openings may happen in any order.

// A pod's egress is evaluated at its input and, in the pre-DNAT view, also where its packets leave. Both evaluate a packet alike,
// except for packets to Services, which the input lets pass. So if nothing else changes, a packet that passes in between passes
// before or after.

// rulesOnly reports whether only rules changed since the last Apply, and only pods have the changed rules.
func (r *Renderer) rulesOnly() bool {
	d := &r.dirty
	return !d.node && !d.places && !d.outer && !d.host && len(r.hosts)+len(d.segments)+len(d.outbound)+len(d.members)+len(d.tables) == 0
}

// oneSays reports whether only one program changed, for the egress of one interface. Several interfaces with the same program may
// use each other's addresses, but not to dial Services: that is evaluated at the input alone.
func (r *Renderer) oneSays() bool {
	if len(r.dirty.outbound) != 1 {
		return false
	}
	for p := range r.dirty.outbound {
		return p.spec.egress && len(p.users) == 1
	}
	return false
}

// hooks has the hooks that a change opens and closes. It names at most two interfaces of a kind: two suffice to compare.
type hooks struct {
	effect
	opensIn, closesIn, opensOut, closesOut few2
}

// risky reports whether the change needs an interim state.
func (h *hooks) risky() bool {
	return h.opensIn.apart(h.closesOut) || h.closesIn.apart(h.opensOut)
}

// outruns reports whether a packet could pass that no state lets pass, if VPP had this change before all of an earlier one.
func (h *hooks) outruns(earlier *hooks) bool {
	return h.opensIn.apart(earlier.closesOut) || h.opensOut.apart(earlier.closesIn)
}

func (h *hooks) add(o *hooks) {
	h.effect.add(o.effect)
	for _, f := range []struct{ to, from *few2 }{{&h.opensIn, &o.opensIn}, {&h.closesIn, &o.closesIn}, {&h.opensOut, &o.opensOut}, {&h.closesOut, &o.closesOut}} {
		for _, name := range *f.from {
			f.to.add(name, true)
		}
	}
}

// effects are the effects of a change on all hooks.
func (r *Renderer) effects(c *change) (h hooks) {
	effects := map[string]effect{}
	for name, t := range c.tables {
		e := effectOn(r.out.acls[name], t)
		if isSource(name) {
			continue // inputEffect knows better
		}
		if e.opens || e.closes {
			effects[name] = e
		}
		h.effect.add(e)
	}
	for name, now := range c.lists {
		old := r.was(name, now)
		h.effect.add(inputEffect(old, now))
		h.effect.add(directionEffect(old.out, now.out))
		h.effect.add(filterEffect(old.filter, now.filter, 0))
		h.effect.add(filterEffect(old.filter, now.filter, 1))
	}
	if !h.closes && (!h.opens || !r.out.behind) {
		return h // nothing can be risky now, or outrun later
	}
	r.eachHook(c, func(name string, old, now lists) {
		in, out := inputEffect(old, now), directionEffect(old.out, now.out)
		in.add(tablesEffect(old.in, now.in, effects))
		out.add(tablesEffect(old.out, now.out, effects))
		in.add(filterEffect(old.filter, now.filter, 0))
		out.add(filterEffect(old.filter, now.filter, 1))
		h.opensIn.add(name, in.opens)
		h.closesIn.add(name, in.closes)
		h.opensOut.add(name, out.opens)
		h.closesOut.add(name, out.closes)
	})
	return h
}

// few2 is up to two interfaces of a set: enough to know whether another exists.
type few2 []string

func (f *few2) add(name string, really bool) {
	if really && len(*f) < 2 && !slices.Contains(*f, name) {
		*f = append(*f, name)
	}
}

// apart reports whether the sets have two different interfaces, one each.
func (f few2) apart(o few2) bool {
	return len(f) > 0 && len(o) > 0 && (len(f) > 1 || len(o) > 1 || f[0] != o[0])
}

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

// none reports whether a list lets everything pass.
func none(list []place) bool { return len(list) == 0 || permitsAll(list[0].table) }

// listEffect returns the effect of other tables, or another order.
func listEffect(old, now []place) (e effect) {
	switch {
	case none(old) && none(now):
	case len(old) == len(now) && &old[0] == &now[0]: // the very same
	case none(old):
		e.closes = true
	case none(now):
		e.opens = true
	default:
		merge(old, now, func(p place, had, will bool) {
			switch {
			case had != will && p.mixed:
				e.add(effect{true, true})
			case had != will:
				opens := p.denies == had // a denial is removed, or a permission added
				e.add(effect{opens, !opens})
			}
		})
	}
	return e
}

// tablesEffect returns the effect of new content in tables that stay.
func tablesEffect(old, now []place, effects map[string]effect) (e effect) {
	if none(old) || none(now) {
		return e
	}
	for _, p := range now {
		effect, changes := effects[p.table]
		if changes && slices.ContainsFunc(old, func(o place) bool { return o.table == p.table }) {
			e.add(effect)
		}
	}
	return e
}

// merge calls f for each place of two lists: the common places in order, and between them those of old only, then those of now
// only.
func merge(old, now []place, f func(p place, had, will bool)) {
	n := min(len(old), len(now))
	start, end := 0, 0
	for start < n && old[start].table == now[start].table {
		start++
	}
	for end < n-start && old[len(old)-1-end].table == now[len(now)-1-end].table {
		end++
	}
	for _, p := range now[:start] {
		f(p, true, true)
	}
	mergeDiffering(old[start:len(old)-end], now[start:len(now)-end], f)
	for _, p := range now[len(now)-end:] {
		f(p, true, true)
	}
}

// mergeDiffering is merge by the longest common subsequence.
func mergeDiffering(old, now []place, f func(p place, had, will bool)) {
	longest := make([][]uint16, len(old)+1)
	for i := range longest {
		longest[i] = make([]uint16, len(now)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if old[i].table == now[j].table {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i].table == now[j].table:
			f(now[j], true, true)
			i, j = i+1, j+1
		case j == len(now) || i < len(old) && longest[i+1][j] >= longest[i][j+1]:
			f(old[i], true, false)
			i++
		default:
			f(now[j], false, true)
			j++
		}
	}
}

// effectOn returns the effect of new content. An added or removed table has no effect by itself: lists do.
func effectOn(old, now *table) (e effect) {
	if old == nil || now == nil || old.same(now) {
		return e
	}
	var more, less bool
	start, end := alike(old.rules, now.rules)
	had, has := old.rules[start:len(old.rules)-end], now.rules[start:len(now.rules)-end]
	switch {
	case subsequence(had, has):
		more = true
	case subsequence(has, had):
		less = true
	default:
		more, less = true, true
	}
	if old.denies() != now.denies() || old.mixed() || now.mixed() {
		return effect{true, true}
	}
	if now.denies() {
		return effect{opens: less, closes: more}
	}
	return effect{opens: more, closes: less}
}

// denies reports whether a table denies. All rules of a table have one verb, except in mixed tables.
func (t *table) denies() bool { return len(t.rules) > 0 && t.rules[0].verb == deny }

// mixed reports whether a table both denies and permits: then it always has the same place in its list.
func (t *table) mixed() bool {
	for i := range t.rules {
		if (t.rules[i].verb == deny) != t.denies() {
			return true
		}
	}
	return false
}

// subsequence reports whether b contains all of a in the same order.
func subsequence(a, b []atom) bool {
	for _, x := range b {
		if len(a) > 0 && a[0] == x {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// interim returns tables and lists that let pass only what both the state before and the change let pass.
func (r *Renderer) interim(c *change) change {
	out := change{tables: map[string]*table{}, lists: map[string]lists{}}
	for name, now := range c.tables {
		old := r.out.acls[name]
		switch {
		case now == nil: // it is removed at the end
		case old == nil:
			out.tables[name] = now // lists include it if it denies
		default:
			out.tables[name] = common(old, now)
		}
	}
	for name, now := range c.lists {
		old := r.was(name, now)
		out.lists[name] = r.bounded(lists{
			in: commonInput(old, now), out: commonDirection(old.out, now.out), filter: commonFilter(old.filter, now.filter), served: now.served, check: now.check,
		})
	}
	used := map[string]bool{}
	for _, l := range out.lists {
		for _, p := range append(slices.Clone(l.in), l.out...) {
			used[p.table] = true
			if c.tables[p.table] == nil && r.out.acls[p.table] == nil { // for now
				out.tables[p.table], c.tables[p.table] = r.lookup(p.table), r.table(p.table)
			}
		}
	}
	maps.DeleteFunc(out.tables, func(name string, _ *table) bool { return r.out.acls[name] == nil && !used[name] })
	return out
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
		out.add(atom{verb: deny, src: nobody, dst: nobody, sport: allPorts, dport: allPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true})
	}
	return out
}

// between returns a table without the given numbers of rules at the beginning and at the end.
func (t *table) between(start, end int) *table {
	return &table{rules: t.rules[start : len(t.rules)-end], causes: t.causes[start : len(t.causes)-end]}
}

// takeCommon appends the rules of both tables if they permit, of either if they deny. All rules have one verb.
func (t *table) takeCommon(old, now *table) {
	count := map[atom]int{}
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
	had := map[atom]bool{}
	for i, a := range old.rules {
		if had[a] = true; a.verb == deny {
			t.take(old, i, i+1)
		}
	}
	for i, a := range now.rules {
		if a.verb == deny && !had[a] {
			t.take(now, i, i+1)
		}
	}
	for i, a := range now.rules {
		if a.verb != deny && had[a] {
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
	merge(old, now, func(p place, had, will bool) {
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
