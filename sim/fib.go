package sim

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// source identifies the source of a route, by VPP's priority: the smallest wins (vnet/fib/fib_source.h).
type source uint8

const (
	srcSpecial   source = 0x00
	srcCNAT      source = 0x02
	srcInterface source = 0x03
	srcAPI       source = 0x80
	srcNAT       source = 0xd0 // "nat-low"
	srcAdj       source = 0xd1 // neighbours; 0xd0 in VPP, but NAT's wins because it is older
	srcRecursive source = 0xfb // next hops of recursive routes
	srcDefault   source = 0xfd
)

// sourceIDs are the numbers of sources in VPP's API (fib_source_t). VPP numbers those of plugins as they start.
var sourceIDs = [...]uint8{srcSpecial: 1, srcInterface: 4, srcAPI: 8, srcAdj: 15, srcRecursive: 18, srcDefault: 20, srcCNAT: 22, srcNAT: 23}

// PathType is how a path of a route forwards.
type PathType uint8

// The path types by which the sim forwards (fib_types.api); it stores others and drops their packets.
const (
	PathNormal   PathType = 0 // through Interface, or recursively through Via
	PathLocal    PathType = 1 // VPP itself
	PathDrop     PathType = 2
	PathUnreach  PathType = 5 // ICMP host unreachable
	PathProhibit PathType = 6 // ICMP administratively prohibited
)

// pathExclusive hides all other routes to an address of the cnat plugin. A dump shows it as a normal path that leads nowhere.
const pathExclusive PathType = 0xff

// path is one path of a route.
type path struct {
	typ    PathType
	swIf   uint32     // noIndex: none
	via    netip.Addr // invalid: none
	table  uint32     // of a recursive path
	weight uint8      // ≥ 1
	pref   uint8
	glean  bool // the subnet of an interface address
	self   bool // to the address of its prefix: VPP turns it into a drop
}

// special reports whether VPP treats the path as attached to local0: see trapSpecialPath.
func (p path) special() bool {
	return !p.self && (p.typ == PathDrop || p.typ == PathUnreach || p.typ == PathProhibit)
}

func (p path) compare(o path) int {
	return cmp.Or(cmp.Compare(p.pref, o.pref), cmp.Compare(p.typ, o.typ), cmp.Compare(p.swIf, o.swIf), p.via.Compare(o.via), cmp.Compare(p.table, o.table))
}

// pathText uses ifName for interfaces.
func (p path) pathText(ifName func(uint32) string) string {
	var s string
	switch p.typ {
	case PathNormal:
		s = p.normalText(ifName)
	case PathLocal:
		s = "local"
		if p.swIf != noIndex {
			s += " " + ifName(p.swIf)
		}
	case PathDrop:
		s = "drop"
	case PathUnreach:
		s = "icmp-unreach"
	case PathProhibit:
		s = "icmp-prohibit"
	case pathExclusive:
		s = "cnat's own"
	default:
		s = fmt.Sprintf("path-type-%d", p.typ)
	}
	if p.weight > 1 {
		s += fmt.Sprintf(" weight %d", p.weight)
	}
	if p.pref > 0 {
		s += fmt.Sprintf(" preference %d", p.pref)
	}
	return s
}

func (p path) normalText(ifName func(uint32) string) string {
	s := "via"
	if p.via.IsValid() {
		s += " " + p.via.String()
	}
	if p.swIf != noIndex {
		return s + " " + ifName(p.swIf)
	}
	if p.table != 0 || !p.via.IsValid() {
		return s + fmt.Sprintf(" table %d", p.table)
	}
	return s
}

// routeSource is the route of one source for a prefix.
type routeSource struct {
	src   source
	refs  int // several addresses of one subnet, several NAT mappings of one address
	paths []path
	// contributes: it forwards, or did when another source came under an interposing one. registered: see activate.
	contributes, registered bool
}

// entry is a prefix with its sources, best first.
type entry struct {
	prefix netip.Prefix
	// given is the prefix in its first writer's form: VPP keeps the host bits and dumps them.
	given   netip.Prefix
	sources []routeSource
	// stale are the paths that the API removed under an interposing source. The source still forwards by them until any source of
	// the entry is set or deleted (fib_entry_path_remove: "the source is not the best. no need to update forwarding"); nil: none.
	stale *routeSource
}

// paths returns the best source's paths, or the next one's if the best only interposes itself. A recursive next hop has the paths of
// the prefix that covers it.
func (t *table) paths(e *entry) []path {
	s := e.forwarding()
	switch {
	case s == nil || s.src == srcRecursive:
		return t.paths(t.cover(e))
	case s.src == srcAdj && s != &e.sources[0] && !t.onLink(e, s):
		return []path{{typ: PathDrop, swIf: noIndex, weight: 1}}
	}
	return s.paths
}

// forwarding returns the source that forwards; nil: none here, the covering prefix forwards.
func (e *entry) forwarding() *routeSource {
	switch {
	case !e.interposed():
		return &e.sources[0]
	case e.stale != nil:
		return e.stale
	case len(e.sources) > 1:
		return &e.sources[1]
	}
	return nil
}

// interposed reports whether the cnat plugin processes packets that then continue as if the plugin did not exist.
func (e *entry) interposed() bool { return e.sources[0].src == srcCNAT && len(e.sources[0].paths) == 0 }

// cover returns the entry of the next shorter prefix; the default route of a table always exists.
func (t *table) cover(e *entry) *entry {
	return t.covering(netip.PrefixFrom(e.prefix.Addr(), e.prefix.Bits()-1).Masked())
}

func (e *entry) source(s source) *routeSource {
	for i := range e.sources {
		if e.sources[i].src == s {
			return &e.sources[i]
		}
	}
	return nil
}

// table is one FIB.
type table struct {
	fib     *fib
	place   int
	id      uint32
	name    string
	locks   map[source]int
	mroutes map[source]int // the locks of its multicast counterpart; NAT makes tables that have none
	entries map[netip.Prefix]*entry
	lengths [129]int              // entries per prefix length
	hops    map[netip.Prefix]bool // the entries that are next hops of recursive routes
	lost    []lost
}

// fib holds the tables of a family, by their place in VPP's pool: the place freed last is taken first.
type fib struct {
	fam    int
	tables []*table
	places []int // free ones
	// graves are deleted tables by place: VPP keeps the API's routes in them, and the next table in that place inherits the routes.
	graves map[int]*table
	gone   func(id uint32) // called when a table is deleted
}

func (f *fib) init(fam int, gone func(uint32)) {
	*f = fib{fam: fam, gone: gone, graves: map[int]*table{}}
	f.lock(0, srcSpecial).mroutes[srcSpecial]++
}

func (f *fib) findTable(id uint32) *table {
	for _, t := range f.tables {
		if t.id == id {
			return t
		}
	}
	return nil
}

// lock finds or makes a table and holds it.
func (f *fib) lock(id uint32, by source) *table {
	t := f.findTable(id)
	if t == nil {
		t = &table{fib: f, id: id, locks: map[source]int{}, mroutes: map[source]int{}, hops: map[netip.Prefix]bool{}, entries: map[netip.Prefix]*entry{}}
		t.place = len(f.tables) + len(f.places)
		if n := len(f.places); n > 0 {
			t.place, f.places = f.places[n-1], f.places[:n-1]
		}
		f.tables = append(f.tables, t)
		slices.SortFunc(f.tables, func(a, b *table) int { return cmp.Compare(a.place, b.place) })
		t.specials(f.fam)
		t.inherit(f.graves[t.place])
		delete(f.graves, t.place)
	}
	t.locks[by]++
	return t
}

// bindable reports whether an interface may be bound to the table: its multicast counterpart must exist, too.
func (t *table) bindable() bool {
	return t.mroutes[srcSpecial]+t.mroutes[srcAPI]+t.mroutes[srcInterface] > 0
}

// lockOnce is lock for a source that holds a table at most once, as the API does.
func (f *fib) lockOnce(id uint32, by source) *table {
	if t := f.findTable(id); t != nil && t.locks[by] > 0 {
		return t
	}
	return f.lock(id, by)
}

// unlock releases a hold, another source's if this one has none; the last release deletes the table (fib_table_unlock). Routes outlive holds.
func (f *fib) unlock(id uint32, by source) {
	t := f.findTable(id)
	if t == nil || t.locks[by] == 0 && by == srcAPI {
		return
	}
	t.locks[by]--
	held := 0
	for _, locks := range t.locks {
		held += locks
	}
	if held > 0 {
		return
	}
	if id == 0 {
		panic(trapTable0)
	}
	f.tables = slices.DeleteFunc(f.tables, func(o *table) bool { return o == t })
	f.places = append(f.places, t.place)
	f.graves[t.place] = t
	f.gone(id)
}

// inherit takes over the API's routes of a deleted table.
func (t *table) inherit(dead *table) {
	if dead == nil {
		return
	}
	for _, e := range dead.entries {
		if s := e.source(srcAPI); s != nil {
			t.setRoute(e.given, srcAPI, s.paths)
			t.fib.recursive(s.paths, -1) // the deleted table held them, too
		}
	}
}

// specials returns the initial routes of every table (ip4_fib.c, ip6_fib.c).
func (t *table) specials(fam int) {
	drop := []path{{typ: PathDrop, swIf: noIndex, weight: 1}}
	if fam == ip6 {
		t.setRoute(netip.MustParsePrefix("::/0"), srcDefault, drop)
		t.setRoute(netip.MustParsePrefix("fe80::/10"), srcSpecial, []path{{typ: PathLocal, swIf: noIndex, weight: 1}})
		return
	}
	t.setRoute(netip.MustParsePrefix("0.0.0.0/0"), srcDefault, drop)
	for _, p := range []string{"0.0.0.0/32", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"} {
		t.setRoute(netip.MustParsePrefix(p), srcSpecial, drop)
	}
}

// setRoute replaces a source's route for a prefix, which may have host bits.
func (t *table) setRoute(given netip.Prefix, src source, paths []path) {
	p := given.Masked()
	paths = slices.Clone(paths)
	slices.SortStableFunc(paths, path.compare)
	e := t.entries[p]
	if e == nil {
		e = &entry{prefix: p, given: given}
		t.entries[p] = e
		t.lengths[p.Bits()]++
	}
	e.stale = nil
	if s := e.source(src); s != nil {
		old := s.paths
		s.paths = paths
		t.fib.recursive(paths, 1)
		t.fib.recursive(old, -1)
		t.sourceChanged(e, src)
		return
	}
	t.fib.recursive(paths, 1)
	e.sources = append(e.sources, routeSource{src: src, paths: paths})
	slices.SortFunc(e.sources, func(a, b routeSource) int { return cmp.Compare(a.src, b.src) })
	t.sourceAdded(e, src)
}

// hold is set with a count of holders; release undoes it.
func (t *table) hold(given netip.Prefix, src source, paths []path) {
	p := given.Masked()
	if e := t.entries[p]; e == nil || e.source(src) == nil {
		t.setRoute(given, src, paths)
	}
	t.entries[p].source(src).refs++
}

func (t *table) releaseRoute(given netip.Prefix, src source) {
	p := given.Masked()
	e := t.entries[p]
	if e == nil {
		return
	}
	if s := e.source(src); s != nil {
		if s.refs--; s.refs <= 0 {
			t.unset(p, src)
		}
	}
}

// unset removes a source's route; it reports whether the source had one.
func (t *table) unset(given netip.Prefix, src source) bool { return t.removeRoute(given, src, false) }

// unsetPaths does the same by removing all paths.
func (t *table) unsetPaths(given netip.Prefix, src source) { t.removeRoute(given, src, true) }

func (t *table) removeRoute(given netip.Prefix, src source, byPaths bool) bool {
	p := given.Masked()
	e := t.entries[p]
	if e == nil {
		return false
	}
	s := e.source(src)
	if s == nil {
		return false
	}
	paths := s.paths
	e.stale = nil
	removed := t.removing(e, src, byPaths)
	e.sources = slices.DeleteFunc(e.sources, func(s routeSource) bool { return s.src == src })
	if len(e.sources) == 0 {
		delete(t.entries, p)
		t.lengths[p.Bits()]--
	}
	t.fib.recursive(paths, -1)
	removed()
	return true
}

// keepStale keeps the stale paths when the API removes paths under an interposing cnat plugin; before are the API's earlier paths.
func (t *table) keepStale(given netip.Prefix, before *routeSource) {
	if e := t.entries[given.Masked()]; e != nil && e.interposed() && before != nil {
		e.stale = before
	}
}

// active reports whether packets follow the entry. A recursive next hop only records a dependency. A neighbour's host route counts
// only in a subnet attached to its interface, so that no host attracts traffic by ARP.
func (t *table) active(e *entry) bool {
	switch e.sources[0].src {
	case srcRecursive:
		return false
	case srcAdj:
		return t.onLink(e, &e.sources[0])
	}
	return true
}

// onLink reports whether a neighbour is in a subnet attached to its interface.
func (t *table) onLink(e *entry, s *routeSource) bool {
	return slices.ContainsFunc(t.paths(t.cover(e)), func(p path) bool {
		return p.typ == PathNormal && !p.via.IsValid() && p.swIf != noIndex &&
			slices.ContainsFunc(s.paths, func(n path) bool { return n.swIf == p.swIf })
	})
}

// lookup returns the entry that packets to a follow: the longest prefix that holds it. Every table has one.
func (t *table) lookup(a netip.Addr) *entry {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if t.lengths[bits] == 0 {
			continue
		}
		p, _ := a.Prefix(bits) // bits are in range
		if e := t.entries[p]; e != nil && t.active(e) {
			return e
		}
	}
	return nil
}

// byLength returns the entries by prefix length, in VPP's order (within a length VPP's order is that of a hash, the sim's is by
// address).
func (t *table) byLength() []*entry {
	list := t.sorted()
	slices.SortStableFunc(list, func(a, b *entry) int { return cmp.Compare(a.prefix.Bits(), b.prefix.Bits()) })
	return list
}

// sorted returns the entries by prefix.
func (t *table) sorted() []*entry {
	return slices.SortedFunc(maps.Values(t.entries), func(a, b *entry) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
}

// bindTable moves an interface to a table that exists.
func (v *VPP) bindTable(f *iface, fam int, id uint32) {
	old := f.table[fam]
	if id != 0 {
		v.fib[fam].lock(id, srcInterface).mroutes[srcInterface]++
	}
	if old != 0 {
		v.fib[fam].findTable(old).mroutes[srcInterface]--
		v.fib[fam].unlock(old, srcInterface)
	}
	f.table[fam] = id
	if old != id {
		v.moveNeighbors(f, fam)
	}
	if fam == ip4 {
		v.nat.TableBound(f.index, old, id)
	}
}

func (v *VPP) showFIB() string {
	var b strings.Builder
	for _, t := range v.fib[ip4].tables {
		fmt.Fprintf(&b, "ipv4-VRF:%d\n", t.id)
		for _, e := range t.sorted() {
			fmt.Fprintf(&b, "%s\n", e.prefix)
			for _, s := range e.sources {
				fmt.Fprintf(&b, "  %s:", sourceName(s.src))
				for _, p := range s.paths {
					fmt.Fprintf(&b, " [%s]", p.pathText(v.ifs.name))
				}
				b.WriteByte('\n')
			}
		}
	}
	return b.String()
}

func sourceName(s source) string {
	switch s {
	case srcSpecial:
		return "special"
	case srcCNAT:
		return "cnat"
	case srcInterface:
		return "interface"
	case srcAPI:
		return "API"
	case srcNAT:
		return "nat-low"
	case srcAdj:
		return "adjacency"
	}
	if s == srcRecursive {
		return "recursive-resolution"
	}
	return "default-route"
}
