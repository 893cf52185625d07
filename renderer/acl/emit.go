package acl

import (
	"maps"
	"slices"
)

// emit sends the changes that may not conflict with others, and interim states of those that do. It reports whether more follows.
func (r *Renderer) emit() (again bool) {
	next := r.changes()
	s := shiftsOf(r, &next)
	waits, torn := r.conflicting(s)
	if len(waits) > 0 || r.out.pending != nil {
		r.withhold(&next, s, waits)
	}
	if len(torn) > 0 {
		first, then := r.interim(&next, s, torn)
		next, r.out.pending = first, &then
	}
	if r.out.pending != nil || len(waits) > 0 {
		s = shiftsOf(r, &next)
	}
	r.out.late.Add(s.list())
	for name := range next.lists {
		if i := r.ifaces[name]; i != nil {
			i.listed = true
		}
	}
	r.commit(&next, torn)
	r.flush()
	r.out.more = len(waits) > 0 || len(r.dirty.tables) > 0
	return r.out.more || r.out.pending != nil
}

// proceed sends the rest of a change after its interim state. It reports whether it did: the rest waits until VPP has the interim state.
func (r *Renderer) proceed() bool {
	c := r.out.pending
	if c == nil {
		return false
	}
	s := shiftsOf(r, c)
	s.dropClosings() // the interim state lets pass nothing else
	if len(s.world().Waiting(s.list(), &r.out.late, nil, nil)) > 0 {
		return false
	}
	r.out.pending = nil
	needed := map[string]bool{}
	for name, l := range r.out.sent {
		if _, changes := c.lists[name]; !changes {
			l.each(func(p place) { needed[p.table] = true })
		}
	}
	for name, now := range c.tables {
		if now == nil && (needed[name] || r.out.refs[name] > 0) {
			delete(c.tables, name)
			r.dirty.tables[name], r.out.more = struct{}{}, true
		}
	}
	r.commit(c, nil)
	r.flush()
	return true
}

// conflicting returns the interfaces of a change that must wait for earlier ones, and those of the others that need an interim state.
// Between changed translations no address proves that two interfaces do not concern one packet.
func (r *Renderer) conflicting(s *shifter) (waits, torn map[string]bool) {
	w := s.world()
	switch {
	case r.resent && s.opens() && (r.out.behind || r.out.pending != nil):
		return s.hooks(), nil
	case r.resent && s.opens():
		r.resent = false
		return nil, s.hooks()
	}
	r.resent = false
	for waits = s.taken(); ; maps.Copy(waits, torn) {
		waits = w.Waiting(s.list(), &r.out.late, s.users, waits)
		if torn = w.Torn(s.list(), waits); len(torn) == 0 || r.out.pending == nil {
			return waits, torn
		}
	}
}

// taken returns the interfaces of a change that have a part of the pending one.
func (s *shifter) taken() map[string]bool {
	out := map[string]bool{}
	c := s.r.out.pending
	if c == nil {
		return nil
	}
	for name := range c.lists {
		out[name] = true
	}
	of := func(p place) bool { _, has := c.tables[p.table]; return has }
	for _, all := range [2]map[string]lists{s.r.out.sent, s.c.lists} {
		for name, l := range all {
			if slices.ContainsFunc(l.in, of) || slices.ContainsFunc(l.out, of) {
				out[name] = true
			}
		}
	}
	return out
}

// withhold takes the changes of interfaces that wait out of a change: they are part of the next one.
func (r *Renderer) withhold(c *change, s *shifter, waits map[string]bool) {
	used, needed := map[string]bool{}, map[string]bool{}
	for name, now := range c.lists {
		if waits[name] {
			delete(c.lists, name)
			r.out.dirty[name] = struct{}{}
			continue
		}
		now.each(func(p place) { used[p.table] = true })
	}
	for name := range waits {
		r.out.sent[name].each(func(p place) { needed[p.table] = true })
	}
	later := r.out.pending
	if later == nil {
		later = &change{}
	}
	for _, l := range later.lists {
		l.each(func(p place) { needed[p.table] = true })
	}
	for name, now := range c.tables {
		old := r.out.acls[name]
		_, taken := later.tables[name]
		switch {
		case taken:
		case now == nil && !needed[name], old == nil && used[name]:
			continue
		case now != nil && old != nil && !slices.ContainsFunc(s.users[name], func(i string) bool { return waits[i] }):
			continue
		}
		delete(c.tables, name)
		r.dirty.tables[name] = struct{}{}
	}
}
