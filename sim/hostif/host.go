package hostif

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/tap"
	"github.com/contiv-agent/contiv-agent/sim/wire"
)

const (
	bufferBytes = 4 << 20  // of a socket, each way
	longest     = 64 << 10 // frame
	burst       = 64       // frames of an interface before those of the next one
	tick        = time.Second
	deafTick    = 10 * time.Millisecond // if new interfaces are deaf
)

// port is the socket of one interface.
type port struct {
	index   uint32 // VPP's
	link    int    // Linux'; 0: it has none
	fd      int
	offload bool      // checksums are finished here
	tap     *tap.End  // how it was made; nil: a packet socket on a link of others
	memif   string    // the socket of a memif; "": it is none
	due     time.Time // when it begins to hear; zero: it hears
}

// Host has the sockets of one VPP. It is a sim.Wire; but for New and Run, its methods are called with the VPP locked.
type Host struct {
	edge  *wire.Edge
	poll  int
	wake  int // an eventfd, which ends the poll
	ports map[uint32]*port
	frame []byte
	oob   []byte
	came  []arrived     // in one round
	mute  bool          // memifs have sockets, at which nobody answers
	deaf  time.Duration // how long a new interface receives nothing
}

// New returns a host without interfaces, for sim.Config.Wire.
func New() (*Host, error) {
	h := &Host{ports: map[uint32]*port{}, frame: make([]byte, longest), oob: make([]byte, 256)}
	h.edge = wire.New(h)
	var err error
	if h.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if h.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = h.watch(h.wake)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("eventfd: %w", err), unix.Close(h.poll))
	}
	return h, nil
}

func (h *Host) watch(fd int) error {
	return unix.EpollCtl(h.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// Run forwards frames of v's interfaces until ctx ends. Then it closes the sockets; v must get no more requests.
func (h *Host) Run(ctx context.Context, v *sim.VPP) error {
	stop := context.AfterFunc(ctx, func() { _, _ = unix.Write(h.wake, []byte{7: 1}) })
	defer stop()
	defer h.end()
	events := make([]unix.EpollEvent, burst)
	last := time.Now()
	for {
		n, err := unix.EpollWait(h.poll, events, int(h.longestWait().Milliseconds()))
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("epoll: %w", err)
		}
		now := time.Now()
		v.Wired(now, func(g sim.Graph) {
			if now.Sub(last) >= tick {
				last = now
				h.edge.Expire(g, now)
			}
			h.round(g, now, events[:max(n, 0)])
			h.hearDue(now)
		})
	}
}

// longestWait is how long Run waits for frames.
func (h *Host) longestWait() time.Duration {
	if h.deaf > 0 {
		return deafTick
	}
	return tick
}

// hearDue lets the ports hear that have been deaf long enough.
func (h *Host) hearDue(now time.Time) {
	for _, p := range h.ports {
		if !p.due.IsZero() && !now.Before(p.due) {
			_ = h.hear(p) // the link may be gone
		}
	}
}

// hear lets a port receive all frames of its link from now on.
func (h *Host) hear(p *port) error {
	p.due = time.Time{}
	return errors.Join(
		os.NewSyscallError("bind", unix.Bind(p.fd, &unix.SockaddrLinklayer{Ifindex: p.link, Protocol: hton(unix.ETH_P_ALL)})),
		os.NewSyscallError("epoll", h.watch(p.fd)),
	)
}

// arrived is a frame of an interface.
type arrived struct {
	port  *port
	frame []byte
}

// round reads the sockets that have frames, and processes the frames after that. So what a frame leads to is read in a later round: as in VPP, a
// sender that answers at once does not keep frames of other interfaces waiting.
func (h *Host) round(g sim.Graph, now time.Time, events []unix.EpollEvent) {
	h.came = h.came[:0]
	for _, e := range events {
		for _, p := range h.ports {
			if p.fd == int(e.Fd) {
				h.read(p)
				break
			}
		}
	}
	for _, a := range h.came {
		if h.ports[a.port.index] == a.port { // no earlier frame has ended VPP
			h.edge.Receive(g, now, a.port.index, a.frame)
		}
	}
	clear(h.came) // the edge keeps what it needs
}

// read takes a burst of frames of one socket.
func (h *Host) read(p *port) {
	if p.tap != nil {
		h.readTap(p)
		return
	}
	for range burst {
		n, m, _, _, err := unix.Recvmsg(p.fd, h.frame, h.oob, unix.MSG_TRUNC)
		if err != nil {
			return // nothing more; or the interface is down
		}
		if n > len(h.frame) {
			continue
		}
		h.came = append(h.came, arrived{p, p.restore(slices.Clone(h.frame[:n]), h.oob[:m])})
	}
}

// restore puts the tag of a VLAN back that the kernel took out, and finishes the checksum where that is asked for.
func (p *port) restore(b, oob []byte) []byte {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return b
	}
	for _, m := range list {
		const size, tagAt = 20, 16 // struct tpacket_auxdata
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < size {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data)
		if p.offload && status&unix.TP_STATUS_CSUMNOTREADY != 0 {
			frame.Finish(b)
		}
		if tag := binary.NativeEndian.Uint16(m.Data[tagAt:]); status&unix.TP_STATUS_VLAN_VALID != 0 {
			b = frame.Tag(b, tag)
		}
	}
	return b
}

// Send writes a frame.
func (h *Host) Send(index uint32, b []byte) bool {
	p := h.ports[index]
	if p == nil || p.memif != "" {
		return false
	}
	_, err := unix.Write(p.fd, b)
	return err == nil
}

// Open is part of sim.Wire.
func (h *Host) Open(index uint32, host *sim.HostLink) error {
	switch {
	case host.Tap != nil:
		return h.openTap(index, host)
	case host.Memif != "":
		return h.openMemif(index, host.Memif)
	}
	link, err := net.InterfaceByName(host.Name)
	if err != nil {
		return err
	}
	fd, err := socket(link.Index)
	if err != nil {
		return fmt.Errorf("packet socket on %s: %w", host.Name, err)
	}
	p := &port{index: index, link: link.Index, fd: fd, offload: host.Offload, due: time.Now().Add(h.deaf)}
	if h.deaf == 0 {
		if err := h.hear(p); err != nil {
			return fmt.Errorf("packet socket on %s: %w", host.Name, errors.Join(err, unix.Close(fd)))
		}
	}
	h.ports[index] = p
	return nil
}

// socket returns a packet socket that sends by one interface. It hears nothing yet, and never what leaves by the interface.
func socket(link int) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes) // the default is enough for few packets
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bufferBytes)
	err = errors.Join(
		os.NewSyscallError("PACKET_IGNORE_OUTGOING", unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)),
		os.NewSyscallError("PACKET_AUXDATA", unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1)),
		os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link})),
	)
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func hton(x uint16) uint16 { return x<<8 | x>>8 }

// Close is part of sim.Wire.
func (h *Host) Close(index uint32) {
	if p := h.ports[index]; p != nil && p.memif != "" {
		_ = os.Remove(p.memif) // it may have been removed
	} else if p != nil && p.tap != nil {
		_ = unix.IoctlSetInt(p.fd, unix.TUNSETPERSIST, 0) // as tap_free; the link may be gone
	}
	h.drop(index)
}

// drop closes the file of a port.
func (h *Host) drop(index uint32) {
	if p := h.ports[index]; p != nil {
		_ = unix.Close(p.fd) // nothing is waiting in it
		delete(h.ports, index)
		h.edge.Forget(index)
	}
}

// SetUp is part of sim.Wire: af_packet sets its Linux interface up and down.
func (h *Host) SetUp(index uint32, up bool) {
	if p := h.ports[index]; p != nil && p.link != 0 && p.tap == nil {
		_ = setLink(p.link, up, nil) // as VPP, which says nothing if it may not
	}
}

// SetMAC is part of sim.Wire: af_packet gives its Linux interface its own address.
func (h *Host) SetMAC(index uint32, mac frame.MAC) {
	if p := h.ports[index]; p != nil && p.link != 0 && p.tap == nil {
		_ = setLink(p.link, true, mac[:])
	}
}

// Reset is part of sim.Wire.
func (h *Host) Reset() {
	for index := range h.ports {
		h.drop(index)
	}
	h.edge.Reset()
}

// end closes everything.
func (h *Host) end() {
	h.Reset()
	_ = unix.Close(h.wake)
	_ = unix.Close(h.poll)
}
