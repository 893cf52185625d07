// Package inject turns a header into one packet that a pod's kernel sends: by the pod's routes and packet filter, to the pod's interface.
//
// Invariant: Send sends one packet, and nothing remains in the pod's network namespace when the Sender is closed.
package inject

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/netns"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Header is what the packet has.
type Header struct {
	Source, Destination netip.Addr
	Protocol            model.Protocol // TCP: a SYN; UDP: without data; ICMP and ICMPv6: an echo request
	// SourcePort is also the identifier of an echo. 0: Open chooses one, of TCP and UDP a port that no socket of the pod uses.
	SourcePort, DestinationPort uint16
}

// Sender sends packets of one header. It holds the source port: while it is open, no other socket of the pod gets the port, and answers reach no other
// connection. The pod's kernel answers a SYN+ACK with a reset, because no socket has sent the SYN.
type Sender struct {
	Header    Header
	raw, port int // sockets; -1: none
}

// Open opens a sender in the network namespace of a pod.
func Open(namespace string, h Header) (*Sender, error) {
	f, err := os.Open(namespace)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &Sender{Header: h, raw: -1, port: -1}
	if err := netns.Do(int(f.Fd()), s.openSockets); err != nil {
		return nil, errors.Join(fmt.Errorf("in network namespace %s: %w", namespace, err), s.Close())
	}
	return s, nil
}

// openSockets runs in the pod's namespace.
func (s *Sender) openSockets() (err error) {
	h := &s.Header
	family := unix.AF_INET
	if h.Source.Is6() {
		family = unix.AF_INET6
	}
	switch kinds := map[model.Protocol]int{model.TCP: unix.SOCK_STREAM, model.UDP: unix.SOCK_DGRAM}; h.Protocol {
	case model.TCP, model.UDP:
		if s.port, err = unix.Socket(family, kinds[h.Protocol]|unix.SOCK_CLOEXEC, 0); err != nil {
			s.port = -1
			return os.NewSyscallError("socket", err)
		}
		if err := unix.Bind(s.port, socketAddress(h.Source, h.SourcePort)); err != nil {
			return fmt.Errorf("source %s: %w", netip.AddrPortFrom(h.Source, h.SourcePort), os.NewSyscallError("bind", err))
		}
		if h.SourcePort, err = portOf(s.port); err != nil {
			return err
		}
	case model.ICMP, model.ICMPv6:
		for h.SourcePort == 0 {
			h.SourcePort = uint16(random() >> 16) //nolint:gosec // the upper half
		}
	default:
		return fmt.Errorf("protocol %s: want TCP, UDP or ICMP", h.Protocol)
	}
	if s.raw, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(h.Protocol)); err != nil {
		s.raw = -1
		return os.NewSyscallError("raw socket", err)
	}
	return os.NewSyscallError("bind", unix.Bind(s.raw, socketAddress(h.Source, 0)))
}

func socketAddress(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
}

// portOf returns the port of a bound socket.
func portOf(socket int) (uint16, error) {
	name, err := unix.Getsockname(socket)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return uint16(name.Port), nil //nolint:gosec // a port
	case *unix.SockaddrInet6:
		return uint16(name.Port), nil //nolint:gosec // a port
	}
	return 0, errors.New("getsockname: an unknown family")
}

// Send sends one packet.
func (s *Sender) Send() error {
	err := unix.Sendto(s.raw, s.Header.segment(random()), 0, socketAddress(s.Header.Destination, 0))
	if err != nil {
		return fmt.Errorf("the pod's kernel sends no packet to %s: %w", s.Header.Destination, os.NewSyscallError("sendto", err))
	}
	return nil
}

// Close ends the sockets.
func (s *Sender) Close() (err error) {
	for _, socket := range []*int{&s.raw, &s.port} {
		if *socket >= 0 {
			err = errors.Join(err, os.NewSyscallError("close", unix.Close(*socket)))
		}
		*socket = -1
	}
	return err
}

func random() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint32(b[:])
}

// Types of ICMP, and TCP's fields that do not vary.
const (
	echo4, echo6 = 8, 128
	tcpWords     = 5 << 4 // the header's length
	window       = 64240
)

// segment is the packet without its IP header, which the kernel adds.
func (h *Header) segment(sequence uint32) []byte {
	ports := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, h.SourcePort), h.DestinationPort)
	var b []byte
	at := 2 // of the checksum
	switch h.Protocol {
	case model.TCP:
		b, at = binary.BigEndian.AppendUint32(ports, sequence), 16
		b = append(b, 0, 0, 0, 0, tcpWords, packet.SYN)
		b = append(binary.BigEndian.AppendUint16(b, window), 0, 0, 0, 0)
	case model.UDP:
		b, at = append(ports, 0, 8, 0, 0), 6
	case model.ICMP:
		return h.echo(echo4)
	case model.ICMPv6:
		return h.echo(echo6) // the kernel writes the checksum of ICMPv6, too
	}
	pseudo := slices.Concat(h.Source.AsSlice(), h.Destination.AsSlice(), []byte{0, byte(h.Protocol), 0, byte(len(b))})
	sum := packet.Checksum(slices.Concat(pseudo, b))
	if sum == 0 && h.Protocol == model.UDP {
		sum = 0xffff // 0 stands for none
	}
	binary.BigEndian.PutUint16(b[at:], sum)
	return b
}

// echo is an echo request without data.
func (h *Header) echo(kind byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{kind, 0, 0, 0}, h.SourcePort)
	b = append(b, 0, 1)
	binary.BigEndian.PutUint16(b[2:], packet.Checksum(b))
	return b
}
