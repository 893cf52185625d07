package vpp

import (
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
)

// routeKey is one prefix of one table.
type routeKey struct {
	table  uint32
	prefix netip.Prefix // masked
}

// fibRoute has the properties of a route that the rules need.
type fibRoute struct {
	paths   int
	special int          // number of paths that drop, or answer unreachable or prohibited
	hops    []netip.Addr // next hops without interface, resolved in table 0; never modified in place
}

func (r fibRoute) nothing() bool { return r.paths == 0 }

// routeChange is the effect of a message on a route.
type routeChange struct {
	add, multipath bool
	route          fibRoute // what it adds, removes or sets
}

func (c routeChange) applyTo(r fibRoute) fibRoute {
	switch {
	case !c.multipath && c.add:
		return c.route
	case !c.multipath:
		return fibRoute{}
	case c.add:
		return fibRoute{r.paths + c.route.paths, r.special + c.route.special, slices.Concat(r.hops, c.route.hops)}
	case r.paths <= c.route.paths:
		return fibRoute{}
	}
	hops := slices.DeleteFunc(slices.Clone(r.hops), func(h netip.Addr) bool { return slices.Contains(c.route.hops, h) })
	return fibRoute{r.paths - c.route.paths, max(0, r.special-c.route.special), hops}
}

// routeOp returns the effect of msg on a route; false: no effect.
func routeOp(msg api.Message) (routeKey, routeChange, bool) {
	switch m := msg.(type) {
	case *ip.IPRouteAddDel:
		p := toPrefix(m.Route.Prefix)
		return routeKey{m.Route.TableID, p}, routeChange{m.IsAdd, m.IsMultipath, routeOf(p, m.Route.Paths)}, true
	case *ip.IPRouteAddDelV2:
		p := toPrefix(m.Route.Prefix)
		return routeKey{m.Route.TableID, p}, routeChange{m.IsAdd, m.IsMultipath, routeOf(p, m.Route.Paths)}, true
	}
	return routeKey{}, routeChange{}, false
}

func toPrefix(p ip_types.Prefix) netip.Prefix {
	addr := netip.AddrFrom4(p.Address.Un.GetIP4())
	if p.Address.Af == ip_types.ADDRESS_IP6 {
		addr = netip.AddrFrom16(p.Address.Un.GetIP6())
	}
	return netip.PrefixFrom(addr, int(p.Len)).Masked()
}

// routeOf returns the route to a prefix. A path to the prefix's own address is a harmless drop
// (fib_table_route_path_fixup).
func routeOf(prefix netip.Prefix, paths []fib_types.FibPath) fibRoute {
	r := fibRoute{paths: len(paths)}
	for _, p := range paths {
		if special(p) {
			r.special++
		}
		if h, ok := recursive(p); ok && h != prefix.Addr() {
			r.hops = append(r.hops, h)
		}
	}
	return r
}

// special reports whether a path forwards nothing: drop, unreachable or prohibited. VPP stores sw_if_index 0 in such a path
// whatever the message has (fib_api_path_decode).
func special(p fib_types.FibPath) bool {
	switch p.Type {
	case fib_types.FIB_API_PATH_TYPE_DROP, fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH, fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT:
		return true
	}
	return false
}

// recursive returns the next hop of a path without interface, which VPP resolves, here in table 0.
func recursive(p fib_types.FibPath) (netip.Addr, bool) {
	if p.Type != fib_types.FIB_API_PATH_TYPE_NORMAL || p.SwIfIndex != ^uint32(0) || p.TableID != 0 {
		return netip.Addr{}, false
	}
	var addr netip.Addr
	switch p.Proto {
	case fib_types.FIB_API_PATH_NH_PROTO_IP4:
		addr = netip.AddrFrom4(p.Nh.Address.GetIP4())
	case fib_types.FIB_API_PATH_NH_PROTO_IP6:
		addr = netip.AddrFrom16(p.Nh.Address.GetIP6())
	}
	return addr, addr.IsValid() && !addr.IsUnspecified()
}

// lastResort is the preference of the agent's routes of last resort, whose next hop is the address of the prefix itself.
const lastResort = 255

// routes is the shadow of the FIB's routes; connected prefixes are known from dumps only.
type routes struct {
	shadow[routeKey, fibRoute, routeChange]
	// hopping holds the keys that ever had recursive next hops, so that checks need not scan all routes.
	hopping map[routeKey]struct{}
	// flight counts unanswered messages by key; risky counts the keys among them with a next hop.
	flight map[routeKey]flight
	risky  int
}

// flight counts the outstanding messages of one key.
type flight struct {
	n     int
	risky bool
}

// sent records an outstanding message.
func (r *routes) sent(k routeKey, c routeChange) {
	r.sendOp(k, c)
	r.noteRoute(k, c.route)
	if r.flight == nil {
		r.flight = map[routeKey]flight{}
	}
	f := r.flight[k]
	f.n++
	if !f.risky && r.holdsHop(k.prefix) {
		f.risky = true
		r.risky++
	}
	r.flight[k] = f
}

func (r *routes) holdsHop(p netip.Prefix) bool {
	for key := range r.hopping {
		if slices.ContainsFunc(r.expectedState(key).hops, p.Contains) {
			return true
		}
	}
	return false
}

// answered records the answer to the oldest message about k.
func (r *routes) answered(k routeKey, ok bool) {
	r.settleOp(k, ok)
	f := r.flight[k]
	if f.n--; f.n > 0 {
		r.flight[k] = f
		return
	}
	delete(r.flight, k)
	if f.risky {
		r.risky--
	}
}

// hinges reports whether an outstanding message decides how a next hop resolves, if msg makes that matter.
func (r *routes) hinges(c routeChange) bool {
	if len(r.hopping) > 0 && r.risky > 0 {
		return true
	}
	if len(c.route.hops) == 0 {
		return false
	}
	for k := range r.flight {
		if slices.ContainsFunc(c.route.hops, k.prefix.Contains) {
			return true
		}
	}
	return false
}

func (r *routes) noteRoute(k routeKey, v fibRoute) {
	if len(v.hops) == 0 {
		return
	}
	if r.hopping == nil {
		r.hopping = map[routeKey]struct{}{}
	}
	r.hopping[k] = struct{}{}
}

// dumped records all routes of one table and family.
func (r *routes) dumped(req *ip.IPRouteV2Dump, details []api.Message) {
	seen := make(map[routeKey]fibRoute, len(details))
	for _, d := range details {
		if d, ok := d.(*ip.IPRouteV2Details); ok {
			k := routeKey{d.Route.TableID, toPrefix(d.Route.Prefix)}
			v := routeOf(k.prefix, d.Route.Paths)
			if was, _ := r.flying(k); was.special == 0 && len(d.Route.Paths) == 1 && harmlessDrop(k.prefix, d.Route.Paths[0]) {
				v.special = 0
			}
			seen[k] = v
			r.noteRoute(k, v)
		}
	}
	for k, c := range r.cells {
		if _, ok := seen[k]; !ok && k.table == req.Table.TableID && k.prefix.Addr().Is6() == req.Table.IsIP6 && c.acked.paths > 0 {
			r.setState(k, fibRoute{})
		}
	}
	for k, v := range seen {
		r.setState(k, v)
	}
}

// harmlessDrop reports whether a drop route is VPP's own or one of the agent's routes of last resort. The dump does not
// distinguish them from other drop routes of the API.
func harmlessDrop(p netip.Prefix, path fib_types.FibPath) bool {
	if path.Type != fib_types.FIB_API_PATH_TYPE_DROP {
		return false
	}
	if path.Preference == lastResort {
		return true
	}
	return p.Bits() == 0 || p.Addr().Is4() && p.Bits() == 4 && (p.Addr().As4()[0] == 224 || p.Addr().As4()[0] == 240)
}

// deadly returns a next hop that a special route would cover after the change. A host route to the next hop itself, made by
// the API, prevents that. The change concerns only next hops within its prefix, besides its own.
func (r *routes) deadly(key routeKey, after fibRoute) (netip.Addr, netip.Prefix, bool) {
	get := func(k routeKey) fibRoute {
		if k == key {
			return after
		}
		return r.expectedState(k)
	}
	for _, h := range after.hops {
		if p, ok := cover(get, h); ok {
			return h, p, true
		}
	}
	for k := range r.hopping {
		if k == key || key.table != 0 {
			continue
		}
		for _, h := range r.expectedState(k).hops {
			if !key.prefix.Contains(h) {
				continue
			}
			if p, ok := cover(get, h); ok {
				return h, p, true
			}
		}
	}
	return netip.Addr{}, netip.Prefix{}, false
}

// cover returns the special route by which a next hop would be resolved.
func cover(get func(routeKey) fibRoute, h netip.Addr) (netip.Prefix, bool) {
	for bits := h.BitLen(); bits >= 0; bits-- {
		p, err := h.Prefix(bits)
		if err != nil {
			return p, false
		}
		if r := get(routeKey{0, p}); r.paths > 0 {
			return p, r.special > 0 && bits < h.BitLen()
		}
	}
	return netip.Prefix{}, false
}

func routeRules() []Rule {
	messages := []string{"ip_route_add_del", "ip_route_add_del_v2"}
	return []Rule{
		{
			Name: "route-special-table", Messages: messages,
			Source: "fib_attached_export.c fib_attached_export_import, VPP 24.06 and 25.10",
			Harm:   "VPP takes a drop, unreachable or prohibited path for one attached to local0, which has no other table: SIGSEGV",
			judge: func(_ *Guard, msg api.Message) string {
				if k, c, _ := routeOp(msg); c.add && k.table != 0 && c.route.special > 0 {
					return fmt.Sprintf("drop, unreachable or prohibited path in table %d: only table 0 can have it", k.table)
				}
				return ""
			},
		}, {
			Name: "route-next-hop", Messages: messages, Stateful: true,
			Source: "fib_entry_src_rr.c fib_entry_src_rr_resolve_via_connected, VPP 24.06 and 25.10",
			Harm:   "a next hop without interface that resolves by a drop, unreachable or prohibited route: SIGSEGV",
			judge: func(g *Guard, msg api.Message) string {
				k, c, _ := routeOp(msg)
				if len(g.routes.hopping) == 0 && len(c.route.hops) == 0 {
					return ""
				}
				if h, p, ok := g.routes.deadly(k, c.applyTo(g.routes.expectedState(k))); ok {
					return fmt.Sprintf("next hop %s would resolve by %s, which forwards nothing: name the interface, or a route to it", h, p)
				}
				return ""
			},
			hinges: func(g *Guard, msg api.Message) bool {
				_, c, _ := routeOp(msg)
				return g.routes.hinges(c)
			},
		},
	}
}
