package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/port"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// patience is how long anything may take that is expected to happen.
const patience = 60 * time.Second

// beServer has this test's binary be an etcd: the program under test, without building it again.
const beServer = "CONTIV_BE_ETCD"

func TestMain(m *testing.M) {
	if os.Getenv(beServer) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// server is an etcd in a separate process.
type server struct {
	t     *testing.T
	start func(s *server) // again, with the same data, at the same address
	addr  string          // host:port
	data  string          // folder
	url   string
	cmd   *exec.Cmd
	log   *buffer
}

// startServer starts the embedded etcd. It is at the same address when it is started again.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, addr: freeAddr(t), data: t.TempDir(), log: &buffer{}}
	s.start = func(s *server) {
		s.cmd = exec.Command(os.Args[0], append([]string{"-data", s.data, "-listen", s.addr}, args...)...)
		s.cmd.Env = append(os.Environ(), beServer+"=1")
		if _, err := s.cmd.StdinPipe(); err != nil { // it ends with the test
			t.Error(err)
		}
		out, err := s.cmd.StdoutPipe()
		if err != nil {
			t.Error(err)
		}
		s.run()
		if s.url, err = bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Errorf("etcd does not start: %v\n%s", err, s.log)
		}
		s.url = strings.TrimSpace(s.url)
	}
	s.start(s)
	t.Cleanup(s.kill)
	return s
}

// startCluster starts three members.
func startCluster(t *testing.T) []*server {
	t.Helper()
	var peers []string
	for _, name := range []string{"a", "b", "c"} {
		peers = append(peers, name+"=http://"+freeAddr(t))
	}
	out := make([]*server, len(peers))
	var started sync.WaitGroup
	for i, peer := range peers { // the first is ready when there is a second
		started.Go(func() { out[i] = startServer(t, "-name", peer[:1], "-cluster", strings.Join(peers, ",")) })
	}
	started.Wait()
	return out
}

// startDebian starts Debian's etcd, which is older.
func startDebian(t *testing.T) *server {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("there is no etcd on this machine (Debian: apt install etcd-server)")
	}
	s := &server{t: t, addr: freeAddr(t), data: t.TempDir(), log: &buffer{}}
	peers := "http://" + freeAddr(t)
	s.start = func(s *server) {
		s.url = "http://" + s.addr
		s.cmd = exec.Command(program, "--data-dir", s.data, "--log-level", "error", "--listen-client-urls", s.url, "--advertise-client-urls", s.url,
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
		s.run()
	}
	s.start(s)
	t.Cleanup(s.kill)
	return s
}

func (s *server) run() {
	s.t.Helper()
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Error(err)
	}
}

// kill is kill -9.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
}

func freeAddr(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", port.Free(t))
}

// client is one of the test's own.
func (s *server) client(change func(*clientv3.Config)) *clientv3.Client {
	s.t.Helper()
	cfg := clientv3.Config{Endpoints: []string{s.url}, DialTimeout: patience, Logger: zap.NewNop()}
	if change != nil {
		change(&cfg)
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// world is an agent on a simulated VPP and an etcd.
type world struct {
	t     *testing.T
	etcd  *server
	kv    *clientv3.Client
	vpp   *sim.VPP
	log   *buffer
	agent *agent.Agent
	stop  func()
	cfg   etcd.Config
	ifs   map[string]string // what was put, by key

	mu   sync.Mutex
	adds []int // of each transaction so far
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t *testing.T, s *server, change func(*etcd.Config)) *world {
	t.Helper()
	w := &world{t: t, etcd: s, vpp: sim.New(sim.Config{PuntLocal: true}), log: &buffer{}, ifs: map[string]string{}}
	w.cfg = etcd.Config{Endpoints: []string{s.url}, Label: "node-1", StatusTTL: 5 * time.Second, Logger: slog.New(slog.NewTextHandler(w.log, nil))}
	if change != nil {
		change(&w.cfg)
	}
	t.Cleanup(func() {
		w.vpp.Close()
		if t.Failed() {
			t.Logf("the agent:\n%s\netcd:\n%s", w.log, s.log)
		}
	})
	return w
}

// run starts the agent.
func (w *world) run() {
	w.t.Helper()
	src, err := etcd.New(w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.agent, err = agent.New(agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: w.vpp.Dial, MaxBackoff: 50 * time.Millisecond}, Services: config.Services{Off: true}, Policies: config.Policies{Off: true},
		External: []controller.ExternalConfigSource{src},
		Process: config.Process{Logger: slog.New(slog.NewTextHandler(w.log, nil)), OnCommitted: func(ev *event.Committed) {
			if ev.Seq != 0 {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.adds = append(w.adds, ev.Add)
			}
		}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.agent.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
}

const root = "/vnf-agent/node-1/"

// put is one transaction of etcd; "" deletes.
func (w *world) put(values map[string]string) {
	w.t.Helper()
	if w.kv == nil {
		w.kv = w.etcd.client(nil)
	}
	var ops []clientv3.Op
	for key, value := range values {
		if w.ifs[key] = value; value == "" {
			delete(w.ifs, key)
			ops = append(ops, clientv3.OpDelete(root+key))
		} else {
			ops = append(ops, clientv3.OpPut(root+key, value))
		}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for some := range slices.Chunk(ops, 100) {
		eventually(w.t, "put", func() error { // a cluster may be without a leader
			_, err := w.kv.Txn(ctx).Then(some...).Commit()
			return err
		})
	}
}

func (w *world) compact() {
	w.t.Helper()
	got, err := w.kv.Get(w.t.Context(), root)
	if err == nil {
		_, err = w.kv.Compact(w.t.Context(), got.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually asks again and again until there is no error left.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// statuses are those in etcd, by the key of what is configured.
func (w *world) statuses() (map[string]*kvscheduler.ValueStatus, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	got, err := w.kv.Get(ctx, root+"config-status/", clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	out := map[string]*kvscheduler.ValueStatus{}
	for _, kv := range got.Kvs {
		st := &kvscheduler.ValueStatus{}
		if err := protojson.Unmarshal(kv.Value, st); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		out["config/"+strings.TrimPrefix(string(kv.Key), root+"config-status/")] = st
	}
	return out, nil
}

// settled waits until VPP is what a fresh VPP becomes from etcd's content by a fresh agent, and etcd says of all of it that it is
// configured.
func (w *world) settled() {
	w.t.Helper()
	want := w.fresh()
	eventually(w.t, "VPP as etcd has it", func() error {
		if d := cmp.Diff(strings.Split(want, "\n"), strings.Split(dump(w.vpp), "\n")); d != "" {
			return errors.New("(-want +got)\n" + d)
		}
		return nil
	})
	if w.cfg.NoStatus {
		return
	}
	eventually(w.t, "statuses", func() error {
		got, err := w.statuses()
		if err != nil {
			return err
		}
		for key := range w.ifs {
			if st := got[key]; st.GetState() != kvscheduler.ValueState_CONFIGURED {
				return fmt.Errorf("%s: %v", key, st)
			}
		}
		if len(got) != len(w.ifs) {
			return fmt.Errorf("%d statuses for %d keys", len(got), len(w.ifs))
		}
		return nil
	})
}

// fixed is an external source with values that do not change.
type fixed struct{ values kv.Values }

func (fixed) String() string { return etcd.Name }

func (f fixed) Run(ctx context.Context, emit func(event.Event)) error {
	emit(event.ExternalConfigResync(etcd.Name, f.values))
	<-ctx.Done()
	return ctx.Err()
}

// fresh is the state of a VPP that only ever heard of what etcd has now.
func (w *world) fresh() string {
	w.t.Helper()
	values := kv.Values{}
	for key, text := range w.ifs {
		model, _, found := kv.Lookup(key)
		if !found {
			w.t.Fatal(key)
		}
		msg := model.New()
		if err := protojson.Unmarshal([]byte(text), msg); err != nil {
			w.t.Fatal(err)
		}
		values[key] = msg
	}
	v := sim.New(sim.Config{PuntLocal: true})
	defer v.Close()
	synced := make(chan struct{})
	done := sync.OnceFunc(func() { close(synced) })
	a, err := agent.New(agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, Services: config.Services{Off: true}, Policies: config.Policies{Off: true}, External: []controller.ExternalConfigSource{fixed{values}},
		Process: config.Process{OnCommitted: func(ev *event.Committed) {
			if ev.Resync == event.Full && ev.Err == nil {
				done()
			}
		}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	select {
	case <-synced:
	case <-time.After(patience):
		w.t.Error("no first sync")
	}
	cancel()
	<-ended
	return dump(v)
}

// dump is what VPP has, with interfaces in the order of the agent's tags: VPP numbers loopbacks as they come.
func dump(vpp *sim.VPP) string {
	var blocks []string
	for _, line := range strings.Split(vpp.Dump(), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "interface" {
			if _, tag, tagged := strings.Cut(line, ` tag "`); tagged {
				line = tag + " " + strings.Join(f[2:], " ")
			}
		} else if strings.HasPrefix(line, " ") && len(blocks) > 0 {
			blocks[len(blocks)-1] += line
			continue
		}
		blocks = append(blocks, line)
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "\n")
}

// writes are the requests since the last call that changed VPP.
func (w *world) writes() []string {
	var out []string
	for _, r := range w.vpp.Log() {
		if r.Write {
			out = append(out, r.String())
		}
	}
	w.vpp.ClearLog()
	return out
}

// note waits until the status command shows that of the source.
func (w *world) note(want string) {
	w.t.Helper()
	eventually(w.t, "status of the source", func() error {
		st, err := w.agent.Status(w.t.Context())
		if err != nil {
			return err
		}
		for _, src := range st.Sources {
			if src.Name == etcd.Name {
				if raw, _ := json.Marshal(src); want == "" && (src.Note != "" || src.Status != "in-sync") || !strings.Contains(src.Note+src.Error, want) {
					return fmt.Errorf("%s, want %q", raw, want)
				}
			}
		}
		return nil
	})
}

// proxy passes bytes on between a client and a server, and may be slow or closed.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	delay    time.Duration
	conns    map[net.Conn]bool
	refusing bool
	frozen   bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(in)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); p.cut(); p.thaw() })
	return p
}

func (p *proxy) url() string { return "http://" + p.listener.Addr().String() }

func (p *proxy) serve(in net.Conn) {
	out, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = in.Close()
		return
	}
	p.mu.Lock()
	p.conns[in], p.conns[out] = true, true
	if p.refusing {
		_, _ = in.Close(), out.Close()
	}
	p.mu.Unlock()
	pass := func(to, from net.Conn) {
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			for time.Sleep(delay); p.stuck(); time.Sleep(10 * time.Millisecond) {
			}
			if n > 0 {
				_, _ = to.Write(b[:n])
			}
			if err != nil {
				_, _ = to.Close(), from.Close()
				return
			}
		}
	}
	go pass(in, out)
	pass(out, in)
}

// slow delays every piece from now on.
func (p *proxy) slow(d time.Duration) { p.mu.Lock(); defer p.mu.Unlock(); p.delay = d }

// freeze has nothing pass, without a word to anybody, until thaw.
func (p *proxy) freeze() { p.mu.Lock(); defer p.mu.Unlock(); p.frozen = true }

func (p *proxy) thaw() { p.mu.Lock(); defer p.mu.Unlock(); p.frozen = false }

func (p *proxy) stuck() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.frozen }

// cut ends all connections and lets nobody in until open.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

func (p *proxy) open() { p.mu.Lock(); defer p.mu.Unlock(); p.refusing = false }

func loopback(n, mtu int) (key, value string) {
	return fmt.Sprintf("config/vpp/v2/interfaces/loop%d", n), fmt.Sprintf(`{"name":"loop%d","type":"SOFTWARE_LOOPBACK","enabled":true,"mtu":%d,"ipAddresses":["10.%d.%d.1/24"]}`, n, mtu, 100+n/250, n%250)
}

func route(n int) (key, value string) {
	return fmt.Sprintf("config/contiv/vpp/v1/reject-route/vrf/0/dst/198.18.%d.%d/32", n/250, n%250), fmt.Sprintf(`{"dstNetwork":"198.18.%d.%d/32"}`, n/250, n%250)
}
