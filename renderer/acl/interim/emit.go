package interim

import (
	"maps"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
)

// Emit sends the changes that may not conflict with others, and interim states of those that do. It reports whether more follows.
func (o *Output) Emit() (again bool) {
	next := o.changes()
	s := shiftsOf(o, &next)
	waits, torn := o.conflicting(s)
	if len(waits) > 0 || o.pending != nil {
		o.withhold(&next, s, waits)
	}
	if len(torn) > 0 {
		torn = s.joined(torn)
		first, then := o.interim(&next, s, torn)
		next, o.pending = first, &then
	}
	if o.pending != nil || len(waits) > 0 {
		s = shiftsOf(o, &next)
	}
	o.late.Add(s.shifts())
	for name := range next.lists {
		if _, pod := o.pods.Addrs(name); pod {
			o.listed[name] = struct{}{}
		}
	}
	o.commit(&next, torn)
	o.more = len(waits) > 0 || len(o.store.Changed()) > 0
	return o.more || o.pending != nil
}

// Proceed sends the rest of a change after its interim state. It reports whether it did: the rest waits until VPP has the interim state.
func (o *Output) Proceed() bool {
	if !o.behind {
		o.late = conflict.Log{}
	}
	c := o.pending
	if c == nil {
		return false
	}
	s := shiftsOf(o, c)
	s.dropClosings() // the interim state lets pass nothing else
	_, late := o.ends()
	if w, opens := s.world(), s.shifts(); len(w.Waiting(opens, &o.late, nil, nil))+len(w.Leading(opens, late)) > 0 {
		return false
	}
	o.pending = nil
	needed := map[string]bool{}
	for name, l := range o.sent {
		if _, changes := c.lists[name]; !changes {
			l.Each(func(p lists.Place) { needed[p.Table] = true })
		}
	}
	for name, now := range c.tables {
		if now == nil && (needed[name] || o.refs[name] > 0) {
			delete(c.tables, name)
			o.store.Touch(name)
			o.more = true
		}
	}
	o.commit(c, nil)
	return true
}

// conflicting returns the interfaces of a change that must wait for earlier ones, and those of the others that need an interim state:
// those that also close for a packet, and those that open where connections end. Between changed translations no address proves that two interfaces do not concern one packet.
func (o *Output) conflicting(s *shifter) (waits, torn map[string]bool) {
	w := s.world()
	switch {
	case o.resent && s.opens() && (o.behind || o.pending != nil):
		return s.hooks(), nil
	case o.resent && s.opens():
		o.resent = false
		return nil, s.hooks()
	}
	o.resent = false
	now, late := o.ends()
	leading := w.Leading(s.shifts(), slices.Concat(now, late)) // where connections end
	for waits = s.taken(); ; maps.Copy(waits, torn) {
		waits = w.Waiting(s.shifts(), &o.late, s.users, waits)
		torn = w.Torn(s.shifts(), waits)
		for name := range leading {
			if !waits[name] {
				torn[name] = true
			}
		}
		if len(torn) == 0 || o.pending == nil {
			return waits, torn
		}
	}
}

// joined returns the interfaces, and those that have a changed table in common with one of them: the common part of a table replaces it everywhere.
func (s *shifter) joined(torn map[string]bool) map[string]bool {
	for known := 0; known < len(torn); {
		known = len(torn)
		for _, names := range s.users {
			if slices.ContainsFunc(names, func(n string) bool { return torn[n] }) {
				for _, n := range names {
					torn[n] = true
				}
			}
		}
	}
	return torn
}

// taken returns the interfaces of a change that have a part of the pending one.
func (s *shifter) taken() map[string]bool {
	out := map[string]bool{}
	c := s.o.pending
	if c == nil {
		return nil
	}
	for name := range c.lists {
		out[name] = true
	}
	of := func(p lists.Place) bool { _, has := c.tables[p.Table]; return has }
	for _, all := range [2]map[string]lists.Lists{s.o.sent, s.c.lists} {
		for name, l := range all {
			if l.Contains(of) {
				out[name] = true
			}
		}
	}
	return out
}

// withhold takes the changes of interfaces that wait out of a change: they are part of the next one.
func (o *Output) withhold(c *change, s *shifter, waits map[string]bool) {
	used, needed := map[string]bool{}, map[string]bool{}
	for name, now := range c.lists {
		if waits[name] {
			delete(c.lists, name)
			o.dirty[name] = struct{}{}
			continue
		}
		now.Each(func(p lists.Place) { used[p.Table] = true })
	}
	for name := range waits {
		o.sent[name].Each(func(p lists.Place) { needed[p.Table] = true })
	}
	later := o.pending
	if later == nil {
		later = &change{}
	}
	for _, l := range later.lists {
		l.Each(func(p lists.Place) { needed[p.Table] = true })
	}
	for name, now := range c.tables {
		old := o.acls[name]
		_, taken := later.tables[name]
		switch {
		case taken:
		case now == nil && !needed[name], old == nil && used[name]:
			continue
		case now != nil && old != nil && !slices.ContainsFunc(s.users[name], func(i string) bool { return waits[i] }):
			continue
		}
		delete(c.tables, name)
		o.store.Touch(name)
	}
}
