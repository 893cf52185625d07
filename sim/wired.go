package sim

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/bridge"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/sim/policer"
	"github.com/contiv-agent/contiv-agent/sim/tap"
)

// Wire carries the packets of host interfaces; package wire has one. VPP calls it with its lock held: it must not call VPP.
type Wire interface {
	// Open starts to receive from a Linux interface for the af_packet interface or tap with that index.
	Open(index uint32, link *HostLink) error
	// Close ends that. The Linux interface of a tap is removed.
	Close(index uint32)
	// SetUp and SetMAC do what af_packet does to the Linux interface.
	SetUp(index uint32, up bool)
	SetMAC(index uint32, mac frame.MAC)
	// Reset closes all: VPP has ended. A Linux interface of a tap stays if it is persistent.
	Reset()
}

// HostLink is a Linux interface that a Wire opens.
type HostLink struct {
	Name    string
	Offload bool     // of af_packet: the wire finishes checksums
	Tap     *tap.End // the wire makes the Linux interface; nil: it exists, for af_packet
	Memif   string   // instead: the socket of a memif, at which VPP is the master
}

// noWire is the wire of a VPP whose packets have no bytes.
type noWire struct{}

func (noWire) Open(uint32, *HostLink) error { return nil }
func (noWire) Close(uint32)                 {}
func (noWire) SetUp(uint32, bool)           {}
func (noWire) SetMAC(uint32, frame.MAC)     {}
func (noWire) Reset()                       {}

// cargo is what a packet with bytes has beside its header. It does not change; a flow gets another one.
type cargo struct {
	load *frame.Load
	next netip.Addr // to which neighbour
	mtu  int        // that it exceeded
	over bool       // its life is over
}

// Exit is what a wire needs to send an Output.
type Exit struct {
	Index uint32     // the interface; of an Output that is Local: the tunnel that it came by
	Next  netip.Addr // the neighbour
	MTU   int        // for an ICMP error
	Ended bool       // for an ICMP error: the TTL of the quoted packet is zero
	Load  *frame.Load
}

func exit(f *flow, index uint32) *Exit {
	if f.cargo == nil {
		return nil
	}
	next := f.cargo.next
	if !next.IsValid() {
		next = f.p.Dst
	}
	return &Exit{Index: index, Next: next, MTU: f.cargo.mtu, Ended: f.cargo.over, Load: f.cargo.load}
}

// toward notes the neighbour of a path.
func toward(f *flow, p path) {
	if f.cargo != nil {
		next := p.via
		if !next.IsValid() {
			next = f.p.Dst
		}
		f.cargo = &cargo{f.cargo.load, next, f.cargo.mtu, f.cargo.over}
	}
}

// fits reports whether a packet fits in the link of a path; otherwise it is reported or leaves in fragments (ip4_mtu_check, ip6_mtu_check).
func fits(f *flow, p path) bool {
	if f.cargo == nil || f.origin == ICMPError {
		return true
	}
	i, load := f.v.ifs.get(p.swIf), f.cargo.load
	mtu := int(cmp.Or(i.mtu[1+family(f.p.Dst)], i.mtu[0]))
	v6 := f.p.Dst.Is6()
	if mtu == 0 || len(load.Bytes) <= mtu || v6 && mtu < 1280 {
		return true
	}
	if v6 && !f.own || !v6 && load.DontFragment() {
		if f.cargo = (&cargo{load: load, mtu: mtu}); !f.own && !v6 {
			f.p.TTL++
		}
		f.complain(f.node("rewrite"), complaint{packet.Unreachable, packet.CodeTooBig, packet.TooBig6, 0})
		return false
	}
	if f.own {
		f.p.TTL-- // VPP takes its own fragments for those of a host
	}
	parts := load.Split(f.p, mtu, f.v.rand())
	if parts == nil {
		return f.drop("ip-frag", "no fragments of it fit in %d bytes", mtu)
	}
	for _, part := range parts {
		g := *f
		g.p, g.cargo = part.Header, &cargo{load: part, next: f.cargo.next}
		emit(&g)
	}
	return false
}

// joined gives a datagram that is whole its bytes, and says whether its checksum is wrong.
func joined(f *flow) {
	if f.cargo != nil {
		load := f.v.punt.parts.Join(f.cargo.load)
		f.cargo, f.broken = &cargo{load: load}, wrong(load)
	}
}

// targetOf returns the address that a solicitation is about, which only its bytes say.
func targetOf(f *flow) (a netip.Addr) {
	if f.cargo != nil {
		if d, ok := frame.ParseDiscovery(f.cargo.load.Bytes); ok {
			a = d.Target
		}
	}
	return a
}

// wrong reports whether ip4-local or ip6-local drops a packet for its checksum.
func wrong(l *frame.Load) bool {
	p := &l.Header
	return !l.Whole && !p.Fragment.Any() && (p.Dst.Is6() || p.Proto == model.TCP || p.Proto == model.UDP)
}

// taken reports whether a packet to VPP has a receiver that only packets with bytes have: a tunnel, or a redirected punt.
func taken(f *flow) bool {
	switch {
	case f.cargo == nil, f.p.Fragment.Any(), f.p.IsEchoRequest():
		return false
	case f.p.Proto == model.UDP:
		return f.p.DstPort == vxlanPort && tunnelled(f)
	case f.p.Proto == model.TCP && f.v.sessionLayer:
		return false
	}
	return redirected(f)
}

// tunnelled is vxlan4-input and vxlan6-input.
func tunnelled(f *flow) bool {
	vni, _, ok := f.cargo.load.Unwrap()
	known := false
	for _, i := range f.v.ifs.list {
		if i == nil || i.kind != kindVxlan {
			continue
		}
		t := &i.vxlan
		known = true
		if ok && i.up && t.vni == vni && t.src == f.p.Dst && t.dst == f.p.Src && t.vrf == f.table {
			f.fate.Out = append(f.fate.Out, Output{Local: true, Packet: f.p, Origin: f.origin, Exit: exit(f, i.index)})
			return true
		}
	}
	if known {
		f.drop("vxlan-input", "no such tunnel")
	}
	return known
}

// redirected is ip4-punt-redirect and ip6-punt-redirect: the incoming interface's redirect, or the one of all interfaces.
func redirected(f *flow) bool {
	list, ok := f.v.punt.redirects[redirectKey{af: toAddress(f.p.Dst).Af, rx: f.rx}]
	if !ok {
		list = f.v.punt.redirects[redirectKey{af: toAddress(f.p.Dst).Af}]
	}
	for i := range list {
		p := decodePath(&list[i])
		to := f.p.Dst
		if p.via.IsValid() {
			to = p.via
		}
		if n, ok := f.v.usable(p, &entry{}, to, 0, 0); ok && n.path.typ == PathNormal {
			f.own = true // the node does not decrement the TTL
			f.rewrite(n.path)
			return true
		}
	}
	return false
}

// Graph is a VPP whose packets have bytes, while no request is processed: the view that a Wire has of it.
type Graph struct{ v *VPP }

// Wired lets f work with the graph at a time of the wire's clock, which the VPP's follows. f is not called while VPP is crashed.
func (v *VPP) Wired(now time.Time, f func(Graph)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.crashed != nil {
		return
	}
	if now.After(v.now) {
		v.now = now
	}
	_ = v.survives(func() { f(Graph{v}) })
}

// Expire ends the sessions that VPP ends by a timer, and returns the packets that VPP sends by itself, with the table where they are routed.
func (g Graph) Expire() (table uint32, made []*frame.Load) {
	g.v.cnat.Expire()
	head, table, messages := g.v.probe.Messages(g.v.now)
	for _, m := range messages {
		if l, err := frame.Datagram(head, m); err == nil {
			made = append(made, l)
		}
	}
	return table, made
}

// octets is the length of an IP packet; without bytes that of its headers.
func (f *flow) octets() uint64 {
	if f.cargo != nil {
		return uint64(len(f.cargo.load.Bytes))
	}
	b, _ := f.p.Marshal() // the header was checked when it came in
	return uint64(len(b))
}

// Port is an interface as a Wire sees it.
type Port struct {
	Name   string
	MAC    frame.MAC
	Up     bool
	Parent uint32 // of a sub-interface: the index; its frames have the tag VLAN
	VLAN   uint16 // 0: none
	BVI    bool
	Takes6 bool          // packets of IPv6
	Link6  bool          // it has a link-local address of IPv6
	Role   bridge.Mode   // at layer 2
	Tunnel *frame.Tunnel // of VXLAN; nil: none
	Table  uint32        // of the tunnel's outer packets
}

// Port returns an interface; false: it does not exist.
func (g Graph) Port(index uint32) (Port, bool) {
	i := g.v.ifs.get(index)
	if i == nil {
		return Port{}, false
	}
	p := Port{Name: i.name, MAC: i.mac, Up: i.up, BVI: g.v.l2.IsBVI(index), Takes6: i.takes(ip6), Link6: i.links6(), Role: g.v.l2.Port(index).Mode}
	switch i.kind {
	case kindSub:
		p.Parent, p.VLAN = i.parent, uint16(i.id)
	case kindVxlan:
		t := &i.vxlan
		p.Table = t.vrf
		p.Tunnel = &frame.Tunnel{VNI: t.vni, Outer: Packet{Src: t.src, Dst: t.dst, DstPort: t.dstPort}}
	}
	return p, true
}

// Sub returns the sub-interface of an interface for a VLAN.
func (g Graph) Sub(parent uint32, vlan uint16) (uint32, bool) {
	for _, i := range g.v.ifs.list {
		if i != nil && i.kind == kindSub && i.parent == parent && i.id == uint32(vlan) {
			return i.index, true
		}
	}
	return 0, false
}

// Input lets an IP packet arrive on an interface.
func (g Graph) Input(index uint32, l *frame.Load) Fate {
	return g.v.carry(l, func(f *flow) {
		g.v.captured.Pass(&f.p, index, false)
		if f.broken = wrong(l); limits(f, "policer-input", policer.Place{Interface: index}) {
			f.input(g.v.ifs.get(index))
		}
	})
}

// Originate routes the outer packet of a tunnel; own: VPP made the inner one, too, so that the TTL stays.
func (g Graph) Originate(tunnel, table uint32, own bool, l *frame.Load) Fate {
	return g.v.carry(l, func(f *flow) {
		f.rx, f.table, f.own = tunnel, table, own
		f.lookup()
	})
}

func (v *VPP) carry(l *frame.Load, start func(*flow)) Fate {
	var fate Fate
	f := &flow{v: v, p: l.Header, origin: Forwarded, tx: noIndex, fate: &fate, reported: map[[2]netip.Addr]bool{}, cargo: &cargo{load: l}}
	start(f)
	return fate
}

// Switch returns the interfaces that a frame leaves by which came by an interface.
func (g Graph) Switch(in uint32, src, dst frame.MAC) (out []uint32, why string) {
	return g.v.l2.Switch(in, src, dst)
}

// Neighbor returns the Ethernet address of a neighbour.
func (g Graph) Neighbor(index uint32, a netip.Addr) (frame.MAC, bool) {
	n, ok := g.v.neigh.byKey[neighborKey{index, a}]
	return n.mac, ok
}

// Learn notes a neighbour that was heard of. Static ones stay (ip_neighbor_learn).
func (g Graph) Learn(index uint32, a netip.Addr, mac frame.MAC) {
	k := neighborKey{index, a}
	if n, known := g.v.neigh.byKey[k]; !known || !n.static && n.mac != mac {
		g.v.setNeighbor(k, neighbor{mac: mac})
	}
}

// Source returns the address from which VPP asks for a neighbour.
func (g Graph) Source(index uint32, dst netip.Addr) (netip.Addr, bool) {
	return g.v.sourceAddr(g.v.ifs.get(index), dst)
}

// OnLink reports whether routes lead to an address by an interface itself.
func (g Graph) OnLink(index uint32, a netip.Addr) bool {
	i, known := g.v.attached(g.v.ifs.get(index).table[family(a)], a)
	return a.IsLinkLocalUnicast() || known && i == index
}

// Hears is arp-reply (arp.c): what VPP does when a sender on an interface asks for a target, or answers to it.
func (g Graph) Hears(index uint32, request bool, sender, target netip.Addr) (answer, learn bool) {
	i := g.v.ifs.get(index)
	t := g.v.fib[ip4].findTable(i.table[ip4])
	at, local, met := owner(t, target)
	unnumbered := at != noIndex && i.unnumbered == at
	attached, own, by := attachedSource(t, sender)
	switch {
	case own, !attached && !unnumbered:
		return false, false
	case met:
		return false, at == index && sender == target
	case !local:
		return false, false
	case !request:
		return false, true
	case (index != at || by != index) && !unnumbered, sender == target:
		return false, false
	}
	return true, true
}

// owner returns the interface that an address is on; local: it is VPP's; met: it is a neighbour's.
func owner(t *table, a netip.Addr) (at uint32, local, met bool) {
	e := t.lookup(a)
	if e == nil {
		return noIndex, false, false
	}
	at = noIndex
	for _, s := range e.sources {
		for _, p := range s.paths {
			if p.swIf != noIndex && at == noIndex {
				at = p.swIf
			}
			local = local || p.typ == PathLocal && p.swIf != noIndex
		}
		met = met || s.src == srcAdj
	}
	return at, local, met
}

// attachedSource looks for a route, however short, that attaches a sender to an interface; own: the address is VPP's.
func attachedSource(t *table, a netip.Addr) (attached, own bool, by uint32) {
	by = noIndex
	for bits := a.BitLen(); bits > 0; bits-- {
		p, _ := a.Prefix(bits) // bits are in range
		e := t.entries[p]
		if e == nil {
			continue
		}
		for _, s := range e.sources {
			for _, p := range s.paths {
				if by == noIndex {
					by = p.swIf
				}
				own = own || p.typ == PathLocal
				attached = attached || p.typ == PathNormal && p.swIf != noIndex && (!p.via.IsValid() || s.src == srcAdj)
			}
		}
		if own || attached {
			break
		}
	}
	return attached, own, by
}

// afPacket returns the interface of a Linux interface; nil: none.
func (s *interfaces) afPacket(host string) *iface {
	i := slices.IndexFunc(s.list, func(f *iface) bool { return f != nil && f.kind == kindAfPacket && f.host == host })
	if i < 0 {
		return nil
	}
	return s.list[i]
}
