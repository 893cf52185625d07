package cnat

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// makeKey is cnat_session_make_key: an ICMP error is looked up as the reply to the packet it quotes, and a later fragment of IPv4 by its first
// bytes, as if they were ports. False: the plugin does not process such packets.
func (e *Engine) makeKey(p *packet.Packet, loc Location) (sessionKey, bool) {
	k := sessionKey{Tuple: Tuple{p.Src, p.Dst, p.SrcPort, p.DstPort}, proto: uint8(p.Proto), loc: loc}
	switch {
	case p.Fragment.Any() && p.Dst.Is6(): // its next header is the fragment header
		return k, false
	case p.Proto == model.TCP, p.Proto == model.UDP, p.Proto == model.SCTP && p.Dst.Is4():
		return k, true
	case p.IsEcho():
		k.SrcPort, k.DstPort = p.ICMPID, p.ICMPID
		return k, true
	case p.IsICMPError() && (p.Dst.Is4() || p.ICMPType != packet.TooBig6):
		return e.errorKey(p.Inner, loc)
	}
	return k, false
}

func (e *Engine) errorKey(in *packet.Packet, loc Location) (sessionKey, bool) {
	k := sessionKey{Tuple: Tuple{in.Dst, in.Src, in.DstPort, in.SrcPort}, proto: uint8(in.Proto), loc: loc}
	switch {
	case in.Fragment.Any() && in.Dst.Is6():
		k.proto, k.DstPort, k.SrcPort = in.Fragment.Ports6(in.Proto)
	case !in.IsICMP():
	case !e.echo: // VPP uses type and code, and the checksum, as ports
		k.DstPort, k.SrcPort = uint16(in.ICMPType)<<8|uint16(in.ICMPCode), checksum(in)
	case in.IsEcho():
		k.SrcPort, k.DstPort = in.ICMPID, in.ICMPID
	default:
		return k, false
	}
	return k, true
}

// checksum returns that of ICMP, and of ICMPv6, for a packet of eight bytes of which the last two are zero.
func checksum(p *packet.Packet) uint16 {
	sum := uint32(p.ICMPType)<<8 + uint32(p.ICMPCode) + uint32(p.ICMPID)
	if p.Src.Is6() {
		sum += 8 + uint32(model.ICMPv6) + uint32(addrSum(p))
	}
	return ^fold(sum)
}

// addrSum returns the part of a packet's addresses in a checksum.
func addrSum(p *packet.Packet) uint16 {
	var sum uint32
	for _, a := range [2][16]byte{p.Src.As16(), p.Dst.As16()} {
		for i := 0; i < len(a); i += 2 {
			sum += uint32(a[i])<<8 + uint32(a[i+1])
		}
	}
	return fold(sum)
}

func fold(sum uint32) uint16 {
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

func nodeName(name string, a netip.Addr) string {
	if a.Is6() {
		return "cnat-" + name + "-ip6"
	}
	return "cnat-" + name + "-ip4"
}

func fibNode(a netip.Addr) string {
	if a.Is6() {
		return "ip6-cnat-tx"
	}
	return "ip4-cnat-tx"
}

// serving returns the translation for a packet to one of the plugin's addresses. (VPP uses two bytes of an ICMP header as the port.)
func (e *Engine) serving(c *client, p *packet.Packet) *translation {
	if c == nil || !p.HasPorts() {
		return nil
	}
	if t := e.findTranslation(c, p.DstPort, uint8(p.Proto)); t != nil && len(t.active) > 0 {
		return t
	}
	return nil
}

// Input is cnat-input-ip4 and -ip6.
func (e *Engine) Input(p *packet.Packet) Result {
	name := nodeName("input", p.Dst)
	k, ok := e.makeKey(p, AtInput)
	if !ok {
		return Result{}
	}
	s, how := e.sessions[k], known
	if s != nil {
		e.touch(s.stamp)
	} else {
		c := e.clients[p.Dst]
		t := e.serving(c, p)
		if t == nil {
			return Result{Flow: Flow{Looked: true}}
		}
		s, how = e.balanced(t, p), "new flow"
		e.countSessions(c, 1)
		e.create(k, s)
		if t.flags&NoReturnSession == 0 {
			e.createReturn(k, s, AtOutput, flagNoClient)
		}
	}
	if s.flags&flagNoNAT != 0 {
		return Result{Action: Forward, Backend: s.backend, Node: name, Flow: flowOf(how), Text: fmt.Sprintf("to %s as it is, %s", s.backend, how)}
	}
	r := Result{Node: name, Flow: flowOf(how)}
	e.translate(&r, p, &k, s, how)
	return r
}

// known is the text about a packet of a flow that has a session.
const known = "known flow"

func flowOf(how string) Flow { return Flow{Looked: true, known: how == known} }

// balanced makes a session for a new flow through cnat-input, which ignores a path's source.
func (e *Engine) balanced(t *translation, p *packet.Packet) *session {
	path := e.balance(t, p)
	s := &session{to: Tuple{Src: p.Src, SrcPort: p.SrcPort, Dst: path.Dst.Addr, DstPort: path.Dst.Port}}
	if path.Flags&PathNoNAT != 0 {
		s.flags, s.backend = flagNoNAT, path.Dst.Addr
	}
	return s
}

// FIB is ip4-cnat-tx and ip6-cnat-tx, which receive the packets to the plugin's addresses by the routes. VPP 26.06 looks for the flow again there. A packet that Input
// has translated to one of these addresses, at a port without translation, begins another flow, whose answers take the place of those of the first.
func (e *Engine) FIB(p *packet.Packet) Result {
	r := Result{Node: fibNode(p.Dst)}
	c := e.clients[p.Dst]
	k, ok := e.makeKey(p, AtFIB)
	if !ok || c == nil {
		return r
	}
	s, how := e.sessions[k], known
	if s != nil {
		e.touch(s.stamp)
		switch {
		case s.backend.IsValid():
			r.Action, r.Backend = Forward, s.backend
		case s.flags&flagHasSNAT != 0:
			r.Action = Lookup
		}
	} else {
		t := e.serving(c, p)
		if t == nil {
			if back := k.backFrom(AtOutput); e.anew && e.sessions[back] != nil {
				e.freeSession(back, e.sessions[back])
			}
			return r
		}
		how = "new flow"
		var back uint32
		if s, back, ok = e.balancedFIB(t, p); !ok {
			return Result{Action: Drop, Node: r.Node, Text: exhausted}
		}
		e.countSessions(c, 1)
		e.create(k, s)
		if t.flags&NoReturnSession == 0 {
			e.createReturn(k, s, AtFIB, back)
		}
		r.Action, r.Backend = Forward, s.backend
	}
	r.Flow = flowOf(how)
	e.translate(&r, p, &k, s, how)
	return r
}

const exhausted = "no port left for another source (exhausted ports)"

// balancedFIB makes a session for a new flow through ip4-cnat-tx, and returns the flags of its reverse session; false: no port is
// free.
func (e *Engine) balancedFIB(t *translation, p *packet.Packet) (s *session, back uint32, ok bool) {
	path := e.balance(t, p)
	s = &session{to: Tuple{Src: p.Src, SrcPort: path.Src.Port, Dst: path.Dst.Addr, DstPort: path.Dst.Port}, backend: path.Dst.Addr}
	if !path.Src.Addr.IsUnspecified() {
		s.to.Src, back = path.Src.Addr, flagHasSNAT
	}
	switch {
	case s.to.SrcPort != 0:
	case t.flags&AllocPort != 0 && back != 0:
		s.flags |= flagAllocPort
		if s.to.SrcPort, ok = e.allocate(p.Proto); !ok {
			return nil, 0, false
		}
	default:
		s.to.SrcPort = p.SrcPort
	}
	return s, back, true
}

// Output is cnat-output-ip4 and -ip6 for a packet that came in by rx and leaves by tx. flow: what Input knew of its flow. VPP 26.06 then
// takes what a known flow's session has for this node, and makes nothing (cnat_output_feature_get_rw).
func (e *Engine) Output(p *packet.Packet, rx, tx uint32, flow Flow) Result {
	if k, ok := e.makeKey(p, AtOutput); e.anew && (!flow.Looked || flow.known && (!ok || e.sessions[k] == nil)) {
		return Result{}
	}
	return e.masquerade(p, nodeName("output", p.Dst), AtOutput, AtInput, rx, tx, flagNoClient|flagRetrySNAT)
}

// SNAT is cnat-snat-ip4 and -ip6, for a packet that came in by rx.
func (e *Engine) SNAT(p *packet.Packet, rx uint32) Result {
	return e.masquerade(p, nodeName("snat", p.Dst), AtFIB, AtFIB, rx, None, flagHasSNAT)
}

func (e *Engine) masquerade(p *packet.Packet, name string, at, backAt Location, rx, tx uint32, back uint32) Result {
	k, ok := e.makeKey(p, at)
	if !ok {
		return Result{}
	}
	r := Result{Node: name}
	if s := e.sessions[k]; s != nil {
		e.touch(s.stamp)
		e.translate(&r, p, &k, s, known)
		return r
	}
	from := e.snat[af(p.Dst)]
	has := !from.Addr.IsUnspecified()
	if at == AtFIB {
		has = from.resolved
	}
	if !e.wanted(&k, rx, tx) || !has {
		return Result{}
	}
	port, ok := e.allocate(p.Proto)
	if !ok {
		return Result{Action: Drop, Node: name, Text: exhausted}
	}
	s := &session{to: Tuple{Src: from.Addr, SrcPort: port, Dst: p.Dst, DstPort: port}, flags: flagNoClient | flagAllocPort}
	switch {
	case p.Proto == model.TCP || p.Proto == model.UDP:
		s.to.DstPort = p.DstPort
	case e.anew && p.Dst.Is6(): // an echo, to whose answer the return session does not apply (cnat_output_feature_new_flow_inline)
		s.to.DstPort = k.DstPort
	}
	e.create(k, s)
	e.createReturn(k, s, backAt, back)
	e.translate(&r, p, &k, s, "new flow")
	return r
}
