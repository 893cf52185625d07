package sim

import (
	"net/netip"
	"slices"
)

// deadlyNextHop reports whether trapUnreachableNextHop is sprung.
func (f *fib) deadlyNextHop() bool {
	for _, t := range f.tables {
		for host := range t.hops {
			if t.deadly(host) {
				return true
			}
		}
	}
	return false
}

// deadly reports it for one next hop; other prefixes are harmless.
func (t *table) deadly(host netip.Prefix) bool {
	e := t.entries[host]
	if e == nil || !t.hops[host] {
		return false
	}
	if s := e.forwarding(); s != nil && s.src != srcRecursive {
		return false
	}
	c := t.cover(e)
	return c.sources[0].src == srcAPI && slices.ContainsFunc(c.sources[0].paths, path.special)
}

// own makes an address one of the cnat plugin; disown reverts it.
func (t *table) own(a netip.Addr, exclusive bool) {
	host := hostPrefix(a)
	var paths []path
	if exclusive {
		paths = []path{{typ: pathExclusive, swIf: noIndex, weight: 1}}
	}
	t.setRoute(host, srcCNAT, paths)
	t.noteHop(host)
}

func (t *table) disown(a netip.Addr) {
	t.unset(hostPrefix(a), srcCNAT)
	t.noteHop(hostPrefix(a))
}

func (t *table) owned(a netip.Addr) bool {
	e := t.entries[hostPrefix(a)]
	return e != nil && e.sources[0].src == srcCNAT
}

// noteHop updates hops: the hosts whose route may be that of the prefix that covers them.
func (t *table) noteHop(host netip.Prefix) {
	if e := t.entries[host]; e != nil && (e.source(srcRecursive) != nil || e.interposed()) {
		t.hops[host] = true
		return
	}
	delete(t.hops, host)
}

// recursive counts the next hops of recursive paths: each is a host route in the table that resolves it, and holds that table.
func (f *fib) recursive(paths []path, n int) {
	for _, p := range paths {
		switch {
		case p.typ != PathNormal || p.swIf != noIndex:
			continue
		case !p.via.IsValid() && n > 0: // a lookup in another table holds it
			f.lock(p.table, srcRecursive)
			continue
		case !p.via.IsValid():
			f.unlock(p.table, srcRecursive)
			continue
		case family(p.via) != f.fam:
			continue
		}
		host := netip.PrefixFrom(p.via, p.via.BitLen())
		if n > 0 {
			t := f.lock(p.table, srcRecursive)
			t.hold(host, srcRecursive, nil)
			t.noteHop(host)
			continue
		}
		if t := f.findTable(p.table); t != nil {
			t.releaseRoute(host, srcRecursive)
			t.noteHop(host)
		}
		f.unlock(p.table, srcRecursive)
	}
}
