package sim

import (
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
)

// ipMessages: ip and ip_neighbor.
func ipMessages(t *apiTable) {
	onWrite(t, func(q *call, m *ip.IPTableAddDel) *ip.IPTableAddDelReply {
		q.tableAddDel(m.IsAdd, &m.Table)
		return &ip.IPTableAddDelReply{}
	})
	onDump(t, func(q *call, _ *ip.IPTableDump, send func(*ip.IPTableDetails)) { q.tableDump(send) })
	onWrite(t, func(q *call, m *ip.IPRouteAddDel) *ip.IPRouteAddDelReply {
		return &ip.IPRouteAddDelReply{Retval: q.routeAddDel(m.IsAdd, m.IsMultipath, &m.Route)}
	})
	onDump(t, func(q *call, m *ip.IPRouteDump, send func(*ip.IPRouteDetails)) {
		q.routeDump(&m.Table, 0, func(r ip.IPRoute, _ uint8) { send(&ip.IPRouteDetails{Route: r}) })
	})
	onDump(t, func(q *call, m *ip.IPRouteV2Dump, send func(*ip.IPRouteV2Details)) {
		q.routeDump(&m.Table, m.Src, func(r ip.IPRoute, src uint8) {
			send(&ip.IPRouteV2Details{Route: ip.IPRouteV2{TableID: r.TableID, Prefix: r.Prefix, NPaths: r.NPaths, Src: src, Paths: r.Paths}})
		})
	})
	onRead(t, func(q *call, m *ip.IPRouteLookup) *ip.IPRouteLookupReply { return q.routeLookup(m) })
	onDump(t, func(q *call, m *ip.IPAddressDump, send func(*ip.IPAddressDetails)) { q.addressDump(m, send) })
	onDump(t, func(q *call, m *ip.IPDump, send func(*ip.IPDetails)) {
		for _, f := range q.ifs.all() {
			if f.takes(fam6(m.IsIPv6)) {
				send(&ip.IPDetails{SwIfIndex: ifIndex(f), IsIPv6: m.IsIPv6})
			}
		}
	})
	onDump(t, func(q *call, m *ip.IPUnnumberedDump, send func(*ip.IPUnnumberedDetails)) {
		for _, f := range q.ifs.all() {
			if lender := q.ifs.get(f.unnumbered); lender != nil && (uint32(m.SwIfIndex) == noIndex || uint32(m.SwIfIndex) == f.index) {
				send(&ip.IPUnnumberedDetails{SwIfIndex: ifIndex(f), IPSwIfIndex: ifIndex(lender)})
			}
		}
	})
	onWrite(t, func(q *call, m *ip.SwInterfaceIP4EnableDisable) *ip.SwInterfaceIP4EnableDisableReply {
		return &ip.SwInterfaceIP4EnableDisableReply{Retval: q.ipEnable(uint32(m.SwIfIndex), ip4, m.Enable)}
	})
	onWrite(t, func(q *call, m *ip.SwInterfaceIP6EnableDisable) *ip.SwInterfaceIP6EnableDisableReply {
		return &ip.SwInterfaceIP6EnableDisableReply{Retval: q.ipEnable(uint32(m.SwIfIndex), ip6, m.Enable)}
	})
	onWrite(t, func(q *call, m *ip_neighbor.IPNeighborAddDel) *ip_neighbor.IPNeighborAddDelReply {
		return &ip_neighbor.IPNeighborAddDelReply{Retval: q.neighborAddDel(m), StatsIndex: noIndex}
	})
	onWrite(t, func(q *call, m *ip_neighbor.IPNeighborConfig) *ip_neighbor.IPNeighborConfigReply {
		if m.Af > ip_types.ADDRESS_IP6 {
			return &ip_neighbor.IPNeighborConfigReply{Retval: rvInvalidAddressFam}
		}
		q.neigh.config[m.Af] = neighborConfig{limit: m.MaxNumber, age: m.MaxAge, recycle: m.Recycle}
		return &ip_neighbor.IPNeighborConfigReply{}
	})
	onRead(t, func(q *call, m *ip_neighbor.IPNeighborConfigGet) *ip_neighbor.IPNeighborConfigGetReply {
		if m.Af > ip_types.ADDRESS_IP6 {
			return &ip_neighbor.IPNeighborConfigGetReply{Retval: rvInvalidAddressFam, MaxNumber: noIndex, MaxAge: noIndex}
		}
		c := q.neigh.config[m.Af]
		return &ip_neighbor.IPNeighborConfigGetReply{Af: m.Af, MaxNumber: c.limit, MaxAge: c.age, Recycle: c.recycle}
	})
	onDump(t, func(q *call, m *ip_neighbor.IPNeighborDump, send func(*ip_neighbor.IPNeighborDetails)) {
		q.neighborDump(m, send)
	})
}

func fam6(is6 bool) int {
	if is6 {
		return ip6
	}
	return ip4
}

// tableAddDel ignores the default table, and the API holds a table at most once however often it adds it.
func (v *VPP) tableAddDel(add bool, m *ip.IPTable) {
	if m.TableID == 0 {
		return
	}
	f := &v.fib[fam6(m.IsIP6)]
	if !add {
		if t := f.findTable(m.TableID); t != nil {
			t.mroutes[srcAPI] = 0
			f.unlock(m.TableID, srcAPI)
		}
		return
	}
	t := f.lockOnce(m.TableID, srcAPI)
	t.mroutes[srcAPI] = 1
	if t.name == "" {
		t.name = strings.TrimRight(m.Name, "\x00")
	}
}

func (v *VPP) tableDump(send func(*ip.IPTableDetails)) {
	for fam := range v.fib {
		for _, t := range v.fib[fam].tables {
			send(&ip.IPTableDetails{Table: ip.IPTable{TableID: t.id, IsIP6: fam == ip6, Name: t.name}})
		}
	}
}

// routeAddDel is ip_route_add_del: without multipath the paths replace, and a deletion takes the whole route.
func (v *VPP) routeAddDel(add, multipath bool, m *ip.IPRoute) int32 {
	addr := fromAddress(m.Prefix.Address)
	t := v.fib[family(addr)].findTable(m.TableID)
	if t == nil {
		return rvNoSuchFIB
	}
	var paths []path
	for i := range m.Paths {
		p := decodePath(&m.Paths[i])
		if rv := v.checkPath(p, fam6(m.Paths[i].Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6)); rv != 0 {
			return rv
		}
		if p.typ == PathNormal && p.swIf == noIndex && p.via.IsValid() && p.via == addr { // fib_table_route_path_fixup
			p = path{typ: PathDrop, swIf: noIndex, weight: p.weight, pref: p.pref, self: true}
		}
		paths = append(paths, p)
	}
	prefix := fromPrefix(m.Prefix)
	if !prefix.IsValid() {
		return rvInvalidPrefixLength
	}
	if len(paths) == 0 && (add || multipath) {
		return rvNoPathsInRoute
	}
	if add && t.id != 0 && slices.ContainsFunc(paths, path.special) {
		panic(trapSpecialPath)
	}
	switch {
	case multipath:
		v.pathAddDel(t, prefix, add, paths)
	case add:
		t.setRoute(prefix, srcAPI, paths)
	default:
		t.unset(prefix, srcAPI)
	}
	if t.deadly(prefix.Masked()) || mayCover(prefix, paths) && t.fib.deadlyNextHop() {
		panic(trapUnreachableNextHop)
	}
	return 0
}

// mayCover reports whether a route may affect the next hops of others, or has next hops itself.
func mayCover(p netip.Prefix, paths []path) bool {
	return !p.IsSingleIP() || slices.ContainsFunc(paths, func(p path) bool { return p.typ == PathNormal && p.swIf == noIndex })
}

// checkPath returns the errors of fib_api_path_decode; fam is the next hop's.
func (v *VPP) checkPath(p path, fam int) int32 {
	switch {
	case p.typ != PathNormal:
		return 0
	case p.swIf == noIndex && v.fib[fam].findTable(p.table) == nil:
		return rvNoSuchFIB
	case p.swIf != noIndex && v.ifs.get(p.swIf) == nil:
		return rvNoMatchingInterface
	}
	return 0
}

// pathAddDel adds paths to the API's paths of a prefix, or removes them.
func (v *VPP) pathAddDel(t *table, prefix netip.Prefix, add bool, paths []path) {
	var now []path
	var before *routeSource
	if e := t.entries[prefix.Masked()]; e != nil {
		if s := e.source(srcAPI); s != nil {
			now, before = slices.Clone(s.paths), &routeSource{src: srcAPI, paths: s.paths}
		}
		if !add && e.stale != nil {
			before = e.stale
		}
	}
	for _, p := range paths {
		same := func(o path) bool { return o.compare(p) == 0 && (add || o.weight == p.weight) } // a deletion also compares the weight
		if now = slices.DeleteFunc(now, same); add {
			now = append(now, p)
		}
	}
	if len(now) == 0 {
		t.unsetPaths(prefix, srcAPI)
	} else {
		t.setRoute(prefix, srcAPI, now)
	}
	if !add {
		t.keepStale(prefix, before)
	}
}

func encodeRoute(t *table, e *entry) ip.IPRoute {
	r := ip.IPRoute{TableID: t.id, Prefix: toPrefix(e.given), NPaths: uint8(len(t.paths(e)))}
	for _, p := range t.paths(e) {
		if e.prefix.IsSingleIP() && (p.typ == PathNormal || p.typ == PathLocal) && p.swIf != noIndex && !p.via.IsValid() {
			p.via = e.prefix.Addr() // an attached host, and an address of VPP, is its next hop itself
		}
		if p.typ == pathExclusive || p.typ == PathLocal && e.sources[0].src == srcSpecial { // the latter: fe80::/10, which leads to a table of the interface
			p.typ = PathNormal
		}
		r.Paths = append(r.Paths, p.encodePath(family(e.prefix.Addr())))
	}
	return r
}

// routeDump sends the routes that have a source, with VPP's number of their best one. 0: any source.
func (v *VPP) routeDump(m *ip.IPTable, src uint8, send func(r ip.IPRoute, src uint8)) {
	t := v.fib[fam6(m.IsIP6)].findTable(m.TableID)
	if t == nil {
		return
	}
	for _, e := range t.byLength() {
		if best := sourceIDs[e.sources[0].src]; src == 0 || src == best { // fib_table_walk_w_src_cb
			send(encodeRoute(t, e), best)
		}
	}
}

func (v *VPP) routeLookup(m *ip.IPRouteLookup) *ip.IPRouteLookupReply {
	prefix := fromPrefix(m.Prefix).Masked()
	t := v.fib[family(fromAddress(m.Prefix.Address))].findTable(m.TableID)
	switch {
	case t == nil:
		return &ip.IPRouteLookupReply{Retval: rvNoSuchFIB}
	case !prefix.IsValid():
		return &ip.IPRouteLookupReply{Retval: rvNoSuchEntry}
	}
	e := t.entries[prefix]
	if m.Exact == 0 && e == nil {
		e = t.covering(prefix)
	}
	if e == nil {
		return &ip.IPRouteLookupReply{Retval: rvNoSuchEntry}
	}
	return &ip.IPRouteLookupReply{Route: encodeRoute(t, e)}
}

// covering returns the entry of the longest prefix that holds all of p.
func (t *table) covering(p netip.Prefix) *entry {
	for bits := p.Bits(); bits >= 0; bits-- {
		if t.lengths[bits] == 0 {
			continue
		}
		c, _ := p.Addr().Prefix(bits) // bits are in range
		if e := t.entries[c]; e != nil {
			return e
		}
	}
	return nil
}

func (v *VPP) addressDump(m *ip.IPAddressDump, send func(*ip.IPAddressDetails)) {
	f := v.ifs.get(uint32(m.SwIfIndex))
	if f == nil {
		return
	}
	for _, p := range f.addrs {
		if family(p.Addr()) == fam6(m.IsIPv6) {
			send(&ip.IPAddressDetails{SwIfIndex: m.SwIfIndex, Prefix: ip_types.AddressWithPrefix(toPrefix(p))})
		}
	}
}

func (v *VPP) ipEnable(i uint32, fam int, on bool) int32 {
	f := v.ifs.get(i)
	if f == nil {
		return rvInvalidSwIfIndex
	}
	f.ipOn[fam] = on
	return 0
}

func (v *VPP) neighborAddDel(m *ip_neighbor.IPNeighborAddDel) int32 {
	n := &m.Neighbor
	if v.ifs.get(uint32(n.SwIfIndex)) == nil {
		return rvInvalidSwIfIndex
	}
	k := neighborKey{swIf: uint32(n.SwIfIndex), addr: fromAddress(n.IPAddress)}
	old, exists := v.neigh.byKey[k]
	static := n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0
	switch {
	case !m.IsAdd && !exists:
		return rvNoSuchEntry
	case !m.IsAdd:
		v.delNeighbor(k)
	case exists && old.static && !static:
		return rvInvalidSwIfIndex // VPP's error when a dynamic entry would replace a static one
	default:
		v.mindTheDead(k.addr)
		v.setNeighbor(k, neighbor{mac: n.MacAddress, static: static, noFIB: n.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY != 0})
	}
	return 0
}

// mindTheDead springs trapDeadNeighbor.
func (v *VPP) mindTheDead(a netip.Addr) {
	for k := range v.neigh.byKey {
		if k.addr == a && v.ifs.get(k.swIf) == nil {
			panic(trapDeadNeighbor)
		}
	}
}

func (v *VPP) neighborDump(m *ip_neighbor.IPNeighborDump, send func(*ip_neighbor.IPNeighborDetails)) {
	for _, k := range v.neigh.sorted() {
		if uint32(m.SwIfIndex) != noIndex && uint32(m.SwIfIndex) != k.swIf || family(k.addr) != int(m.Af) {
			continue
		}
		n := v.neigh.byKey[k]
		d := ip_neighbor.IPNeighbor{SwIfIndex: interface_types.InterfaceIndex(k.swIf), MacAddress: n.mac, IPAddress: toAddress(k.addr)}
		if n.static {
			d.Flags |= ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC
		}
		if n.noFIB {
			d.Flags |= ip_neighbor.IP_API_NEIGHBOR_FLAG_NO_FIB_ENTRY
		}
		send(&ip_neighbor.IPNeighborDetails{Neighbor: d})
	}
}
