package realvpp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// family is the VIP of one address family, and everything that became of connections to it.
type family struct {
	six  bool
	vip  netip.AddrPort
	ends bool   // VPP ends the connections to an endpoint that ceases to be usable
	home *netns // the client's
	own  netip.Addr
	past history
	held []*stream // connections that stay, one at least to each endpoint that was usable

	mu       sync.Mutex
	port     uint16 // the client's last one: none is used twice
	taken    map[uint16]int
	flying   map[uint16]*flying
	requests []request
	ports    []uint16 // of the requests
}

// flying is a request that is under way.
type flying struct {
	begun time.Time
	stop  context.CancelFunc
}

func (f *family) String() string {
	renderer := "cnat"
	if f.ends {
		renderer = "nat44"
	}
	return fmt.Sprintf("%s by %s", f.vip, renderer)
}

// take notes who took a client's connection.
func (f *family) take(client net.Addr, i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken[netip.MustParseAddrPort(client.String()).Port()] = i
}

// stream is a connection whose other end has said who it is.
type stream struct {
	conn net.Conn
	in   *bufio.Reader
	by   int
}

// dial is for a thread of the client's namespace.
func (f *family) dial(ctx context.Context, port uint16) (*stream, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(f.own, port)), Timeout: patience, KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", f.vip.String())
	if err != nil {
		return nil, err
	}
	s := &stream{conn: conn, in: bufio.NewReader(conn)}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(patience)) // a connection has deadlines
	if _, err := fmt.Fscanln(s.in, &s.by); err != nil {
		conn.Close()
		return nil, fmt.Errorf("hear who it is: %w", err)
	}
	return s, nil
}

func (f *family) nextPort() uint16 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.port++
	return f.port
}

// open makes a connection that stays.
func (f *family) open() (*stream, error) { return f.openFor(context.Background()) }

func (f *family) openFor(ctx context.Context) (s *stream, err error) {
	ended, failed := f.home.beside(func() { s, err = f.dial(ctx, f.nextPort()) })
	if failed != nil {
		return nil, failed
	}
	<-ended
	return s, err
}

// exchange asks for some bytes.
func (s *stream) exchange(n int, patience time.Duration) error {
	_ = s.conn.SetDeadline(time.Now().Add(patience)) // as above
	if _, err := fmt.Fprintln(s.conn, n); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, s.in, int64(n))
	return err
}

// ask is one request: some exchanges of that size with pauses. It is for a thread of the client's namespace.
func (f *family) ask(exchanges, size int, pause time.Duration) (uint16, request) {
	port := f.nextPort()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	r := request{begun: time.Now(), by: nobody}
	f.mu.Lock()
	f.flying[port] = &flying{r.begun, stop}
	f.mu.Unlock()
	s, err := f.dial(ctx, port)
	if err == nil {
		r.met, r.by = time.Now(), s.by
		defer s.conn.Close()
		defer context.AfterFunc(ctx, func() { s.conn.Close() })()
		for n := 0; n < exchanges && err == nil; n++ {
			err = s.exchange(size, patience)
			if err == nil {
				wait(ctx, pause)
			}
		}
	}
	r.over, r.err = time.Now(), err
	f.mu.Lock()
	delete(f.flying, port)
	f.mu.Unlock()
	return port, r
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (f *family) note(port uint16, r request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.ports = append(f.requests, r), append(f.ports, port)
}

func (f *family) answered() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if r.err == nil {
			n++
		}
	}
	return n
}

// abandon gives requests up that were begun before and that hang since, because VPP ended them or because nobody took them.
func (f *family) abandon(before time.Time, cut set, after time.Duration) {
	wait(context.Background(), time.Until(before.Add(after)))
	f.mu.Lock()
	defer f.mu.Unlock()
	for port, r := range f.flying {
		by, taken := f.taken[port]
		if r.begun.Before(before) && (!taken || cut.has(by)) {
			r.stop()
		}
	}
}

// stays checks the connections from before a change: those to some endpoints must end, the others must continue.
func (f *family) stays(t *testing.T, what string, cut set) {
	t.Helper()
	errs := make([]error, len(f.held))
	var all sync.WaitGroup
	for i, s := range f.held {
		all.Go(func() {
			if !cut.has(s.by) {
				if err := s.exchange(3000, patience); err != nil {
					errs[i] = fmt.Errorf("does not go on: %w", err)
				}
				return
			}
			if s.exchange(100, mourning) == nil {
				errs[i] = errors.New("goes on, though VPP was to end it")
			}
			s.conn.Close()
		})
	}
	all.Wait()
	var left []*stream
	for i, s := range f.held {
		if errs[i] != nil {
			t.Errorf("%s: %s: the connection to endpoint %d %v", f, what, s.by, errs[i])
		}
		if !cut.has(s.by) {
			left = append(left, s)
		}
	}
	f.held = left
}

// report checks all requests.
func (f *family) report(t *testing.T) {
	t.Helper()
	for _, s := range f.held {
		s.conn.Close()
	}
	answered, refused, ended, by := 0, 0, 0, map[int]int{}
	for i, r := range f.requests {
		if taken, ok := f.taken[f.ports[i]]; ok {
			r.by = taken
		}
		switch {
		case r.err == nil:
			answered++
			by[r.by]++
		case r.by == nobody:
			refused++
		default:
			ended++
		}
		if err := f.past.judge(r); err != nil {
			t.Errorf("%s: the request of %s to %s: %v", f, r.begun.Format(time.StampMicro), r.over.Format(time.StampMicro), err)
		}
	}
	if answered < askedFor && !t.Failed() {
		t.Errorf("%s: %d requests were answered", f, answered)
	}
	t.Logf("%s: %d changes, %d requests answered (by endpoint: %v), %d ended with their endpoint, %d that nobody took; %d connections stayed to the end",
		f, len(f.past)-1, answered, by, ended, refused, len(f.held))
}
