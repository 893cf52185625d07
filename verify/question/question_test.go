package question

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/space"
)

func TestLine(t *testing.T) {
	four := space.Header{Src: netip.MustParseAddr("10.1.1.2"), Dst: netip.MustParseAddr("10.1.1.3"), SrcPort: 40000, DstPort: 80}
	six := space.Header{Src: netip.MustParseAddr("fd00::2"), Dst: netip.MustParseAddr("fd00::3"), SrcPort: 40000, DstPort: 53}
	as := func(h space.Header, protocol uint8, flags uint8) space.Header {
		h.Protocol, h.Flags = protocol, flags
		return h
	}
	ping := func(h space.Header, protocol uint8, kind uint16) space.Header {
		h.Protocol, h.SrcPort, h.DstPort = protocol, kind, 0
		return h
	}
	noPort := as(four, space.UDP, 0)
	noPort.SrcPort = 0
	pod := Pod("prod/web")
	for _, tc := range []struct {
		from   string
		h      space.Header
		forged bool
		want   string
	}{
		{pod, as(four, space.TCP, space.SYN), false, `{"from":"pod:prod/web","protocol":"TCP","sourcePort":40000,"to":"10.1.1.3:80"}`},
		{pod, as(four, space.TCP, space.SYN|space.PSH), false, `{"from":"pod:prod/web","protocol":"TCP","sourcePort":40000,"to":"10.1.1.3:80"}`},
		{pod, as(six, space.UDP, 0), false, `{"from":"pod:prod/web","protocol":"UDP","sourcePort":40000,"to":"[fd00::3]:53"}`},
		{pod, as(four, space.UDP, 0), true, `{"from":"pod:prod/web","protocol":"UDP","sourceAddress":"10.1.1.2","sourcePort":40000,"to":"10.1.1.3:80"}`},
		{External(four.Src, "node-1"), ping(four, space.ICMP, 8), false, `{"from":"external:10.1.1.2@node-1","protocol":"ICMP","to":"10.1.1.3"}`},
		{pod, ping(six, space.ICMPv6, 128), false, `{"from":"pod:prod/web","protocol":"ICMP","to":"fd00::3"}`},
		{pod, ping(four, space.ICMP, 0), false, ""},
		{pod, as(four, space.TCP, space.ACK), false, ""},
		{pod, as(four, space.TCP, space.SYN|space.ACK), false, ""},
		{pod, as(four, space.SCTP, 0), false, ""},
		{pod, noPort, false, ""},
	} {
		if got := Line(tc.from, tc.h, tc.forged); got != tc.want {
			t.Errorf("%s: %s, should be %s", tc.h, got, tc.want)
		}
	}
}
