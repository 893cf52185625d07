package packet

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var lines = []string{
	"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [S]",
	"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [SA] ttl 5",
	"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [-]",
	"tcp 10.1.1.2:1 -> 10.96.0.10:2 [FSRPAUEC]",
	"udp 10.1.1.2:40000 -> 10.96.0.10:53",
	"udp [2001:db8::1]:40000 -> [2001:db8::2]:53",
	"sctp 10.1.1.2:40000 -> 10.96.0.10:53",
	"icmp 10.1.1.2 -> 10.1.1.3 echo-request id 7",
	"icmp 10.1.1.2 -> 10.1.1.3 echo-reply id 0 ttl 63",
	"icmp 10.1.1.2 -> 10.1.1.3 type 8 code 1 id 7",
	"icmp 10.1.1.2 -> 10.1.1.3 type 13 code 0",
	"icmp 10.1.1.1 -> 10.1.1.2 type 3 code 1 about (udp 10.1.1.2:40000 -> 10.96.0.10:53)",
	"icmp 10.1.1.1 -> 10.1.1.2 type 11 code 0 ttl 9 about (icmp 10.1.1.2 -> 10.1.1.3 echo-request id 7 ttl 1)",
	"proto-47 10.1.1.2 -> 10.1.1.3",
	"icmpv6 2001:db8::2 -> 2001:db8::3 echo-request id 7",
	"icmpv6 2001:db8::2 -> 2001:db8::3 type 135 code 0 ttl 255",
	"icmpv6 2001:db8::1 -> 2001:db8::2 type 1 code 4 about (udp [2001:db8::2]:40000 -> [2001:db8::a]:53)",
	"sctp 10.1.1.2:40000 -> 10.96.0.10:53 [INIT]",
	"sctp [2001:db8::1]:40000 -> [2001:db8::2]:53 [SHUTDOWN-COMPLETE] ttl 5",
	"sctp 10.1.1.2:40000 -> 10.96.0.10:53 [130]",
	"udp 10.1.1.2:40000 -> 10.96.0.10:53 fragment 7 offset 0 length 24 more",
	"udp 10.1.1.2:0 -> 10.96.0.10:0 fragment 7 offset 24 length 11 ttl 63",
	"icmpv6 2001:db8::2 -> 2001:db8::3 echo-request id 7 fragment 65535 offset 0 length 8 more",
	"tcp [2001:db8::1]:0 -> [2001:db8::2]:0 [-] fragment 7 offset 24 length 24 more",
}

func TestTextRoundTrip(t *testing.T) {
	for _, line := range lines {
		p, err := Parse(line)
		if err != nil {
			t.Errorf("Parse: %v", err)
			continue
		}
		if got := p.String(); got != line {
			t.Errorf("String: got %q want %q", got, line)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, line := range []string{
		"", "tcp", "tcp 10.1.1.2 -> 10.1.1.3", "udp 10.1.1.2:1 10.1.1.3:2", "gre 10.1.1.2 -> 10.1.1.3",
		"udp 10.1.1.2:1 -> [::1]:2", "udp 10.1.1.2:1 -> 10.1.1.3:2 [S]", "udp 10.1.1.2:1 -> 10.1.1.3:2 ttl 256",
		"udp 10.1.1.2:1 -> 10.1.1.3:2 ttl", "udp 10.1.1.2:1 -> 10.1.1.3:2 color 2", "tcp 1.1.1.1:1 -> 1.1.1.2:2 [X]",
		"tcp 1.1.1.1:1 -> 1.1.1.2:2 [S", "icmp 10.1.1.1 -> 10.1.1.2 type 3 code 1", "proto-0 10.1.1.2 -> 10.1.1.3",
		"icmp 10.1.1.1 -> 10.1.1.2 type 13 code 1 id 3", "udp 10.1.1.2:1 -> 10.1.1.3:2 about (udp 10.1.1.2:1 -> 10.1.1.3:2)",
		"icmp 1.1.1.1 -> 1.1.1.2 type 3 code 1 about (udp 10.1.1.2:1 -> 10.1.1.3:2",
		"icmp 1.1.1.1 -> 1.1.1.2 type 3 code 1 about (icmp 1.1.1.1 -> 1.1.1.2 type 3 code 1)",
	} {
		if p, err := Parse(line); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", line, p)
		}
	}
}

func TestReply(t *testing.T) {
	for line, want := range map[string]string{
		"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [S]":     "tcp 10.96.0.10:80 -> 10.1.1.2:40000 [SA]",
		"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [PA]":    "tcp 10.96.0.10:80 -> 10.1.1.2:40000 [A]",
		"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [FA]":    "tcp 10.96.0.10:80 -> 10.1.1.2:40000 [FA]",
		"udp 10.1.1.2:40000 -> 10.96.0.10:53 ttl 3":   "udp 10.96.0.10:53 -> 10.1.1.2:40000",
		"icmp 10.1.1.2 -> 10.1.1.3 echo-request id 7": "icmp 10.1.1.3 -> 10.1.1.2 echo-reply id 7",
		"icmpv6 fd00::2 -> fd00::3 echo-request id 7": "icmpv6 fd00::3 -> fd00::2 echo-reply id 7",
	} {
		p := parse(t, line)
		if got := p.Reply().String(); got != want {
			t.Errorf("reply to %s: got %s want %s", line, got, want)
		}
	}
}

func TestICMPErrorQuotesACopy(t *testing.T) {
	p := parse(t, "udp 10.1.1.2:40000 -> 10.96.0.10:53")
	e := p.ICMPError(netip.MustParseAddr("10.1.1.1"), Unreachable, CodeHost)
	p.SrcPort = 1
	if got, want := e.String(), lines[11]; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	c := e.Clone()
	c.Inner.SrcPort = 2
	if e.Inner.SrcPort != 40000 || e.Equal(c) || !e.Equal(e.Clone()) {
		t.Errorf("a clone shares the quoted packet: %s", e)
	}
}

// Another implementation made the bytes (Python's struct, checksums by the specification).
func TestUnmarshalKnownBytes(t *testing.T) {
	for bytes, want := range map[string]string{
		"4500001e00010000400166dc0a0000010a0000020800a09f000700015758":                     "icmp 10.0.0.1 -> 10.0.0.2 echo-request id 7 ttl 64",
		"4500002000010000401166ca0a0000010a00000200350036000c000061626364":                 "udp 10.0.0.1:53 -> 10.0.0.2:54 ttl 64",
		"4500002800010000400666cd0a0000010a0000029c4000500000000700000008501203e8fb480000": "tcp 10.0.0.1:40000 -> 10.0.0.2:80 [SA] ttl 64",
		// A router that quotes only the minimum of RFC 792.
		"4500003800010000400166bb0a0000090a00000103016067000000004500002800010000400666cd0a0000010a0000029c40005000000007": "icmp 10.0.0.9 -> 10.0.0.1 type 3 code 1 ttl 64 about (tcp 10.0.0.1:40000 -> 10.0.0.2:80 [-] ttl 64)",
	} {
		p, err := Unmarshal(decode(t, bytes))
		if err != nil || p.String() != want {
			t.Errorf("%s: got %v, %v; want %s", bytes, p, err, want)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	good := decode(t, "4500002800010000400666cd0a0000010a0000029c4000500000000700000008501203e8fb480000")
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if p, err := Unmarshal(bad); err == nil {
			t.Errorf("byte %d changed: got %v, want an error", i, p)
		}
	}
	for n := range good {
		if p, err := Unmarshal(good[:n]); err == nil {
			t.Errorf("%d bytes: got %v, want an error", n, p)
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	for name, p := range map[string]Packet{
		"zero":             {},
		"ICMPv6 over IPv4": {Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), Proto: model.ICMPv6, ICMPType: EchoRequest6},
		"ports of a ping":  {Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), Proto: model.ICMP, ICMPType: EchoRequest, SrcPort: 1},
		"error, no packet": {Src: addr("10.0.0.1"), Dst: addr("10.0.0.2"), Proto: model.ICMP, ICMPType: Unreachable},
	} {
		if b, err := p.Marshal(); err == nil {
			t.Errorf("%s: got %x, want an error", name, b)
		}
	}
}

func TestRoundTripsOfRandomPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := draw(t, maxInner)
		again, err := Parse(p.String())
		if err != nil || !p.Equal(again) {
			t.Fatalf("%s: parsed as %v, %v", p, again, err)
		}
		b, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := Unmarshal(b)
		want := p.Clone()
		want.TTL = p.Life()
		if want.Inner != nil {
			want.Inner.TTL = p.Inner.Life()
		}
		if diff := cmp.Diff(want.String(), back.String()); err != nil || diff != "" {
			t.Fatalf("%s: %v %s", p, err, diff)
		}
	})
}

func draw(t *rapid.T, depth int) Packet {
	is6 := rapid.Bool().Draw(t, "ipv6")
	if is6 {
		return draw6(t, depth)
	}
	p := Packet{
		Src:   netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "src"))),
		Dst:   netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "dst"))),
		Proto: rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP, model.ICMP, 47, 255}).Draw(t, "proto"),
		TTL:   rapid.Byte().Draw(t, "ttl"),
	}
	p.Fragment = drawFragment(t, depth)
	drawTransport(t, &p, depth, []uint8{EchoRequest, EchoReply, 13}, []uint8{Unreachable, TimeExceeded})
	return p
}

func draw6(t *rapid.T, depth int) Packet {
	end := func(name string) netip.Addr {
		return netip.AddrFrom16([16]byte(append([]byte{0x20, 1}, rapid.SliceOfN(rapid.Byte(), 14, 14).Draw(t, name)...)))
	}
	p := Packet{
		Src: end("src"), Dst: end("dst"), TTL: rapid.Byte().Draw(t, "ttl"),
		Proto: rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP, model.ICMPv6, 47, 255}).Draw(t, "proto"),
	}
	p.Fragment = drawFragment(t, depth)
	drawTransport(t, &p, depth, []uint8{EchoRequest6, EchoReply6, NeighborSolicit}, []uint8{Unreachable6, TimeExceeded6})
	return p
}

// drawFragment draws the place of one of four fragments, or none. Quoted packets are whole.
func drawFragment(t *rapid.T, depth int) Fragment {
	if depth < maxInner || rapid.Bool().Draw(t, "whole") {
		return Fragment{}
	}
	at := rapid.IntRange(0, 3).Draw(t, "fragment")
	return Fragment{ID: rapid.Uint16().Draw(t, "identification"), Offset: uint16(24 * at), Length: 24, More: at < 3}
}

func drawTransport(t *rapid.T, p *Packet, depth int, types, errors []uint8) {
	switch {
	case p.HasPorts():
		p.SrcPort, p.DstPort = rapid.Uint16().Draw(t, "sport"), rapid.Uint16().Draw(t, "dport")
		if p.Proto == model.TCP && !p.Fragment.Later() {
			p.TCPFlags = rapid.Byte().Draw(t, "flags")
		}
		if p.Proto == model.SCTP && !p.Fragment.Later() {
			p.Chunk = rapid.Byte().Draw(t, "chunk")
		}
	case p.IsICMP():
		if depth > 0 && !p.Fragment.Any() {
			types = append(types, errors...)
		}
		p.ICMPType, p.ICMPCode = rapid.SampledFrom(types).Draw(t, "type"), rapid.Byte().Draw(t, "code")
		if p.IsEcho() {
			p.ICMPID = rapid.Uint16().Draw(t, "id")
		}
		if p.IsICMPError() {
			inner := draw(t, depth-1)
			p.Inner = &inner
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range lines {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(p.String())
		if err != nil || !p.Equal(again) {
			t.Errorf("%q is %q, which is %q, %v", s, p, again, err)
		}
	})
}

func FuzzUnmarshal(f *testing.F) {
	for _, line := range lines {
		if p, err := Parse(line); err == nil {
			if b, err := p.Marshal(); err == nil {
				f.Add(b)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Unmarshal(b)
		if err != nil {
			return
		}
		out, err := p.Marshal()
		if err != nil {
			t.Fatalf("%x is %s, which has no bytes: %v", b, p, err)
		}
		again, err := Unmarshal(out)
		if err != nil || !p.Equal(again) {
			t.Errorf("%x is %s, then %s, %v", b, p, again, err)
		}
	})
}

func parse(t *testing.T, line string) Packet {
	t.Helper()
	p, err := Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func decode(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
