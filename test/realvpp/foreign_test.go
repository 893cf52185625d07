package realvpp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
)

// foreign configures both VPPs of a node as another API client would.
func (s *script) foreign(args []string) error {
	w := s.nodes[args[0]]
	if w == nil {
		return fmt.Errorf("there is no node %q", args[0])
	}
	if args[1] == "route" {
		p, err := netip.ParsePrefix(args[2])
		r := sim.Route{Prefix: p, Paths: []sim.Path{{Interface: args[3]}}}
		if err == nil {
			err = errors.Join(w.sim.AddRoute(r), w.lab.AddRoute(r))
		}
		return err
	}
	proto, err := model.ParseProtocol(strings.ToUpper(args[2]))
	if err != nil {
		return err
	}
	var addrs []netip.AddrPort
	for _, text := range args[3:] {
		a, err := netip.ParseAddrPort(text)
		if err != nil {
			return err
		}
		addrs = append(addrs, a)
	}
	var msg api.Message
	switch args[1] {
	case "map":
		msg = &nat44_ed.Nat44AddDelStaticMappingV2{
			IsAdd: true, Protocol: uint8(proto), ExternalSwIfIndex: ^interface_types.InterfaceIndex(0),
			ExternalIPAddress: addrs[0].Addr().As4(), ExternalPort: addrs[0].Port(),
			LocalIPAddress: addrs[1].Addr().As4(), LocalPort: addrs[1].Port(), Tag: "somebody else",
		}
	case "lb":
		m := &nat44_ed.Nat44AddDelLbStaticMapping{
			IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY, Protocol: uint8(proto),
			ExternalAddr: addrs[0].Addr().As4(), ExternalPort: addrs[0].Port(), Tag: "somebody else",
		}
		for _, a := range addrs[1:] {
			m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Addr: a.Addr().As4(), Port: a.Port(), Probability: 1})
		}
		msg = m
	default:
		return fmt.Errorf("unknown command %q", args[1])
	}
	return w.both(msg)
}
