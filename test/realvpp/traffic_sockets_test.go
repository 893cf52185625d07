package realvpp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// socket makes a socket in the namespace; it stays there, whichever thread uses it. The file has deadlines.
func (n *netns) socket(domain, kind, protocol int) (*os.File, error) {
	fd, err := -1, error(nil)
	n.do(func() { fd, err = unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol) })
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	return os.NewFile(uintptr(fd), "socket"), nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

func domain(a netip.AddrPort) int {
	if a.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// onFD runs a system call on a file's descriptor.
func onFD(f *os.File, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	failed := c.Control(func(fd uintptr) { err = call(int(fd)) })
	return errors.Join(err, failed)
}

// connected makes a datagram or raw socket that speaks between two addresses.
func (n *netns) connected(kind, protocol int, from, to netip.AddrPort) (*os.File, error) {
	f, err := n.socket(domain(to), kind, protocol)
	if err != nil {
		return nil, err
	}
	err = onFD(f, func(fd int) error {
		return errors.Join(unix.Bind(fd, sockaddr(from)), unix.Connect(fd, sockaddr(to)))
	})
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// dialTCP opens one connection from an address and port. No address: the kernel chooses both, as for most programs.
func (n *netns) dialTCP(from, to netip.AddrPort, limit time.Duration) (*os.File, error) {
	f, err := n.socket(domain(to), unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	err = onFD(f, func(fd int) error {
		err := errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		)
		if from.IsValid() {
			err = errors.Join(err, unix.Bind(fd, sockaddr(from)))
		}
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, sockaddr(to)); err != unix.EINPROGRESS {
			return err
		}
		return nil
	})
	if err == nil {
		err = established(f, limit)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// established waits until a connection is.
func established(f *os.File, limit time.Duration) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := f.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	var failed error
	err = c.Write(func(fd uintptr) bool {
		if code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil || code != 0 {
			failed = errors.Join(err, unix.Errno(code))
			return true
		}
		_, err := unix.Getpeername(int(fd))
		return err == nil
	})
	return errors.Join(err, failed, f.SetDeadline(time.Time{}))
}

// parsed is a packet that arrived.
type parsed struct {
	protocol         uint8
	src, dst         netip.Addr
	srcPort, dstPort uint16 // of an echo: its identifier, both
	request          bool   // of ICMP
}

// parse reads the headers of an IP packet; false: it is not of a flow.
func parse(b []byte) (p parsed, ok bool) {
	header := 0
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		header, p.protocol = int(b[0]&15)*4, b[9]
		p.src, p.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	case len(b) >= 40 && b[0]>>4 == 6:
		header, p.protocol = 40, b[6]
		p.src, p.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	}
	if header == 0 || len(b) < header+8 {
		return p, false
	}
	b = b[header:]
	switch p.protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		p.srcPort, p.dstPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		const request, reply, request6, reply6 = 8, 0, 128, 129
		if k := b[0]; k != request && k != reply && k != request6 && k != reply6 {
			return p, false
		}
		p.request = b[0] == request || b[0] == request6
		p.srcPort = binary.BigEndian.Uint16(b[4:])
		p.dstPort = p.srcPort
	default:
		return p, false
	}
	return p, true
}

// listen calls take for each IP packet that arrives in the namespace, until the file is closed.
func (n *netns) listen(take func([]byte)) (*os.File, error) {
	f, err := n.socket(unix.AF_PACKET, unix.SOCK_DGRAM, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		return nil, err
	}
	c, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	_ = onFD(f, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) }) // the default does, too
	go func() {
		buf := make([]byte, 1<<16)
		for {
			var size int
			var from unix.Sockaddr
			var err error
			closed := c.Read(func(fd uintptr) bool {
				size, from, err = unix.Recvfrom(int(fd), buf, 0)
				return err != unix.EAGAIN && err != unix.EINTR
			})
			if closed != nil {
				return
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); err == nil && ok && ll.Pkttype != unix.PACKET_OUTGOING {
				take(buf[:size])
			}
		}
	}()
	return f, nil
}
