package wire

import (
	"maps"
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/frame"
)

// Device sends frames of an af_packet interface. It reports whether the interface could.
type Device interface {
	Send(index uint32, b []byte) bool
}

// Counters are those of one interface.
type Counters struct{ RxPackets, RxBytes, TxPackets, TxBytes, Drops uint64 }

// Edge is the edge of one VPP.
type Edge struct {
	dev      Device
	asked    map[question]time.Time
	counters map[uint32]*Counters
	drops    map[string]uint64
}

// question is what VPP asks for by ARP or neighbour discovery.
type question struct {
	index uint32
	addr  netip.Addr
}

// New returns an edge that sends to a device.
func New(dev Device) *Edge {
	e := &Edge{dev: dev}
	e.Reset()
	return e
}

// Reset forgets what the edge knows of a VPP that has ended.
func (e *Edge) Reset() {
	e.asked, e.counters, e.drops = map[question]time.Time{}, map[uint32]*Counters{}, map[string]uint64{}
}

// Drops returns how many packets were dropped, by reason.
func (e *Edge) Drops() map[string]uint64 { return maps.Clone(e.drops) }

// Of returns the counters of an interface.
func (e *Edge) Of(index uint32) *Counters {
	c := e.counters[index]
	if c == nil {
		c = &Counters{}
		e.counters[index] = c
	}
	return c
}

// Forget drops the counters of an interface that is gone.
func (e *Edge) Forget(index uint32) { delete(e.counters, index) }

// maxDepth ends loops of tunnels and bridges.
const maxDepth = 16

// visit is the processing of one frame from a device.
type visit struct {
	*Edge
	g     sim.Graph
	now   time.Time
	depth int
	made  bool // VPP made the frame that leaves; it did not come from a device
}

// Receive processes a frame that came to an interface. The edge keeps b.
func (e *Edge) Receive(g sim.Graph, now time.Time, index uint32, b []byte) {
	c := e.Of(index)
	c.RxPackets++
	c.RxBytes += uint64(len(b))
	(&visit{Edge: e, g: g, now: now}).arrive(index, b)
}

// Expire lets VPP's timers run, and sends what VPP makes then.
func (e *Edge) Expire(g sim.Graph, now time.Time) {
	table, made := g.Expire()
	for _, l := range made {
		(&visit{Edge: e, g: g, now: now, made: true}).outputs(0, g.Originate(0, table, true, l)) // as if local0 had them received
	}
}

func (e *Edge) drop(index uint32, why string) {
	e.Of(index).Drops++
	e.drops[why]++
}

// arrive is ethernet-input.
func (v *visit) arrive(index uint32, b []byte) {
	f, ok := frame.ParseEthernet(b)
	p, exists := v.g.Port(index)
	switch {
	case !ok:
		v.drop(index, "ethernet-input: no frame")
		return
	case !exists || !p.Up:
		v.drop(index, "ethernet-input: interface is down")
		return
	}
	if f.VLAN != 0 && p.VLAN == 0 && p.Role == 0 {
		sub, known := v.g.Sub(index, f.VLAN)
		if index = sub; !known {
			v.drop(index, "ethernet-input: unknown vlan")
			return
		}
		if p, exists = v.g.Port(index); !exists || !p.Up {
			v.drop(index, "ethernet-input: interface is down")
			return
		}
	}
	if p.Role != 0 && !p.BVI {
		v.bridged(index, &f, b)
		return
	}
	v.routed(index, &p, &f)
}

// bridged switches a frame that came by a port.
func (v *visit) bridged(in uint32, f *frame.Ethernet, b []byte) {
	out, why := v.g.Switch(in, f.Src, f.Dst)
	if why != "" {
		v.drop(in, "l2-fwd: "+why)
		return
	}
	made := v.made
	for _, i := range out {
		v.made = made
		p, exists := v.g.Port(i)
		switch {
		case !exists || !p.Up:
			v.drop(i, "l2-output: interface is down")
		case p.BVI:
			v.routed(i, &p, f)
		default:
			v.transmit(i, &p, b)
		}
	}
}

// routed lets a frame into the routed interface.
func (v *visit) routed(index uint32, p *sim.Port, f *frame.Ethernet) {
	if !frame.IsGroup(f.Dst) && f.Dst != p.MAC {
		v.drop(index, "ethernet-input: mac address mismatch")
		return
	}
	switch f.Type {
	case frame.TypeARP:
		v.arp(index, p, f)
	case frame.TypeIPv4, frame.TypeIPv6:
		if f.Type != frame.IPType(f.Payload) {
			v.drop(index, "ip-input: wrong version")
			return
		}
		v.ip(index, p, f)
	default:
		v.drop(index, "ethernet-input: unknown ethertype")
	}
}

// ip lets a packet into the engine.
func (v *visit) ip(index uint32, p *sim.Port, f *frame.Ethernet) {
	l, err := frame.Read(f.Payload)
	if err != nil {
		v.drop(index, "ip-input: not forwarded: "+err.Error())
		return
	}
	if d, ok := frame.ParseDiscovery(l.Bytes); ok && v.discovery(index, p, &d) {
		return
	}
	v.outputs(index, v.g.Input(index, l))
}

// outputs sends what the engine let out.
func (v *visit) outputs(in uint32, fate sim.Fate) {
	if len(fate.Out) == 0 {
		why := "waits" // for the rest of a datagram
		if n := len(fate.Hops); n > 0 {
			why = fate.Hops[n-1].Node
		}
		v.drop(in, why)
	}
	for i := range fate.Out {
		v.output(in, &fate.Out[i])
	}
}

// output sends one packet.
func (v *visit) output(in uint32, o *sim.Output) {
	x := o.Exit
	if v.depth++; v.depth > maxDepth {
		v.drop(in, "a loop of tunnels or bridges")
		return
	}
	defer func() { v.depth-- }()
	if o.Local {
		if _, inner, ok := x.Load.Unwrap(); ok {
			v.made = false
			v.arrive(x.Index, inner)
		}
		return
	}
	p, exists := v.g.Port(x.Index)
	if !exists {
		return
	}
	b := bytesOf(o, &p)
	if b == nil {
		v.drop(x.Index, "not sent: "+o.Origin)
		return
	}
	if o.BadChecksum {
		frame.Spoil(b)
	}
	if mac, ok := v.neighbor(x, &p); ok {
		v.made = o.Origin != sim.Forwarded
		v.send(x.Index, &p, &frame.Ethernet{Dst: mac, Src: p.MAC, VLAN: p.VLAN, Type: frame.IPType(b), Payload: b})
	}
}

// make sends a frame that VPP made.
func (v *visit) make(index uint32, p *sim.Port, f *frame.Ethernet) {
	v.made = true
	v.send(index, p, f)
}

// send lets a frame out by a routed interface.
func (v *visit) send(index uint32, p *sim.Port, f *frame.Ethernet) {
	b := f.Bytes()
	switch {
	case p.BVI:
		v.bridged(index, f, b)
	case p.VLAN != 0:
		if parent, ok := v.g.Port(p.Parent); ok {
			v.transmit(p.Parent, &parent, b)
		}
	default:
		v.transmit(index, p, b)
	}
}

// transmit is interface-output: the frame goes to a Linux interface, or into a tunnel.
func (v *visit) transmit(index uint32, p *sim.Port, b []byte) {
	if !p.Up {
		v.drop(index, "interface-output: interface is down")
		return
	}
	if p.Tunnel != nil {
		outer, err := p.Tunnel.Wrap(b)
		if err != nil {
			v.drop(index, "vxlan-encap: "+err.Error())
			return
		}
		v.outputs(index, v.g.Originate(index, p.Table, v.made, outer))
		return
	}
	if !v.dev.Send(index, b) {
		v.drop(index, "tx: the Linux interface did not take it")
		return
	}
	c := v.Of(index)
	c.TxPackets++
	c.TxBytes += uint64(len(b))
}
