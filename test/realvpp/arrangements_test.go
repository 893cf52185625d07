package realvpp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// The bounds of TestVPPArrangements. Its cases cost more than those of TestVPPRandom, as NAT is made anew for each.
const (
	dear        = 5
	mappingsPer = 5
	flowsPer    = 10
)

// TestVPPArrangements compares the simulated NAT44-ED with the real one in configurations that no agent makes: random roles of interfaces,
// pools and mappings of all kinds. So the simulation is right for configurations that a later agent may make.
func TestVPPArrangements(t *testing.T) {
	path := theVPP(t)
	cases, first := oracle.Setting(t, "CONTIV_VPP_CASES", defaultCases), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	cases = max(1, cases/dear)
	t.Logf("%d cases, seeds %d to %d", cases, first, first+cases-1)
	w := startBare(t, path, base())
	differences, sent, died := 0, 0, 0
	for seed := first; seed < first+cases && differences < enough; seed++ {
		a := &arrangement{rng: rand.New(rand.NewPCG(seed, 2))}
		a.randomCase = &randomCase{twin: w, rng: a.rng, port: uint16(33000 + seed*137%30000)}
		err := a.run()
		sent += a.sent
		for _, e := range append(a.differences, err) {
			if e != nil {
				differences++
				t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=1): %v\n%s", seed, seed, e, a.story())
			}
		}
		if a.died {
			died++
		}
		if err != nil {
			t.FailNow()
		}
	}
	t.Logf("%d cases, %d packets agreed, %d packets killed both", cases, sent, died)
}

// arrangement is one random configuration of NAT.
type arrangement struct {
	*randomCase
	rng  *rand.Rand
	done []string // what was configured
	vips []netip.AddrPort
	died bool
}

func (a *arrangement) story() string {
	text := ""
	for _, d := range a.done {
		text += "    " + d + "\n"
	}
	return text
}

var doors = []string{cni.Uplink, cni.Overlay, cni.Host, door(podA), door(podB)}

func (a *arrangement) run() error {
	if err := a.configure(); err != nil {
		return err
	}
	for range flowsPer {
		err := a.tolerate(a.talk(doors[a.rng.IntN(len(doors))], a.packet()))
		if err != nil || a.sim.Crashed() != nil {
			return a.mourn(err)
		}
	}
	return nil
}

// mourn wants both VPPs to have died of the last packet, and brings them back.
func (a *arrangement) mourn(cause error) error {
	death := a.lab.alive()
	if death == nil && cause != nil {
		return cause
	}
	a.sim.Send(a.last.in, a.last.sent.sim)
	switch why := a.sim.Crashed(); {
	case death == nil:
		return fmt.Errorf("the vpp survived what kills the sim: %w", why)
	case why == nil:
		return fmt.Errorf("the sim survived %s in %s: %w", &a.last.sent.sim, a.last.in, death)
	}
	a.died, a.differences = true, nil
	a.sim.Restart()
	return a.lab.restart()
}

// ask configures both; what both refuse, or the guard, is left out.
func (a *arrangement) ask(msg api.Message) error {
	err := a.both(msg)
	if errors.Is(err, errDisagree) {
		return err
	}
	var refused *vpp.Retval
	var guarded *vpp.GuardError
	switch {
	case err == nil:
		a.done = append(a.done, text(msg, nil))
	case errors.As(err, &refused):
		a.done = append(a.done, text(msg, nil)+" refused: "+err.Error())
	case !errors.As(err, &guarded):
		return err
	}
	return nil
}

func (a *arrangement) configure() error {
	msgs := []api.Message{
		&nat44_ed.Nat44EdPluginEnableDisable{}, // removes the earlier configuration
		&nat44_ed.Nat44EdPluginEnableDisable{Enable: true, Sessions: 4096, Flags: nat44_ed.NAT44_IS_ENDPOINT_DEPENDENT},
		&nat44_ed.Nat44ForwardingEnableDisable{Enable: !a.chance(5)},
		pool("192.168.16.1", 0),
	}
	if !a.chance(4) {
		msgs = append(msgs, pool("10.1.1.254", nat_types.NAT_IS_TWICE_NAT))
	}
	for _, m := range msgs {
		if err := a.ask(m); err != nil {
			return err
		}
	}
	for _, d := range doors {
		if err := a.role(d); err != nil {
			return err
		}
	}
	for range 1 + a.rng.IntN(mappingsPer) {
		if err := a.ask(a.mapping()); err != nil {
			return err
		}
	}
	return nil
}

func pool(addr string, flags nat_types.NatConfigFlags) api.Message {
	ip := ip_types.IP4Address(netip.MustParseAddr(addr).As4())
	return &nat44_ed.Nat44AddDelAddressRange{FirstIPAddress: ip, LastIPAddress: ip, VrfID: ^uint32(0), IsAdd: true, Flags: flags}
}

// role gives an interface one; the same index must mean the same interface to both VPPs, so each is asked for its own.
func (a *arrangement) role(name string) error {
	ask := func(make func(interface_types.InterfaceIndex) api.Message) error {
		mine := interface_types.InterfaceIndex(a.sim.AddInterface(sim.Interface{Name: name}))
		x := a.beside.conn.Do(context.Background(), vpp.Call{Msg: make(mine)})[0].Err
		y := a.lab.plain.conn.Do(context.Background(), vpp.Call{Msg: make(a.lab.index[name])})[0].Err
		a.done = append(a.done, name+" "+text(make(0), nil))
		return errors.Join(x, y)
	}
	feature := func(f nat_types.NatConfigFlags) func(interface_types.InterfaceIndex) api.Message {
		return func(i interface_types.InterfaceIndex) api.Message {
			return &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, Flags: f, SwIfIndex: i}
		}
	}
	switch a.rng.IntN(6) {
	case 0:
		return nil
	case 1:
		return ask(feature(nat_types.NAT_IS_INSIDE))
	case 2:
		return ask(feature(nat_types.NAT_IS_OUTSIDE))
	case 3:
		return ask(func(i interface_types.InterfaceIndex) api.Message {
			return &nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: true, SwIfIndex: i}
		})
	}
	return errors.Join(ask(feature(nat_types.NAT_IS_INSIDE)), ask(feature(nat_types.NAT_IS_OUTSIDE)))
}

func (a *arrangement) mapping() api.Message {
	vips := []string{"10.96.0.10", "10.96.0.11", "192.168.16.1", "203.0.113.1"}
	vip := netip.AddrPortFrom(netip.MustParseAddr(vips[a.rng.IntN(len(vips))]), uint16(80+a.rng.IntN(2)))
	a.vips = append(a.vips, vip)
	flags := []nat_types.NatConfigFlags{
		nat_types.NAT_IS_OUT2IN_ONLY, nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_SELF_TWICE_NAT,
		nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_TWICE_NAT, 0, nat_types.NAT_IS_TWICE_NAT, nat_types.NAT_IS_SELF_TWICE_NAT,
		nat_types.NAT_IS_TWICE_NAT | nat_types.NAT_IS_SELF_TWICE_NAT,
	}[a.rng.IntN(7)]
	proto := uint8([]model.Protocol{model.TCP, model.UDP}[a.rng.IntN(2)])
	backends := []netip.Addr{podA.IPs[0], podB.IPs[0], podFar.IPs[0], netip.MustParseAddr("192.168.16.2"), netip.MustParseAddr("198.51.100.9")}
	a.rng.Shuffle(len(backends), func(i, j int) { backends[i], backends[j] = backends[j], backends[i] })
	switch a.rng.IntN(8) {
	case 0:
		return &nat44_ed.Nat44AddDelIdentityMapping{
			IsAdd: true, Protocol: proto, IPAddress: vip.Addr().As4(), Port: vip.Port(), SwIfIndex: ^interface_types.InterfaceIndex(0),
		}
	case 1, 2:
		return &nat44_ed.Nat44AddDelStaticMappingV2{
			IsAdd: true, Flags: flags, Protocol: proto, ExternalSwIfIndex: ^interface_types.InterfaceIndex(0),
			ExternalIPAddress: vip.Addr().As4(), ExternalPort: vip.Port(), LocalIPAddress: backends[0].As4(), LocalPort: 8080,
		}
	case 3:
		// A separate address: beside mappings of ports of the same address VPP was seen to translate a packet from that
		// address to itself to a port of theirs, which the simulated one does not.
		vip = netip.AddrPortFrom(netip.MustParseAddr("203.0.113.2"), 0)
		return &nat44_ed.Nat44AddDelStaticMappingV2{
			IsAdd: true, Flags: flags | nat_types.NAT_IS_ADDR_ONLY, ExternalSwIfIndex: ^interface_types.InterfaceIndex(0),
			ExternalIPAddress: vip.Addr().As4(), LocalIPAddress: backends[0].As4(),
		}
	}
	m := &nat44_ed.Nat44AddDelLbStaticMapping{
		IsAdd: true, Flags: flags | nat_types.NAT_IS_OUT2IN_ONLY, Protocol: proto, ExternalAddr: vip.Addr().As4(), ExternalPort: vip.Port(),
	}
	if a.chance(4) {
		m.Affinity = 3600
	}
	for i := range 2 + a.rng.IntN(2) {
		m.Locals = append(m.Locals, nat44_ed.Nat44LbAddrPort{Addr: backends[i].As4(), Port: 8080, Probability: uint8(a.rng.IntN(3)) + uint8((i+1)%2)})
	}
	return m
}

// packet is a random one, most of them to or from what is mapped.
func (a *arrangement) packet() packet.Packet {
	addrs := []string{"10.1.1.2", "10.1.1.3", "10.1.2.2", "192.168.16.1", "192.168.16.2", "198.51.100.7", "198.51.100.9", "10.96.0.10", "10.1.1.254"}
	ports := []uint16{80, 81, 8080, 53, 0}
	a.port++
	ports[4] = a.port
	end := func(port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(addrs[a.rng.IntN(len(addrs))]), port)
	}
	src, dst := end(a.port), end(ports[a.rng.IntN(len(ports))])
	if a.chance(6) {
		src = end(ports[a.rng.IntN(len(ports))])
	}
	if !a.chance(3) {
		dst = a.vips[a.rng.IntN(len(a.vips))]
	}
	switch a.rng.IntN(8) {
	case 0:
		return packet.NewPing(src.Addr(), dst.Addr(), a.port)
	case 1, 2, 3:
		return packet.NewUDP(src, dst)
	case 4:
		p := packet.NewTCP(src, dst)
		p.TCPFlags = packet.ACK
		return p
	}
	return packet.NewTCP(src, dst)
}
