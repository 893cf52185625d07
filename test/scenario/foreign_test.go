package scenario

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/rogpeppe/go-internal/testscript"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// cmdForeign configures VPP as another program: with routes, and mappings without the agent's tag.
func (s *story) cmdForeign(_ *testscript.TestScript, args []string) error {
	if len(args) < 4 {
		return fmt.Errorf("want NODE map|lb PROTO EXTERNAL LOCAL … or NODE route PREFIX INTERFACE")
	}
	v, err := s.vpp(args[0])
	if err != nil {
		return err
	}
	if args[1] == "route" {
		prefix, err := netip.ParsePrefix(args[2])
		if err != nil {
			return err
		}
		return v.AddRoute(sim.Route{Prefix: prefix, Paths: []sim.Path{{Interface: args[3]}}})
	}
	var proto model.Protocol
	q, err := question([]string{"x", args[2], args[3]})
	if err == nil {
		proto, err = model.ParseProtocol(q.Protocol)
	}
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
	switch args[1] {
	case "map":
		return request(v, vpp.Call{Msg: &nat44_ed.Nat44AddDelStaticMappingV2{
			IsAdd: true, Protocol: uint8(proto), ExternalSwIfIndex: ^interface_types.InterfaceIndex(0),
			ExternalIPAddress: ip4(addrs[0]), ExternalPort: addrs[0].Port(), LocalIPAddress: ip4(addrs[1]), LocalPort: addrs[1].Port(),
			Tag: "another program",
		}})
	case "lb":
		m := &nat44_ed.Nat44AddDelLbStaticMapping{
			IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY, Protocol: uint8(proto),
			ExternalAddr: ip4(addrs[0]), ExternalPort: addrs[0].Port(), Tag: "another program",
		}
		for _, a := range addrs[1:] {
			m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Addr: ip4(a), Port: a.Port(), Probability: 1})
		}
		m.LocalNum = uint32(len(m.Locals))
		return request(v, vpp.Call{Msg: m})
	}
	return fmt.Errorf("unknown command %q", args[1])
}

func ip4(a netip.AddrPort) ip_types.IP4Address { return a.Addr().As4() }

// request makes one call over a separate connection.
func request(v *sim.VPP, call vpp.Call) error {
	up := make(chan struct{}, 1)
	c := vpp.New(vpp.Config{Dial: v.Dial, ClientName: "another program", OnState: func(st vpp.State) {
		if st.Connected {
			up <- struct{}{}
		}
	}})
	ctx, stop := context.WithCancel(background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx) // stop ends it
	}()
	defer func() { <-done }()
	defer stop()
	<-up
	return c.Do(ctx, call)[0].Err
}
