package acl

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// change is tables and lists to be handed over, together. A nil table is to go, and so are empty lists.
type change struct {
	tables map[string]*table
	lists  map[string]lists
}

// effect is what a change does to what a hook lets pass.
type effect struct{ opens, closes bool }

func (e *effect) add(o effect) { e.opens, e.closes = e.opens || o.opens, e.closes || o.closes }

// A packet passes one input hook and one output hook, of different interfaces, and interfaces change one after the other. If
// one hook opens before another closes, packets pass meanwhile that neither state lets pass. So where some input opens and some
// output closes, or the other way round, everything closes first: each table and list is replaced by what it had and will have
// in common. What closes and what opens may then be done in any order.

// What one interface may send is asked at its input, and in the pre-DNAT view wherever its packets leave. Both ask the same of a
// packet, but for services, which the input lets pass. So if nothing else changes, what passes on the way passes before or after.

// rulesOnly reports whether nothing was told since the last Apply but rules, and nothing but pods has any.
func (r *Renderer) rulesOnly() bool {
	d := &r.dirty
	return !d.node && !d.places && !d.outer && !d.host && len(r.hosts)+len(d.segments)+len(d.judged)+len(d.members)+len(d.tables) == 0
}

// oneSays reports whether of all programs only one says other things than before, for the egress of one interface. Where several
// have it, they may use each other's addresses, but not to dial services: that is asked at the input alone.
func (r *Renderer) oneSays() bool {
	if len(r.dirty.judged) != 1 {
		return false
	}
	for p := range r.dirty.judged {
		return p.spec.egress && len(p.users) == 1
	}
	return false
}

// hooks is what a change opens and closes. Of no interface of a kind more than two are named: two are enough to compare.
type hooks struct {
	effect
	opensIn, closesIn, opensOut, closesOut few2
}

// risky reports whether the change needs a state on the way.
func (h *hooks) risky() bool {
	return h.opensIn.apart(h.closesOut) || h.closesIn.apart(h.opensOut)
}

// outruns reports whether a packet could pass that no state lets pass, if VPP had the change before it has all of an earlier one.
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
		return h // there is nothing that could be risky now, or outrun later
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

// few2 is up to two of a set of interfaces: enough to tell whether there is another.
type few2 []string

func (f *few2) add(name string, really bool) {
	if really && len(*f) < 2 && !slices.Contains(*f, name) {
		*f = append(*f, name)
	}
}

// apart reports whether there is one in each set that are different.
func (f few2) apart(o few2) bool {
	return len(f) > 0 && len(o) > 0 && (len(f) > 1 || len(o) > 1 || f[0] != o[0])
}

// eachHook calls f for each interface with the lists it has and will have.
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

// was is the lists that an interface had. One that is new and gets some lets nothing pass before: what it opens need not
// come before what it depends on is closed.
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

// none reports whether a list lets everything pass at once.
func none(list []place) bool { return len(list) == 0 || permitsAll(list[0].table) }

// listEffect is what other tables, or another order, do.
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
				opens := p.denies == had // a denial goes, or a permission comes
				e.add(effect{opens, !opens})
			}
		})
	}
	return e
}

// tablesEffect is what new content of tables does that stay.
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

// merge calls f for each place of two lists: those they have in common, in order, and between them those of old only, then
// those of now only.
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

// effectOn is what new content does. A table that comes or goes does nothing by itself: lists do.
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

// denies reports whether a table denies. All rules of a table do alike, but for the mixed.
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

// subsequence reports whether b has all of a in the same order.
func subsequence(a, b []atom) bool {
	for _, x := range b {
		if len(a) > 0 && a[0] == x {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// interim is what lets pass only what both the state before and the change let pass.
func (r *Renderer) interim(c *change) change {
	out := change{tables: map[string]*table{}, lists: map[string]lists{}}
	for name, now := range c.tables {
		old := r.out.acls[name]
		switch {
		case now == nil: // it goes in the end
		case old == nil:
			out.tables[name] = now // lists take it if it denies
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

// bounded is lists that fit: what comes too late in one is denied.
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

// common is the rules of both tables if they permit, of either if they deny.
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
	if len(out.rules) == 0 { // an ACL without rules is more than some agents can bear
		nobody := netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), 32)
		out.add(atom{verb: deny, src: nobody, dst: nobody, sport: allPorts, dport: allPorts}, &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true})
	}
	return out
}

// between is a table without so many rules at the beginning and at the end.
func (t *table) between(start, end int) *table {
	return &table{rules: t.rules[start : len(t.rules)-end], causes: t.causes[start : len(t.causes)-end]}
}

// takeCommon appends the rules of both tables if they permit, of either if they deny. All do alike.
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

// takeCommonMixed puts all denials first: what none of them matches, either table decides by its permissions alone.
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

// commonList is the tables of both lists, and those of either that deny.
func commonList(old, now []place) []place {
	switch {
	case none(now):
		return old
	case none(old):
		return now
	}
	var out []place
	seen := map[string]bool{} // a table that changed its place is there twice: the first counts if it denies
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
