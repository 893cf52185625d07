package sim

import (
	"net/netip"
	"slices"
)

// lost is an entry that a shorter prefix has among those it covers, once more than the entry knows: VPP does not take it off when the entry
// ends, and then reads its source, of which there is none, whenever the shorter prefix changes or another one comes between the two.
type lost struct{ prefix, cover netip.Prefix }

// tracks reports whether the sources of a kind register with the prefix that covers their entry (fib_entry_cover_track).
func (s source) tracks() bool { return s == srcAdj || s == srcRecursive }

// activate is what a source does when it begins to say where packets go (fesv_activate). It registers, also if it has already.
func (t *table) activate(e *entry, at int) {
	s := &e.sources[at]
	if s.contributes = true; !s.src.tracks() {
		return
	}
	if s.registered {
		t.lost = append(t.lost, lost{e.prefix, t.cover(e).prefix})
	}
	s.registered = true
}

// deactivate is fesv_deactivate.
func (t *table) deactivate(e *entry, at int) {
	e.sources[at].contributes, e.sources[at].registered = false, false
}

// restack is what an interposing source does when the others change (fib_entry_src_interpose_reactivate): the next best source of now is
// deactivated and activated. The one that was the next best until then stays as it is: VPP's mistake.
func (t *table) restack(e *entry) {
	if len(e.sources) > 1 {
		t.deactivate(e, 1)
		t.activate(e, 1)
	}
}

// sourceAdded is fib_entry_source_change, for a source that the entry did not have.
func (t *table) sourceAdded(e *entry, src source) {
	switch {
	case e.interposed():
		t.restack(e)
	case e.sources[0].src == src:
		if len(e.sources) > 1 {
			t.deactivate(e, 1)
		}
		t.activate(e, 0)
	}
	if len(e.sources) == 1 {
		t.inserted(e.prefix)
	}
}

// sourceChanged is the same for one that the entry had.
func (t *table) sourceChanged(e *entry, src source) {
	switch {
	case e.interposed() && src != srcCNAT:
		t.restack(e)
	case e.sources[0].src == src:
		t.changed(e.prefix)
	}
}

// removing is what happens before a source is taken off (fib_entry_src_action_remove); removed is what happens then. Removed by its paths, one that
// is not the best restacks nothing (fib_entry_path_remove).
func (t *table) removing(e *entry, src source, byPaths bool) (removed func()) {
	at := slices.IndexFunc(e.sources, func(s routeSource) bool { return s.src == src })
	best, interposed := at == 0, e.interposed()
	if interposed && best && len(e.sources) > 1 {
		t.deactivate(e, 1)
	}
	if best || e.sources[at].contributes {
		t.deactivate(e, at)
	}
	return func() {
		switch {
		case len(e.sources) == 0:
			t.changed(e.prefix)
			t.lost = slices.DeleteFunc(t.lost, func(l lost) bool { return l.cover == e.prefix })
		case best:
			t.activate(e, 0)
			t.changed(e.prefix)
		case interposed && !byPaths:
			t.restack(e)
		}
	}
}

// inserted springs trapLostEntry for a new prefix, changed for one whose forwarding changes, or that ends. VPP lives on where another entry
// has the place of the one that is gone; so it does here if that is one for the same prefix.
func (t *table) inserted(p netip.Prefix) {
	t.spring(func(l lost) bool {
		return l.cover.Bits() < p.Bits() && p.Bits() < l.prefix.Bits() && l.cover.Contains(p.Addr()) && p.Contains(l.prefix.Addr())
	})
}

func (t *table) changed(p netip.Prefix) { t.spring(func(l lost) bool { return l.cover == p }) }

func (t *table) spring(meant func(lost) bool) {
	if slices.ContainsFunc(t.lost, func(l lost) bool { return t.entries[l.prefix] == nil && meant(l) }) {
		panic(trapLostEntry)
	}
}
