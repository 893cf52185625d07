package realvpp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// keptPace is the time between two requests on one connection that is kept open, freshPace that between two new connections of a client.
	keptPace, freshPace = 500 * time.Millisecond, 50 * time.Millisecond
	// clientLimit is how long a client waits for a connection, answerLimit how long for an answer: longer than TCP's pauses of an outage of 4 s.
	clientLimit, answerLimit = 5 * time.Second, 10 * time.Second
	// clientPause is how long it waits after a failure.
	clientPause = 200 * time.Millisecond
	// clientPorts is the number of ports that a client uses in turn.
	clientPorts = lastPort - firstPort
)

// load is what clients do with a Service: each slot keeps one connection open and asks on it again and again, and each stream opens new
// connections for one request each. A client that gets no answer in time closes the connection and opens another one.
type load struct {
	began time.Time
	pace  time.Duration // between two new connections of a stream

	mu    sync.Mutex
	users []*user
	ports map[netip.Addr]int         // of each client's pod: how many connections it has opened
	conns map[netip.AddrPort]*dialed // by the address of a client's connection: the latest one
	dials []*dialed
}

// dialed is a connection of a client.
type dialed struct {
	user     *user
	begun    time.Duration // the client sent its first packet
	accepted time.Duration // by the pod; 0: not yet
	pod      string        // that accepted it; "": none did
	resent   int           // how often the client sent its first packet again
	arrived  int           // how often the first packet arrived at a pod; only pods of TestVPPRollouts count
}

// user is a slot or a stream, with what it saw.
type user struct {
	node string // where the client's pod is
	addr netip.Addr
	to   netip.AddrPort
	at   *netns
	kept bool // a slot: one connection for many requests

	ctx   context.Context
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu   sync.Mutex
	seen []sight
}

// sight is one request.
type sight struct {
	begun, ended time.Duration
	pod          string    // the backend; "": not known
	how          clientSaw // "": the request has not ended
	text         string    // of an error
}

type clientSaw string

const (
	wasServed clientSaw = "served" // the client has its answer
	// goodbye is an answer with which the backend ends the connection, as a program that terminates does.
	goodbye  clientSaw = "goodbye"
	broken   clientSaw = "broken"   // an open connection ended without an answer, or gave none in time
	refused  clientSaw = "refused"  // no new connection: the client was refused
	timedOut clientSaw = "timedOut" // no new connection within the limit
	cut      clientSaw = "cut"      // a new connection that gave no answer
)

func newLoad() *load {
	return &load{began: time.Now(), pace: freshPace, conns: map[netip.AddrPort]*dialed{}, ports: map[netip.Addr]int{}}
}

func (l *load) now() time.Duration { return time.Since(l.began) }

// add starts the slots and one stream of a client's pod.
func (l *load) add(node string, at *netns, addr netip.Addr, to netip.AddrPort, slots int) {
	for i := range slots + 1 {
		u := &user{node: node, addr: addr, to: to, at: at, kept: i < slots}
		u.ctx, u.stop = context.WithCancel(context.Background())
		if u.kept {
			u.ended.Go(func() { u.keep(l) })
		} else {
			u.ended.Go(func() { u.stream(l) })
		}
		l.mu.Lock()
		l.users = append(l.users, u)
		l.mu.Unlock()
	}
}

// leave ends the clients of a node; "": of all. It returns a function that waits for their end.
func (l *load) leave(node string) (wait func()) {
	var gone []*user
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users = slices.DeleteFunc(l.users, func(u *user) bool {
		if node != "" && u.node != node {
			return false
		}
		u.stop()
		gone = append(gone, u)
		return true
	})
	return func() {
		for _, u := range gone {
			u.ended.Wait()
		}
	}
}

func (l *load) all() []*user {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.users)
}

func (u *user) begin(l *load) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen = append(u.seen, sight{begun: l.now()})
	return len(u.seen) - 1
}

func (u *user) end(l *load, n int, pod string, how clientSaw, err error) {
	if u.ctx.Err() != nil {
		return // the test closed the connection
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	s := &u.seen[n]
	if s.ended, s.pod, s.how = l.now(), pod, how; err != nil {
		s.text = err.Error()
	}
}

// log is what the user saw so far.
func (u *user) log() []sight {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.seen)
}

// dial uses one port after the other, as kernels mostly do: cnat gives a port that is used again soon the endpoint of its former connection
// (docs/traffic.md, Known limits).
func (u *user) dial(l *load) (*os.File, error) {
	l.mu.Lock()
	l.ports[u.addr]++
	own := netip.AddrPortFrom(u.addr, uint16(l.ports[u.addr]%clientPorts+firstPort))
	d := &dialed{user: u, begun: l.now()}
	l.conns[own], l.dials = d, append(l.dials, d)
	l.mu.Unlock()
	c, err := u.at.dialTCP(own, u.to, clientLimit)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		d.resent = resent(c)
	}
	return c, err
}

// resent returns how often the kernel has sent packets of a connection again.
func resent(c *os.File) (n int) {
	_ = onFD(c, func(fd int) error { // an open socket has the figure
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n = int(info.Total_retrans)
		}
		return err
	})
	return n
}

// keep is the client of one slot.
func (u *user) keep(l *load) {
	for u.ctx.Err() == nil {
		n := u.begin(l)
		c, err := u.dial(l)
		if err != nil {
			u.end(l, n, "", why(err), err)
			wait(u.ctx, clientPause)
			continue
		}
		closed := context.AfterFunc(u.ctx, func() { c.Close() })
		for in := bufio.NewReader(c); u.ctx.Err() == nil; n = u.begin(l) {
			pod, how, err := sendRequest(c, in)
			if err != nil {
				pod = l.acceptedBy(c)
			}
			if u.end(l, n, pod, how, err); how != wasServed {
				break
			}
			wait(u.ctx, keptPace)
		}
		closed()
		c.Close()
	}
}

// stream is the client that opens a connection for each request.
func (u *user) stream(l *load) {
	for ; u.ctx.Err() == nil; wait(u.ctx, l.pace) {
		n := u.begin(l)
		u.ended.Go(func() {
			c, err := u.dial(l)
			if err != nil {
				u.end(l, n, "", why(err), err)
				return
			}
			defer c.Close()
			pod, how, err := sendRequest(c, bufio.NewReader(c))
			switch how {
			case broken:
				pod, how = l.acceptedBy(c), cut
			case goodbye:
				how = wasServed
			}
			u.end(l, n, pod, how, err)
		})
	}
}

// acceptedBy returns the pod that accepted a connection; "": none did.
func (l *load) acceptedBy(c *os.File) string {
	var own netip.AddrPort
	_ = onFD(c, func(fd int) error { // an open socket has an address
		name, err := unix.Getsockname(fd)
		switch a := name.(type) {
		case *unix.SockaddrInet4:
			own = netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
		case *unix.SockaddrInet6:
			own = netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
		}
		return err
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.conns[own]; d != nil {
		return d.pod
	}
	return ""
}

func (l *load) accepts(pod string, from net.Addr) {
	a, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.conns[netip.AddrPortFrom(a.Addr().Unmap(), a.Port())]; d != nil {
		d.pod, d.accepted = pod, l.now()
	}
}

// why is the clientSaw of a connection that was not opened.
func why(err error) clientSaw {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EACCES, syscall.ECONNRESET} {
		if errors.Is(err, e) {
			return refused
		}
	}
	return timedOut
}

// sendRequest sends a line and reads the answer, the name of a pod.
func sendRequest(c *os.File, in *bufio.Reader) (pod string, how clientSaw, err error) {
	if err := c.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return "", broken, err
	}
	if _, err := io.WriteString(c, "?\n"); err != nil {
		return "", broken, err
	}
	line, err := in.ReadString('\n')
	if err != nil {
		return "", broken, err
	}
	pod, bye := strings.CutPrefix(strings.TrimSpace(line), "bye ")
	if bye {
		return pod, goodbye, nil
	}
	return pod, wasServed, nil
}

// backend is the program of a pod that serves: it answers each line with its name. While it drains, its answers end their connections.
type backend struct {
	name     string
	listener net.Listener
	draining chan struct{}
	heard    *os.File // nil: nobody counts first packets
	ended    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

const backendPort = 8080

// startBackend starts the program of a pod.
func startBackend(l *load, name string, at *netns) (*backend, error) {
	b := &backend{name: name, draining: make(chan struct{}), conns: map[net.Conn]bool{}}
	var err error
	at.do(func() { b.listener, err = net.Listen("tcp", fmt.Sprint(":", backendPort)) })
	if err != nil {
		return nil, err
	}
	b.ended.Go(func() {
		for {
			c, err := b.listener.Accept()
			if err != nil {
				return
			}
			l.accepts(name, c.RemoteAddr())
			b.mu.Lock()
			b.conns[c] = true
			b.mu.Unlock()
			b.ended.Go(func() { b.answer(c) })
		}
	})
	return b, nil
}

func (b *backend) answer(c net.Conn) {
	defer func() {
		c.Close()
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
	}()
	for in := bufio.NewReader(c); ; {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		select {
		case <-b.draining:
			_, _ = fmt.Fprintf(c, "bye %s\n", b.name) // the client may have ended
			return
		default:
		}
		if _, err := fmt.Fprintf(c, "%s\n", b.name); err != nil {
			return
		}
	}
}

// busy returns how many connections the program has.
func (b *backend) busy() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

// end is the end of the program.
func (b *backend) end() {
	b.listener.Close()
	if b.heard != nil {
		b.heard.Close()
	}
	b.mu.Lock()
	for c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	b.ended.Wait()
}
