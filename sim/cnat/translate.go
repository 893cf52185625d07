package cnat

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// translate is cnat_translation_ip4 and _ip6; the result describes the changes.
func (e *Engine) translate(r *Result, p *packet.Packet, k *sessionKey, s *session, how string) {
	to := &s.to
	switch {
	case p.HasPorts():
		p.Src, p.Dst, p.SrcPort, p.DstPort = to.Src, to.Dst, to.SrcPort, to.DstPort
	case p.IsEcho():
		p.Src, p.Dst, p.ICMPID = to.Src, to.Dst, to.SrcPort
	default:
		was := addrSum(p)
		in := p.Inner
		if e.translateError(p, k, to) {
			r.BadChecksum = p.Dst.Is4() && in.HasPorts() && (omitted(in.SrcPort, to.DstPort)+omitted(in.DstPort, to.SrcPort))%0xffff != 0
		} else {
			r.BadChecksum = p.Dst.Is6() && addrSum(p) != was
		}
	}
	if p.Proto == model.TCP {
		e.tcp(p.TCPFlags, s.stamp)
	}
	r.Text = fmt.Sprintf("%s, %s", describeChange(&k.Tuple, to), how)
}

// omitted is how much VPP leaves out of the checksum of an IPv4 error for a port of the quoted packet: a change from 0 or to 0.
func omitted(was, now uint16) int {
	if was != 0 && now != 0 {
		return 0
	}
	return int(now) - int(was)
}

// describeChange describes the translation of one end.
func describeChange(from, to *Tuple) string {
	src, dst := [2]netip.AddrPort{}, [2]netip.AddrPort{}
	for i, t := range []*Tuple{from, to} {
		src[i], dst[i] = netip.AddrPortFrom(t.Src, t.SrcPort), netip.AddrPortFrom(t.Dst, t.DstPort)
	}
	switch {
	case src[0] == src[1]:
		return fmt.Sprintf("%s is %s", dst[0], dst[1])
	case dst[0] == dst[1]:
		return fmt.Sprintf("%s is %s", src[0], src[1])
	}
	return fmt.Sprintf("%s is %s, %s is %s", src[0], src[1], dst[0], dst[1])
}

// tcp is cnat_tcp_update_session_lifetime: after FIN or RST both directions expire after five idle seconds.
func (e *Engine) tcp(flags uint8, s *stamp) {
	if flags&(packet.FIN|packet.RST) != 0 {
		e.setIdle(s, idleEnding)
	}
	if flags&packet.SYN != 0 && flags&packet.ACK != 0 {
		e.setIdle(s, idleEstablished)
	}
}

// translateError changes an ICMP error and the packet in it. The error's source stays, unless it is the quoted packet's destination.
// False: VPP stopped half way.
func (e *Engine) translateError(p *packet.Packet, k *sessionKey, to *Tuple) bool {
	if p.Src == k.Src {
		p.Src = to.Src
	}
	p.Dst = to.Dst
	in := p.Inner.Clone()
	switch {
	case in.Fragment.Any() && in.Dst.Is6():
		return false
	case in.Proto == model.TCP, in.Proto == model.UDP:
		in.SrcPort, in.DstPort = to.DstPort, to.SrcPort
	case e.echo && in.IsEcho():
		in.ICMPID = to.DstPort
	default:
		return false
	}
	in.Src, in.Dst = to.Dst, to.Src
	p.Inner = &in
	return true
}
