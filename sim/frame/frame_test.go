package frame

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

func load(t *testing.T, line string) *Load {
	t.Helper()
	p, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	l, err := Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestAs changes the header of packets as translations do: the bytes must be those of a packet that was made so.
func TestAs(t *testing.T) {
	for _, c := range [][2]string{
		{"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [S] ttl 64", "tcp 10.1.1.2:40000 -> 10.1.2.3:8080 [S] ttl 62"},
		{"tcp 10.1.2.3:8080 -> 10.1.1.2:40000 [SA] ttl 9", "tcp 10.96.0.10:80 -> 10.1.1.2:40000 [SA] ttl 8"},
		{"udp 10.1.1.2:40000 -> 10.96.0.10:53", "udp 192.168.16.1:1024 -> 10.1.2.3:5353 ttl 63"},
		{"sctp 10.1.1.2:40000 -> 10.96.0.10:53 [INIT]", "sctp 10.1.1.2:40000 -> 10.1.2.3:5353 [INIT] ttl 63"},
		{"icmp 10.1.1.2 -> 10.1.1.3 echo-request id 7", "icmp 10.1.1.9 -> 10.1.1.3 echo-request id 99 ttl 63"},
		{"tcp [fd00::1]:40000 -> [fd00::2]:80 [S]", "tcp [fd00::9]:1 -> [fd00:5::2]:8080 [S] ttl 63"},
		{"udp [fd00::1]:40000 -> [fd00::2]:80", "udp [fd00::9]:1 -> [fd00:5::2]:8080 ttl 63"},
		{
			"icmp 10.1.2.3 -> 192.168.16.1 type 3 code 3 about (udp 192.168.16.1:1024 -> 10.1.2.3:5353)",
			"icmp 10.96.0.10 -> 10.1.1.2 type 3 code 3 ttl 63 about (udp 10.1.1.2:40000 -> 10.96.0.10:53)",
		},
	} {
		was, want := load(t, c[0]), load(t, c[1])
		got := was.As(want.Header)
		if c[0][:4] == "icmp" && want.Header.Inner != nil {
			got[len(got)-2], got[len(got)-1] = want.Bytes[len(got)-2], want.Bytes[len(got)-1] // nobody corrects what a quoted packet's checksum says
			if _, whole, err := packet.Peek(was.As(want.Header)); err != nil || !whole {
				t.Errorf("%s: the checksum is wrong, or %v", c[1], err)
			}
			continue
		}
		if !bytes.Equal(got, want.Bytes) {
			t.Errorf("%s as %s:\ngot  %s\nwant %s", c[0], c[1], hex.EncodeToString(got), hex.EncodeToString(want.Bytes))
		}
	}
}

// TestAsOfLaterFragments: cnat takes the first bytes of a later fragment for ports. Other nodes leave its data as it is.
func TestAsOfLaterFragments(t *testing.T) {
	l := load(t, "udp 10.1.1.2:0 -> 10.96.0.10:0 fragment 7 offset 24 length 24")
	const data = 20
	p := l.Header
	p.Src = netip.MustParseAddr("192.168.16.1")
	if got := l.As(p); !bytes.Equal(got[data:], l.Bytes[data:]) || bytes.Equal(got, l.Bytes) {
		t.Errorf("another address: %x, was %x", got, l.Bytes)
	}
	p.SrcPort = 49153
	if got := l.As(p); !bytes.Equal(got[data:data+4], []byte{0xc0, 1, 0, 0}) {
		t.Errorf("another port: the data is %x", got[data:])
	}
}

// TestAsKeepsWrongChecksums: VPP corrects by the difference.
func TestAsKeepsWrongChecksums(t *testing.T) {
	l := load(t, "tcp 10.1.1.2:40000 -> 10.96.0.10:80 [S]")
	b := bytes.Clone(l.Bytes)
	b[len(b)-1] ^= 0xff
	wrong, err := Read(b)
	if err != nil || wrong.Whole {
		t.Fatalf("read: %v, whole %t", err, wrong != nil && wrong.Whole)
	}
	p := wrong.Header
	p.Dst = netip.MustParseAddr("10.1.2.3")
	if again, err := Read(wrong.As(p)); err != nil || again.Whole {
		t.Errorf("a translation made a wrong checksum right: %v", err)
	}
	if again, err := Read(l.As(p)); err != nil || !again.Whole {
		t.Errorf("a translation made a right checksum wrong: %v", err)
	}
}

// TestFinish: a checksum that was left to the device.
func TestFinish(t *testing.T) {
	for _, line := range []string{"tcp 10.1.1.2:40000 -> 10.96.0.10:80 [S]", "udp [fd00::1]:40000 -> [fd00::2]:80"} {
		l := load(t, line)
		b := bytes.Clone(l.Bytes)
		at, _ := parts(b, &l.Header)
		b[at+6] ^= 1
		if l.Header.TCPFlags != 0 {
			b[at+6] ^= 1
			b[at+16] ^= 1
		}
		e := Ethernet{Type: IPType(b), Payload: b}
		f := e.Bytes()
		Finish(f)
		if !bytes.Equal(f[headerLen:], l.Bytes) {
			t.Errorf("%s: got %x want %x", line, f[headerLen:], l.Bytes)
		}
	}
}

// TestJoin splits datagrams and puts them together again.
func TestJoin(t *testing.T) {
	for _, line := range []string{"udp 10.1.1.2:40000 -> 10.96.0.10:80", "udp [fd00::1]:40000 -> [fd00::2]:80"} {
		p, _ := packet.Parse(line)
		tunnel := Tunnel{Outer: p, VNI: 7}
		whole, err := tunnel.Wrap(make([]byte, 3000))
		if err != nil {
			t.Fatal(err)
		}
		cut := whole.Split(whole.Header, 1280, 9)
		if len(cut) != 3 {
			t.Fatalf("%s: %d fragments", line, len(cut))
		}
		var s Parts
		for _, i := range []int{2, 0, 1} {
			if n := len(cut[i].Bytes); n > 1280 {
				t.Errorf("a fragment of %d bytes", n)
			}
			s.Add(cut[i])
		}
		got := s.Join(cut[1])
		if !got.Whole || !bytes.Equal(got.Bytes[ip4Len:], whole.Bytes[ip4Len:]) {
			t.Errorf("%s: another datagram", line)
		}
		if vni, frame, ok := got.Unwrap(); !ok || vni != 7 || len(frame) != 3000 {
			t.Errorf("%s: unwrap: %d, %d bytes, %t", line, vni, len(frame), ok)
		}
	}
}
