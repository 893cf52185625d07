package translation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/serving"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Lookup is a question for VPP's FIB: the route of exactly this prefix, or the longest one that covers it.
type Lookup struct {
	Prefix netip.Prefix
	Exact  bool
}

// Whole is the route of exactly one address.
func Whole(a netip.Addr) Lookup { return Lookup{netip.PrefixFrom(a, a.BitLen()), true} }

// Route is an answer. The zero value: VPP has no such route.
type Route struct {
	// Kind is forwards, drops, rejects, or local (the packets are for VPP itself).
	Kind string
	// Interface is the interface of the first path that has one.
	Interface uint32
	Known     bool // Interface is set
	Via       netip.Addr
	Bits      int // of the prefix that VPP found
}

// The kinds of routes.
const (
	Forwards = "forwards"
	Drops    = "drops"
	Rejects  = "rejects"
	Local    = "local"
)

var (
	default4 = netip.MustParsePrefix("0.0.0.0/0") // read only
	default6 = netip.MustParsePrefix("::/0")      // read only
)

// lookUp asks for all routes that matter, and once more for next hops without an interface.
func (s *State) lookUp(ctx context.Context, do dump.Do, node *serving.Node) error {
	wanted := map[Lookup]bool{{default4, true}: true, {default6, true}: true}
	for _, a := range node.Own {
		wanted[Whole(a)] = true
	}
	for a := range node.Rejecting {
		wanted[Whole(a)] = true
	}
	for _, p := range node.Remote {
		wanted[Lookup{p.Masked(), false}] = true
	}
	for _, p := range node.Dropping {
		wanted[Lookup{p, true}] = true
	}
	for i := range s.Mappings {
		for _, t := range s.Mappings[i].Targets {
			if !node.Occupied[t.At.Addr()] && !t.Pad() {
				wanted[Lookup{Whole(t.At.Addr()).Prefix, false}] = true
			}
		}
	}
	if err := s.askRoutes(ctx, do, wanted); err != nil {
		return err
	}
	again := map[Lookup]bool{}
	for l, r := range s.Routes {
		if via := (Lookup{Whole(r.Via).Prefix, false}); r.Kind == Forwards && !r.Known && r.Via.IsValid() && l != via {
			again[via] = true
		}
	}
	if err := s.askRoutes(ctx, do, again); err != nil {
		return err
	}
	for l, r := range s.Routes {
		if hop := s.Routes[Lookup{Whole(r.Via).Prefix, false}]; r.Kind == Forwards && !r.Known && r.Via.IsValid() && hop.Known {
			r.Interface, r.Known = hop.Interface, true
			s.Routes[l] = r
		}
	}
	return nil
}

func (s *State) askRoutes(ctx context.Context, do dump.Do, wanted map[Lookup]bool) error {
	var calls []vpp.Call
	var order []Lookup
	for l := range wanted {
		m := &ip.IPRouteLookup{Prefix: descriptor.ToPrefix(l.Prefix)}
		if l.Exact {
			m.Exact = 1
		}
		calls, order = append(calls, vpp.Call{Msg: m}), append(order, l)
	}
	for i, r := range do(ctx, calls...) {
		var refused *vpp.Retval
		if errors.As(r.Err, &refused) {
			continue // no such route
		}
		if r.Err != nil {
			return fmt.Errorf("look up %s in vpp: %w", order[i].Prefix, r.Err)
		}
		if m, ok := r.Msg.(*ip.IPRouteLookupReply); ok {
			s.Routes[order[i]] = routeOf(m)
		}
	}
	return nil
}

func routeOf(m *ip.IPRouteLookupReply) Route {
	out := Route{Kind: Drops, Bits: int(m.Route.Prefix.Len)}
	for _, p := range m.Route.Paths {
		switch p.Type {
		case fib_types.FIB_API_PATH_TYPE_DROP:
			continue
		case fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH, fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT:
			out.Kind = Rejects
			continue
		case fib_types.FIB_API_PATH_TYPE_LOCAL:
			out.Kind = Local
		default:
			out.Kind = Forwards
		}
		if hop := descriptor.FromUnion(p.Nh.Address, p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6); !hop.IsUnspecified() && !out.Via.IsValid() {
			out.Via = hop
		}
		if p.SwIfIndex != descriptor.None && !out.Known {
			out.Interface, out.Known = p.SwIfIndex, true
		}
	}
	return out
}

// Uplink is the interface of VPP's default route.
func (s *State) Uplink() (index uint32, ok bool) {
	for _, p := range []netip.Prefix{default4, default6} {
		if r := s.Routes[Lookup{p, true}]; r.Kind == Forwards && r.Known {
			return r.Interface, true
		}
	}
	return 0, false
}

// NodeInterfaces are the interfaces that lead to other nodes' pods, to hosts outside, and to the node's network stack.
func (s *State) NodeInterfaces(node *serving.Node) map[uint32]bool {
	out := map[uint32]bool{}
	put := func(l Lookup) {
		if r := s.Routes[l]; (r.Kind == Forwards || r.Kind == Local) && r.Known && (r.Bits > 0 || l.Exact) {
			out[r.Interface] = true
		}
	}
	put(Lookup{default4, true})
	put(Lookup{default6, true})
	for _, a := range node.Own {
		put(Whole(a))
	}
	for _, p := range node.Remote {
		put(Lookup{p.Masked(), false})
	}
	return out
}

// showNodes asks for the graph nodes of the interfaces that lead to clients and endpoints.
func (s *State) showNodes(ctx context.Context, do dump.Do, state *dump.State, node *serving.Node) error {
	indices := s.NodeInterfaces(node)
	for _, p := range node.Pods {
		if i, ok := state.Behind[p.Addr]; ok {
			indices[i] = true
		}
	}
	var calls []vpp.Call
	var order []uint32
	for index := range indices {
		if i := state.Interfaces[index]; i != nil {
			calls, order = append(calls, vpp.Call{Msg: &vlib.CliInband{Cmd: "show interface features " + i.Name}}), append(order, index)
		}
	}
	calls = append(calls, vpp.Call{Msg: &vlib.CliInband{Cmd: "show cnat snat-policy"}})
	for i, r := range do(ctx, calls...) {
		m, ok := r.Msg.(*vlib.CliInbandReply)
		if i == len(order) {
			if ok && r.Err == nil {
				s.readHairpins(m.Reply)
			}
			continue
		}
		var refused *vpp.Retval
		if r.Err != nil && !errors.As(r.Err, &refused) {
			return fmt.Errorf("read vpp: %w", r.Err)
		}
		counts := map[string]int{}
		if ok && r.Err == nil {
			for line := range strings.Lines(m.Reply) {
				if word := strings.TrimSpace(line); word != "" && !strings.HasSuffix(word, ":") && !strings.Contains(word, " ") {
					counts[word]++
				}
			}
			s.Nodes[order[i]] = counts
		}
	}
	return nil
}

// readHairpins reads the names below "k8s pod interfaces:" of `show cnat snat-policy` (VPP 24.06 to 26.06).
func (s *State) readHairpins(text string) {
	within := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasSuffix(line, "interfaces:"):
			within = line == "k8s pod interfaces:"
		case within && line != "":
			s.Hairpins[line] = true
		}
	}
}

// UplinkOf reads the addresses of VPP's interface to other nodes and hosts outside, with their networks.
func UplinkOf(ctx context.Context, do dump.Do) ([]netip.Prefix, error) {
	s := &State{Routes: map[Lookup]Route{}}
	if err := s.lookUp(ctx, do, &serving.Node{}); err != nil {
		return nil, err
	}
	index, ok := s.Uplink()
	if !ok {
		return nil, nil
	}
	return addressesOf(ctx, do, index)
}

func addressesOf(ctx context.Context, do dump.Do, index uint32) (list []netip.Prefix, err error) {
	call := func(v6 bool) vpp.Call {
		return vpp.Call{Dump: true, Msg: &ip.IPAddressDump{SwIfIndex: interface_types.InterfaceIndex(index), IsIPv6: v6}}
	}
	for _, r := range do(ctx, call(false), call(true)) {
		if r.Err != nil {
			return nil, fmt.Errorf("read vpp: addresses of interface %d: %w", index, r.Err)
		}
		for _, m := range r.Details {
			if d, ok := m.(*ip.IPAddressDetails); ok {
				list = append(list, descriptor.FromPrefix(ip_types.Prefix(d.Prefix)))
			}
		}
	}
	return list, nil
}
