package sim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// Route is a route that AddRoute makes, as a CNI would through the API: it survives Restart.
type Route struct {
	VRF    uint32 // the table; created if missing
	Prefix netip.Prefix
	Paths  []Path // at least one
}

// Path is one path of a Route.
type Path struct {
	Type      PathType
	Interface string     // "": none
	Via       netip.Addr // next hop; zero: none (attached)
	Weight    uint8      // 0: 1
}

// Neighbor is a static ARP or ND entry that AddNeighbor makes: it survives Restart.
type Neighbor struct {
	Interface string
	Addr      netip.Addr
	MAC       [6]byte
}

// ErrNoInterface means that a route or neighbour names an interface that VPP does not have.
var ErrNoInterface = errors.New("no such interface in vpp")

// AddRoute makes or replaces a route.
func (v *VPP) AddRoute(r Route) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	r.Prefix, r.Paths = r.Prefix.Masked(), slices.Clone(r.Paths)
	var err error
	if !v.survives(func() { err = v.applyRoute(r) }) {
		err = v.crashed
	}
	if err != nil {
		return fmt.Errorf("add route %s: %w", r.Prefix, err)
	}
	v.foreign.routes = append(v.withoutRoute(r.VRF, r.Prefix), r)
	return nil
}

// RemoveRoute reverts AddRoute. It ignores an unknown route.
func (v *VPP) RemoveRoute(vrf uint32, p netip.Prefix) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.foreign.routes = v.withoutRoute(vrf, p.Masked())
	if t := v.fib[family(p.Addr())].findTable(vrf); t != nil {
		_ = v.survives(func() { t.unset(p.Masked(), srcAPI) })
	}
}

func (v *VPP) withoutRoute(vrf uint32, p netip.Prefix) []Route {
	return slices.DeleteFunc(v.foreign.routes, func(r Route) bool { return r.VRF == vrf && r.Prefix == p })
}

func (v *VPP) applyRoute(r Route) error {
	var paths []path
	for _, p := range r.Paths {
		d := path{typ: p.Type, swIf: noIndex, via: p.Via, weight: max(p.Weight, 1)}
		if p.Interface != "" {
			f := v.ifs.byName[p.Interface]
			if f == nil {
				return fmt.Errorf("%w: %s", ErrNoInterface, p.Interface)
			}
			d.swIf = f.index
		}
		paths = append(paths, d)
	}
	switch {
	case len(paths) == 0:
		return errors.New("no paths")
	case r.VRF != 0 && slices.ContainsFunc(paths, path.special):
		return trapSpecialPath
	}
	v.fib[family(r.Prefix.Addr())].lockOnce(r.VRF, srcAPI).setRoute(r.Prefix, srcAPI, paths)
	return nil
}

// AddNeighbor makes or replaces a static neighbour.
func (v *VPP) AddNeighbor(n Neighbor) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	if !v.survives(func() { err = v.applyNeighbor(n) }) {
		err = v.crashed
	}
	if err != nil {
		return fmt.Errorf("add neighbour %s: %w", n.Addr, err)
	}
	v.foreign.neighbors = append(slices.DeleteFunc(v.foreign.neighbors, func(o Neighbor) bool {
		return o.Interface == n.Interface && o.Addr == n.Addr
	}), n)
	return nil
}

func (v *VPP) applyNeighbor(n Neighbor) error {
	f := v.ifs.byName[n.Interface]
	if f == nil {
		return fmt.Errorf("%w: %s", ErrNoInterface, n.Interface)
	}
	v.setNeighbor(neighborKey{swIf: f.index, addr: n.Addr}, neighbor{mac: n.MAC, static: true})
	return nil
}

type neighborKey struct {
	swIf uint32
	addr netip.Addr
}

type neighbor struct {
	mac    [6]byte
	static bool
	noFIB  bool
	table  uint32 // table of its host route
}

type neighbors struct {
	byKey  map[neighborKey]neighbor
	config [2]neighborConfig // per family
}

// neighborConfig is stored and shown; neighbours do not age here.
type neighborConfig struct {
	limit, age uint32
	recycle    bool
}

func (n *neighbors) init() {
	*n = neighbors{byKey: map[neighborKey]neighbor{}, config: [2]neighborConfig{{limit: 50000}, {limit: 50000}}}
}

// sorted returns the keys by interface and address.
func (n *neighbors) sorted() []neighborKey {
	keys := make([]neighborKey, 0, len(n.byKey))
	for k := range n.byKey {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b neighborKey) int { return cmp.Or(cmp.Compare(a.swIf, b.swIf), a.addr.Compare(b.addr)) })
	return keys
}

// setNeighbor also adds VPP's host route for a neighbour; see table.active for when it counts.
func (v *VPP) setNeighbor(k neighborKey, n neighbor) {
	if _, exists := v.neigh.byKey[k]; exists {
		v.delNeighbor(k)
	}
	n.table = v.ifs.get(k.swIf).table[family(k.addr)]
	v.neigh.byKey[k] = n
	if !n.noFIB {
		v.adjacent(k, n.table, true)
	}
}

func (v *VPP) delNeighbor(k neighborKey) {
	v.adjacent(k, v.neigh.byKey[k].table, false)
	delete(v.neigh.byKey, k)
}

// flushNeighbors drops the learned neighbours of an interface that is set down or deleted. Static neighbours stay, even without
// their interface, and apply to the next one with its index.
func (v *VPP) flushNeighbors(swIf uint32) {
	for k, n := range v.neigh.byKey {
		if k.swIf == swIf && !n.static {
			v.delNeighbor(k)
		}
	}
}

// moveNeighbors follows an interface to another table.
func (v *VPP) moveNeighbors(f *iface, fam int) {
	for k, n := range v.neigh.byKey {
		if k.swIf == f.index && family(k.addr) == fam {
			v.setNeighbor(k, n)
		}
	}
}

// adjacent adds or removes one interface's path of a neighbour's host route.
func (v *VPP) adjacent(k neighborKey, id uint32, add bool) {
	t := v.fib[family(k.addr)].findTable(id)
	if t == nil {
		return
	}
	host := netip.PrefixFrom(k.addr, k.addr.BitLen())
	var paths []path
	if e := t.entries[host]; e != nil && e.source(srcAdj) != nil {
		paths = slices.DeleteFunc(slices.Clone(e.source(srcAdj).paths), func(p path) bool { return p.swIf == k.swIf })
	}
	if add {
		paths = append(paths, path{swIf: k.swIf, via: k.addr, weight: 1})
	}
	if len(paths) == 0 {
		t.unsetPaths(host, srcAdj)
		return
	}
	t.setRoute(host, srcAdj, paths)
}

// decodePath decodes a path as fib_api_path_decode does.
func decodePath(p *fib_types.FibPath) path {
	d := path{typ: PathType(p.Type), swIf: noIndex, weight: max(p.Weight, 1), pref: p.Preference}
	switch d.typ {
	case PathLocal:
		d.swIf = p.SwIfIndex
	case PathNormal:
		d.swIf, d.table = p.SwIfIndex, p.TableID
		if a := nextHop(p); !a.IsUnspecified() {
			d.via = a
		}
		if d.swIf != noIndex {
			d.table = 0
		}
	}
	return d
}

func nextHop(p *fib_types.FibPath) netip.Addr {
	if p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6 {
		return netip.AddrFrom16(p.Nh.Address.GetIP6())
	}
	return netip.AddrFrom4(p.Nh.Address.GetIP4())
}

// encodePath is fib_api_path_encode. fam is that of the route.
func (p path) encodePath(fam int) fib_types.FibPath {
	e := fib_types.FibPath{
		SwIfIndex: p.swIf, TableID: p.table, Weight: p.weight, Preference: p.pref, Type: fib_types.FibPathType(p.typ),
		Proto: fib_types.FibPathNhProto(fam),
	}
	if p.via.IsValid() {
		if p.via.Is4() {
			e.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP4
			e.Nh.Address = ip_types.AddressUnionIP4(p.via.As4())
		} else {
			e.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
			e.Nh.Address = ip_types.AddressUnionIP6(p.via.As16())
		}
	}
	return e
}

// The address types of the API and of Go.

func fromAddress(a ip_types.Address) netip.Addr {
	if a.Af == ip_types.ADDRESS_IP6 {
		return netip.AddrFrom16(a.Un.GetIP6())
	}
	return netip.AddrFrom4(a.Un.GetIP4())
}

func toAddress(a netip.Addr) ip_types.Address {
	if a.Is4() {
		return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(a.As4())}
	}
	return ip_types.Address{Af: ip_types.ADDRESS_IP6, Un: ip_types.AddressUnionIP6(a.As16())}
}

// fromPrefix is invalid if the length is too long for the family.
func fromPrefix(p ip_types.Prefix) netip.Prefix {
	return netip.PrefixFrom(fromAddress(p.Address), int(p.Len))
}

func toPrefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: toAddress(p.Addr()), Len: uint8(p.Bits())}
}
