package realvpp

import (
	"net/netip"
	"slices"
	"time"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// opening is the first packet of a flow, and the interface of the node it comes in by.
type opening struct {
	in    string
	first packet.Packet
}

// move is a kind of what happens next, as often as its weight says.
type move struct {
	name   string
	weight int
	make   func(*sequenceCase) error
}

func moves() []move {
	return []move{
		{"new flow", 5, (*sequenceCase).openFlow},
		{"Service", 5, (*sequenceCase).openService},
		{"known flow", 6, (*sequenceCase).again},
		{"repeated", 2, (*sequenceCase).repeat},
		{"varied", 4, (*sequenceCase).vary},
		{"from the other end", 2, (*sequenceCase).turn},
		{"ICMP error", 1, (*sequenceCase).blame},
		{"odd", 2, (*sequenceCase).odd},
		{"time", 1, (*sequenceCase).pass},
	}
}

// move makes a random one.
func (c *sequenceCase) move() error {
	list := moves()
	total := 0
	for _, m := range list {
		total += m.weight
	}
	n := c.rng.IntN(total)
	for _, m := range list {
		if n -= m.weight; n < 0 {
			before := c.sent
			err := m.make(c)
			c.counts.moves[m.name] += c.sent - before
			c.counts.packets += c.sent - before
			return err
		}
	}
	return nil
}

// prepare draws what may be sent as long as the objects stay.
func (c *sequenceCase) prepare() {
	c.flows, c.dials = nil, nil
	for _, f := range c.world.Sample(c.world.Flows(1), 200) {
		if in, concerns := c.enters(f.Src, f.Dst); concerns {
			c.flows = append(c.flows, opening{in, c.packetOf(&f)})
		}
	}
	for _, ch := range c.all() { // sorted
		if svc, is := ch.Object.(*model.Service); is {
			c.dials = append(c.dials, c.dialsOf(svc)...)
		}
	}
	c.rng.Shuffle(len(c.dials), func(i, j int) { c.dials[i], c.dials[j] = c.dials[j], c.dials[i] })
}

// enters is the interface by which packets of an address come to the node; false: a packet for dst has no business there.
func (c *sequenceCase) enters(src, dst netip.Addr) (in string, concerns bool) {
	if in = c.interfaceOf(src); in != cni.Overlay && in != cni.Uplink {
		return in, true
	}
	to := c.interfaceOf(dst)
	return in, to != cni.Overlay && to != cni.Uplink
}

// interfaceOf is where an address is.
func (c *sequenceCase) interfaceOf(a netip.Addr) string {
	for _, obj := range c.objects {
		switch o := obj.(type) {
		case *model.Pod:
			if slices.Contains(o.IPs, a) && !o.HostNetwork && !o.Finished {
				if o.NodeName == c.node {
					return cni.PodInterface(o.ID)
				}
				return cni.Overlay
			}
		case *model.Node:
			if o.Name == c.node && slices.Contains(o.Addrs(), a) || a == cni.HostLink {
				return cni.Host
			}
			if o.Name != c.node && (slices.Contains(o.Addrs(), a) || slices.ContainsFunc(o.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })) {
				return cni.Overlay
			}
		}
	}
	return cni.Uplink
}

// packetOf is the first packet of a flow; the node speaks to its pods from the host link.
func (c *sequenceCase) packetOf(f *policy.Flow) packet.Packet {
	k := packet.Packet{Src: f.Src, Dst: f.Dst, Proto: model.Protocol(f.Proto)}
	if k.Src.Is4() && c.interfaceOf(k.Src) == cni.Host && c.chance(2) {
		k.Src = cni.HostLink
	}
	if f.Proto.Ports() {
		k.SrcPort, k.DstPort = f.SrcPort, f.DstPort
		return k.Opening()
	}
	k.ICMPType, k.ICMPCode = f.Type, f.Code
	switch {
	case k.IsICMPError():
		inner := packet.NewUDP(netip.AddrPortFrom(f.Dst, c.fresh()), netip.AddrPortFrom(f.Src, 53))
		k.Inner = &inner
	case k.IsEcho():
		k.ICMPID = c.fresh()
	}
	return k
}

// fresh is a port that nobody had in this cluster.
func (c *sequenceCase) fresh() uint16 {
	c.port++
	return c.port
}

// dialsOf are packets to each address of a Service, from each kind of client.
func (c *sequenceCase) dialsOf(svc *model.Service) (out []opening) {
	targets := slices.Concat(svc.ClusterIPs, svc.ExternalIPs)
	clients := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")}
	for _, ch := range c.all() { // sorted: chance has its turn below
		switch o := ch.Object.(type) {
		case *model.Pod:
			if !o.HostNetwork && !o.Finished {
				clients = append(clients, o.IPs...)
			}
		case *model.Node:
			clients, targets = append(clients, o.InternalIPs...), append(targets, o.InternalIPs...)
		}
	}
	for _, p := range svc.Ports {
		for _, to := range targets {
			port := p.Port
			if c.interfaceOf(to) == cni.Host || c.interfaceOf(to) == cni.Overlay {
				port = p.NodePort
			}
			for _, from := range clients {
				in := c.interfaceOf(from)
				if port == 0 || from.Is4() != to.Is4() || (in == cni.Overlay || in == cni.Uplink) && slices.Contains(svc.ClusterIPs, to) && !c.chance(4) {
					continue
				}
				k := packet.Packet{Src: from, Dst: to, Proto: p.Protocol, SrcPort: 40000, DstPort: port}
				out = append(out, opening{in, k.Opening()})
			}
		}
	}
	return out
}

// transmit sends a packet, unless its interface is gone.
func (c *sequenceCase) transmit(in string, f flight) ([]landing, error) {
	if _, is := c.lab.pairs[in]; !is {
		return nil, nil
	}
	if c.complains(in, &f.sim) {
		c.counts.excused[unwritten]++
		return nil, nil
	}
	c.note("%s: %s", in, &f.sim)
	return c.randomCase.transmit(in, f)
}

// unwritten is why an ICMP error about ICMP that is no echo is not sent, nor what makes VPP send one: from 25.02 on cnat looks for its flow by
// what the stack happens to hold, and makes flows of that; before, by a checksum that the simulated one knows of short messages only.
const unwritten = "not sent: an ICMP error about ICMP that is no echo, which cnat looks up by a key it never wrote"

// complains reports whether a packet is such an error, or makes VPP send one.
func (c *sequenceCase) complains(in string, p *packet.Packet) bool {
	if !p.IsICMP() || p.IsEcho() || !c.translatedByCNAT(p) {
		return false
	}
	about := func(p *packet.Packet) bool {
		in := p.Inner
		return p.IsICMPError() && in.IsICMP() && !in.IsEcho() && (in.Dst.Is4() || !in.Fragment.Any()) // cnat knows fragments of IPv6 by their fragment header
	}
	mark := c.sim.Snapshot()
	defer c.sim.Release()
	fate := c.sim.Send(in, *p)
	c.sim.Restore(mark)
	return about(p) || slices.ContainsFunc(fate.Out, func(o sim.Output) bool { return about(&o.Packet) })
}

// translatedByCNAT reports whether packets of that family pass cnat.
func (c *sequenceCase) translatedByCNAT(p *packet.Packet) bool {
	return c.config.Services.Renderer.Choice == agent.RendererCNAT || p.Dst.Is6() && c.config.Services.Renderer.Choice != agent.RendererNAT44
}

func some[T any](c *sequenceCase, list []T) (T, bool) {
	if len(list) == 0 {
		var none T
		return none, false
	}
	return list[c.rng.IntN(len(list))], true
}

// openFlow begins a flow between pods, nodes and addresses outside.
func (c *sequenceCase) openFlow() error {
	o, any := some(c, c.flows)
	if !any {
		return nil
	}
	if o.first.HasPorts() && !c.chance(4) { // else the port that policies speak of
		o.first.SrcPort = c.fresh()
	}
	return c.converse(o)
}

// openService dials a Service.
func (c *sequenceCase) openService() error {
	o, any := some(c, c.dials)
	if !any {
		return c.openFlow()
	}
	if !c.chance(4) {
		o.first.SrcPort = c.fresh()
	}
	return c.converse(o)
}

// converse sends an opening, the answer to it, and some more of the flow.
func (c *sequenceCase) converse(o opening) error {
	if c.tried = append(c.tried, o); len(c.tried) > 40 {
		c.tried = c.tried[1:]
	}
	f := same(o.first)
	out, err := c.transmit(o.in, f)
	if err != nil || !answers(out) {
		return err
	}
	t := talk{in: o.in, sent: f, there: out[0]}
	if c.talks = append(c.talks, t); len(c.talks) > 20 {
		c.talks = c.talks[1:]
	}
	if c.chance(5) { // nobody answers for now
		return nil
	}
	if _, err := c.transmit(t.there.at, t.there.reply()); err != nil {
		return err
	}
	for range c.rng.IntN(3) {
		if err := c.proceed(t); err != nil {
			return err
		}
	}
	return nil
}

// answers reports whether a packet reached a receiver that may answer it.
func answers(out []landing) bool {
	return len(out) == 1 && !out[0].spoil && !out[0].sim.IsICMPError() && out[0].at != ""
}

// proceed sends another packet of a flow, by either end, and perhaps what it is answered with.
func (c *sequenceCase) proceed(t talk) error {
	flags := []uint8{packet.ACK, packet.ACK, packet.ACK, packet.ACK, packet.FIN | packet.ACK, packet.RST, packet.SYN, packet.SYN | packet.ACK}[c.rng.IntN(8)]
	chunk := []uint8{packet.Data, packet.Data, packet.Sack, packet.CookieEcho, packet.Heartbeat, packet.Abort, packet.Shutdown, packet.Init}[c.rng.IntN(8)]
	next := func(p packet.Packet) packet.Packet { return p.Phase(flags, chunk) }
	if c.chance(3) {
		_, err := c.transmit(t.there.at, t.there.reply().both(next)) // the server pushes
		return err
	}
	out, err := c.transmit(t.in, t.sent.both(next))
	if err != nil || !answers(out) || c.chance(3) {
		return err
	}
	_, err = c.transmit(out[0].at, out[0].reply())
	return err
}

// again continues a flow that got through some time ago.
func (c *sequenceCase) again() error {
	t, any := some(c, c.talks)
	if !any {
		return c.openFlow()
	}
	return c.proceed(t)
}

// repeat sends an opening once more, whatever became of it.
func (c *sequenceCase) repeat() error {
	o, any := some(c, c.tried)
	if !any {
		return c.openService()
	}
	return c.converse(o)
}

// vary sends an opening that differs in one thing from one that was sent: another port, the endpoint in place of the Service, another
// target or another protocol from the same port.
func (c *sequenceCase) vary() error {
	o, any := some(c, c.tried)
	if !any {
		return c.openService()
	}
	o.first = o.first.Clone()
	switch n := c.rng.IntN(5); {
	case n == 0 && o.first.HasPorts():
		o.first.SrcPort = c.fresh()
	case n == 1:
		if other, any := some(c, append(slices.Clone(c.dials), c.flows...)); any && other.first.Dst.Is4() == o.first.Dst.Is4() && other.first.HasPorts() && o.first.HasPorts() {
			o.first.Dst, o.first.DstPort = other.first.Dst, other.first.DstPort
		}
	case n == 2 && (o.first.Proto == model.TCP || o.first.Proto == model.UDP):
		o.first.Proto ^= model.TCP ^ model.UDP
		o.first.TCPFlags = 0
		o.first = o.first.Opening()
	default: // the receiver that it reached, directly
		t, any := some(c, c.talks)
		if !any || t.in != o.in {
			return c.direct(t, any)
		}
		return c.direct(t, true)
	}
	return c.converse(o)
}

// direct dials the endpoint that a flow reached, from the flow's own port, and not by the address that it was dialled by.
func (c *sequenceCase) direct(t talk, any bool) error {
	if !any {
		return c.openFlow()
	}
	p := t.sent.sim.Clone()
	p.Dst, p.DstPort = t.there.sim.Dst, t.there.sim.DstPort
	return c.converse(opening{t.in, p.Opening()})
}

// turn has the one who was dialled dial: from its own port, or from another one.
func (c *sequenceCase) turn() error {
	t, any := some(c, c.talks)
	if !any {
		return c.openFlow()
	}
	f := t.there.reply().both(packet.Packet.Opening)
	if c.chance(3) && f.sim.HasPorts() {
		port := c.fresh()
		f = f.both(func(p packet.Packet) packet.Packet { p.SrcPort = port; return p })
	}
	out, err := c.transmit(t.there.at, f)
	if err != nil || !answers(out) {
		return err
	}
	_, err = c.transmit(out[0].at, out[0].reply())
	return err
}

// blame makes the receiver of a flow, or a router on the path to it, send an ICMP error.
func (c *sequenceCase) blame() error {
	t, any := some(c, c.talks)
	if _, is := c.lab.pairs[t.there.at]; !any || !is {
		return c.openService()
	}
	if t.there.sim.IsICMP() && !t.there.sim.IsEcho() && c.translatedByCNAT(&t.there.sim) {
		c.counts.excused[unwritten]++
		return nil
	}
	c.note("%s complains about %s", t.there.at, &t.there.sim)
	return c.complain(t.in, t.there)
}

// odd sends a packet that nobody expects: with a forged source, to nobody, without SYN, with little life, by another interface, a ping.
func (c *sequenceCase) odd() error {
	o, any := some(c, append(slices.Clone(c.dials), c.flows...))
	if !any {
		return nil
	}
	k := o.first.Clone()
	if k.HasPorts() {
		k.SrcPort = c.fresh()
	}
	switch c.rng.IntN(8) {
	case 0, 1:
		k.Src = c.stranger(k.Src)
	case 2:
		k.Dst = c.stranger(k.Dst)
	case 3:
		k.TTL = uint8(1 + c.rng.IntN(2))
	case 4:
		k = packet.NewPing(k.Src, k.Dst, c.fresh())
	case 5:
		o.in, _ = some(c, c.interfaces())
	case 6:
		if k.HasPorts() {
			k.SrcPort = uint16(1 + c.rng.IntN(1023))
		}
	default:
		switch k.Proto {
		case model.TCP:
			k.TCPFlags = []uint8{packet.ACK, packet.RST, packet.FIN | packet.ACK, packet.SYN | packet.ACK, packet.PSH | packet.ACK}[c.rng.IntN(5)]
		case model.SCTP:
			k.Chunk = []uint8{packet.Data, packet.InitAck, packet.CookieEcho, packet.Abort}[c.rng.IntN(4)]
		}
	}
	if k.IsICMPError() && k.Inner != nil {
		return c.converse(o)
	}
	return c.converse(opening{o.in, k})
}

// stranger is an address of the same family that a packet should not have.
func (c *sequenceCase) stranger(not netip.Addr) netip.Addr {
	list := []netip.Addr{
		cni.HostLink, netip.MustParseAddr("10.1.1.254"), netip.MustParseAddr("10.96.0.200"), netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.1.1.200"),
		netip.MustParseAddr("2001:db8::8"), netip.MustParseAddr("fd00:10:1:1::c8"), netip.MustParseAddr("fd00:96::c8"),
	}
	for _, obj := range c.objects {
		switch o := obj.(type) {
		case *model.Node:
			list = append(list, o.InternalIPs...)
		case *model.Pod:
			list = append(list, o.IPs...)
		case *model.Service:
			list = append(list, o.ClusterIPs...)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	a, any := some(c, slices.DeleteFunc(list, func(a netip.Addr) bool { return a.Is4() != not.Is4() }))
	if !any {
		return not
	}
	return a
}

// interfaces of the node.
func (c *sequenceCase) interfaces() []string {
	list := []string{cni.Uplink, cni.Overlay, cni.Host}
	for _, obj := range c.objects {
		if p, is := obj.(*model.Pod); is && p.NodeName == c.node && !p.HostNetwork && !p.Finished && len(p.IPs) > 0 {
			list = append(list, cni.PodInterface(p.ID))
		}
	}
	slices.Sort(list)
	return list
}

// Time that passes is longer than the sessions of NAT44 live meanwhile, and than cnat keeps what has ended. (VPP's clock would leap by "set
// clock adjust", but then VPP hangs now and then: the cleaner of the ACL plugin's sessions waits for less than a tick.)
const (
	shortLife  = 3 // seconds
	shortPause = 7 * time.Second
	// timesPass is one of how many moves of this kind lets time pass.
	timesPass = 60
)

// pass lets time pass, and continues earlier flows.
func (c *sequenceCase) pass() error {
	if c.passed || !c.chance(timesPass) {
		return c.again()
	}
	c.passed = true
	c.counts.pauses++
	t := &nat44_ed.NatSetTimeouts{UDP: 300, TCPEstablished: 7440, TCPTransitory: 240, ICMP: 60}
	for _, field := range []*uint32{&t.UDP, &t.TCPEstablished, &t.TCPTransitory, &t.ICMP} {
		if c.chance(2) {
			*field = shortLife
		}
	}
	c.note("%s pass, with timeouts %+v", shortPause, *t)
	if err := c.both(t); err != nil {
		return err
	}
	time.Sleep(shortPause)
	if err := c.remember(); err != nil {
		return err
	}
	return c.both(&nat44_ed.NatSetTimeouts{
		UDP: nat44.DefaultTimeoutUDP, TCPEstablished: nat44.DefaultTimeoutTCPEstablished, TCPTransitory: nat44.DefaultTimeoutTCPTransitory, ICMP: nat44.DefaultTimeoutICMP,
	})
}

// remember continues some flows.
func (c *sequenceCase) remember() error {
	for range 3 {
		if err := c.again(); err != nil {
			return err
		}
	}
	return c.repeat()
}
