package realvpp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// captured is one packet that left VPP.
type captured struct {
	pair        int // the veth pair
	packet      packet.Packet
	badChecksum bool   // of the IP header: the receiver drops it
	raw         []byte // the IP bytes
	err         error  // not a packet at all
}

// frames puts packets onto the peers of VPP's interfaces and sees what VPP sends there, in one order over all interfaces.
type frames struct {
	file *os.File
	raw  int
	peer [veths]int // interface index of the test's end

	mu      sync.Mutex
	got     []captured
	probes  uint16 // number of the last probe that came back
	changed chan struct{}
	ended   chan struct{}
}

func openFrames(n *netns) (*frames, error) {
	f := &frames{changed: make(chan struct{}, 1), ended: make(chan struct{})}
	var err error
	n.do(func() {
		f.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return
		}
		_ = unix.SetsockoptInt(f.raw, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // the default does, too
		for i := range f.peer {
			var ifc *net.Interface
			if ifc, err = net.InterfaceByName(peerName(i)); err != nil {
				return
			}
			f.peer[i] = ifc.Index
		}
	})
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	f.file = os.NewFile(uintptr(f.raw), "packets")
	go f.read()
	return f, nil
}

func htons(x uint16) uint16 { return x<<8 | x>>8 }

func (f *frames) close() {
	f.file.Close()
	<-f.ended
}

// read gathers frames until the socket is closed.
func (f *frames) read() {
	defer close(f.ended)
	at := map[int]int{}
	for pair, index := range f.peer {
		at[index] = pair
	}
	conn, err := f.file.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 1<<16)
	for {
		var n int
		var from unix.Sockaddr
		err := conn.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), buf, 0)
			return err != unix.EAGAIN && err != unix.EINTR
		})
		if err != nil {
			return // closed
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && n > ethernetLen && ll.Pkttype != unix.PACKET_OUTGOING && interesting(buf[:n]) {
			if pair, mine := at[ll.Ifindex]; mine {
				f.take(pair, append([]byte(nil), buf[ethernetLen:n]...))
			}
		}
	}
}

const ethernetLen = 14

// interesting are IP packets, but for the multicast by which VPP itself looks for routers and listeners of IPv6.
func interesting(frame []byte) bool {
	switch htonsOf(frame[12:]) {
	case unix.ETH_P_IP:
		return true
	case unix.ETH_P_IPV6:
		const dst = ethernetLen + 24
		return len(frame) > dst && frame[dst] != 0xff
	}
	return false
}

func htonsOf(b []byte) uint16 { return binary.BigEndian.Uint16(b) }

func (f *frames) take(pair int, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if pair == probePair {
		if p, err := packet.Unmarshal(b); err == nil {
			f.probes = p.DstPort
		}
		select {
		case f.changed <- struct{}{}:
		default:
		}
		return
	}
	f.got = append(f.got, decode(pair, b))
}

// decode reads a packet. Wrong checksums are put right; those of the IP and the ICMP header, which make hosts throw it away,
// are noted. Nobody looks at the checksums of a quoted packet.
func decode(pair int, b []byte) captured {
	c := captured{pair: pair, raw: b}
	if c.packet, c.err = packet.Unmarshal(b); c.err == nil || len(b) < 28 {
		return c
	}
	if b[0]>>4 == 6 {
		return decode6(c)
	}
	right := append([]byte(nil), b...)
	sum(right[:20], 10)
	if icmp := right[20:]; right[9] == uint8(model.ICMP) {
		sum(icmp, 2)
		c.badChecksum = !bytes.Equal(b, right)
		if quoted := icmp[8:]; packet.IsICMPErrorType(icmp[0]) && len(quoted) >= 28 {
			quoted[8] = max(quoted[8], 1) // VPP quotes a packet whose life is over with a TTL of 0
			sum(quoted[:20], 10)
			if quoted[9] == uint8(model.ICMP) {
				sum(quoted[20:], 2)
			}
			sum(icmp, 2)
		}
	}
	c.badChecksum = c.badChecksum || !bytes.Equal(b[:20], right[:20])
	c.packet, c.err = packet.Unmarshal(right)
	return c
}

// decode6 reads an ICMPv6 packet with a wrong checksum, and one that quotes a packet whose life is over with a hop limit of 0, as VPP
// does.
func decode6(c captured) captured {
	const hops, quoted = 7, 48
	b := append([]byte(nil), c.raw...)
	if len(b) <= quoted+hops || b[6] != uint8(model.ICMPv6) {
		return c
	}
	sum6(b)
	c.badChecksum = !bytes.Equal(b, c.raw)
	if b[40] == packet.TimeExceeded6 && b[quoted+hops] == 0 {
		b[quoted+hops] = 1
		sum6(b)
	}
	c.packet, c.err = packet.Unmarshal(b)
	return c
}

// sum6 writes the checksum of an ICMPv6 packet, which is of its addresses, too.
func sum6(b []byte) {
	const header, at = 40, 42
	length := len(b) - header
	pseudo := append(append(append([]byte(nil), b[8:header]...), 0, 0, byte(length>>8), byte(length), 0, 0, 0, uint8(model.ICMPv6)), b[header:]...)
	if length%2 > 0 {
		pseudo = append(pseudo, 0)
	}
	sum(pseudo, at)
	copy(b[at:at+2], pseudo[at:])
}

// sum writes the Internet checksum of b into b[at:].
func sum(b []byte, at int) {
	b[at], b[at+1] = 0, 0
	var s uint32
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	binary.BigEndian.PutUint16(b[at:], ^uint16(s))
}

// vppMAC is the address of VPP's end of a pair, hostMAC that of the host at the other end.
func vppMAC(pair int) [6]byte  { return [6]byte{2, 0xfe, 0, 0, 0, byte(pair)} }
func hostMAC(pair int) [6]byte { return [6]byte{2, 0xca, 0, 0, 0, byte(pair)} }

// put sends a packet into VPP.
func (f *frames) put(pair int, p packet.Packet) error {
	b, err := p.Marshal()
	if err != nil {
		return err
	}
	return f.putBytes(pair, b)
}

// putBytes sends an IP packet, or a fragment of one, into VPP.
func (f *frames) putBytes(pair int, b []byte) error {
	dst, src := vppMAC(pair), hostMAC(pair)
	ethertype := uint16(unix.ETH_P_IP)
	if b[0]>>4 == 6 {
		ethertype = unix.ETH_P_IPV6
	}
	frame := binary.BigEndian.AppendUint16(append(append([]byte(nil), dst[:]...), src[:]...), ethertype)
	return unix.Sendto(f.raw, append(frame, b...), 0, &unix.SockaddrLinklayer{Ifindex: f.peer[pair], Protocol: htons(ethertype)})
}

// knock sends a frame that VPP counts and drops: it is of no protocol there is.
func (f *frames) knock(pair int) error { return knock(f.raw, f.peer[pair], pair) }

func knock(socket, link, pair int) error {
	const experimental = 0x88b5 // IEEE 802, local experimental
	dst, src := vppMAC(pair), hostMAC(pair)
	frame := binary.BigEndian.AppendUint16(append(append([]byte(nil), dst[:]...), src[:]...), experimental)
	return unix.Sendto(socket, append(frame, make([]byte, 46)...), 0, &unix.SockaddrLinklayer{Ifindex: link, Protocol: htons(experimental)})
}

// knock does so from the namespace that the pair's peer is in.
func (n *netns) knock(link string, pair int) (err error) {
	n.do(func() {
		ifc, failed := net.InterfaceByName(link)
		if err = failed; err != nil {
			return
		}
		fd, failed := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err = failed; err == nil {
			err = knock(fd, ifc.Index, pair)
			_ = unix.Close(fd) // it was sent or not
		}
	})
	return err
}

// probeTimeout is how long a VPP that works may take for a packet.
const probeTimeout = 5 * time.Second

// probe returns when VPP has processed all earlier packets: a first probe returns after VPP's main loop has received them, a second one
// after that round of the loop has ended.
func (f *frames) probe() error {
	for range 2 {
		f.mu.Lock()
		want := f.probes + 1
		f.mu.Unlock()
		if want == 0 {
			want = 1
		}
		if err := f.put(probePair, probePacket(want)); err != nil {
			return err
		}
		if err := f.returned(want); err != nil {
			return err
		}
	}
	return nil
}

func (f *frames) returned(want uint16) error {
	timeout := time.After(probeTimeout)
	for {
		f.mu.Lock()
		have := f.probes
		f.mu.Unlock()
		if have == want {
			return nil
		}
		select {
		case <-f.changed:
		case <-timeout:
			return fmt.Errorf("vpp did not forward a probe within %s", probeTimeout)
		}
	}
}

// exchange sends a packet and returns everything that VPP sends because of it.
func (f *frames) exchange(pair int, p packet.Packet) ([]captured, error) {
	b, err := p.Marshal()
	if err != nil {
		return nil, err
	}
	return f.exchangeBytes(pair, b)
}

// exchangeBytes is exchange for an IP packet as bytes.
func (f *frames) exchangeBytes(pair int, b []byte) ([]captured, error) {
	f.mu.Lock()
	f.got = nil
	f.mu.Unlock()
	if err := f.putBytes(pair, b); err != nil {
		return nil, err
	}
	if err := f.probe(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got, nil
}
