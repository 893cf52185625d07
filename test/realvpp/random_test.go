package realvpp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

const (
	defaultCases = 1000
	stepsPerCase = 3
	packetsPer   = 6
	// restartEvery is how many cases there are between two restarts of the agents, rebootEvery of the VPPs.
	restartEvery = 10
	rebootEvery  = 100
	// renewEvery is how many cases agents keep their configuration.
	renewEvery = 25
	// enough is how many differences are worth reading.
	enough = 8
)

// configs are what agents are set to, in turn.
var configs = []nat44.Config{
	{}, {LocalEndpointWeight: 3}, {DisableSNAT: true}, {LocalEndpointWeight: 7, DisableSNAT: true},
}

// rendererOf is the configuration of a turn. Both renderers have the same weights.
func rendererOf(turn uint64) builtin.Config {
	cfg := builtin.Config{NAT44: configs[turn%uint64(len(configs))]}
	cfg.CNAT.LocalEndpointWeight = cfg.NAT44.LocalEndpointWeight
	return cfg
}

// TestVPPRandom grows random clusters on a real VPP and a simulated one: the agents must write the same, and random packets
// must leave both alike.
func TestVPPRandom(t *testing.T) { runRandom(t, theVPP(t), oracle.IPv4) }

// TestVPPRandomDual does the same with nodes, pods and Services of both families: those of IPv6 are served by cnat.
func TestVPPRandomDual(t *testing.T) { runRandom(t, theVPP(t), oracle.Dual) }

func runRandom(t *testing.T, path string, families oracle.Families) {
	cases, first := oracle.Setting(t, "CONTIV_VPP_CASES", defaultCases), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	t.Logf("%d cases, seeds %d to %d", cases, first, first+cases-1)
	// A case alone has the configuration it has in the long run: it changes after the last case of renewEvery.
	w := startTwin(t, path, "node-1", agent.Config{Services: config.Services{Renderer: rendererOf((first + renewEvery - 1) / renewEvery)}})
	start, sent, differences := time.Now(), 0, 0
	var proved proofs
	for seed := first; seed < first+cases; seed++ {
		c := newCase(w, seed, families)
		err := c.run()
		sent += c.sent
		if err == nil {
			var different []error
			different, err = proved.prove(t.Context(), w, c.world.Objects(), serving.Config{LocalWeight: int(w.config.Services.Renderer.NAT44.LocalEndpointWeight)})
			c.differences = append(c.differences, different...)
		}
		if err == nil && seed%restartEvery == 0 {
			err = w.settled()
		}
		if err == nil && seed%rebootEvery == 0 {
			err = w.restartVPPs()
		}
		if err == nil && seed%renewEvery == 0 {
			w.config.Services.Renderer = rendererOf(seed/renewEvery + 1)
			err = w.restartAgents()
		}
		for _, e := range append(c.differences, err) {
			if e == nil {
				continue
			}
			differences++
			t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=1): %v", seed, seed, e)
		}
		if err != nil || differences >= enough {
			t.FailNow()
		}
	}
	t.Logf("%d cases, %d packets agreed in %s; VPP sent no answer to %d packets that it refused; a port that chance kept: %d, ports in an ICMP error: %d, errors that cnat of 26.06 spoiled: %d; %d waits for cnat's scanner; %s",
		cases, sent, time.Since(start).Round(time.Second), w.hushed, w.chances, w.reports, w.spoiled, w.awaited, &proved)
}

// startTwin is a twin that ends with the test.
func startTwin(t *testing.T, path, node string, cfg agent.Config) *twin {
	t.Helper()
	l, err := openLab(path)
	if l != nil {
		t.Cleanup(l.close)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := openTwin(l, node, cfg)
	t.Cleanup(w.close)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// randomCase is one random cluster.
type randomCase struct {
	*twin
	rng         *rand.Rand
	world       *oracle.World
	port        uint16
	sent        int
	differences []error
	talks       []talk
}

// talk is a connection that got through, as both its ends see it.
type talk struct {
	in    string
	sent  flight
	there landing
}

func newCase(w *twin, seed uint64, families oracle.Families) *randomCase {
	return &randomCase{
		twin: w, rng: rand.New(rand.NewPCG(seed, 1)), world: oracle.NewWorldOf(seed, families),
		port: uint16(33000 + seed*137%30000),
	}
}

func (c *randomCase) run() error {
	if err := c.become(c.world.Objects()); err != nil {
		return err
	}
	for range stepsPerCase {
		put, removed := c.world.Step()
		var changes []event.Change
		for _, obj := range put {
			changes = append(changes, event.Change{Ref: obj.Ref(), Object: obj})
		}
		for _, ref := range removed {
			changes = append(changes, event.Change{Ref: ref})
		}
		if err := c.apply(changes); err != nil {
			return err
		}
		for _, t := range c.talks { // what is established stays, or breaks, alike
			if err := c.tolerate(c.goOn(t)); err != nil {
				return err
			}
		}
		for _, p := range c.world.Packets(packetsPer) {
			in, k := c.arrival(p)
			if err := c.tolerate(c.talk(in, k)); err != nil {
				return err
			}
		}
	}
	return nil
}

// tolerate notes a difference and lets the case go on; other errors end it.
func (c *randomCase) tolerate(err error) error {
	var d *difference
	if errors.As(err, &d) {
		c.differences = append(c.differences, err)
		return nil
	}
	return err
}

func (c *randomCase) chance(n int) bool { return c.rng.IntN(n) == 0 }

// arrival is how a packet of the world looks to this node, and the interface it comes in by. Now and then it is odd.
func (c *randomCase) arrival(p oracle.Packet) (string, packet.Packet) {
	c.port++
	k := packet.Packet{Src: p.Src, Dst: p.Dst.Addr(), Proto: p.Proto, SrcPort: c.port, DstPort: p.Dst.Port()}
	k = k.Opening()
	in := cni.Overlay
	switch {
	case p.Class == oracle.Outside:
		in = cni.Uplink
	case p.Node != c.node:
	case p.Class == oracle.Host:
		in = cni.Host
	default:
		in = c.podInterface(p.Src)
	}
	switch c.rng.IntN(16) {
	case 0:
		k.SrcPort = uint16(1 + c.rng.IntN(1023))
	case 1:
		k.SrcPort = uint16(30000 + c.rng.IntN(200)) // perhaps a node port
	case 2:
		k.TTL = uint8(1 + c.rng.IntN(2))
	case 3:
		if k.Proto == model.TCP {
			k.TCPFlags = []uint8{packet.ACK, packet.RST, packet.FIN | packet.ACK, packet.SYN | packet.ACK}[c.rng.IntN(4)]
		}
	case 4:
		k = packet.NewPing(k.Src, k.Dst, c.port)
	case 5:
		k.Dst = c.anyAddress(k.Dst)
	case 6:
		k.Src = c.anyAddress(k.Src)
	}
	return in, k
}

func (c *randomCase) podInterface(a netip.Addr) string {
	for id, p := range c.world.Pods {
		if slices.Contains(p.IPs, a) {
			return cni.PodInterface(id)
		}
	}
	return cni.Overlay
}

// anyAddress is some address of a pod, a node, a service, or nobody, of the family of another one.
func (c *randomCase) anyAddress(otherwise netip.Addr) netip.Addr {
	list := []netip.Addr{
		netip.MustParseAddr("10.96.200.1"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.1.1.200"),
		netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("169.254.1.1"), otherwise,
		netip.MustParseAddr("fd00:96::c801"), netip.MustParseAddr("2001:db8::8"), netip.MustParseAddr("fd00:1:1::c8"),
		netip.MustParseAddr("100::1"), netip.MustParseAddr("fd69:254:1::1"),
	}
	for _, obj := range c.world.Objects() {
		switch obj := obj.(type) {
		case *model.Node:
			list = append(list, obj.InternalIPs...)
		case *model.Pod:
			list = append(list, obj.IPs...)
		case *model.Service:
			list = append(list, obj.ClusterIPs...)
		}
	}
	list = slices.DeleteFunc(list, func(a netip.Addr) bool { return a.Is4() != otherwise.Is4() })
	return list[c.rng.IntN(len(list))]
}

func (c *randomCase) transmit(in string, f flight) ([]landing, error) {
	c.sent++
	return c.send(in, f)
}

// talk sends a packet and continues as the parties of a connection would.
func (c *randomCase) talk(in string, first packet.Packet) error {
	f := same(first)
	out, err := c.transmit(in, f)
	if err != nil || len(out) != 1 || out[0].spoil {
		return err
	}
	there := out[0]
	if there.sim.IsICMPError() {
		return nil
	}
	if c.chance(8) {
		return c.complain(in, there)
	}
	back, err := c.transmit(there.at, there.reply())
	if err != nil || len(back) != 1 {
		return err
	}
	t := talk{in: in, sent: f, there: there}
	for range c.rng.IntN(3) {
		if err := c.goOn(t); err != nil {
			return err
		}
	}
	if c.talks = append(c.talks, t); len(c.talks) > packetsPer {
		c.talks = c.talks[1:]
	}
	return nil
}

// goOn sends another packet of a connection, now and then an odd one, and the answer; or the server speaks first.
func (c *randomCase) goOn(t talk) error {
	flags := packet.ACK
	if c.chance(4) {
		flags = []uint8{packet.FIN | packet.ACK, packet.RST, packet.SYN}[c.rng.IntN(3)]
	}
	next := func(p packet.Packet) packet.Packet {
		if p.Proto == model.TCP {
			p.TCPFlags = flags
		}
		return p
	}
	if c.chance(4) {
		_, err := c.transmit(t.there.at, t.there.reply().both(next))
		return err
	}
	out, err := c.transmit(t.in, t.sent.both(next))
	if err != nil || len(out) != 1 || out[0].sim.IsICMPError() || out[0].spoil {
		return err
	}
	_, err = c.transmit(out[0].at, out[0].reply())
	return err
}

// complain makes the receiver, or a router on the path to it, send an ICMP error.
func (c *randomCase) complain(_ string, there landing) error {
	kind, code := packet.Unreachable, packet.CodePort
	router, far := netip.Addr{}, netip.MustParseAddr("172.16.0.1")
	over := packet.TimeExceeded
	if there.sim.Dst.Is6() {
		kind, code, over, far = packet.Unreachable6, packet.CodePort6, packet.TimeExceeded6, netip.MustParseAddr("2001:db8:f::1")
	}
	if c.chance(2) {
		kind, code, router = over, 0, far
	}
	if there.sim.IsICMPError() {
		return fmt.Errorf("an error about an error")
	}
	_, err := c.transmit(there.at, there.both(func(p packet.Packet) packet.Packet {
		from := router
		if !from.IsValid() {
			from = p.Dst
		}
		return p.ICMPError(from, kind, code)
	}))
	return err
}

// startBare is a twin whose agents are gone, so that nobody interferes, with what a CNI makes of the objects.
func startBare(t *testing.T, path string, objects []model.Object) *twin {
	t.Helper()
	w := startTwin(t, path, "node-1", agent.Config{})
	for _, s := range w.sides {
		s.agent.Close()
	}
	for _, s := range w.sides {
		if err := s.cni.Apply(puts(objects)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}
