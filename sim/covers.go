package sim

import (
	"net/netip"
	"slices"
)

// lost is an entry that a shorter prefix counts once too often among the entries it covers. VPP does not remove it when the entry
// ends. It then reads the entry's source, which does not exist, whenever the shorter prefix changes or another prefix comes between
// the two.
type lost struct{ prefix, cover netip.Prefix }

// tracks reports whether the sources of a kind register with the prefix that covers their entry (fib_entry_cover_track).
func (s source) tracks() bool { return s == srcAdj || s == srcRecursive }

// activate is the action of a source when it becomes the forwarding one (fesv_activate). It registers, even if it is already
// registered.
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

// restack is the action of an interposing source when the others change (fib_entry_src_interpose_reactivate): it deactivates and
// activates the present next best source. The previous next best source stays active: a bug of VPP.
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

// sourceChanged is the same for an existing source.
func (t *table) sourceChanged(e *entry, src source) {
	switch {
	case e.interposed() && src != srcCNAT:
		t.restack(e)
	case e.sources[0].src == src:
		t.changed(e.prefix)
	}
}

// removing runs before a source is removed (fib_entry_src_action_remove), removed runs then. When the removal of its paths removes a
// source that is not the best, nothing is restacked (fib_entry_path_remove).
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

// inserted springs trapLostEntry for a new prefix, changed for a prefix whose forwarding changes, or that ends. VPP survives if
// another entry has the memory of the removed one. The sim models this only for an entry of the same prefix.
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
