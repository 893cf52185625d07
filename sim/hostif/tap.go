package hostif

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/netns"
	"github.com/contiv-agent/contiv-agent/sim"
)

const tunDevice = "/dev/net/tun"

// openTap makes the Linux interface of a tap, or attaches to one that outlived its VPP. The kernel is asked for frames whose checksums are finished.
func (h *Host) openTap(index uint32, host *sim.HostLink) error {
	var p *port
	if host.Tap.Other {
		return fmt.Errorf("tap %s: its Linux side is of a kind that is not simulated", host.Name)
	}
	err := inNamespace(host.Tap.Namespace, func() (err error) {
		p, err = makeTap(host)
		return err
	})
	if err != nil {
		return fmt.Errorf("tap %s: %w", host.Name, err)
	}
	p.index = index
	if err := h.watch(p.fd); err != nil {
		return fmt.Errorf("tap %s: epoll: %w", host.Name, errors.Join(err, unix.Close(p.fd)))
	}
	h.ports[index] = p
	return nil
}

// inNamespace runs f in a namespace that a request names.
func inNamespace(name string, f func() error) error {
	if name == "" {
		return f()
	}
	if pid, is := strings.CutPrefix(name, "pid:"); is {
		name = "/proc/" + pid + "/ns/net"
	} else if !strings.HasPrefix(name, "/") {
		name = "/run/netns/" + name
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return netns.Do(int(file.Fd()), f)
}

// makeTap makes a tap in the namespace of its thread.
func makeTap(host *sim.HostLink) (*port, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: tunDevice, Err: err}
	}
	p := &port{fd: fd, tap: host.Tap}
	if err = p.makeLink(host); err == nil {
		err = p.dress()
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return p, nil
}

// makeLink makes the Linux interface, or attaches to it.
func (p *port) makeLink(host *sim.HostLink) error {
	r, err := unix.NewIfreq(host.Name)
	if err != nil {
		return fmt.Errorf("name %q: %w", host.Name, err)
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_MULTI_QUEUE)
	if err := unix.IoctlIfreq(p.fd, unix.TUNSETIFF, r); err != nil {
		return os.NewSyscallError("TUNSETIFF", err)
	}
	if host.Tap.Attach {
		err = unix.IoctlSetInt(p.fd, unix.TUNSETPERSIST, 0)
	}
	if err == nil && host.Tap.Persist {
		err = unix.IoctlSetInt(p.fd, unix.TUNSETPERSIST, 1)
	}
	if err == nil {
		err = unix.IoctlSetInt(p.fd, unix.TUNSETOFFLOAD, 0)
	}
	if err != nil {
		return os.NewSyscallError("ioctl", err)
	}
	link, err := net.InterfaceByName(r.Name())
	if err == nil {
		p.link = link.Index
	}
	return err
}

// dress gives the Linux interface what the request names, in VPP's order.
func (p *port) dress() error {
	if err := setLink(p.link, true, p.tap.MAC[:]); err != nil {
		return err
	}
	for _, a := range p.tap.Addrs {
		if err := addAddress(p.link, a); err != nil {
			return fmt.Errorf("address %s: %w", a, err)
		}
	}
	if err := setLink(p.link, true, nil); err != nil || p.tap.MTU == 0 {
		return err
	}
	return setMTU(p.link, p.tap.MTU)
}

// readTap takes a burst of frames of a tap. A tap whose Linux interface was removed has none any more.
func (h *Host) readTap(p *port) {
	for range burst {
		n, err := unix.Read(p.fd, h.frame)
		switch {
		case errors.Is(err, unix.EBADFD):
			_ = unix.EpollCtl(h.poll, unix.EPOLL_CTL_DEL, p.fd, nil) // otherwise the poll returns at once, for ever
			return
		case err != nil:
			return
		}
		h.came = append(h.came, arrived{p, slices.Clone(h.frame[:n])})
	}
}
