package grpc

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	allvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// An agent in a separate process is killed, without warning, at every step of a request, and started again:
//
//	client ──▶ gRPC ─▶ emit ─▶ controller ─▶ txn ─▶ vppagent ─▶ vpp:N ─▶ committed ─▶ save … saving … saved ─▶ answer
//	           └──────────────────────── the process that dies ──────────────────────────────────────────┘
//
// The VPP (simulated), the client and the file outlive it.

// chaosEnv, in the killed process, has the locations of everything, and the step at which to die.
const chaosEnv = "CONTIV_TEST_CHAOS"

// chaosRuns is the number of runs; CONTIV_CHAOS_RUNS overrides it (make wide: 500), CONTIV_CHAOS_SEED repeats a run.
const chaosRuns = 100

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(chaosEnv)); len(words) == 3 {
		chaosAgent(words[0], words[1], words[2])
	}
	flag.Parse()
	os.Exit(m.Run())
}

// die ends this process at once, without any cleanup.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// faultyStore dies before, during, or after a save.
type faultyStore struct {
	extconfig.Storage
	step  string
	delay time.Duration
}

func (s faultyStore) Save(client string, changes map[string]proto.Message, terms map[string]extconfig.Terms) error {
	switch s.step {
	case "save":
		die()
	case "saving":
		time.AfterFunc(s.delay, die)
	}
	err := s.Storage.Save(client, changes, terms)
	if s.step == "saved" {
		die()
	}
	return err
}

// chaosAgent is the killed process: a server, a controller and a vppagent.
func chaosAgent(dir, step, number string) {
	n, _ := strconv.Atoi(number)
	server, err := New(Config{Unix: filepath.Join(dir, "grpc"), File: filepath.Join(dir, "db")})
	if err != nil {
		panic(err)
	}
	server.keeper = extconfig.NewKeeper(extconfig.Config{Name: Name, File: filepath.Join(dir, "db"), Open: func(file string) (extconfig.Storage, error) {
		s, err := extconfig.OpenStore(file)
		return faultyStore{s, step, time.Duration(n) * time.Microsecond}, err
	}})
	ctx := context.Background()
	in, txns := make(chan event.Event, 64), make(chan *event.Txn)
	conn := &vpp.Conn{}
	var agent *vppagent.Agent
	ready := make(chan struct{})
	conn = vpp.New(vpp.Config{Socket: filepath.Join(dir, "vpp"), OnConnect: descriptor.OnConnect(), Needs: allvalues.Needs(), OnState: func(s vpp.State) {
		<-ready
		agent.Connected(s)
		in <- &event.VPPStatus{Connected: s.Connected}
	}})
	agent = vppagent.New(vppagent.Config{Caller: conn, Journal: filepath.Join(dir, "journal")})
	close(ready)
	var seen, sent atomic.Int32
	emit := func(ev event.Event) {
		if change, ok := ev.(*event.External); ok && change.Result != nil && step == "emit" && int(seen.Add(1)) == n {
			die()
		}
		in <- ev
	}
	out := make(chan *event.Txn, 1)
	c := controller.New(controller.Config{Sources: []string{Name}}, controller.NewValues())
	go func() { _ = c.Run(ctx, in, out) }()
	go func() { _ = conn.Run(ctx) }()
	go func() {
		for t := range out {
			if step == "txn" && int(sent.Add(1)) == n {
				die()
			}
			txns <- t
		}
	}()
	var done atomic.Int32
	go func() {
		_ = agent.Run(ctx, txns, func(ev event.Event) {
			if c, ok := ev.(*event.Committed); ok && c.Seq > 0 && step == "committed" && int(done.Add(1)) == n {
				die()
			}
			in <- ev
		})
	}()
	_ = server.Run(ctx, emit)
	os.Exit(1) // it could not listen
}

// chaos is the state that outlives the agent, and the client's knowledge.
type chaos struct {
	t      *testing.T
	rng    *rand.Rand
	dir    string
	sim    *sim.VPP
	client *grpc.ClientConn
	want   map[string]uint32 // name of an interface → MTU, as acknowledged

	kill   atomic.Pointer[exec.Cmd] // to be killed at a write; nil: none
	writes atomic.Int32             // until then
}

func newChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{t: t, rng: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), sim: sim.New(sim.Config{}), want: map[string]uint32{}}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(c.dir, "vpp"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = c.sim.Serve(ctx, l) })
	soon := grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 2 * time.Millisecond, Multiplier: 1.1, MaxDelay: 20 * time.Millisecond}}
	conn, err := grpc.NewClient("unix:"+filepath.Join(c.dir, "grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(soon))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); cancel(); serving.Wait() })
	c.client = conn
	c.sim.After(func(sim.Record) {
		if cmd := c.kill.Load(); cmd != nil && c.writes.Add(-1) == 0 {
			_ = cmd.Process.Kill() // it may have ended
		}
	})
	return c
}

// start starts the agent that will die at the step.
func (c *chaos) start(step string, n int) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", chaosEnv, c.dir, step, n))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	if err := os.Remove(filepath.Join(c.dir, "grpc")); err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return cmd
}

const tooMuch = 70000 // an MTU that no interface has

// request draws some interfaces, one of which may be impossible, and the expected state if it is carried out.
func (c *chaos) request() (req *rpc.DataRequest, del, all bool, after map[string]uint32) {
	req, after = &rpc.DataRequest{}, maps.Clone(c.want)
	del, all = c.rng.IntN(4) == 0, c.rng.IntN(3) == 0
	names := []string{"a", "b", "c", "d", "e", "f"}
	c.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	wrong := false
	for _, name := range names[:1+c.rng.IntN(3)] {
		m := &interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Mtu: 1000 + c.rng.Uint32N(8000)}
		switch {
		case del:
			delete(after, name)
		case c.rng.IntN(5) == 0:
			m.Mtu, wrong = tooMuch, true
		default:
			after[name] = m.Mtu
		}
		req.Interfaces = append(req.Interfaces, m)
	}
	if wrong && all {
		after = maps.Clone(c.want)
	}
	return req, del, all, after
}

// run has one agent live until its step, or until it has answered.
func (c *chaos) run(step string, n int) {
	t := c.t
	started := step
	if step == "vpp" {
		started = "none"
	}
	cmd := c.start(started, n)
	if step == "vpp" {
		c.writes.Store(int32(n))
		c.kill.Store(cmd)
	}
	req, del, all, after := c.request()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), RevertKey, strconv.FormatBool(all)), 20*time.Second)
	var ended error
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		ended = cmd.Wait()
		cancel() // from a server that can no longer answer
	}()
	method := "/rpc.DataChangeService/Put"
	if del {
		method = "/rpc.DataChangeService/Del"
	}
	err := c.client.Invoke(ctx, method, req, &rpc.PutResponse{}, grpc.WaitForReady(true))
	c.kill.Store(nil)
	answered := status.Code(err) == codes.OK || status.Code(err) == codes.FailedPrecondition
	if status.Code(err) == codes.DeadlineExceeded {
		t.Fatalf("%s %d: nothing happened", step, n)
	}
	if answered && started == "none" { // it lives
		if got := c.inVPP(); got != text(after) {
			t.Fatalf("%s %d: acknowledged %v, VPP has %s, want %s", step, n, err, got, text(after))
		}
	}
	_ = cmd.Process.Kill() // at the latest now
	<-dead
	if ended == nil || !strings.Contains(ended.Error(), "killed") {
		t.Fatalf("%s %d: the agent ended with %v", step, n, ended)
	}
	got := c.inFile()
	switch {
	case got == text(after):
		c.want = after
	case answered || got != text(c.want):
		t.Fatalf("%s %d: answered %t (%v), the file has %s; before %s, asked for %s", step, n, answered, err, got, text(c.want), text(after))
	}
}

func text(want map[string]uint32) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		out = append(out, fmt.Sprintf("%s=%d", name, want[name]))
	}
	return strings.Join(out, " ")
}

// inFile returns the content that the next agent will find, and checks the file for damage.
func (c *chaos) inFile() string {
	c.t.Helper()
	file := filepath.Join(c.dir, "db")
	if _, err := os.Stat(file); os.IsNotExist(err) {
		return ""
	}
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			c.t.Errorf("the file is corrupt: %v", err)
		}
		return nil
	})
	if err != nil {
		c.t.Error(err)
	}
	if err := db.Close(); err != nil {
		c.t.Fatal(err)
	}
	s, err := extconfig.OpenStore(file)
	if err != nil {
		c.t.Fatal(err)
	}
	wants, unread, err := s.Load()
	if err != nil || len(unread) > 0 {
		c.t.Fatalf("%v %v", err, unread)
	}
	if err := s.Close(); err != nil {
		c.t.Fatal(err)
	}
	got := map[string]uint32{}
	for client, values := range wants {
		for _, m := range values {
			got[client+m.(*interfaces.Interface).GetName()] = m.(*interfaces.Interface).GetMtu()
		}
	}
	return text(got)
}

var inDump = regexp.MustCompile(`(?m)^interface \S+ \S+ mtu (\d+) .*tag "ca1:i:(\w+)"`)

func (c *chaos) inVPP() string {
	got := map[string]uint32{}
	for _, m := range inDump.FindAllStringSubmatch(c.sim.Dump(), -1) {
		mtu, _ := strconv.ParseUint(m[1], 10, 32)
		got[m[2]] = uint32(mtu)
	}
	return text(got)
}

// TestKilledAtEveryStep: after a restart, acknowledged requests are present, refused ones are absent, and interrupted ones are
// present or absent as a whole. The file is never corrupt, and VPP follows it.
func TestKilledAtEveryStep(t *testing.T) {
	runs := pace.Fewer(chaosRuns, 4)
	if testing.Short() {
		runs = 20
	}
	if s := os.Getenv("CONTIV_CHAOS_RUNS"); s != "" {
		var err error
		if runs, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().Unix() / 3600)
	if s := os.Getenv("CONTIV_CHAOS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CONTIV_CHAOS_SEED=%d", seed)
	c := newChaos(t, seed)
	steps := []struct {
		name string
		n    func() int
	}{
		{"emit", func() int { return 1 + c.rng.IntN(2) }}, // the request, or taking it back
		{"txn", func() int { return 1 + c.rng.IntN(3) }},  // the first sync, the request, taking it back
		{"vpp", func() int { return 1 + c.rng.IntN(12) }},
		{"committed", func() int { return 1 + c.rng.IntN(3) }},
		{"save", func() int { return 0 }},
		{"saving", func() int { return c.rng.IntN(1500) }}, // µs
		{"saved", func() int { return 0 }},
		{"none", func() int { return 0 }}, // killed when it has answered
	}
	for i := range runs {
		s := steps[i%len(steps)]
		c.run(s.name, s.n())
	}
	c.run("none", 0)
}
