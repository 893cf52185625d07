package interim

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// shifter collects the packets that a change opens and closes at each interface.
//
// A packet meets other verdicts only if it matches a rule that is added or removed, in a table or with its table, or a rule that moves.
type shifter struct {
	o     *Output
	c     *change
	peers map[part2]*conflict.Peers
	found map[shiftKey]*conflict.Shift
	users map[string][]string // interfaces whose lists have a table with new content
}

// part2 names rules of a table, as packets meet them in one direction.
type part2 struct {
	table  string
	output bool
	which  rulesOf
}

// rulesOf are the rules of a table before and after a change.
type rulesOf uint8

const (
	before  rulesOf = iota // all rules before
	after                  // all rules after
	removed                // those before that are not after
	added                  // those after that are not before
	moved                  // all that are not at the same distance from the table's beginning or end
	all                    // every packet
)

type shiftKey struct {
	part2
	opens, egress bool
}

// shiftsOf returns the packets that a change opens and closes.
func shiftsOf(o *Output, c *change) *shifter {
	s := &shifter{o: o, c: c, peers: map[part2]*conflict.Peers{}, found: map[shiftKey]*conflict.Shift{}, users: map[string][]string{}}
	if len(c.tables)+len(c.lists) > 0 {
		o.eachHook(c, s.interfaceChanges)
	}
	return s
}

func (s *shifter) shifts() []*conflict.Shift { return slices.Collect(maps.Values(s.found)) }

// dropClosings omits what the change closes.
func (s *shifter) dropClosings() {
	maps.DeleteFunc(s.found, func(k shiftKey, _ *conflict.Shift) bool { return !k.opens })
}

// opens reports whether the change opens any interface.
func (s *shifter) opens() bool {
	for k, f := range s.found {
		if k.opens && !f.Peers.Empty() {
			return true
		}
	}
	return false
}

// hooks returns the interfaces of the change.
func (s *shifter) hooks() map[string]bool {
	out := map[string]bool{}
	for _, f := range s.found {
		for _, h := range f.Hooks {
			out[h.Name] = true
		}
	}
	for name := range s.c.lists {
		out[name] = true
	}
	return out
}

// interfaceChanges adds the changes of one interface.
func (s *shifter) interfaceChanges(name string, old, now lists.Lists) {
	h := s.hookOf(name, old, now)
	s.add(h, checkEffect(old.Check, now.Check), lists.Place{Table: table.SourceFirst}, all, false)
	for d, list := range [2][2][]lists.Place{{lists.Unchecked(old.In), lists.Unchecked(now.In)}, {old.Out, now.Out}} {
		output := d == 1
		s.add(h, filterEffect(old.Filter, now.Filter, d), lists.Place{}, all, output)
		was, had := lists.Tracked(list[0])
		is, has := lists.Tracked(list[1])
		s.add(h, effect{opens: had && !has, closes: has && !had}, lists.Place{Table: table.NoSCTP}, all, output)
		s.listChanges(h, was, is, output)
	}
	for _, p := range slices.Concat(old.In, old.Out, now.In, now.Out) {
		if was, is := s.o.acls[p.Table], s.c.tables[p.Table]; was != nil && is != nil && !p.Repeats && !was.Same(is) && !slices.Contains(s.users[p.Table], name) {
			s.users[p.Table] = append(s.users[p.Table], name)
		}
	}
}

// listChanges adds the effect of other tables, another order, and new content.
func (s *shifter) listChanges(h *conflict.Hook, old, now []lists.Place, output bool) {
	same := len(old) == len(now) && len(old) > 0 && &old[0] == &now[0]
	old, now = lists.Deciding(old), lists.Deciding(now)
	switch {
	case lists.None(old) && lists.None(now):
	case lists.None(old):
		s.whole(h, now, effect{closes: true}, after, output)
	case lists.None(now):
		s.whole(h, old, effect{opens: true}, before, output)
	case same:
		for _, p := range now {
			s.contentChanges(h, p, output)
		}
	default:
		conflict.Merge(old, now, lists.PlaceTable, func(p lists.Place, had, will bool) {
			e := effect{opens: p.Denies == had, closes: p.Denies != had} // a denial is removed, or a permission added
			if p.Mixed {
				e = effect{true, true}
			}
			switch {
			case had && will:
				s.contentChanges(h, withSources(p, old), output)
			case had:
				s.add(h, e, p, before, output)
			default:
				s.add(h, e, p, after, output)
			}
		})
	}
}

// withSources returns a place with the sources that its table has in an older list, too: a table that loses a source opens for that source.
func withSources(p lists.Place, old []lists.Place) lists.Place {
	was := old[slices.IndexFunc(old, func(o lists.Place) bool { return o.Table == p.Table })]
	switch {
	case slices.Equal(was.Sources, p.Sources):
	case was.Sources == nil || p.Sources == nil:
		p.Sources = nil
	default:
		p.Sources = slices.Concat(was.Sources, p.Sources)
	}
	return p
}

// whole adds the effect of a list where another state lets everything pass. If the list permits in the end, only its denials have one.
func (s *shifter) whole(h *conflict.Hook, list []lists.Place, e effect, which rulesOf, output bool) {
	if !table.PermitsAll(list[len(list)-1].Table) {
		s.add(h, e, lists.Place{}, all, output)
		return
	}
	for _, p := range list {
		if p.Denies || p.Mixed {
			s.add(h, e, p, which, output)
		}
	}
}

// contentChanges adds the effect of new content in a table.
func (s *shifter) contentChanges(h *conflict.Hook, p lists.Place, output bool) {
	now, changes := s.c.tables[p.Table]
	old := s.o.acls[p.Table]
	switch {
	case !changes || old == nil || now == nil || old.Same(now):
	case old.Denies() != now.Denies() || old.Mixed() || now.Mixed():
		s.add(h, effect{true, true}, p, moved, output)
	case now.Denies():
		s.add(h, effect{opens: true}, p, removed, output)
		s.add(h, effect{closes: true}, p, added, output)
	default:
		s.add(h, effect{opens: true}, p, added, output)
		s.add(h, effect{closes: true}, p, removed, output)
	}
}

// add adds an effect at an interface on the packets that match some rules of a place.
func (s *shifter) add(h *conflict.Hook, e effect, p lists.Place, which rulesOf, output bool) {
	for _, opens := range [2]bool{false, true} {
		if opens && !e.opens || !opens && !e.closes {
			continue
		}
		k := shiftKey{part2{p.Table, output, which}, opens, p.Egress}
		f := s.found[k]
		if f == nil {
			f = &conflict.Shift{Table: p.Table, Output: output, Opens: opens, Egress: p.Egress, Peers: s.peersOf(k.part2, p)}
			s.found[k] = f
		}
		if n := len(f.Hooks); n == 0 || f.Hooks[n-1].Name != h.Name {
			f.Hooks = append(f.Hooks, h)
		}
	}
}

// peersOf returns the peers of some rules: destinations at an input, sources at an output.
func (s *shifter) peersOf(k part2, p lists.Place) *conflict.Peers {
	if known := s.peers[k]; known != nil {
		return known
	}
	old, now := s.o.acls[k.table], s.c.tables[k.table]
	if _, changes := s.c.tables[k.table]; !changes {
		now = old
	}
	var out *conflict.Peers
	switch {
	case k.which == all || old == nil && k.which != after || now == nil && k.which != before:
		out = conflict.Everything()
	case k.output && p.Sources != nil:
		out = conflict.Addrs(p.Sources)
	default:
		out = conflict.Lazily(func() []netip.Prefix {
			rules := differing(old, now, k.which)
			if p.Dials && len(rules) > 0 {
				return []netip.Prefix{match.V4.All(), match.V6.All()}
			}
			return peersIn(rules, k.output)
		})
	}
	s.peers[k] = out
	return out
}

// differing returns the rules of a table.
func differing(old, now *table.Table, which rulesOf) []match.Atom {
	switch which {
	case before:
		return old.Rules
	case after:
		return now.Rules
	}
	start, end := table.Alike(old.Rules, now.Rules)
	had, has := old.Rules[start:len(old.Rules)-end], now.Rules[start:len(now.Rules)-end]
	switch which {
	case removed:
		return conflict.Without(had, has)
	case added:
		return conflict.Without(has, had)
	}
	return slices.Concat(had, has)
}

func peersIn(rules []match.Atom, output bool) (out []netip.Prefix) {
	for i := range rules {
		out = append(out, [2]netip.Prefix{rules[i].Dst, rules[i].Src}[match.InOut(output)])
	}
	return out
}

// hookOf returns an interface with the addresses behind it. A removed pod had those of its source check.
func (s *shifter) hookOf(name string, old, now lists.Lists) *conflict.Hook {
	h := &conflict.Hook{Name: name}
	if addrs, pod := s.o.pods.Addrs(name); pod {
		h.Addrs = slices.Clone(addrs)
	}
	checks := len(h.Addrs) > 0 && old.Check.Same(now.Check)
	for _, c := range [2]*lists.Check{old.Check, now.Check} {
		if c == nil || len(c.Not) > 0 {
			checks = false
			continue
		}
		for _, p := range c.From {
			if checks = checks && p.IsSingleIP(); p.IsSingleIP() && !slices.Contains(h.Addrs, p.Addr()) {
				h.Addrs = append(h.Addrs, p.Addr())
			}
		}
	}
	h.Checked = checks
	return h
}

// world returns the facts about addresses.
func (s *shifter) world() *conflict.World {
	n := s.o.pods.Node()
	return &conflict.World{StandIns: slices.Concat(n.Hairpin, n.Addrs, n.HostAddrs), Dialled: conflict.DialledIn(n.Outer)}
}

// filterEffect returns the effect of a change of the filter in a direction: the lists before and after permit the packets that it permits.
func filterEffect(old, now *table.Filter, d int) (e effect) {
	had, has := old.Direction(d), now.Direction(d)
	switch {
	case slices.EqualFunc(had, has, table.Association.Same):
	case had == nil:
		e.closes = true
	case has == nil:
		e.opens = true
	default:
		e = effect{true, true}
	}
	return e
}

// checkEffect returns the effect of another source check.
func checkEffect(old, now *lists.Check) effect {
	if old.Same(now) {
		return effect{}
	}
	return effect{opens: !old.Covers(now), closes: !now.Covers(old)}
}
