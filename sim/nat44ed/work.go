package nat44ed

import (
	"net/netip"
	"strconv"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Action is what VPP does with a packet after NAT44-ED.
type Action uint8

// The actions. Next: the packet continues along the arc. TimeExceeded: VPP answers with ICMP 11/0, because its TTL is 1.
const (
	Next Action = iota
	Drop
	TimeExceeded
)

// Hop is a node that processed the packet, and its result. The text of a drop is VPP's error counter, word for word.
type Hop struct{ Node, Text string }

// Result of a pass through the nodes of an arc.
type Result struct {
	Action Action
	Hops   []Hop
	// Table is the FIB table for the packet's lookup; None: that of the incoming interface.
	Table uint32
	// BadChecksum is true when VPP computes a wrong checksum, so that the receiver discards the packet. It is the checksum of IP
	// when VPP corrects it for a source address other than the packet's (an ICMP error of a router on the path), that of ICMP when
	// the identifier of a quoted echo changes, and that of TCP and UDP when ports were not seen (vpp.md 3.2 B11).
	BadChecksum bool
}

// Meta is what VPP knows about a packet that the packet does not say.
type Meta struct {
	First *packet.Packet // behind reassembly: the first fragment of its datagram, by whose header a fragment is translated
	Pause func()         // is called before a slow path, which the packets of a vector reach together; nil: the packet is alone
}

// Input runs the NAT nodes of the interface's ip4-unicast arc on a packet that came by it, and changes the packet.
func (e *Engine) Input(p *packet.Packet, swIf uint32, meta Meta) Result {
	w := work{e: e, p: p, rx: swIf, tx: None, meta: meta, res: Result{Table: None}}
	w.table = e.net.Table(swIf)
	if e.reass[swIf] > 0 {
		w.reassemble()
	}
	a := e.arcs[swIf]
	for n, times := range a[:nodePreIn2OutOutput] {
		for range times {
			w.readPacket()
			if n := node(n); n == nodePreOut2In || n == nodeClassify && w.classify() == out2in {
				w.out2in()
			} else {
				w.in2out()
			}
			if w.res.Action != Next {
				return w.res
			}
			// VPP stores the table in the buffer's field for the output interface; a node that runs once more reads it as an
			// interface.
			w.tx = w.res.Table
		}
	}
	return w.res
}

// Output runs the NAT nodes of the ip4-output arc of txIf on a packet that came by rxIf; a packet made by VPP came by interface 0.
func (e *Engine) Output(p *packet.Packet, rxIf, txIf uint32, meta Meta) Result {
	w := work{e: e, p: p, rx: rxIf, tx: txIf, output: true, meta: meta, res: Result{Table: None}}
	w.table = e.net.Table(rxIf)
	w.reassemble()
	for range e.arcs[txIf][nodePreIn2OutOutput] {
		w.readPacket()
		w.in2out()
		if w.res.Action != Next {
			return w.res
		}
	}
	return w.res
}

// work is one packet in the NAT nodes. Addresses are those at the node's beginning. Ports, TCP flags and ICMP words are those that
// shallow reassembly read at the beginning of the arc: a second node of the arc sees the old ones.
type work struct {
	e      *Engine
	p      *packet.Packet
	rx, tx uint32 // tx None: not known yet
	table  uint32 // of rx
	output bool

	was          packet.Packet // at the node's beginning
	src, dst     uint32
	sport, dport uint16
	proto        uint8
	flags        uint8
	icmpType     uint8
	meta         Meta
	res          Result
}

// readPacket reads the addresses and the protocol of the packet.
func (w *work) readPacket() {
	w.was = *w.p
	w.src, w.dst, w.proto = addrNum(w.p.Src), addrNum(w.p.Dst), uint8(w.p.Proto)
}

// reassemble reads the other fields as VPP does. Both ports of an echo are its identifier. An ICMP error has the ports of the packet
// it quotes, swapped. Other protocols have none. Interfaces that lost their reassembly node (vpp.md 3.2 B11) have zeros everywhere.
func (w *work) reassemble() {
	p := w.p
	if w.meta.First != nil && p.Fragment.Any() {
		p = w.meta.First
	}
	w.flags, w.icmpType = p.TCPFlags, p.ICMPType
	switch {
	case p.Proto == model.TCP || p.Proto == model.UDP:
		w.sport, w.dport = p.SrcPort, p.DstPort
	case p.IsEcho():
		w.sport, w.dport = p.ICMPID, p.ICMPID
	case p.Inner != nil:
		w.readPacket()
		t := w.icmpKey()
		w.sport, w.dport = t.sport, t.dport
	}
}

func (w *work) isICMPError() bool {
	return w.proto == protoICMP && packet.IsICMPErrorType(w.icmpType)
}

func (w *work) isEcho() bool {
	return w.proto == protoICMP && (w.icmpType == packet.EchoRequest || w.icmpType == packet.EchoReply)
}

// opensTCP is false for TCP packets that may not make a session.
func (w *work) opensTCP() bool {
	return w.proto != protoTCP || w.flags&(packet.SYN|packet.ACK) == packet.SYN
}

func (w *work) packetKey() tuple { return flowKey(w.src, w.sport, w.dst, w.dport, w.table, w.proto) }

// reverse returns the key of the reply, in a table.
func (w *work) reverse(table uint32) tuple {
	return flowKey(w.dst, w.dport, w.src, w.sport, table, w.proto)
}

// icmpKey returns the key of a packet. That of an ICMP error is the flow to which the error is a reply.
func (w *work) icmpKey() tuple {
	in := w.p.Inner
	if in == nil || !w.isICMPError() {
		return w.packetKey()
	}
	var sport, dport uint16
	switch uint8(in.Proto) {
	case protoICMP:
		sport, dport = in.ICMPID, in.ICMPID
	case protoTCP, protoUDP:
		sport, dport = in.DstPort, in.SrcPort
	}
	return flowKey(addrNum(in.Dst), sport, addrNum(in.Src), dport, w.table, uint8(in.Proto))
}

// lookupKey is icmpKey. ok is false for ICMP that is neither echo nor error.
func (w *work) lookupKey() (t tuple, ok bool) {
	return w.icmpKey(), w.proto != protoICMP || w.isEcho() || w.isICMPError()
}

// length stands for the bytes of the packet in the session's account: headers only.
func (w *work) length() int {
	n := 20
	switch w.proto {
	case protoTCP:
		n += 20
	case protoUDP, protoICMP:
		n += 8
	}
	if w.p.Inner != nil {
		n += 28
	}
	return n
}

func (w *work) hop(node, text string) {
	if w.res.Hops == nil {
		w.res.Hops = make([]Hop, 0, 3) // sufficient for most packets
	}
	w.res.Hops = append(w.res.Hops, Hop{node, text})
}

func (w *work) dropPacket(node, why string) {
	w.hop(node, why)
	w.res.Action = Drop
}

// expiring answers packets whose TTL ends: VPP's NAT checks it before the FIB does.
func (w *work) expiring(node string) bool {
	if w.p.Life() != 1 {
		return false
	}
	w.hop(node, "ttl exceeded")
	w.res.Action = TimeExceeded
	return true
}

// live finds the session of a key. It ends a session that has timed out or whose VRF was deleted.
func (w *work) live(node string, k tuple) (uint32, bool) {
	e := w.e
	i, ok := e.flows[k]
	if !ok {
		w.hop(node, "slow path: no session")
		return 0, false
	}
	s := e.sessions.slotAt(i)
	switch {
	case s.pair != nil && s.pair.expired:
		w.hop(node, "slow path: vrf expired")
	case e.timedOut(s):
		w.hop(node, "slow path: session expired")
	default:
		return i, true
	}
	e.freeSession(i)
	return 0, false
}

// known finds the session that another packet of the vector made since the fast path. VPP looks for none of ICMP.
func (w *work) known() (uint32, bool) {
	if w.meta.Pause != nil {
		w.meta.Pause()
	}
	i, ok := w.e.flows[w.packetKey()]
	return i, ok && (w.proto == protoTCP || w.proto == protoUDP)
}

// account counts a packet that used a session.
func (w *work) account(i uint32, d direction) {
	if w.proto == protoTCP {
		w.e.tcpSeen(i, w.flags, d)
	}
	w.e.heard(i, w.length())
}

// rewrite translates the packet by a flow. It fails for an ICMP error about something other than TCP, UDP and ICMP.
func (w *work) rewrite(f *flow, d direction) bool {
	if !w.output && f.ops&opTable != 0 {
		w.res.Table = f.table
	}
	p := w.p
	if w.proto != protoICMP {
		p.Src, p.Dst = numAddr(f.saddr), numAddr(f.daddr)
		if (w.proto == protoTCP || w.proto == protoUDP) && !p.Fragment.Later() {
			w.res.BadChecksum = w.res.BadChecksum || !p.Fragment.Any() && (p.SrcPort != f.match.sport || p.DstPort != f.match.dport)
			p.SrcPort, p.DstPort = f.sport, f.dport
		}
		return true
	}
	// An error of a router on the path keeps its source from outside to inside, and gets a new checksum. Elsewhere VPP corrects the
	// checksum by the difference of the flow's addresses, whatever the packet's were.
	if keep := w.src != f.saddr && d == out2in; !keep {
		w.res.BadChecksum = w.res.BadChecksum || f.match.saddr != w.src || f.match.daddr != w.dst
		p.Src = numAddr(f.saddr)
	}
	p.Dst = numAddr(f.daddr)
	if p.Inner == nil {
		if f.ops&opICMPID != 0 && !p.Fragment.Later() && p.IsEcho() {
			p.ICMPID = f.icmpID
		}
		return true
	}
	in := *p.Inner
	id := in.ICMPID
	p.Inner = &in
	ok := rewriteQuoted(&in, f)
	w.res.BadChecksum = w.res.BadChecksum || in.ICMPID != id
	return ok
}

// rewriteQuoted translates the packet that an ICMP error quotes, which has the reverse direction.
func rewriteQuoted(in *packet.Packet, f *flow) bool {
	switch uint8(in.Proto) {
	case protoTCP, protoUDP:
		in.SrcPort, in.DstPort = f.dport, f.sport
	case protoICMP:
		if f.ops&opICMPID != 0 {
			in.ICMPID = f.icmpID
		}
	default:
		return false
	}
	in.Src, in.Dst = numAddr(f.daddr), numAddr(f.saddr)
	return true
}

// changed describes a translation in words that do not depend on the direction.
func (w *work) changed() string {
	p := w.p
	ports := w.proto == protoTCP || w.proto == protoUDP
	text := ""
	if p.Dst != w.was.Dst || p.DstPort != w.was.DstPort {
		text = "dnat " + endText(p.Dst, p.DstPort, ports)
	}
	if p.Src != w.was.Src || p.SrcPort != w.was.SrcPort {
		if text != "" {
			text += " "
		}
		text += "snat " + endText(p.Src, p.SrcPort, ports)
	}
	if p.ICMPID != w.was.ICMPID {
		text += " id " + strconv.Itoa(int(p.ICMPID))
	}
	if text == "" {
		text = "session found, nothing to translate"
	}
	if w.res.BadChecksum {
		text += ", wrong checksum"
	}
	return text
}

func endText(a netip.Addr, port uint16, ports bool) string {
	if !ports {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}
