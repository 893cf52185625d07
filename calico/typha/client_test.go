package typha

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
)

// pipes is a listener whose connections are pipes inside the process: time in a synctest bubble advances when all are idle.
type pipes struct {
	once sync.Once
	in   chan net.Conn
	done chan struct{}
}

func newPipes() *pipes { return &pipes{in: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.in:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.in <- there:
		return here, nil
	case <-p.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// place is an address at which one server after the other may listen.
type place struct {
	mu sync.Mutex
	at *pipes
}

func (p *place) dial(ctx context.Context, addr string) (net.Conn, error) {
	p.mu.Lock()
	at := p.at
	p.mu.Unlock()
	if at == nil {
		return nil, errors.New("connection refused")
	}
	return at.dial(ctx, addr)
}

// serve starts a fan-out server that holds kvs; stop ends it.
func (p *place) serve(t *testing.T, cfg fanout.Config, kvs ...wire.KV) (s *fanout.Server, stop func()) {
	t.Helper()
	cfg.Syncers, cfg.Modern = []wire.SyncerType{wire.Felix}, []wire.SyncerType{wire.Felix}
	s, err := fanout.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	publish(s, kvs...)
	l := newPipes()
	p.mu.Lock()
	p.at = l
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	return s, func() {
		p.mu.Lock()
		p.at = nil
		p.mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func publish(s *fanout.Server, kvs ...wire.KV) {
	for _, modern := range []bool{false, true} {
		s.Publish(wire.Batch{Syncer: wire.Felix, Modern: modern, Status: wire.InSync, KVs: kvs})
	}
}

func param(n int, value string) wire.KV {
	return wire.KV{Key: fmt.Sprintf("/calico/v1/config/P%03d", n), Value: []byte(value)}
}

// heard collects what a client passes on.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) add(line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
}

// take returns what was collected since the last call.
func (h *heard) take() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.lines
	h.lines = nil
	return out
}

func (h *heard) batch(b wire.Batch) {
	h.add(b.Status.String())
	slices.SortFunc(b.KVs, func(a, b wire.KV) int { return strings.Compare(a.Key, b.Key) })
	for _, kv := range b.KVs {
		h.add(strings.TrimPrefix(kv.Key, "/calico/v1/config/") + "=" + string(kv.Value))
	}
}

// start runs a client until the returned function is called.
func (h *heard) start(t *testing.T, cfg Config, older bool) (stop func()) {
	t.Helper()
	cfg.Addrs = []string{"server"}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- NewClient(cfg, wire.Felix, older).Follow(ctx, h.batch, func(err error) {
			if err != nil {
				h.add("lost: " + err.Error())
			} else {
				h.add("found")
			}
		})
	}()
	return func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// A server that restarts with other keys withdraws those it does not have, changes those that differ, and nothing else.
// Between two servers nothing is withdrawn. This holds with and without compression, and for this program's own keys.
func TestReconnectWithdrawsOnlyDifferences(t *testing.T) {
	own := func(value string) wire.KV { return wire.KV{Key: wire.OwnKeys + "x", Value: []byte(value)} }
	for name, plain := range map[string]bool{"snappy": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p place
				var h heard
				s, stop := p.serve(t, fanout.Config{}, param(1, "a"), param(2, "b"), param(3, "c"), own("1"))
				end := h.start(t, Config{Dial: p.dial, Plain: plain}, false)
				defer end()
				if d := cmp.Diff([]string{"in-sync", "P001=a", "P002=b", "P003=c", "/contiv/x=1", "found"}, h.take()); d != "" {
					t.Fatal(d)
				}
				publish(s, param(1, "a2"), param(4, "d"), own("2"))
				time.Sleep(time.Second)
				if d := cmp.Diff([]string{"in-sync", "P001=a2", "P004=d", "/contiv/x=2"}, h.take()); d != "" {
					t.Fatal(d)
				}
				stop()
				time.Sleep(5 * time.Minute)
				for i, line := range h.take() {
					if !strings.HasPrefix(line, "lost: ") {
						t.Fatalf("line %d while the server is away: %s", i, line)
					}
				}
				_, stop = p.serve(t, fanout.Config{}, param(1, "a2"), param(3, "c3"), param(5, "e"))
				defer stop()
				time.Sleep(2 * time.Minute)
				if d := cmp.Diff([]string{"in-sync", "P002=", "P003=c3", "P004=", "P005=e", "/contiv/x=", "found"}, h.take()); d != "" {
					t.Fatal(d)
				}
			})
		})
	}
}

// Keys of a snapshot that breaks off are not passed on.
func TestBrokenSnapshotIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		l := newPipes()
		defer l.Close()
		end := h.start(t, Config{Dial: l.dial}, false)
		defer end()
		for range 2 {
			c := hello(t, l, wire.ServerHello{SyncerType: wire.Felix, SupportsNodeResourceUpdates: true})
			c.say(wire.SyncStatus{SyncStatus: wire.ResyncInProgress})
			c.say(wire.KVs{KVs: []wire.KV{param(1, "a")}})
			c.Close()
		}
		for _, line := range h.take() {
			if strings.HasPrefix(line, "P") {
				t.Errorf("was told %s", line)
			}
		}
	})
}

// fake is the server's end of a connection.
type fake struct {
	net.Conn
	t     *testing.T
	enc   *wire.Encoder
	dec   *wire.Decoder
	hello wire.ClientHello
}

// hello accepts a connection and answers its hello.
func hello(t *testing.T, l *pipes, answer wire.Message) *fake {
	t.Helper()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{Conn: conn, t: t, enc: wire.NewEncoder(conn), dec: wire.NewDecoder(conn, 1<<20)}
	m, err := f.dec.Decode()
	if err != nil {
		t.Fatal(err)
	}
	f.hello = m.(wire.ClientHello)
	if answer != nil {
		f.say(answer)
	}
	return f
}

func (f *fake) say(m wire.Message) {
	f.t.Helper()
	if err := f.enc.Encode(m); err != nil {
		f.t.Fatal(err)
	}
}

// A protocol error of the server ends the connection with a reason; so does a silent server.
func TestProtocolErrorEndsConnection(t *testing.T) {
	good := wire.ServerHello{SyncerType: wire.Felix, SupportsNodeResourceUpdates: true}
	for _, c := range []struct {
		name   string
		answer wire.Message
		then   func(*fake)
		want   string
	}{
		{"other keys", wire.ServerHello{SyncerType: wire.BGP, SupportsNodeResourceUpdates: true}, nil, `server sends other keys: "bgp", not "felix"`},
		{"no Node resources", wire.ServerHello{Version: "v3.4"}, nil, "server sends other keys: it has no Node resources (version v3.4)"},
		{"no hello", wire.Ping{}, nil, "unexpected message: wire.Ping in place of a hello"},
		{"hangs up", nil, func(f *fake) { f.Close() }, "server closed the connection at the hello"},
		{"silent after the connection", nil, func(*fake) {}, "i/o timeout"},
		{"silent after the hello", good, func(*fake) {}, "i/o timeout"},
		{"a client's message", good, func(f *fake) { f.say(wire.ACK{}) }, "unexpected message: wire.ACK"},
		{"unknown compression", good, func(f *fake) { f.say(wire.DecoderRestart{CompressionAlgorithm: "zip"}) }, `unexpected message: compression "zip"`},
		{"garbage", good, func(f *fake) { _, _ = f.Write([]byte("\x05\xff\xff\xff\xff\xff")) }, "malformed message"},
		{"half a message", good, func(f *fake) { _, _ = f.Write([]byte{40, 1, 2}); f.Close() }, "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h heard
				l := newPipes()
				defer l.Close()
				end := h.start(t, Config{Dial: l.dial}, false)
				defer end()
				f := hello(t, l, c.answer)
				defer f.Close()
				if c.then != nil {
					c.then(f)
				}
				time.Sleep(31 * time.Second)
				if lines := h.take(); len(lines) == 0 || !strings.HasPrefix(lines[0], "lost: ") || !strings.Contains(lines[0], c.want) {
					t.Errorf("%q, want it lost because: %s", lines, c.want)
				}
			})
		})
	}
}

// The client answers pings with pongs that carry the ping's timestamp. A connection with nothing but pings stays open.
func TestPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p place
		var h heard
		_, stop := p.serve(t, fanout.Config{PingEvery: 10 * time.Second, PongWithin: 15 * time.Second}, param(1, "a"))
		defer stop()
		end := h.start(t, Config{Dial: p.dial}, false)
		defer end()
		h.take()
		time.Sleep(time.Hour)
		if lines := h.take(); len(lines) > 0 {
			t.Errorf("an idle hour: %q", lines)
		}
	})
}

// A relay asks for the older policy keys, and for the newer ones if the server closes the connection. An agent asks for the
// newer ones at once.
func TestDialects(t *testing.T) {
	for _, older := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var h heard
			l := newPipes()
			defer l.Close()
			end := h.start(t, Config{Dial: l.dial}, older)
			defer end()
			var asked []bool
			for range 3 {
				f := hello(t, l, nil)
				asked = append(asked, f.hello.SupportsModernPolicyKeys)
				f.Close()
			}
			want := []bool{true, true, true}
			if older {
				want = []bool{false, true, false}
			}
			if !slices.Equal(asked, want) {
				t.Errorf("asked for the newer keys: %v, want %v", asked, want)
			}
		})
	}
}

// Clients reconnect at different times, and not more often than the back-off permits.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		began := time.Now()
		var h heard
		end := h.start(t, Config{Dial: func(context.Context, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return nil, io.ErrClosedPipe
		}}, false)
		time.Sleep(10 * time.Minute)
		end()
		if len(at) < 20 || len(at) > 50 {
			t.Errorf("%d attempts in ten minutes", len(at))
		}
		pause, same := 250*time.Millisecond, true
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < pause/2 || gap > pause*3/2 {
				t.Errorf("attempt %d after %s, want %s ± half", i, gap, pause)
			} else if gap != pause {
				same = false
			}
			pause = min(2*pause, 30*time.Second)
		}
		if same {
			t.Error("no chance in the pauses")
		}
	})
}

// The source emits its progress, one update with everything, and errors that withdraw nothing.
func TestSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p place
		var h heard
		ns := wire.KV{Key: "/calico/v1/policy/profile/kns.prod/labels", Value: []byte(`{"pcns.team":"a"}`)}
		_, stop := p.serve(t, fanout.Config{}, ns, kv(podKey+" "+podValue), kv("/calico/v1/Ready true"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- New(Config{Addrs: []string{"x"}, Dial: p.dial}).Run(ctx, func(e event.Event) {
				switch e := e.(type) {
				case *event.SyncStatus:
					h.add(fmt.Sprint(e.Source, " ", e.Status, " ", e.Err != nil))
				case *event.Update:
					for _, c := range e.Changes {
						h.add(text(c))
					}
				}
			})
		}()
		lines := h.take()
		if len(lines) == 5 {
			slices.Sort(lines[2:4]) // the changes of one update have no order
		}
		if d := cmp.Diff([]string{"typha wait-for-ready false", "typha resync false", "Namespace prod map[team:a]", podLine, "typha in-sync false"}, lines); d != "" {
			t.Error(d)
		}
		stop()
		time.Sleep(time.Second)
		if lines = h.take(); len(lines) == 0 || lines[0] != "typha in-sync true" {
			t.Errorf("without a server: %q", lines)
		}
		ns.Value = nil
		s, stop := p.serve(t, fanout.Config{}, kv(podKey+" "+podValue))
		time.Sleep(time.Minute)
		lines = h.take()
		if d := cmp.Diff([]string{"- Namespace prod", "typha in-sync false"}, lines[max(0, len(lines)-2):]); d != "" {
			t.Errorf("%s\n%q", d, lines)
		}
		publish(s, kv(podKey))
		time.Sleep(time.Second)
		if d := cmp.Diff([]string{"- Pod prod/web-0"}, h.take()); d != "" {
			t.Error(d)
		}
		stop()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "no address and no service"},
		{Config{Addrs: []string{"a:b"}}, "the port must be"},
		{Config{Addrs: []string{""}}, "must be host:port"},
		{Config{Addrs: []string{"a"}, SilentFor: -1}, "negative"},
		{Config{Addrs: []string{"a"}, TLS: TLS{CA: "x"}}, "TLS needs a certificate"},
		{Config{Addrs: []string{"a"}, TLS: TLS{CA: "x", Cert: "y", Key: "z"}}, "common name or the URI"},
		{Config{Addrs: []string{"a"}, TLS: TLS{CA: "x", Cert: "y", Key: "z", Server: wire.Peer{CN: "s"}}}, "certificate and key"},
		{Config{Insecure: true, Addrs: []string{"a", "b:1", "fd00::1", "[fd00::1]:2"}}, ""},
		{Config{Insecure: true, Service: "calico-system/calico-typha"}, ""},
		{Config{Addrs: []string{"127.0.0.1", "[::1]:2", "localhost"}}, ""},
		{Config{Addrs: []string{"127.0.0.1", "10.0.0.1"}}, `address "10.0.0.1": the server is not on loopback and the connection is not encrypted`},
		{Config{Addrs: []string{"typha"}}, "not encrypted"},
		{Config{Service: "calico-system/calico-typha"}, "not encrypted"},
		{Config{Discover: func(context.Context) ([]string, error) { return nil, nil }}, "not encrypted"},
		{Config{Insecure: true, TLS: TLS{CA: "x"}, Addrs: []string{"a"}}, "Insecure contradicts TLS"},
	} {
		err := c.cfg.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
		if c.want != "" && New(c.cfg).Run(t.Context(), func(event.Event) {}) == nil {
			t.Errorf("%+v: Run does not refuse it", c.cfg)
		}
	}
}

func TestServers(t *testing.T) {
	lookup := func(list []string, err error) func(context.Context, string) ([]string, error) {
		return func(_ context.Context, name string) ([]string, error) {
			if name != "typha.calico.svc" && name != "typha.example" {
				return nil, fmt.Errorf("no such host %s", name)
			}
			return list, err
		}
	}
	t.Setenv("TYPHA_SERVICE_HOST", "10.96.0.7")
	t.Setenv("TYPHA_SERVICE_PORT", "99")
	for _, c := range []struct {
		cfg  Config
		want []string // sorted; nil is an error
	}{
		{Config{Addrs: []string{"10.0.0.1", "fd00::1", "a:1"}}, []string{"10.0.0.1:5473", "[fd00::1]:5473", "a:1"}},
		{Config{Service: "calico/typha", lookupHost: lookup([]string{"10.0.0.2", "fd00::2"}, nil)}, []string{"10.0.0.2:5473", "[fd00::2]:5473"}},
		{Config{Service: "typha.example:77", lookupHost: lookup([]string{"10.0.0.2"}, nil)}, []string{"10.0.0.2:77"}},
		{Config{Service: "calico/typha", lookupHost: lookup(nil, io.EOF)}, []string{"10.96.0.7:99"}},
		{Config{Service: "calico/other", lookupHost: lookup(nil, io.EOF)}, nil},
		{Config{Service: "calico/other", Addrs: []string{"a:1"}, lookupHost: lookup(nil, io.EOF)}, []string{"a:1"}},
		{Config{Discover: func(context.Context) ([]string, error) { return nil, nil }}, nil},
		{Config{Discover: func(context.Context) ([]string, error) { return []string{"b:1"}, nil }}, []string{"b:1"}},
	} {
		c.cfg.defaults()
		got, err := c.cfg.servers(t.Context())
		slices.Sort(got)
		slices.Sort(c.want)
		if (err == nil) != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, %v, want %v", c.cfg.Service, got, err, c.want)
		}
	}
}

// remote is a connection with a remote address that the test chooses.
type remote struct {
	net.Conn
	from net.Addr
}

func (r remote) RemoteAddr() net.Addr { return r.from }

// The client does not use a connection without TLS to another machine, even if the name in the configuration is a local
// one. It sends nothing on that connection.
func TestPlaintextToRemoteAddressIsRefused(t *testing.T) {
	for _, insecure := range []bool{false, true} {
		ours, theirs := net.Pipe()
		said := make(chan int64, 1)
		go func() {
			n, _ := io.CopyN(io.Discard, theirs, 1)
			_ = theirs.Close()
			said <- n
		}()
		cfg := Config{Insecure: insecure, Addrs: []string{"localhost"}, Dial: func(context.Context, string) (net.Conn, error) {
			return remote{ours, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5473}}, nil
		}}
		cfg.defaults()
		_, _, err := open(t.Context(), &cfg, "localhost:5473", wire.Felix, false)
		if got := errors.Is(err, ErrPlaintext); got == insecure {
			t.Errorf("insecure %t: %v", insecure, err)
		}
		if n := <-said; (n > 0) != insecure {
			t.Errorf("insecure %t: the server got %d bytes", insecure, n)
		}
	}
}
