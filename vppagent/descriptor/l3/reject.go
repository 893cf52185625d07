package l3

import (
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// createReject adds the rejecting path unless another client has a route to the prefix. All users of VPP's API are one source of
// routes: the rejecting path would replace a pod's route, and its removal would delete the route (ip_route_add_del, VPP 24.06).
//
// A last resort is added beside a route that another client adds at the same moment, and stays in place beside such a route.
func createReject(w *descriptor.World, r *route) ([]descriptor.Op, error) {
	add, err := r.sendPath(w, true, r.last)
	r.taken = false
	if err != nil || r.free {
		r.free = false
		return add, err
	}
	var paths []fib_types.FibPath
	return []descriptor.Op{{
		Asks: true, Gone: true, Call: vpp.Call{Msg: &ip.IPRouteLookup{TableID: r.vrf, Exact: 1, Prefix: descriptor.ToPrefix(r.dst)}},
		Refuses: func(reply vpp.Reply) error {
			own := func(p fib_types.FibPath) bool { return fromPath(w, r.dst.Addr().Is6(), p) == r.path() } // VPP may show it although it was removed: fromAPI
			paths = slices.DeleteFunc(routePaths(reply), own)
			if r.last {
				r.taken = len(paths) > 0
				return nil
			}
			r.taken = slices.ContainsFunc(paths, func(p fib_types.FibPath) bool { return p.Type == fib_types.FIB_API_PATH_TYPE_NORMAL })
			if r.taken && r.dst.Bits() == 0 { // no prefix covers it
				return r.foreign()
			}
			return nil
		},
		Then: func(vpp.Reply) []descriptor.Op {
			switch {
			case !r.taken:
				return add
			case r.last:
				return nil
			}
			return r.addUnlessForeign(paths, add)
		},
	}}, nil
}

func (r *route) foreign() error {
	return fmt.Errorf("dst_network: another client of VPP has a route to %s", r.dst)
}

// addUnlessForeign adds the rejecting path if VPP's paths to the prefix are those of the prefix that covers it. Then no client has a route to the prefix: cnat has
// sessions or a translation of the address, and its entry in the FIB forwards as the covering one (fib_entry_src_interpose_activate). The sessions of a
// Service that is deleted and made again would keep its reject route away for ever, because the new translation takes the entry over. A covering route without a
// next hop leads to the address itself.
func (r *route) addUnlessForeign(paths []fib_types.FibPath, add []descriptor.Op) []descriptor.Op {
	cover := netip.PrefixFrom(r.dst.Addr(), r.dst.Bits()-1).Masked()
	return []descriptor.Op{{
		Asks: true, Call: vpp.Call{Msg: &ip.IPRouteLookup{TableID: r.vrf, Prefix: descriptor.ToPrefix(cover)}},
		Refuses: func(reply vpp.Reply) error {
			covering := routePaths(reply)
			for i := range covering {
				if covering[i].Nh.Address == (ip_types.AddressUnion{}) {
					covering[i].Nh.Address = ip_types.NewAddress(r.dst.Addr().AsSlice()).Un
				}
			}
			if r.taken = !slices.Equal(paths, covering); r.taken {
				return r.foreign()
			}
			return nil
		},
		Then: func(vpp.Reply) []descriptor.Op { return add },
	}}
}

// routePaths are the paths that a lookup has found.
func routePaths(reply vpp.Reply) []fib_types.FibPath {
	m, ok := reply.Msg.(*ip.IPRouteLookupReply)
	if !ok || m.Retval != 0 {
		return nil
	}
	return m.Route.Paths
}
