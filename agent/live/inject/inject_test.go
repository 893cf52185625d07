package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const here = "/proc/self/ns/net"

// whole puts a segment behind an IP header, and reads both.
func whole(t *testing.T, h Header, segment []byte) *frame.Load {
	t.Helper()
	var b []byte
	if h.Source.Is4() {
		b = append([]byte{0x45, 0, 0, byte(20 + len(segment)), 0, 0, 0, 0, 64, byte(h.Protocol), 0, 0}, append(h.Source.AsSlice(), h.Destination.AsSlice()...)...)
		binary.BigEndian.PutUint16(b[10:], packet.Checksum(b))
	} else {
		b = append([]byte{0x60, 0, 0, 0, 0, byte(len(segment)), byte(h.Protocol), 64}, append(h.Source.AsSlice(), h.Destination.AsSlice()...)...)
	}
	l, err := frame.Read(append(b, segment...))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A second implementation reads what is sent: the fields are those of the header, and the checksum is right.
func TestSegment(t *testing.T) {
	v4, v6 := [2]string{"10.1.1.2", "10.96.0.10"}, [2]string{"fd00:1::2", "fd00:96::a"}
	for _, c := range []struct {
		ends     [2]string
		protocol model.Protocol
		kernel   bool // writes the checksum
	}{{v4, model.TCP, false}, {v6, model.TCP, false}, {v4, model.UDP, false}, {v6, model.UDP, false}, {v4, model.ICMP, false}, {v6, model.ICMPv6, true}} {
		h := Header{Source: netip.MustParseAddr(c.ends[0]), Destination: netip.MustParseAddr(c.ends[1]), Protocol: c.protocol, SourcePort: 4321, DestinationPort: 80}
		segment := h.segment(0x01020304)
		l := whole(t, h, segment)
		got := l.Header
		if got.Src != h.Source || got.Dst != h.Destination || got.Proto != c.protocol {
			t.Errorf("%s: %+v", c.protocol, got)
		}
		ports := got.SrcPort == 4321 && got.DstPort == 80
		if got.IsEcho() {
			ports = got.ICMPID == 4321
		}
		if !ports || c.protocol == model.TCP && got.TCPFlags != packet.SYN {
			t.Errorf("%s: %+v", c.protocol, got)
		}
		if !l.Whole && !c.kernel {
			t.Errorf("%s %s: the checksum is wrong: %x", c.ends, c.protocol, segment)
		}
		if c.protocol == model.TCP && !bytes.Contains(segment, []byte{1, 2, 3, 4}) {
			t.Errorf("no sequence number: %x", segment)
		}
	}
}

// opened is a sender in this namespace, until the test ends.
func opened(t *testing.T, h Header) *Sender {
	t.Helper()
	s, err := Open(here, h)
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("needs root: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Each Send is one packet, from a port that no other socket gets while the sender is open; then the port is free again.
func TestSend(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: local.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	s := opened(t, Header{Source: local, Destination: local, Protocol: model.UDP, DestinationPort: at.Port()})
	if s.Header.SourcePort == 0 {
		t.Fatal("no source port is chosen")
	}
	if _, err := Open(here, s.Header); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "source 127.0.0.1:") {
		t.Errorf("the port of an open sender: %v", err)
	}
	if err := s.Send(); err != nil {
		t.Fatal(err)
	}
	_ = server.SetReadDeadline(time.Now().Add(5 * time.Second)) // a socket has deadlines
	if n, from, err := server.ReadFromUDPAddrPort(make([]byte, 9)); err != nil || n != 0 || from != netip.AddrPortFrom(local, s.Header.SourcePort) {
		t.Errorf("%d bytes from %s, %v", n, from, err)
	}
	_ = server.SetReadDeadline(time.Now()) // as above; on loopback, packets arrive before Send returns
	if _, from, err := server.ReadFromUDPAddrPort(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a second packet from %s, %v", from, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	opened(t, s.Header)
}

// A server gets the SYN, and the kernel resets the connection: no connection opens.
func TestSendOpensNoConnection(t *testing.T) {
	local := netip.MustParseAddr("127.0.0.1")
	server, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: local.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	port := server.Addr().(*net.TCPAddr).AddrPort().Port()
	s := opened(t, Header{Source: local, Destination: local, Protocol: model.TCP, DestinationPort: port})
	heard, err := net.ListenIP("ip4:tcp", &net.IPAddr{IP: local.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	defer heard.Close()
	if err := s.Send(); err != nil {
		t.Fatal(err)
	}
	var flags []uint8
	_ = heard.SetReadDeadline(time.Now().Add(5 * time.Second)) // a socket has deadlines
	for buf := make([]byte, 200); len(flags) < 3; {
		n, err := heard.Read(buf)
		if err != nil {
			t.Fatalf("flags %x, %v", flags, err)
		}
		b := buf[:n]
		if b[0]>>4 == 4 { // Read leaves the IP header in place
			b = b[int(b[0]&15)*4:]
		}
		if from, to := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]); from == s.Header.SourcePort && to == port || from == port && to == s.Header.SourcePort {
			flags = append(flags, b[13])
		}
	}
	if want := []uint8{packet.SYN, packet.SYN | packet.ACK, packet.RST}; !bytes.Equal(flags, want) {
		t.Errorf("flags %x, want %x", flags, want)
	}
}

// Every failure names the address or the protocol.
func TestOpenRefuses(t *testing.T) {
	local, far := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.77")
	for _, c := range []struct {
		at   string
		h    Header
		want string
	}{
		{"/no/such/namespace", Header{}, "no such file"},
		{here, Header{Source: local, Destination: local, Protocol: model.SCTP}, "want TCP, UDP or ICMP"},
		{here, Header{Source: far, Destination: local, Protocol: model.UDP}, "source 192.0.2.77:0: bind: cannot assign"},
	} {
		_, err := Open(c.at, c.h)
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("needs root: %v", err)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
