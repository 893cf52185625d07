package acl

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// shifter collects the packets that a change opens and closes at each interface.
//
// A packet meets other verdicts only if it matches a rule that is added or removed, in a table or with its table, or a rule that moves.
type shifter struct {
	r     *Renderer
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
func shiftsOf(r *Renderer, c *change) *shifter {
	s := &shifter{r: r, c: c, peers: map[part2]*conflict.Peers{}, found: map[shiftKey]*conflict.Shift{}, users: map[string][]string{}}
	if len(c.tables)+len(c.lists) > 0 {
		r.eachHook(c, s.interfaceChanges)
	}
	return s
}

func (s *shifter) list() []*conflict.Shift { return slices.Collect(maps.Values(s.found)) }

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
func (s *shifter) interfaceChanges(name string, old, now lists) {
	h := s.hookOf(name, old, now)
	s.add(h, checkEffect(old.check, now.check), place{table: sourceFirst}, all, false)
	for d, list := range [2][2][]place{{unchecked(old.in), unchecked(now.in)}, {old.out, now.out}} {
		output := d == 1
		s.add(h, filterEffect(old.filter, now.filter, d), place{}, all, output)
		was, had := tracked(list[0])
		is, has := tracked(list[1])
		s.add(h, effect{opens: had && !has, closes: has && !had}, place{table: noSCTP}, all, output)
		s.listChanges(h, was, is, output)
	}
	for _, p := range slices.Concat(old.in, old.out, now.in, now.out) {
		if was, is := s.r.out.acls[p.table], s.c.tables[p.table]; was != nil && is != nil && !p.repeats && !was.same(is) && !slices.Contains(s.users[p.table], name) {
			s.users[p.table] = append(s.users[p.table], name)
		}
	}
}

// listChanges adds the effect of other tables, another order, and new content.
func (s *shifter) listChanges(h *conflict.Hook, old, now []place, output bool) {
	same := len(old) == len(now) && len(old) > 0 && &old[0] == &now[0]
	old, now = deciding(old), deciding(now)
	switch {
	case none(old) && none(now):
	case none(old):
		s.whole(h, now, effect{closes: true}, after, output)
	case none(now):
		s.whole(h, old, effect{opens: true}, before, output)
	case same:
		for _, p := range now {
			s.contentChanges(h, p, output)
		}
	default:
		conflict.Merge(old, now, placeTable, func(p place, had, will bool) {
			e := effect{opens: p.denies == had, closes: p.denies != had} // a denial is removed, or a permission added
			if p.mixed {
				e = effect{true, true}
			}
			switch {
			case had && will:
				s.contentChanges(h, p, output)
			case had:
				s.add(h, e, p, before, output)
			default:
				s.add(h, e, p, after, output)
			}
		})
	}
}

// whole adds the effect of a list where another state lets everything pass. If the list permits in the end, only its denials have one.
func (s *shifter) whole(h *conflict.Hook, list []place, e effect, which rulesOf, output bool) {
	if !permitsAll(list[len(list)-1].table) {
		s.add(h, e, place{}, all, output)
		return
	}
	for _, p := range list {
		if p.denies || p.mixed {
			s.add(h, e, p, which, output)
		}
	}
}

// contentChanges adds the effect of new content in a table.
func (s *shifter) contentChanges(h *conflict.Hook, p place, output bool) {
	now, changes := s.c.tables[p.table]
	old := s.r.out.acls[p.table]
	switch {
	case !changes || old == nil || now == nil || old.same(now):
	case old.denies() != now.denies() || old.mixed() || now.mixed():
		s.add(h, effect{true, true}, p, moved, output)
	case now.denies():
		s.add(h, effect{opens: true}, p, removed, output)
		s.add(h, effect{closes: true}, p, added, output)
	default:
		s.add(h, effect{opens: true}, p, added, output)
		s.add(h, effect{closes: true}, p, removed, output)
	}
}

// add adds an effect at an interface on the packets that match some rules of a place.
func (s *shifter) add(h *conflict.Hook, e effect, p place, which rulesOf, output bool) {
	for _, opens := range [2]bool{false, true} {
		if opens && !e.opens || !opens && !e.closes {
			continue
		}
		k := shiftKey{part2{p.table, output, which}, opens, p.egress}
		f := s.found[k]
		if f == nil {
			f = &conflict.Shift{Table: p.table, Output: output, Opens: opens, Egress: p.egress, Peers: s.peersOf(k.part2, p)}
			s.found[k] = f
		}
		if n := len(f.Hooks); n == 0 || f.Hooks[n-1].Name != h.Name {
			f.Hooks = append(f.Hooks, h)
		}
	}
}

// peersOf returns the peers of some rules: destinations at an input, sources at an output.
func (s *shifter) peersOf(k part2, p place) *conflict.Peers {
	if known := s.peers[k]; known != nil {
		return known
	}
	old, now := s.r.out.acls[k.table], s.c.tables[k.table]
	if _, changes := s.c.tables[k.table]; !changes {
		now = old
	}
	var out *conflict.Peers
	switch {
	case k.which == all || old == nil && k.which != after || now == nil && k.which != before:
		out = conflict.Everything()
	case k.output && p.srcs != nil:
		out = conflict.Addrs(p.srcs)
	default:
		out = conflict.Lazily(func() []netip.Prefix {
			rules := differing(old, now, k.which)
			if p.dials && len(rules) > 0 {
				return []netip.Prefix{match.V4.All(), match.V6.All()}
			}
			return peersIn(rules, k.output)
		})
	}
	s.peers[k] = out
	return out
}

// differing returns the rules of a table.
func differing(old, now *table, which rulesOf) []match.Atom {
	switch which {
	case before:
		return old.rules
	case after:
		return now.rules
	}
	start, end := alike(old.rules, now.rules)
	had, has := old.rules[start:len(old.rules)-end], now.rules[start:len(now.rules)-end]
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
func (s *shifter) hookOf(name string, old, now lists) *conflict.Hook {
	h := &conflict.Hook{Name: name}
	if i := s.r.ifaces[name]; i != nil {
		h.Addrs = slices.Clone(i.addrs)
	}
	checks := len(h.Addrs) > 0 && old.check.same(now.check)
	for _, c := range [2]*sources{old.check, now.check} {
		if c == nil || len(c.not) > 0 {
			checks = false
			continue
		}
		for _, p := range c.from {
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
	n := &s.r.node
	return &conflict.World{StandIns: slices.Concat(n.Hairpin, n.Addrs, n.HostAddrs), Dialled: conflict.DialledIn(n.Outer)}
}
