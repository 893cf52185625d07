package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	// RouteProtocol marks our routes: a number that is not assigned (/etc/iproute2/rt_protos).
	RouteProtocol = 202
	// metric6 is the kernel's metric for an IPv6 route without one (IP6_RT_PRIO_USER).
	metric6 = 1024
)

// PutRoute makes a route of the main table or removes it; the removal of an absent route succeeds.
type PutRoute struct {
	Message
	Add       bool   `binapi:"bool,name=is_add"`
	Namespace string `binapi:"string,name=namespace"`
	Link      string `binapi:"string,name=link"`
	Dst       string `binapi:"string,name=dst"`
	Via       string `binapi:"string,name=via"` // "": on the link
	Metric    uint32 `binapi:"u32,name=metric"`
	Scope     uint8  `binapi:"u8,name=scope"` // the kernel's number
}

// GetMessageName is "route_put".
func (*PutRoute) GetMessageName() string { return "route_put" }

func (r *PutRoute) do(h *handles) ([]api.Message, error) {
	nl, l, err := h.link(r.Namespace, r.Link)
	if err != nil {
		if none(err) && !r.Add {
			err = nil
		}
		return nil, err
	}
	dst, err := netip.ParsePrefix(r.Dst)
	if err != nil {
		return nil, err
	}
	route := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: toNet(dst), Gw: net.ParseIP(r.Via), Priority: int(r.Metric), Protocol: RouteProtocol,
		Scope: netlink.Scope(r.Scope), Table: unix.RT_TABLE_MAIN,
	}
	if r.Add {
		return nil, Wrap("add a route to "+r.Dst, nl.RouteAdd(route))
	}
	if err = nl.RouteDel(route); errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return nil, Wrap("remove the route to "+r.Dst, err)
}

// ListRoutes asks for our routes of a namespace. A namespace there is not has none.
type ListRoutes struct {
	Message
	Namespace string `binapi:"string,name=namespace"`
}

// GetMessageName is "route_list".
func (*ListRoutes) GetMessageName() string { return "route_list" }

func (r *ListRoutes) do(h *handles) ([]api.Message, error) {
	nl, err := h.handleOf(r.Namespace)
	if none(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := nl.names()
	if err != nil {
		return nil, err
	}
	routes, err := nl.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: RouteProtocol, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	out := make([]api.Message, 0, len(routes))
	for _, k := range routes {
		m := &PutRoute{Namespace: r.Namespace, Link: names[k.LinkIndex], Metric: uint32(k.Priority), Scope: uint8(k.Scope)}
		dst, ok := fromNet(k.Dst)
		if !ok {
			dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if k.Family == netlink.FAMILY_V6 {
				dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
		}
		if m.Dst = dst.String(); k.Gw != nil {
			m.Via = k.Gw.String()
		}
		out = append(out, m)
	}
	return out, nil
}

// names are the names of links by index.
func (h *handle) names() (map[int]string, error) {
	links, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	out := make(map[int]string, len(links))
	for _, l := range links {
		out[l.Attrs().Index] = l.Attrs().Name
	}
	return out, nil
}

// route is a route of the host.
type route struct {
	iface  string
	dst    netip.Prefix
	via    netip.Addr // invalid: on the link
	metric uint32
	scope  l3.Route_Scope
	text   [2]string // destination and gateway in the message's form
}

// Route describes ligato's Route of the host, in the main table of its interface's namespace. Our routes carry our protocol
// number; the agent ignores foreign ones, and an equal foreign route keeps ours out.
func Route() *descriptor.Descriptor {
	return descriptor.Spec[*l3.Route, *route]{
		Name: "linux-route", Prefix: "config/linux/l3/v2/route/",
		Compile: compileRoute,
		Message: func(r *route) *l3.Route {
			return &l3.Route{OutgoingInterface: r.iface, DstNetwork: r.text[0], GwAddr: r.text[1], Metric: r.metric, Scope: r.scope}
		},
		Equal: func(have, want *route) bool {
			return have.via == want.via && have.metric == want.metric && have.kernelScope() == want.kernelScope()
		},
		Dependencies: func(r *route) []descriptor.Dependency {
			deps := []descriptor.Dependency{{Key: kv.LinuxInterfaceKey(r.iface)}}
			if r.via.IsValid() { // the route to the gateway may be ours, too
				to := &l3.Route{OutgoingInterface: r.iface, DstNetwork: netip.PrefixFrom(r.via, r.via.BitLen()).String()}
				deps = append(deps, descriptor.Dependency{Key: kv.Key(to), Loose: true})
			}
			return deps
		},
		Create: func(w *descriptor.World, r *route) ([]descriptor.Op, error) { return r.putRoute(w, true) },
		Delete: func(w *descriptor.World, r *route) ([]descriptor.Op, error) { return r.putRoute(w, false) },
		Dumps: func(w *descriptor.World, c descriptor.Candidates) []descriptor.Request {
			return perNamespace(w, c, func(s any) string { return s.(*route).iface }, routesOf)
		},
		Retrieve: retrieveRoutes,
	}.Descriptor()
}

func routesOf(namespace string) descriptor.Request {
	return descriptor.Request{ID: "route_list " + namespace, Call: vpp.Call{Dump: true, Msg: &ListRoutes{Namespace: namespace}}}
}

// perNamespace asks once for each namespace of the candidates' interfaces.
func perNamespace(w *descriptor.World, c descriptor.Candidates, ifaceOf func(any) string, request func(string) descriptor.Request) (out []descriptor.Request) {
	seen := map[string]bool{}
	c.Each(func(_ string, state any, _ bool) {
		if l, ok := hostLinksOf(w)[ifaceOf(state)]; ok && !seen[l.namespace] {
			seen[l.namespace] = true
			out = append(out, request(l.namespace))
		}
	})
	return out
}

func compileRoute(_ string, m *l3.Route) (*route, error) {
	r := &route{iface: m.GetOutgoingInterface(), metric: m.GetMetric(), scope: m.GetScope(), text: [2]string{m.GetDstNetwork(), m.GetGwAddr()}}
	if r.iface == "" {
		return nil, errors.New("outgoing_interface: empty")
	}
	var err error
	if r.dst, err = netip.ParsePrefix(m.GetDstNetwork()); err != nil {
		return nil, fmt.Errorf("dst_network: %q is no address with prefix length", m.GetDstNetwork())
	}
	r.dst = r.dst.Masked()
	if s := m.GetGwAddr(); s != "" {
		if r.via, err = netip.ParseAddr(s); err != nil {
			return nil, fmt.Errorf("gw_addr: %q is no address", s)
		}
		if r.via.Is4() != r.dst.Addr().Is4() {
			return nil, fmt.Errorf("gw_addr: %s is of another family than %s", r.via, r.dst)
		}
	}
	if _, ok := l3.Route_Scope_name[int32(r.scope)]; !ok {
		return nil, fmt.Errorf("scope: unknown %d", r.scope)
	}
	if r.via.IsValid() && (r.scope == l3.Route_LINK || r.scope == l3.Route_HOST) {
		return nil, fmt.Errorf("scope: %s has no gw_addr", r.scope)
	}
	return r, nil
}

// kernelScope is the kernel's number of the scope; IPv6 has none.
func (r *route) kernelScope() uint8 {
	switch {
	case r.dst.Addr().Is6():
		return unix.RT_SCOPE_UNIVERSE
	case r.scope == l3.Route_SITE:
		return unix.RT_SCOPE_SITE
	case r.scope == l3.Route_HOST:
		return unix.RT_SCOPE_HOST
	case r.scope == l3.Route_LINK, r.scope == l3.Route_UNDEFINED && !r.via.IsValid():
		return unix.RT_SCOPE_LINK
	}
	return unix.RT_SCOPE_UNIVERSE
}

func (r *route) putRoute(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	l, ok := hostLinksOf(w)[r.iface]
	if !ok {
		return nil, fmt.Errorf("interface %q is not on the host", r.iface)
	}
	m := &PutRoute{Add: add, Namespace: l.namespace, Link: l.name, Dst: r.dst.String(), Metric: r.metric, Scope: r.kernelScope()}
	if r.via.IsValid() {
		m.Via = r.via.String()
	}
	return []descriptor.Op{{Call: vpp.Call{Msg: m}}}, nil
}

// retrieveRoutes finds the candidates. If several of our routes lead to the same destination, it returns the one with the wanted metric.
func retrieveRoutes(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, err error) {
	c.Each(func(key string, state any, wanted bool) {
		r := state.(*route)
		l, ok := hostLinksOf(w)[r.iface]
		if !ok || !wanted && c.Wanted(key) != nil && found(out, key) {
			return
		}
		all, failed := descriptor.Details[*PutRoute](d, routesOf(l.namespace).ID)
		if failed != nil {
			err = failed
			return
		}
		var got *route
		for _, m := range all {
			if m.Link != l.name || m.Dst != r.dst.String() {
				continue
			}
			if is := r.as(m); got == nil || is.metric == r.metric {
				got = is
			}
		}
		if got != nil {
			out = append(out, descriptor.Found{Key: key, State: got})
		}
	})
	return out, err
}

// as returns the kernel's route, in the spelling of r.
func (r *route) as(m *PutRoute) *route {
	out := &route{iface: r.iface, dst: r.dst, metric: m.Metric, scope: r.scope, text: r.text}
	if m.Via != "" {
		out.via, _ = netip.ParseAddr(m.Via)
	}
	if r.metric == 0 && m.Metric == metric6 && r.dst.Addr().Is6() {
		out.metric = 0
	}
	if m.Scope != out.kernelScope() {
		out.scope = map[uint8]l3.Route_Scope{
			unix.RT_SCOPE_UNIVERSE: l3.Route_GLOBAL, unix.RT_SCOPE_SITE: l3.Route_SITE, unix.RT_SCOPE_LINK: l3.Route_LINK, unix.RT_SCOPE_HOST: l3.Route_HOST,
		}[m.Scope]
	}
	return out
}
