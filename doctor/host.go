package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// hostFacts are VPP's answers about the link to the node's own network stack.
type hostFacts struct {
	routes     []vpp.Reply // to each of Config.HostAddresses, in order
	interfaces bool        // VPP has Config.HostInterface
	neighbors  vpp.Reply   // neighbours on that interface, IPv4
}

const hostLink = "host link"

// askHost asks about the host link. It needs the answer about interfaces.
func (f *facts) askHost(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) {
	index, ok := f.hostIndex()
	f.host.interfaces = ok
	replies := do(ctx, hostQuestions(f.cfg.HostAddresses, index)...)
	f.host.neighbors, f.host.routes = replies[0], replies[1:]
}

// hostQuestions returns the requests for the neighbours on an interface and for the routes to addresses.
func hostQuestions(addrs []netip.Addr, index interface_types.InterfaceIndex) []vpp.Call {
	calls := []vpp.Call{{Dump: true, Msg: &ip_neighbor.IPNeighborDump{SwIfIndex: index}}}
	for _, a := range addrs {
		p := ip_types.Prefix{Address: ip_types.Address{Un: ip_types.AddressUnionIP4(a.As4())}, Len: 32}
		calls = append(calls, vpp.Call{Msg: &ip.IPRouteLookup{Prefix: p}})
	}
	return calls
}

func (f *facts) hostIndex() (interface_types.InterfaceIndex, bool) {
	for _, d := range f.replies[askInterfaces].Details {
		i, ok := d.(*interfaces.SwInterfaceDetails)
		if ok && f.cfg.HostInterface != "" && (i.InterfaceName == f.cfg.HostInterface || i.Tag == f.cfg.HostInterface) {
			return i.SwIfIndex, true
		}
	}
	return ^interface_types.InterfaceIndex(0), false
}

// hostLink checks the link by which the node's own processes reach pods, if NAT44 gives the node's address to pods.
func (f *facts) hostLink() []Check {
	if f.cfg.CNAT || f.cfg.NoPolicies {
		return nil
	}
	c := Check{Name: hostLink, Verdict: OK}
	const probes = "the kubelet's probes do not reach pods that policies isolate"
	switch {
	case len(f.cfg.HostAddresses) > 0:
		return f.hostRoutes()
	case f.cfg.HostInterface == "":
		c.Verdict, c.Found = Note, "neither --host-address nor --host-interface is set"
		c.Facts = Facts{"set": false}
		c.Consequence = "NAT44 also gives the node's address to pods, so policies do not trust it: without one of these two flags of run, " + probes
		c.Command = "contiv-agent run --host-address 169.254.1.2, an address of the node's kernel on its link to VPP that nothing else uses"
	case !f.host.interfaces:
		c.Facts = Facts{"interface": f.cfg.HostInterface, "exists": false}
		c.Verdict, c.Found = Missing, "VPP has no interface "+f.cfg.HostInterface
		c.Consequence = "without a link to the node's kernel " + probes
		c.Command = "contiv-agent run --host-interface with the name of the tap or veth to the node's kernel (vppctl show interface)"
	default:
		return []Check{f.hostNeighbors(c, probes)}
	}
	return []Check{c}
}

// hostNeighbors checks the addresses that the agent would use as the node's own.
func (f *facts) hostNeighbors(c Check, probes string) Check {
	if err := f.host.neighbors.Err; err != nil {
		return unknown(hostLink, err.Error())
	}
	var addrs []string
	for _, d := range f.host.neighbors.Details {
		if n, ok := d.(*ip_neighbor.IPNeighborDetails); ok {
			addrs = append(addrs, n.Neighbor.IPAddress.String())
		}
	}
	c.Facts = Facts{"interface": f.cfg.HostInterface, "exists": true, "addresses": namesIn(addrs)}
	if c.Found = f.cfg.HostInterface + " with " + strings.Join(addrs, ", "); len(addrs) == 0 {
		c.Verdict, c.Found = Missing, "VPP has no IPv4 neighbour on "+f.cfg.HostInterface
		c.Consequence = "the agent does not know the address that the node's own processes send from: " + probes
		c.Command = "contiv-agent run --host-address with the address of the node's kernel on that link"
	}
	return c
}

// hostRoutes checks VPP's routes to the host addresses.
func (f *facts) hostRoutes() (out []Check) {
	for i, a := range f.cfg.HostAddresses {
		c := Check{Name: hostLink + " " + a.String(), Verdict: OK}
		m, ok := f.host.routes[i].Msg.(*ip.IPRouteLookupReply)
		if err := f.host.routes[i].Err; err != nil && !isNoRoute(err) || err == nil && !ok {
			out = append(out, unknown(c.Name, fmt.Sprint(err)))
			continue
		}
		via := ""
		if ok && m.Route.Prefix.Len > 0 {
			via = f.outInterface(m.Route.Paths)
		}
		c.Facts = Facts{"address": a.String(), "via": via}
		if c.Found = "via " + via; via == "" {
			c.Verdict, c.Found = Missing, "VPP has no route to it but the default route"
			c.Consequence = "answers of pods to the node's own processes, as to the kubelet's probes, are sent to the uplink"
			c.Command = "vppctl ip route add " + a.String() + "/32 via <the interface to the node's kernel>"
		}
		out = append(out, c)
	}
	return out
}

// outInterface returns the name of the first path's interface.
func (f *facts) outInterface(paths []fib_types.FibPath) string {
	for _, p := range paths {
		if p.Type == fib_types.FIB_API_PATH_TYPE_NORMAL && p.SwIfIndex != ^uint32(0) {
			return f.interfaceName(p.SwIfIndex)
		}
	}
	return ""
}

func isNoRoute(err error) bool { return strings.Contains(err.Error(), api.NO_SUCH_ENTRY.Error()) }
