package l3

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"

	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// route is one path of a prefix in a FIB table: ligato's Route, or our RejectRoute. It is comparable.
type route struct {
	vrf     uint32
	dst     netip.Prefix
	kind    fib_types.FibPathType
	nextHop netip.Addr // invalid: none, the prefix is on the link
	iface   string     // "": the interface of nextHop
	weight  uint8      // 1 at least
	pref    uint8
	via     uint32 // the table for the lookup of nextHop, or of the whole packet
	// free: the last dump showed no route to dst, so no other route can conflict. It holds for one creation.
	free bool
	// taken: at the last lookup VPP had another route to dst.
	taken bool
	last  bool // LastResort: any other route to dst takes precedence
	// spelling has the message's form of fields: for Message only
	gateway string
	inter   bool
}

// path has the fields of a route that VPP compares: see samePath.
type path struct {
	kind    fib_types.FibPathType
	nextHop netip.Addr
	iface   string
	weight  uint8
	pref    uint8
	via     uint32
}

func (r *route) path() path {
	return path{kind: r.kind, nextHop: r.nextHop, iface: r.iface, weight: r.weight, pref: r.pref, via: r.via}
}

// Route describes ligato's Route. Routes to one prefix are its paths: the agent adds and removes each path alone, so that foreign
// paths stay and a changed next hop leaves no gap.
func Route() *descriptor.Descriptor {
	d := descriptor.Spec[*l3.Route, *route]{
		Name: "route", Prefix: "config/vpp/v2/route/",
		Compile: compileRoute, Message: (*route).routeMessage,
		Equal:        func(have, want *route) bool { return have.path() == want.path() },
		Dependencies: (*route).links,
		Create:       func(w *descriptor.World, r *route) ([]descriptor.Op, error) { return r.sendPath(w, true, true) },
		Delete:       func(w *descriptor.World, r *route) ([]descriptor.Op, error) { return r.sendPath(w, false, true) },
		Update:       replacePath,
		Dumps:        routeDumps,
		Retrieve:     retrieveRoutes,
	}.Descriptor()
	d.Many = true
	return d
}

// RejectRoute describes our RejectRoute: a prefix whose only path rejects packets.
func RejectRoute() *descriptor.Descriptor {
	d := descriptor.Spec[*contivl3.RejectRoute, *route]{
		Name: "reject-route", Prefix: "config/contiv/vpp/v1/reject-route/",
		Compile: compileReject, Message: (*route).rejectMessage,
		Equal: func(have, want *route) bool {
			return have.kind == want.kind && have.last == want.last && have.iface == want.iface && have.nextHop == want.nextHop
		},
		Dependencies: (*route).links,
		Create:       createReject,
		Update: func(w *descriptor.World, _, want *route) ([]descriptor.Op, error) {
			return want.sendPath(w, true, false)
		}, // replaces
		Delete:   deleteReject,
		Dumps:    routeDumps,
		Retrieve: retrieveRoutes,
	}.Descriptor()
	d.Many = true
	return d
}

// deleteReject names the path, so that VPP removes only the rejecting path, not a route that another client put in its place. VPP also aborts
// later if a route is deleted as a whole and added again while cnat has sessions of the address (fib_entry_src_interpose_reactivate, VPP 24.06
// to 26.06).
func deleteReject(w *descriptor.World, r *route) ([]descriptor.Op, error) {
	if r.last && r.taken {
		return nil, nil
	}
	return r.sendPath(w, false, true)
}

func compileRoute(_ string, m *l3.Route) (*route, error) {
	dst, err := descriptor.ParsePrefix("dst_network", m.GetDstNetwork())
	if err != nil {
		return nil, err
	}
	r := &route{vrf: m.GetVrfId(), dst: dst.Masked(), iface: m.GetOutgoingInterface(), gateway: m.GetNextHopAddr(), weight: 1}
	if m.GetNextHopAddr() != "" {
		if r.nextHop, err = descriptor.ParseAddr("next_hop_addr", m.GetNextHopAddr()); err != nil {
			return nil, err
		}
	}
	if w := m.GetWeight(); w > 255 {
		return nil, fmt.Errorf("weight: %d is above 255", w)
	} else if w > 0 {
		r.weight = uint8(w)
	}
	if m.GetPreference() > 255 {
		return nil, fmt.Errorf("preference: %d is above 255", m.GetPreference())
	}
	r.pref = uint8(m.GetPreference())
	return r, r.compileType(m)
}

func (r *route) compileType(m *l3.Route) error {
	switch m.GetType() {
	case l3.Route_DROP:
		if r.nextHop.IsValid() || r.iface != "" {
			return errors.New("type: DROP has neither next_hop_addr nor outgoing_interface")
		}
		r.kind = fib_types.FIB_API_PATH_TYPE_DROP
		return r.onlyInTable0()
	case l3.Route_INTER_VRF:
		r.inter, r.via = true, m.GetViaVrfId()
		if r.iface != "" {
			return errors.New("outgoing_interface: not with type INTER_VRF")
		}
		if r.via == r.vrf {
			return fmt.Errorf("via_vrf_id: %d is the route's own", r.via)
		}
	case l3.Route_INTRA_VRF:
		if m.GetViaVrfId() != 0 {
			return errors.New("via_vrf_id: only with type INTER_VRF")
		}
		if !r.nextHop.IsValid() && r.iface == "" {
			return errors.New("next_hop_addr: neither this nor outgoing_interface is set")
		}
		if r.iface == "" {
			r.via = r.vrf
		}
	default:
		return fmt.Errorf("type: unknown %d", m.GetType())
	}
	if r.nextHop.IsUnspecified() {
		r.nextHop = netip.Addr{}
	}
	if r.nextHop.IsValid() && r.nextHop.Is4() != r.dst.Addr().Is4() {
		return fmt.Errorf("next_hop_addr: %s is of another family than %s", r.nextHop, r.dst)
	}
	return nil
}

func (r *route) routeMessage() *l3.Route {
	m := &l3.Route{VrfId: r.vrf, DstNetwork: r.dst.String(), OutgoingInterface: r.iface, NextHopAddr: r.gateway, Weight: uint32(r.weight), Preference: uint32(r.pref)}
	switch {
	case r.kind == fib_types.FIB_API_PATH_TYPE_DROP:
		m.Type = l3.Route_DROP
	case r.inter:
		m.Type, m.ViaVrfId = l3.Route_INTER_VRF, r.via
	}
	return m
}

func compileReject(_ string, m *contivl3.RejectRoute) (*route, error) {
	dst, err := descriptor.ParsePrefix("dst_network", m.GetDstNetwork())
	if err != nil {
		return nil, err
	}
	r := &route{vrf: m.GetVrfId(), dst: dst.Masked(), weight: 1}
	switch m.GetAction() {
	case contivl3.RejectRoute_UNREACHABLE:
		r.kind = fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH
	case contivl3.RejectRoute_PROHIBIT:
		r.kind = fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT
	case contivl3.RejectRoute_DROP:
		r.kind = fib_types.FIB_API_PATH_TYPE_DROP
	default:
		return nil, fmt.Errorf("action: unknown %d", m.GetAction())
	}
	if m.GetLastResort() {
		if r.kind != fib_types.FIB_API_PATH_TYPE_DROP {
			return nil, fmt.Errorf("last_resort: only with action DROP, not %s", m.GetAction())
		}
		r.last, r.pref = true, lastResort
	}
	if err := r.compileNeighbour(m); err != nil {
		return nil, err
	}
	return r, r.onlyInTable0()
}

// compileNeighbour reads the neighbour that answers in VPP's place.
func (r *route) compileNeighbour(m *contivl3.RejectRoute) (err error) {
	r.iface, r.gateway = m.GetOutgoingInterface(), m.GetNextHopAddr()
	switch {
	case r.iface == "" && r.gateway == "":
		return nil
	case r.iface == "" || r.gateway == "":
		return errors.New("outgoing_interface, next_hop_addr: one of them is empty")
	case r.kind != fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH:
		return fmt.Errorf("next_hop_addr: only with action UNREACHABLE, not %s", m.GetAction())
	}
	r.kind = fib_types.FIB_API_PATH_TYPE_NORMAL
	if r.nextHop, err = descriptor.ParseAddr("next_hop_addr", r.gateway); err == nil && r.nextHop.Is4() != r.dst.Addr().Is4() {
		err = fmt.Errorf("next_hop_addr: %s is of another family than %s", r.nextHop, r.dst)
	}
	return err
}

// onlyInTable0: VPP aborts on a drop, unreach or prohibit path in any other table (SIGSEGV in fib_attached_export_import,
// executed on 24.06 and 25.10).
func (r *route) onlyInTable0() error {
	if r.vrf != 0 {
		return fmt.Errorf("vrf_id: %d: VPP has such routes in table 0 only", r.vrf)
	}
	return nil
}

func (r *route) rejectMessage() *contivl3.RejectRoute {
	m := &contivl3.RejectRoute{VrfId: r.vrf, DstNetwork: r.dst.String(), LastResort: r.last, OutgoingInterface: r.iface, NextHopAddr: r.gateway}
	switch r.kind {
	case fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT:
		m.Action = contivl3.RejectRoute_PROHIBIT
	case fib_types.FIB_API_PATH_TYPE_DROP:
		m.Action = contivl3.RejectRoute_DROP
	}
	return m
}

// links are the interface and the tables of a route.
func (r *route) links() (deps []descriptor.Dependency) {
	if r.iface != "" {
		deps = append(deps, descriptor.Dependency{Key: kv.InterfaceKey(r.iface), Bond: descriptor.Dies})
	}
	return append(deps, r.tables()...)
}

func (r *route) tables() (deps []descriptor.Dependency) {
	if r.vrf != 0 {
		deps = append(deps, descriptor.Dependency{Key: descriptor.VRFKey(r.vrf, r.dst.Addr().Is6())})
	}
	if r.via != 0 && r.via != r.vrf {
		deps = append(deps, descriptor.Dependency{Key: descriptor.VRFKey(r.via, r.dst.Addr().Is6())})
	}
	return deps
}

// lastResort is the preference of a path that VPP uses only if a prefix has no other path.
const lastResort = 255

// sendPath adds or removes the path; without multipath as the only one of its prefix.
//
// A last resort leads to the address of its prefix itself. VPP turns such a path into a drop (fib_table_route_path_fixup, VPP 24.06 to
// 26.06). Next hops without an interface and endpoints of cnat must not resolve by it: see vpp's rules route-next-hop and cnat-cover.
func (r *route) sendPath(w *descriptor.World, add, multipath bool) ([]descriptor.Op, error) {
	p := fib_types.FibPath{SwIfIndex: descriptor.None, TableID: r.via, Weight: r.weight, Preference: r.pref, Type: r.kind}
	if r.dst.Addr().Is6() {
		p.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
	}
	p.Nh.Address = descriptor.ToUnion(r.nextHop)
	if r.last {
		p.Type, p.Nh.Address = fib_types.FIB_API_PATH_TYPE_NORMAL, descriptor.ToUnion(r.dst.Addr())
	}
	if r.iface != "" {
		idx, err := w.Index(r.iface)
		if err != nil {
			return nil, err
		}
		p.SwIfIndex = uint32(idx)
	}
	return []descriptor.Op{{Gone: !add, Call: descriptor.Write(&ip.IPRouteAddDel{
		IsAdd: add, IsMultipath: multipath,
		Route: ip.IPRoute{TableID: r.vrf, Prefix: descriptor.ToPrefix(r.dst), NPaths: 1, Paths: []fib_types.FibPath{p}},
	})}}, nil
}

// replacePath adds the new path first, unless VPP would take it for the old one: VPP compares paths by their destination, so that
// a path with another weight replaces the old one.
func replacePath(w *descriptor.World, have, want *route) ([]descriptor.Op, error) {
	add, err := want.sendPath(w, true, true)
	if err != nil {
		return nil, err
	}
	h, n := have.path(), want.path()
	if h.weight, h.pref = n.weight, n.pref; h == n {
		return add, nil
	}
	del, err := have.sendPath(w, false, true)
	return append(add, del...), err
}

// tableID is a FIB table.
type tableID struct {
	vrf uint32
	v6  bool
}

func (r *route) table() tableID { return tableID{r.vrf, r.dst.Addr().Is6()} }

func (t tableID) String() string {
	return "ip_route_v2_dump " + strconv.FormatUint(uint64(t.vrf), 10) + " " + strconv.FormatBool(t.v6)
}

func routeDumps(_ *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
	seen := map[tableID]bool{}
	c.Each(func(_ string, state any, _ bool) {
		t := state.(*route).table()
		if !seen[t] {
			seen[t] = true
			out = append(out, descriptor.DumpRequest(t.String(), &ip.IPRouteV2Dump{Table: ip.IPTable{TableID: t.vrf, IsIP6: t.v6}}))
		}
	})
	return out
}

// sought is a route to find in a table.
type sought struct {
	*route
	found *route // actual route; nil: none
}

// fromAPI is the source of the routes that VPP's API adds (FIB_SOURCE_API, VPP 24.06 to 26.06). If a prefix has a better source, as cnat's for the addresses of its
// translations, sessions and endpoints, a dump does not show whether the API has a route there: VPP forwards by, and shows, even the paths that the API removed
// last (fib_entry_path_remove: "the source is not the best"). When cnat ends, they end.
const fromAPI = 8

// fromNeighbour is the source of the host route that VPP makes of a neighbour (FIB_SOURCE_ADJ, VPP 24.06 to 26.06). A dump shows a prefix with the paths of its
// best source, and the API is a better one. Such a route looks like that of a pod, but VPP forwards by it only in a subnet of the interface, so it is never the
// agent's.
const fromNeighbour = 15

// retrieveRoutes looks up the candidates only: a FIB is full of foreign routes.
func retrieveRoutes(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	var out []descriptor.Found
	var failed error
	tables := map[tableID]map[prefixKey]*ip.IPRouteV2Details{}
	c.Each(func(key string, state any, wanted bool) {
		r := state.(*route)
		if wanted {
			r.free = true
		} else if c.Wanted(key) != nil {
			return
		}
		t, known := tables[r.table()]
		if !known {
			var err error
			if t, err = routesByPrefix(d, r.table()); err != nil {
				failed = err
			}
			tables[r.table()] = t
		}
		m := t[keyOf(r.dst)]
		if wanted {
			r.taken = false
		}
		if m == nil {
			return
		}
		s := sought{route: r}
		s.comparePaths(w, m.Route.Paths, r.dst.Addr().Is6())
		if m.Route.Src == fromNeighbour {
			s.found = nil
		}
		doubtful := m.Route.Src != fromAPI
		if s.found == nil && wanted && r.last && len(m.Route.Paths) > 0 {
			r.taken, s.found, doubtful = true, r, false
		}
		if s.found != nil {
			if out == nil {
				out = make([]descriptor.Found, 0, len(t)) // the upper bound of findings
			}
			out = append(out, descriptor.Found{Key: key, State: s.found, Doubtful: doubtful})
		}
	})
	if failed != nil {
		return nil, failed
	}
	return out, nil
}

// routesByPrefix has the routes of a table in a dump.
func routesByPrefix(d *descriptor.Dump, t tableID) (map[prefixKey]*ip.IPRouteV2Details, error) {
	routes, err := descriptor.Details[*ip.IPRouteV2Details](d, t.String())
	if err != nil {
		return nil, err
	}
	out := make(map[prefixKey]*ip.IPRouteV2Details, len(routes))
	for _, m := range routes {
		out[keyOf(descriptor.FromPrefix(m.Route.Prefix))] = m
	}
	return out, nil
}

// comparePaths compares the paths that VPP has for the prefix.
func (s *sought) comparePaths(w *descriptor.World, paths []fib_types.FibPath, v6 bool) {
	s.free = s.free && len(paths) == 0
	for i := range paths {
		if s.found != nil {
			return
		}
		if p := fromPath(w, v6, paths[i]); s.leadsTo(w, p) {
			s.found = s.as(p)
		}
	}
}

// as returns the route with the attributes of a path of equal destination; the route itself if none differ.
func (r *route) as(p path) *route {
	if r.kind == p.kind && r.weight == p.weight && r.pref == p.pref {
		return r
	}
	got := *r
	got.kind, got.weight, got.pref = p.kind, p.weight, p.pref
	return &got
}

// prefixKey is a prefix without pointers, for faster hashing.
type prefixKey struct {
	addr [16]byte
	bits uint8
}

func keyOf(p netip.Prefix) prefixKey { return prefixKey{p.Addr().As16(), uint8(p.Bits())} }

// leadsTo reports that a path in VPP is r's: all but weight and preference are equal, or both paths reject.
func (r *route) leadsTo(w *descriptor.World, p path) bool {
	if r.last {
		return p.kind == r.kind && p.pref == r.pref
	}
	if r.kind != fib_types.FIB_API_PATH_TYPE_NORMAL {
		return p.kind == fib_types.FIB_API_PATH_TYPE_DROP || p.kind == fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH || p.kind == fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT
	}
	if r.iface != "" && p.iface == "" {
		return false
	}
	return p.kind == r.kind && p.nextHop == r.nextHop && p.iface == w.Canonical(r.iface) && (p.iface != "" || p.via == r.via)
}

func fromPath(w *descriptor.World, v6 bool, p fib_types.FibPath) path {
	out := path{kind: p.Type, weight: p.Weight, pref: p.Preference, via: p.TableID, nextHop: descriptor.FromUnion(p.Nh.Address, v6)}
	if out.nextHop.IsUnspecified() {
		out.nextHop = netip.Addr{}
	}
	if p.SwIfIndex != descriptor.None {
		out.iface, out.via = w.Name(p.SwIfIndex), 0
	}
	return out
}

// Refuses reports that a wanted state is that of a RejectRoute, and that no other client of VPP has a route to its prefix.
func Refuses(state any) bool {
	r, ok := state.(*route)
	return ok && !r.taken
}
