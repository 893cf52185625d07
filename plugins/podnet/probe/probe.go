// Package probe turns the end of a pod's link into a question that only VPP answers: who has the gateway's address? VPP answers if it receives the
// frame, and if the interface is open.
//
// Invariant: a probe changes nothing in the pod's network namespace and nothing in VPP, which has a static neighbour for the pod.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/netns"
)

// Link is the pod's end of its link.
type Link struct {
	Netns   string // path of the network namespace
	Name    string // of the link in it
	MAC     string
	Addr    netip.Addr // of the pod
	Gateway netip.Addr // of the same family
}

// Pauses between two questions: VPP usually answers within a millisecond.
const firstPause, longestPause = 5 * time.Millisecond, 200 * time.Millisecond

// Ask asks again and again until VPP answers, or ctx ends.
func Ask(ctx context.Context, l Link) error {
	mac, err := net.ParseMAC(l.MAC)
	if err != nil || len(mac) != macLen {
		return fmt.Errorf("MAC address %q of %s", l.MAC, l.Name)
	}
	q := question{mac: [macLen]byte(mac), from: l.Addr, to: l.Gateway}
	f, err := open(l, q.protocol())
	if err != nil {
		return fmt.Errorf("link %s in %s: %w", l.Name, l.Netns, err)
	}
	defer f.Close()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if _, err := f.Write(q.frame()); err != nil {
			return fmt.Errorf("link %s in %s: %w", l.Name, l.Netns, err)
		}
		answered, err := await(f, &q, pause)
		if answered || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("no answer from %s to frames of %s: %w", l.Gateway, l.Name, context.Cause(ctx))
		}
	}
}

// await reads frames for some time; true: one of them is the answer.
func await(f *os.File, q *question, most time.Duration) (bool, error) {
	if err := f.SetReadDeadline(time.Now().Add(most)); err != nil {
		return false, err
	}
	for buf := make([]byte, 1<<11); ; {
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case err != nil:
			return false, err
		case q.answeredBy(buf[:n]):
			return true, nil
		}
	}
}

// open returns a packet socket on the link.
func open(l Link, protocol uint16) (*os.File, error) {
	namespace, err := os.Open(l.Netns)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	var fd int
	err = netns.Do(int(namespace.Fd()), func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	if err := bind(fd, l.Name, protocol); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), l.Name), nil
}

// bind lets a socket hear one protocol on a link of its namespace.
func bind(fd int, link string, protocol uint16) error {
	request, err := unix.NewIfreq(link)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	}
	if err != nil {
		return os.NewSyscallError("SIOCGIFINDEX", err)
	}
	return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: int(request.Uint32()), Protocol: protocol<<8 | protocol>>8}))
}
