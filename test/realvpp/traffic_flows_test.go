package realvpp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// kind is what a flow does.
type kind struct {
	name     string
	protocol uint8
	// server and client say who sends; with both, the server answers each message.
	server, client bool
	// fresh: each request has a new connection.
	fresh bool
	// pace is the time between two messages; 0: interval.
	pace time.Duration
}

var (
	tcpAsks   = &kind{name: "TCP request/response", protocol: unix.IPPROTO_TCP, server: true, client: true, pace: hurried}
	tcpPush   = &kind{name: "TCP server push", protocol: unix.IPPROTO_TCP, server: true}
	tcpUpload = &kind{name: "TCP upload", protocol: unix.IPPROTO_TCP, client: true}
	tcpNew    = &kind{name: "TCP new connections", protocol: unix.IPPROTO_TCP, server: true, client: true, fresh: true}
	udpAsks   = &kind{name: "UDP request/response", protocol: unix.IPPROTO_UDP, server: true, client: true}
	udpPush   = &kind{name: "UDP server push", protocol: unix.IPPROTO_UDP, server: true}
	udpUpload = &kind{name: "UDP client only", protocol: unix.IPPROTO_UDP, client: true}
	echo      = &kind{name: "ICMP echo", protocol: unix.IPPROTO_ICMP, server: true, client: true}
)

// By which address a client speaks to a server.
const (
	byVIP    = "VIP"
	byPod    = "pod"
	byHigh   = "pod, port 40000"
	vipPort  = 80
	interval = 100 * time.Millisecond // between two messages of a flow
	// hurried is less than a kernel delays an ACK: the next request carries it, and the server retransmits its answer if that is lost.
	hurried = 20 * time.Millisecond
	// attempts is how long apart connections are dialled, dialling how long each may take.
	attempts, dialling = 250 * time.Millisecond, time.Second
)

// flow is one client's traffic with one server. It counts from both ends.
type flow struct {
	id     uint32
	role   *role
	kind   *kind
	by     string
	server *server
	six    bool
	// before and after: policies allow it before and after the event.
	before, after bool

	mu  sync.Mutex
	log [events][]time.Duration // since the round began
	got map[int]bool            // numbers of the messages that were heard, of those in log[sent]
	end string                  // why its connection ended
}

// happening is something that a flow sees.
type happening int

const (
	sent     happening = iota // a message of the side that speaks first; or an attempt to connect
	taken                     // by the server's program
	answered                  // by the client's program: an answer or a push
	toServer                  // packets that reached the server's interface
	toClient                  // packets that reached the client's
	events
)

func (f *flow) String() string {
	family := "IPv4"
	if f.six {
		family = "IPv6"
	}
	where := "same node"
	if f.server.node != 1 {
		where = "two nodes"
	}
	return fmt.Sprintf("%s %s by %s, %s, %s", family, f.kind.name, f.by, where, f.role.name)
}

func (f *flow) saw(h happening, at time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log[h] = append(f.log[h], at)
}

// hear is saw of a message that has a number.
func (f *flow) hear(h happening, at time.Duration, m []byte) {
	f.saw(h, at)
	if (h == answered) != f.kind.server {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.got == nil {
		f.got = map[int]bool{}
	}
	f.got[int(binary.BigEndian.Uint32(m[4:]))] = true
}

// seen is the log so far.
func (f *flow) seen() [events][]time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log
}

// heard are the messages that arrived at a program, of those that show that the flow continues.
func (f *flow) heard() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kind.server {
		return f.log[answered]
	}
	return f.log[taken]
}

// to is where the client sends.
func (f *flow) to() netip.AddrPort {
	switch f.by {
	case byVIP:
		return netip.AddrPortFrom(f.server.clusterIP(f.six), vipPort)
	case byHigh:
		return netip.AddrPortFrom(f.server.addr(f.six), highPort)
	}
	return netip.AddrPortFrom(f.server.addr(f.six), servedPort)
}

// message is what programs send: the flow and a number.
type message [16]byte

func newMessage(f *flow, n int) []byte {
	var m message
	binary.BigEndian.PutUint32(m[:], f.id)
	binary.BigEndian.PutUint32(m[4:], uint32(n))
	return m[:]
}

// run is the client's program; it returns when ctx ends.
func (f *flow) run(ctx context.Context, r *round) {
	switch {
	case f.kind == echo:
		f.echo(ctx, r)
	case f.kind.protocol == unix.IPPROTO_UDP:
		f.datagrams(ctx, r)
	case f.kind.fresh:
		f.connections(ctx, r)
	default:
		f.connection(ctx, r)
	}
}

// datagrams speaks UDP from one socket. A client that only listens sends its first packet until the server has heard it.
func (f *flow) datagrams(ctx context.Context, r *round) {
	ns, from := r.client(f), r.port(f)
	c, err := ns.connected(unix.SOCK_DGRAM, 0, from, f.to())
	if err != nil {
		f.fail(err)
		return
	}
	defer c.Close() // the port is free when the round is over
	defer context.AfterFunc(ctx, func() { c.Close() })()
	go f.receive(ctx, r, c, func(b []byte) []byte { return b })
	for n := 0; ctx.Err() == nil; n++ {
		if f.kind.client || !r.pushing(f) {
			_, _ = c.Write(newMessage(f, n)) // an error is one that an ICMP message reported for an earlier packet
		}
		if f.kind.client {
			f.saw(sent, r.now())
		}
		wait(ctx, interval)
	}
}

// receive counts what arrives on a socket of datagrams until ctx ends.
// content returns the message in what was read, nil if it is another's.
func (f *flow) receive(ctx context.Context, r *round, c *os.File, content func([]byte) []byte) {
	buf := make([]byte, 2048)
	for ctx.Err() == nil {
		n, err := c.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if m := content(buf[:n]); err == nil && len(m) >= len(message{}) {
			f.hear(answered, r.now(), m)
		}
	}
}

// echo sends requests of ICMP from one socket.
func (f *flow) echo(ctx context.Context, r *round) {
	protocol, header, request, reply := unix.IPPROTO_ICMP, 20, byte(8), byte(0)
	if f.six {
		protocol, header, request, reply = unix.IPPROTO_ICMPV6, 0, 128, 129
	}
	ns, from := r.client(f), r.port(f)
	c, err := ns.connected(unix.SOCK_RAW, protocol, netip.AddrPortFrom(from.Addr(), 0), netip.AddrPortFrom(f.to().Addr(), 0))
	if err != nil {
		f.fail(err)
		return
	}
	defer c.Close() // the port is free when the round is over
	defer context.AfterFunc(ctx, func() { c.Close() })()
	go f.receive(ctx, r, c, func(b []byte) []byte {
		if len(b) < header+8 || b[header] != reply || binary.BigEndian.Uint16(b[header+4:]) != from.Port() {
			return nil
		}
		return b[header+8:]
	})
	for n := 0; ctx.Err() == nil; n++ {
		b := make([]byte, 8, 24)
		b[0] = request
		binary.BigEndian.PutUint16(b[4:], from.Port())
		binary.BigEndian.PutUint16(b[6:], uint16(n))
		b = append(b, newMessage(f, n)...)
		if !f.six { // the kernel fills in that of ICMPv6
			sum(b, 2)
		}
		_, _ = c.Write(b) // as in datagrams
		f.saw(sent, r.now())
		wait(ctx, interval)
	}
}

func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end == "" {
		f.end = err.Error()
	}
}

// dial is one attempt to connect. A flow that is denied dials again and again; each attempt counts.
func (f *flow) dial(r *round) (*os.File, error) {
	return r.client(f).dialTCP(r.port(f), f.to(), dialling)
}

// connections has a connection for each request.
func (f *flow) connections(ctx context.Context, r *round) {
	var all sync.WaitGroup
	defer all.Wait()
	for n := 0; ctx.Err() == nil; n++ {
		f.saw(sent, r.now())
		all.Go(func() {
			c, err := f.dial(r)
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(dialling)) // a socket has deadlines
			if f.ask(c, n) == nil {
				f.hear(answered, r.now(), newMessage(f, n))
			}
		})
		wait(ctx, attempts)
	}
}

func (f *flow) ask(c *os.File, n int) error {
	if _, err := c.Write(newMessage(f, n)); err != nil {
		return err
	}
	_, err := io.ReadFull(c, new(message)[:])
	return err
}

// connection has one connection. Until policies allow it, it dials one after another.
func (f *flow) connection(ctx context.Context, r *round) {
	won := make(chan *os.File, 1)
	dialler, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	for dialler.Err() == nil {
		if !f.before {
			f.saw(sent, r.now())
		}
		all.Go(func() {
			c, err := f.dial(r)
			if err != nil {
				return
			}
			select {
			case won <- c:
				stop()
			default:
				c.Close()
			}
		})
		wait(dialler, attempts)
	}
	stop()
	all.Wait()
	select {
	case c := <-won:
		defer context.AfterFunc(ctx, func() { c.Close() })()
		f.talk(ctx, r, c)
	default:
	}
}

// talk does what the flow does on its connection, until that ends.
func (f *flow) talk(ctx context.Context, r *round, c *os.File) {
	defer c.Close()
	for n := 0; ctx.Err() == nil; n++ {
		if f.kind.client {
			f.saw(sent, r.now())
		}
		var err error
		switch {
		case f.kind.client && f.kind.server:
			err = f.ask(c, n)
		case f.kind.client || n == 0:
			_, err = c.Write(newMessage(f, n))
		default:
			_, err = io.ReadFull(c, new(message)[:])
		}
		if err != nil {
			if ctx.Err() == nil {
				f.fail(err)
			}
			return
		}
		if f.kind.server && (f.kind.client || n > 0) {
			f.saw(answered, r.now())
		}
		if f.kind.client {
			wait(ctx, cmp.Or(f.kind.pace, interval))
		}
	}
}
