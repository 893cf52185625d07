package sim

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// complaint is the kind of VPP's ICMP error, in both families.
type complaint struct{ type4, code4, type6, code6 uint8 }

func timeExceeded() complaint {
	return complaint{type4: packet.TimeExceeded, type6: packet.TimeExceeded6}
}

// node returns the name of a node of the packet's family.
func (f *flow) node(name string) string { return fmt.Sprintf("ip%d-%s", version(f.p.Dst), name) }

// complain is ip4-icmp-error and ip6-icmp-error: VPP quotes the packet in its present form, after translation, from an address of
// the incoming interface, and routes the error as any packet that it makes. The quoted TTL is the one at arrival. Of a vector VPP reports the
// first packet between two addresses.
func (f *flow) complain(node string, c complaint) {
	kind, code := c.type4, c.code4
	if f.p.Dst.Is6() {
		kind, code = c.type6, c.code6
	}
	text := "icmp-error " + packet.ErrorName(f.p.Dst.Is6(), kind, code)
	rx := f.v.ifs.get(f.rx)
	from, ok := f.v.sourceAddr(rx, f.p.Src)
	pair := [2]netip.Addr{f.p.Src, f.p.Dst}
	switch {
	case f.reported[pair]:
		f.drop(node, "%s, but VPP has just reported a packet between these addresses", text)
		return
	case f.p.IsICMPError() || f.own:
		f.drop(node, "%s about an error or a packet of VPP's own", text)
		return
	case !ok:
		f.drop(f.node("icmp-error"), "%s, but %s has no address to complain from", text, rx.name)
		return
	}
	f.reported[pair] = true
	f.hop(node, "%s", text)
	f.p.TTL = max(f.p.TTL, 1)
	e := f.p.ICMPError(from, kind, code)
	e.TTL = 255
	f.reply(f.node("icmp-error"), ICMPError, e, f.rx)
}

// reply sends a packet that VPP makes, by the table of the incoming interface. For the output features rx is the interface it came
// from: local0 for echo replies, otherwise the interface of the cause.
func (f *flow) reply(node, origin string, p Packet, rx uint32) {
	f.p, f.own, f.origin, f.tx, f.badChecksum = p, true, origin, noIndex, false
	f.p.TTL = f.p.Life()
	f.table = f.v.ifs.get(f.rx).table[family(p.Dst)]
	f.rx = rx
	f.hop(node, "%s", &f.p)
	f.lookup()
}

// local is ip4-local and ip6-local: the source must be routable and, in IPv4, no address of VPP. Then the node's stack receives the
// packet, or VPP answers as it does without one.
func (f *flow) local() {
	node := f.node("local")
	if f.own || f.broken {
		f.drop(node, "%s", map[bool]string{true: "VPP complains to itself", false: "wrong checksum: fragments here have none of the whole datagram"}[f.own])
		return
	}
	if !f.plausible(node) || f.discovery() {
		return
	}
	if f.v.cfg.PuntLocal {
		f.hop(node, "to the node's own stack: %s", &f.p)
		f.fate.Out = append(f.fate.Out, Output{Local: true, Packet: f.p, BadChecksum: f.badChecksum, Origin: f.origin})
		return
	}
	if !taken(f) {
		f.answer(node)
	}
}

// plausible checks the source of a packet to VPP.
func (f *flow) plausible(node string) bool {
	if f.rx == 0 || f.p.Dst.Is6() && (f.p.IsICMP() || f.p.Src.IsLinkLocalUnicast()) {
		return true
	}
	src := f.v.resolve(f.table, f.p.Src, 0, 0)
	switch {
	case src.exclusive:
		return true // the cnat plugin says so (FIB_ENTRY_FLAG_LOOSE_URPF_EXEMPT)
	case f.p.Dst.Is4() && src.path.typ == PathLocal && src.why == "":
		return f.drop(node, "source %s is VPP's own (spoofed local-address packet)", f.p.Src)
	case src.why != "" || src.path.typ != PathNormal:
		return f.drop(node, "no route to source %s (ip%d source lookup miss)", f.p.Src, version(f.p.Dst))
	}
	return true
}

// answer returns the reply of a VPP without a host stack: echo replies, port unreachable for UDP, a reset for TCP if the session
// layer is on, otherwise none.
func (f *flow) answer(node string) {
	switch {
	case f.p.Fragment.Any():
		if f.cargo != nil {
			f.v.punt.parts.Add(f.cargo.load)
		}
		whole, why := f.v.held.Host.Collect(f.v.ifs.get(f.rx).table[family(f.p.Dst)], &f.p, f.v.now)
		if why != "" {
			f.drop(f.node("local-full-reassembly"), "%s", why)
			return
		}
		f.p, f.broken = whole, !whole.IsEchoRequest() || whole.Dst.Is6()
		joined(f)
		f.input(f.v.ifs.get(f.rx)) // VPP processes it from ip4-input on
	case f.p.IsEchoRequest():
		f.hop(node, "answered by VPP")
		f.reply(f.node("icmp-echo-request"), Answered, f.p.Reply(), 0)
	case f.p.Proto == model.UDP:
		f.hop(node, "no listener")
		f.complain(f.node("udp-lookup"), complaint{packet.Unreachable, packet.CodePort, packet.Unreachable6, packet.CodePort6})
	case f.p.Proto == model.TCP && f.v.sessionLayer && f.p.TCPFlags&packet.RST == 0:
		r := f.p.Reply()
		r.TCPFlags = packet.RST | packet.ACK
		f.reply(fmt.Sprintf("tcp%d-reset", version(f.p.Dst)), Answered, r, f.rx)
	default:
		f.drop(node, "unknown ip protocol")
	}
}

// discovery is IPv6 neighbour discovery, which VPP handles itself. If the sender of a solicitation is on the interface's link, VPP
// answers through that interface, past the output features (icmp6-neighbor-solicitation sends to interface-output).
func (f *flow) discovery() bool {
	if f.p.Fragment.Any() || f.p.Proto != model.ICMPv6 || f.p.ICMPType < packet.RouterSolicit || f.p.ICMPType > packet.NeighborAdvert {
		return false
	}
	const solicitation, onLink = "icmp6-neighbor-solicitation", 255
	i, target := f.v.ifs.get(f.rx), f.p.Dst
	if target.IsMulticast() {
		target = f.v.solicited(target, targetOf(f), i.table[ip6])
	}
	from, known := f.v.attached(i.table[ip6], f.p.Src)
	switch {
	case f.p.TTL != onLink:
		return !f.drop("icmp6-input", "a hop limit of %d: it is not from this link", f.p.TTL)
	case f.p.ICMPType != packet.NeighborSolicit || f.p.Src.IsUnspecified():
		return !f.drop("icmp6-input", "type %d is VPP's own business", f.p.ICMPType)
	case !f.p.Src.IsLinkLocalUnicast() && (!known || from != f.rx):
		return !f.drop(solicitation, "%s is not on this link", f.p.Src)
	case !target.IsValid():
		return !f.drop(solicitation, "no interface here has this address")
	}
	f.p = Packet{Src: target, Dst: f.p.Src, Proto: model.ICMPv6, ICMPType: packet.NeighborAdvert, TTL: 255}
	f.own, f.origin = true, Answered
	f.hop(solicitation, "%s", &f.p)
	f.transmit(i)
	return true
}

// solicited returns VPP's address for a solicited-node multicast address (RFC 4291: its last 24 bits), or the wanted one; invalid: none.
func (v *VPP) solicited(group, wanted netip.Addr, table uint32) netip.Addr {
	g := group.As16()
	for _, f := range v.ifs.all() {
		for _, p := range f.addrs {
			if a := p.Addr().As16(); f.up && f.table[ip6] == table && p.Addr().Is6() && [3]byte(a[13:]) == [3]byte(g[13:]) && (!wanted.IsValid() || p.Addr() == wanted) {
				return p.Addr()
			}
		}
	}
	return netip.Addr{}
}

// multicast handles IPv6 multicast: it does not pass the features of unicast, and only discovery has a receiver.
func (f *flow) multicast() {
	if !f.discovery() {
		f.drop("ip6-mfib-forward-lookup", "no multicast route to %s", f.p.Dst)
	}
}
