package sim

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/cnat"
	"github.com/contiv-agent/contiv-agent/sim/flowprobe"
	"github.com/contiv-agent/contiv-agent/sim/hop"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Packet is one packet, without the payload.
type Packet = packet.Packet

// Origins of an Output.
const (
	Forwarded = "forwarded"
	ICMPError = "icmp-error" // VPP reports an error about the sent packet
	Answered  = "answered"   // VPP is the destination and answers itself
)

// maxSteps ends forwarding loops.
const maxSteps = 64

// Fate is the result of a packet.
type Fate struct {
	// Hops are the graph nodes that acted, in order. The last hop of a dropped packet gives the reason.
	Hops []Hop
	// Out are the packets that leave; empty: dropped.
	Out []Output
	// Last is the dropped packet, with the translations up to that point; zero if the packet was not dropped.
	Last Packet
}

// Hop is the action of one graph node.
type Hop = hop.Hop

// Output is one packet that leaves.
type Output struct {
	Interface string // "" if Local
	Packet    Packet
	Local     bool // handed to the node's network stack
	// BadChecksum: VPP computed a wrong IP or ICMPv6 checksum, so the receiver discards the packet (nat44-ed: ICMP errors of routers
	// on the path; cnat: IPv6 errors about SCTP).
	BadChecksum bool
	Origin      string // Forwarded, ICMPError or Answered
	Exit        *Exit  // nil: the packet has no bytes
}

// flow is one packet in the graph.
type flow struct {
	v      *VPP
	p      Packet
	rx, tx uint32
	table  uint32 // for the next lookup
	marks
	// badChecksum is kept: later changes update the checksum by differences. broken: VPP made a datagram whole that has a wrong one.
	badChecksum, broken bool
	origin              string
	steps               int
	fate                *Fate
	first               *Packet // a fragment behind reassembly: the first fragment of its datagram
	// of a packet of a vector: pause lets the others reach the same node, reported are the addresses of packets that VPP reported
	pause    func()
	reported map[[2]netip.Addr]bool
	cargo    *cargo // nil: the packet has no bytes
}

// marks say of a packet: VPP made it, so its TTL stays; and what cnat knows of its flow.
type marks struct {
	own   bool
	known cnat.Flow
}

// Send lets a packet arrive on an interface and returns its fate. Session state is kept. The packet must be valid (Packet.Validate)
// and have a TTL of at least 1 (0 stands for 64). ICMP over IPv6 counts as ICMPv6 (Packet.ForFamily).
func (v *VPP) Send(in string, p Packet) Fate {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.process(p, func(f *flow) { f.receive(in) })
}

// SendLocal lets the node's network stack behind VPP send a packet. VPP routes it by its default table without any input feature.
func (v *VPP) SendLocal(p Packet) Fate {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.process(p, func(f *flow) {
		f.rx = 0 // local0
		f.hop(fmt.Sprintf("ip%d-input", version(f.p.Dst)), "from the node's own stack: %s", &f.p)
		f.lookup()
	})
}

func (v *VPP) process(p Packet, start func(*flow)) Fate {
	var fate Fate
	f := &flow{v: v, p: p.ForFamily(), origin: Forwarded, tx: noIndex, fate: &fate, reported: map[[2]netip.Addr]bool{}}
	if v.crashed != nil {
		f.drop("vpp", "%v", v.crashed)
		return fate
	}
	if err := p.Validate(); err != nil {
		f.drop("ethernet-input", "not a packet: %v", err)
		return fate
	}
	f.p.TTL = f.p.Life()
	if !v.survives(func() { start(f) }) {
		fate.Out = nil
		f.drop("vpp", "%v", v.crashed)
	}
	return fate
}

// hop records the action of a node, and returns the record until the next one. Of packets with bytes nobody asks for them: it returns nil.
func (f *flow) hop(node, format string, args ...any) *Hop {
	if f.cargo != nil {
		return nil
	}
	return f.record(Hop{Node: node, Text: fmt.Sprintf(format, args...), Left: hop.HeaderOf(&f.p)})
}

func (f *flow) record(h Hop) *Hop {
	f.fate.Hops = append(f.fate.Hops, h)
	return &f.fate.Hops[len(f.fate.Hops)-1]
}

// drop records why the packet ends here; it returns false for use as a verdict.
func (f *flow) drop(node, format string, args ...any) bool {
	h := f.record(Hop{Node: node, Text: fmt.Sprintf("drop: "+format, args...), Dropped: true, Left: hop.HeaderOf(&f.p)})
	f.fate.Last = f.p.Clone()
	f.v.captured.Add(&f.p, node, h.Text)
	return false
}

func version(a netip.Addr) int {
	if a.Is4() {
		return 4
	}
	return 6
}

// receive is device input.
func (f *flow) receive(in string) {
	i := f.v.ifs.byName[in]
	switch {
	case i == nil:
		f.drop("ethernet-input", "vpp has no interface %s", in)
	case !i.up:
		f.drop("ethernet-input", "interface %s is down", in)
	case f.v.l2.Port(i.index).Mode != 0:
		f.drop("l2-input", "%s is %s, and frames are not switched here", in, f.v.l2.Port(i.index).Text(f.v.ifs.name))
	default:
		f.v.captured.Pass(&f.p, i.index, false)
		f.input(i)
	}
}

// input is ip4-input and the input arc, up to the lookup.
func (f *flow) input(i *iface) {
	fam := family(f.p.Dst)
	f.rx, f.table = i.index, i.table[fam]
	if !i.takes(fam) {
		f.drop(fmt.Sprintf("ip%d-not-enabled", version(f.p.Dst)), "%s has no IPv%d address and is not enabled for it", i.name, version(f.p.Dst))
		return
	}
	f.hop(fmt.Sprintf("ip%d-input", version(f.p.Dst)), "from %s: %s", i.name, &f.p).Receive(i.name)
	if f.badChecksum {
		f.drop(fmt.Sprintf("ip%d-input", version(f.p.Dst)), "bad ip4 checksum")
		return
	}
	if f.p.Dst.Is6() && f.p.Dst.IsMulticast() {
		f.multicast()
		return
	}
	if f.v.arcs.runArc([...]arcID{ip4: ip4Unicast, ip6: ip6Unicast}[fam], f.rx, f) {
		f.lookup()
	}
}

// next is the destination of a packet after a resolved route.
type next struct {
	path   path
	prefix netip.Prefix
	why    string // of a drop
	// exclusive: only the cnat plugin handles the address.
	exclusive bool
}

// lookup finds the route and follows it.
func (f *flow) lookup() {
	if f.steps++; f.steps > maxSteps {
		if hops := f.fate.Hops; len(hops) > 0 && strings.HasSuffix(hops[len(hops)-1].Node, "cnat-tx") {
			panic(trapEndless)
		}
		f.drop(f.node("lookup"), "went round %d times", maxSteps)
		return
	}
	n := f.v.resolve(f.table, f.p.Dst, f.hash(), 0)
	if f.cnatFIB() {
		f.followNext(n)
	}
}

// followNext processes a packet at the result of a lookup.
func (f *flow) followNext(n next) {
	if n.why != "" {
		f.drop(f.node("lookup"), "%s", n.why)
		return
	}
	r, text := hop.Route{Prefix: n.prefix, Via: n.path.via}, n.path.pathText(f.v.ifs.name)
	if n.path.swIf != noIndex {
		r.Interface = f.v.ifs.name(n.path.swIf)
	}
	switch n.path.typ {
	case PathLocal:
		f.hop(f.node("lookup"), "%s is VPP's own (%s)", f.p.Dst, n.prefix).Follow(r, "local")
		f.local()
	case PathUnreach:
		f.hop(f.node("lookup"), "%s %s", n.prefix, text).Follow(r, "unreachable")
		f.complain(f.node("null"), complaint{packet.Unreachable, packet.CodeHost, packet.Unreachable6, packet.CodeNoRoute6})
	case PathProhibit:
		f.hop(f.node("lookup"), "%s %s", n.prefix, text).Follow(r, "prohibited")
		f.complain(f.node("null"), complaint{packet.Unreachable, packet.CodeHostProhibited, packet.Unreachable6, packet.CodeAdminProhibited6})
	case PathNormal:
		f.hop(f.node("lookup"), "%s %s", n.prefix, text).Follow(r, "forward")
		f.rewrite(n.path)
	default:
		f.drop(f.node("lookup"), "%s %s", n.prefix, text)
		f.fate.Hops[len(f.fate.Hops)-1].Follow(r, "drop")
	}
}

// hash returns the flow hash that selects among equal-cost paths.
func (f *flow) hash() uint32 {
	h := fnv.New32a()
	src, dst := f.p.Src.As16(), f.p.Dst.As16()
	_, _ = h.Write(src[:])
	_, _ = h.Write(dst[:])
	_, _ = h.Write([]byte{byte(f.p.Proto), byte(f.p.SrcPort >> 8), byte(f.p.SrcPort), byte(f.p.DstPort >> 8), byte(f.p.DstPort)})
	return h.Sum32()
}

// resolve follows the FIB from a table to a path with a destination. Paths through interfaces that are down or deleted do not count,
// nor do unresolved next hops; among the best preference the weights share the flows.
func (v *VPP) resolve(tableID uint32, dst netip.Addr, hash uint32, depth int) next {
	t := v.fib[family(dst)].findTable(tableID)
	if t == nil || depth > 8 {
		return next{why: fmt.Sprintf("no table %d", tableID)}
	}
	e := t.lookup(dst)
	if e == nil {
		return next{why: fmt.Sprintf("no route to %s", dst)}
	}
	var usable []next
	for _, p := range t.paths(e) {
		n, ok := v.usable(p, e, dst, hash, depth)
		if !ok || len(usable) > 0 && p.pref > usable[0].path.pref {
			continue
		}
		usable = append(usable, n)
	}
	switch len(usable) {
	case 0:
		return next{prefix: e.prefix, why: fmt.Sprintf("%s: no usable path (%s)", e.prefix, t.paths(e)[0].pathText(v.ifs.name))}
	case 1:
		usable[0].exclusive = usable[0].path.typ == pathExclusive
		return usable[0]
	}
	return weigh(usable, hash)
}

func weigh(list []next, hash uint32) next {
	sum := uint32(0)
	for _, n := range list {
		sum += uint32(n.path.weight)
	}
	at := hash % sum
	for _, n := range list {
		if at < uint32(n.path.weight) {
			return n
		}
		at -= uint32(n.path.weight)
	}
	return list[0]
}

// usable resolves one path.
func (v *VPP) usable(p path, e *entry, dst netip.Addr, hash uint32, depth int) (next, bool) {
	if p.typ != PathNormal {
		return next{path: p, prefix: e.prefix}, true
	}
	if p.swIf != noIndex {
		f := v.ifs.get(p.swIf)
		return next{path: p, prefix: e.prefix}, f != nil && f.up
	}
	to := dst
	if p.via.IsValid() {
		if to = p.via; e.prefix.Contains(to) && e.prefix.Bits() > 0 && depth > 0 {
			return next{}, false // through itself
		}
	}
	n := v.resolve(p.table, to, hash, depth+1)
	if n.why != "" {
		return next{}, false
	}
	if n.path.typ == PathNormal && !n.path.via.IsValid() && p.via.IsValid() {
		n.path.via = p.via
	}
	n.prefix, n.path.weight, n.path.pref = e.prefix, p.weight, p.pref
	return n, true
}

// rewrite sends the packet out of an interface.
func (f *flow) rewrite(p path) {
	f.tx = p.swIf
	if !f.own {
		if f.p.TTL--; f.p.TTL == 0 {
			if f.cargo != nil {
				f.cargo = &cargo{load: f.cargo.load, over: true}
			}
			f.complain(f.node("rewrite"), timeExceeded())
			return
		}
	}
	if toward(f, p); fits(f, p) {
		emit(f)
	}
}

// emit runs the output features.
func emit(f *flow) {
	arc := ip4Output
	if f.p.Dst.Is6() {
		arc = ip6Output
	}
	if !f.v.arcs.runArc(arc, f.tx, f) {
		return
	}
	if i := f.v.ifs.get(f.tx); !i.routed && (f.cargo == nil || !f.v.l2.IsBVI(f.tx)) || f.bridged() {
		f.transmit(i)
	}
}

// transmit is the interface's tx node: a loopback discards, a pipe's other end receives, all others send.
func (f *flow) transmit(i *iface) {
	switch {
	case i.kind == kindLoop && f.cargo != nil && f.v.l2.IsBVI(i.index): // to the bridge
	case i.kind == kindLoop:
		f.drop(i.name+"-output", "a loopback has no peer")
		return
	case i.kind == kindPipeEnd:
		f.through(i)
		return
	}
	f.hop(i.name+"-tx", "%s", &f.p).Send(i.name)
	f.v.captured.Pass(&f.p, i.index, true)
	f.v.probe.Count(&f.p, flowprobe.Passage{In: f.rx, Out: i.index, Octets: f.octets, At: f.v.now})
	f.fate.Out = append(f.fate.Out, Output{Interface: i.name, Packet: f.p, BadChecksum: f.badChecksum, Origin: f.origin, Exit: exit(f, i.index)})
}

// attached reports whether an address is reached through an interface, and which.
func (v *VPP) attached(tableID uint32, dst netip.Addr) (uint32, bool) {
	n := v.resolve(tableID, dst, 0, 0)
	if n.why != "" || n.path.typ != PathNormal && n.path.typ != PathLocal || n.path.swIf == noIndex {
		return noIndex, false
	}
	return n.path.swIf, true
}

// LocalAddrs returns the addresses that VPP answers to, sorted: those of its interfaces that are up.
func (v *VPP) LocalAddrs() []netip.Addr {
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []netip.Addr
	for _, f := range v.ifs.all() {
		for _, p := range f.addrs {
			if f.up {
				list = append(list, p.Addr())
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
