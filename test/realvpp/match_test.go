package realvpp

import (
	"fmt"
	"testing"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// match pairs what left both; why is not "" if that cannot be done.
func (w *twin) match(in flight, sims, reals []sim.Output) (landed []landing, why string) {
	if len(sims) != len(reals) {
		return nil, fmt.Sprintf("%d packets left the sim, %d the VPP", len(sims), len(reals))
	}
	for i, s := range sims {
		r := reals[i]
		switch {
		case s.Interface != r.Interface:
			return nil, "they left by different interfaces"
		case w.spoils(in, s, r):
			w.spoiled++
			continue
		case s.BadChecksum != r.BadChecksum:
			return nil, "one checksum is wrong"
		case !equal(in, s.Packet, r.Packet):
			excuse, most := &w.chances, fewChances
			if s.Packet.IsICMPError() {
				excuse, most = &w.reports, fewRationed
			}
			if !equal(in, reported(s.Packet, r.Packet), r.Packet) || *excuse >= most {
				return nil, "they differ, whatever the load balancer chooses"
			}
			*excuse++
		}
		landed = append(landed, landing{flight: flight{s.Packet, r.Packet}, at: s.Interface, spoil: s.BadChecksum})
	}
	return landed, ""
}

// spoils reports that cnat of 26.06 gave an ICMP error of VPP itself other addresses and ports. VPP does not look for the flow of such a packet, so that the node
// at its output takes what the packet before it left in the buffer (cnat_output_feature_get_rw). At most one in 20 packets may be so.
func (w *twin) spoils(in flight, s, r sim.Output) bool {
	return w.lab.newerCNAT() && s.Origin == sim.ICMPError && s.Packet.Src.Is6() && r.Packet.IsICMPError() && !equal(in, s.Packet, r.Packet) &&
		w.spoiled <= fewChances+w.packets/20
}

// fewLost is how many packets may get lost before they reach VPP in a whole test, and one more in manyPackets; a packet that VPP drops
// is dropped twice.
const (
	fewLost     = 3
	manyPackets = 2000
)

// fewChances is for how many packets one of 64,000 ports may be the right one by chance: those of two or three flows. fewRationed is how often the
// packet that an ICMP error is about may have other ports, as VPP did not send an earlier error.
const (
	fewChances  = 12
	fewRationed = 20
)

// reported is s with the source port that r has, if NAT gave both another one than they came with or might have. The packet that an ICMP
// error is about gets both ports of r's: cnat takes the lowest free port for both, and VPP did not take one for an error that it did not send
// (rationed).
func reported(s, r packet.Packet) packet.Packet {
	if drawn(s.SrcPort, r.SrcPort) {
		s.SrcPort = r.SrcPort
	}
	if s.Inner != nil && r.Inner != nil && drawn(s.Inner.SrcPort, r.Inner.SrcPort) && drawn(s.Inner.DstPort, r.Inner.DstPort) {
		inner := *s.Inner
		inner.SrcPort, inner.DstPort = r.Inner.SrcPort, r.Inner.DstPort
		s.Inner = &inner
	}
	return s
}

// drawn reports whether NAT may have chosen both ports.
func drawn(p, q uint16) bool { return p >= 1024 && q >= 1024 }

// lawPort is the lowest port of a client: lists treat packets from and to lower ones as a server's (ADR 12).
const lawPort = 32768

// crossed reports whether NAT drew a port below lawPort on one VPP and one above it on the other, so that lists rightly differ.
func (f flight) crossed() bool {
	low := func(p, q uint16) bool { return (p < lawPort) != (q < lawPort) }
	if a, b := f.sim.Inner, f.real.Inner; a != nil && b != nil && (flight{*a, *b}).crossed() {
		return true
	}
	return low(f.sim.SrcPort, f.real.SrcPort) || low(f.sim.DstPort, f.real.DstPort)
}

// equal compares two packets that came of the same flight. A port may differ if both are new, or if they already did.
func equal(in flight, s, r packet.Packet) bool {
	if (s.Inner == nil) != (r.Inner == nil) || s.Inner != nil && !equal(in, *s.Inner, *r.Inner) {
		return false
	}
	pairs := [][2]uint16{}
	var collect func(a, b packet.Packet)
	collect = func(a, b packet.Packet) {
		pairs = append(pairs, [2]uint16{a.SrcPort, b.SrcPort}, [2]uint16{a.DstPort, b.DstPort}, [2]uint16{a.ICMPID, b.ICMPID})
		if a.Inner != nil && b.Inner != nil {
			collect(*a.Inner, *b.Inner)
		}
	}
	collect(in.sim, in.real)
	port := func(a, b uint16) bool {
		if a == b {
			return true
		}
		fresh := true
		for _, p := range pairs {
			if p == [2]uint16{a, b} {
				return true
			}
			fresh = fresh && p[0] != a && p[1] != b
		}
		return fresh
	}
	return port(s.SrcPort, r.SrcPort) && port(s.DstPort, r.DstPort) && port(s.ICMPID, r.ICMPID) &&
		s.Src == r.Src && s.Dst == r.Dst && s.Proto == r.Proto && s.TCPFlags == r.TCPFlags &&
		s.ICMPType == r.ICMPType && s.ICMPCode == r.ICMPCode && s.Life() == r.Life()
}

func TestCrossed(t *testing.T) {
	at := func(src, dst uint16) packet.Packet { return packet.Packet{SrcPort: src, DstPort: dst} }
	about := func(p packet.Packet) packet.Packet { return packet.Packet{Inner: &p} }
	for _, c := range []struct {
		sim, real packet.Packet
		want      bool
	}{
		{at(40000, 80), at(50000, 80), false},
		{at(40000, 80), at(2000, 80), true},
		{at(80, 32767), at(80, 32768), true},
		{about(at(40000, 80)), about(at(2000, 80)), true},
		{about(at(40000, 80)), about(at(40001, 80)), false},
	} {
		if got := (flight{c.sim, c.real}).crossed(); got != c.want {
			t.Errorf("%v, %v: %v", &c.sim, &c.real, got)
		}
	}
}
