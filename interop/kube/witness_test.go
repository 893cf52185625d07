package kube

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// witness sees, from outside, when an endpoint that came and the one that went are programmed.
type witness interface {
	// expect begins to look; the channel then has the time, once.
	expect(came, went netip.Addr) <-chan time.Time
}

// kernel hears what the kernel says of every nftables transaction it has committed.
type kernel struct {
	fd int

	mu   sync.Mutex
	want []byte
	seen chan time.Time
}

// nfnlgrpNftables is the multicast group of nf_tables (linux/netfilter/nfnetlink.h, NFNLGRP_NFTABLES).
const nfnlgrpNftables = 7

func newKernel(t testing.TB) *kernel {
	t.Helper()
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatalf("netlink: %v", err)
	}
	k := &kernel{fd: fd}
	if err := errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (nfnlgrpNftables - 1)}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 8<<20),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
	); err != nil {
		t.Fatalf("netlink: %v", err)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go k.listen(stop, ended)
	t.Cleanup(func() {
		close(stop)
		<-ended
		_ = unix.Close(fd) // nobody reads it any more
	})
	return k
}

func (k *kernel) listen(stop, ended chan struct{}) {
	defer close(ended)
	buf := make([]byte, 1<<20)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, _, err := unix.Recvfrom(k.fd, buf, 0)
		if err != nil {
			continue // nothing within the time; or too much, and what is missed shows as a change never programmed
		}
		now := time.Now()
		k.mu.Lock()
		if k.want != nil && bytes.Contains(buf[:n], k.want) {
			k.want = nil
			k.seen <- now
		}
		k.mu.Unlock()
	}
}

// expect implements witness. A Service's endpoints are the values of one map, which the transaction replaces: the new map
// has the new endpoint, and not the removed one.
func (k *kernel) expect(came, _ netip.Addr) <-chan time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.want, k.seen = came.AsSlice(), make(chan time.Time, 1)
	return k.seen
}

// relay is between an agent and its VPP, and forwards everything. Several changes may be in flight.
type relay struct {
	socket string

	mu      sync.Mutex
	want    map[[4]byte]*underway
	waiting map[uint32][]*underway // by contexts of the requests that name an address that is wanted
}

// underway is a change until VPP has acknowledged it.
type underway struct {
	left int // addresses for which no answered request is seen
	seen chan time.Time
}

func newRelay(t testing.TB, vpp string) *relay {
	t.Helper()
	dir, err := os.MkdirTemp("", "contiv") // the name of a unix socket is short
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{socket: filepath.Join(dir, "relay.sock"), want: map[[4]byte]*underway{}, waiting: map[uint32][]*underway{}}
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); os.RemoveAll(dir) })
	go func() {
		for {
			agent, err := l.Accept()
			if err != nil {
				return // the end
			}
			server, err := net.Dial("unix", vpp)
			if err != nil {
				agent.Close()
				continue
			}
			go pass(agent, server, r.request)
			go pass(server, agent, r.reply)
		}
	}()
	return r
}

// pass copies one direction until either end closes; look gets every message.
func pass(from, to net.Conn, look func(message []byte)) {
	defer from.Close()
	defer to.Close()
	buf, rest := make([]byte, 1<<20), []byte(nil)
	for {
		n, err := from.Read(buf)
		rest = append(rest, buf[:n]...)
		rest = messages(rest, look)
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// messages calls look for each whole message, and returns what is left. A message has a header of 16 bytes with its length, in
// network order, at 8 (vlibmemory/socket_api.h, msgbuf_t).
func messages(b []byte, look func([]byte)) []byte {
	for len(b) >= 16 {
		end := 16 + int(binary.BigEndian.Uint32(b[8:]))
		if len(b) < end {
			break
		}
		look(b[16:end])
		b = b[end:]
	}
	return append([]byte(nil), b...)
}

// request notes the contexts of requests that name what is wanted: identifier (2 bytes), client (4), context (4), the rest.
func (r *relay) request(m []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.want) == 0 || len(m) <= 10 {
		return
	}
	context := binary.BigEndian.Uint32(m[6:])
	for address, change := range r.want {
		if bytes.Contains(m[10:], address[:]) {
			delete(r.want, address)
			r.waiting[context] = append(r.waiting[context], change)
		}
	}
}

// reply reports when the last request of a change is answered: identifier (2 bytes), context (4), the retval.
func (r *relay) reply(m []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(m) < 10 {
		return
	}
	context := binary.BigEndian.Uint32(m[2:])
	for _, change := range r.waiting[context] {
		if binary.BigEndian.Uint32(m[6:]) != 0 { // refused: the change is never programmed
			continue
		}
		if change.left--; change.left == 0 {
			change.seen <- time.Now()
		}
	}
	delete(r.waiting, context)
}

// expect implements witness.
func (r *relay) expect(came, went netip.Addr) <-chan time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	change := &underway{left: 2, seen: make(chan time.Time, 1)}
	r.want[came.As4()], r.want[went.As4()] = change, change
	return change.seen
}

// within returns the next element of a channel, or an error after a time-out.
func within(seen <-chan time.Time, what string) (time.Time, error) {
	select {
	case at := <-seen:
		return at, nil
	case <-time.After(patience):
		return time.Time{}, fmt.Errorf("%s is not seen within %s", what, patience)
	}
}
