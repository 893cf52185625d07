package cni_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/cnitest"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// node is a world with an agent's socket.
type node struct {
	*cnitest.World
	protocol.Client
	spool protocol.Spool
}

// newNode starts a server. A step of the world fails, hangs or dies in before.
func newNode(t *testing.T, cfg cni.Config, before func(ctx context.Context, step string, a protocol.Attachment) error) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{World: cnitest.NewWorld(filepath.Join(dir, "ipam.db"), netip.MustParsePrefix("10.1.1.0/24"))}
	n.Before = before
	network, err := n.Start(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	cfg.Network = network
	if cfg.Spool == "" {
		cfg.Spool = filepath.Join(dir, "spool")
	}
	n.spool, n.Socket = protocol.Spool{Dir: cfg.Spool}, filepath.Join(dir, "s")
	s := cni.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := httpserver.Unix(ctx, n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	var jobs sync.WaitGroup
	jobs.Go(func() { _ = httpserver.HTTP(ctx, l, s, nil) })
	jobs.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { cancel(); jobs.Wait() })
	return n
}

// request makes a sandbox and the request to connect it.
func (n *node) request(id string) protocol.Request {
	r := protocol.Request{
		Attachment: protocol.Attachment{ContainerID: id, IfName: "eth0"}, Network: "contiv", Netns: "/run/netns/" + id,
		Pod: protocol.Pod{Namespace: "prod", Name: id},
	}
	n.AddSandbox(r.Netns)
	return r
}

// wants checks the code of an error and a part of its text.
func wants(t *testing.T, err error, code uint, text string) {
	t.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Error(), text) {
		t.Errorf("got %v (%+v), want code %d and %q", err, e, code, text)
	}
}

// empty waits until nothing is left of any container.
func (n *node) empty(t *testing.T) {
	t.Helper()
	for begin := time.Now(); len(n.Left()) > 0; {
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("left: %q", n.Left())
		}
		<-time.After(5 * time.Millisecond)
	}
	if n.Open() > 0 {
		t.Error("a pod could be reached without its lists")
	}
}

func TestVerbs(t *testing.T) {
	n := newNode(t, cni.Config{}, nil)
	r := n.request("c1")
	ctx := t.Context()
	res, err := n.Add(ctx, r)
	if err != nil || res.IPs[0].Address.String() != "10.1.1.2/32" || res.Interface.Sandbox != r.Netns {
		t.Fatalf("%+v, %v", res, err)
	}
	if again, err := n.Add(ctx, r); err != nil || again.IPs[0] != res.IPs[0] {
		t.Errorf("a second ADD: %+v, %v", again, err)
	}
	if err := errors.Join(n.Check(ctx, r, res), n.Check(ctx, r, nil), n.Status(ctx), n.Collect(ctx, []protocol.Attachment{r.Attachment})); err != nil {
		t.Error(err)
	}
	r.Netns = ""
	for range 3 {
		if err := n.Delete(ctx, r); err != nil {
			t.Error(err)
		}
	}
	n.empty(t)
	wants(t, n.Check(ctx, r, res), protocol.CodeUnknownContainer, "c1/eth0")
	if _, err := n.Add(ctx, n.request("c2")); err != nil {
		t.Fatal(err)
	}
	if err := n.Collect(ctx, []protocol.Attachment{}); err != nil {
		t.Error(err)
	}
	n.empty(t)
}

// Malformed requests are refused with their code, and reach no network.
func TestRefusedRequests(t *testing.T) {
	n := newNode(t, cni.Config{}, func(_ context.Context, step string, _ protocol.Attachment) error {
		t.Errorf("reached %s", step)
		return nil
	})
	good := n.request("c1")
	for text, change := range map[string]func(*protocol.Request){
		"CNI_CONTAINERID is empty":      func(r *protocol.Request) { r.ContainerID = "" },
		"CNI_CONTAINERID \"../../etc\"": func(r *protocol.Request) { r.ContainerID = "../../etc" },
		"CNI_IFNAME \"a/b\"":            func(r *protocol.Request) { r.IfName = "a/b" },
		"CNI_NETNS is empty":            func(r *protocol.Request) { r.Netns = "" },
		"CNI_NETNS \"run\"":             func(r *protocol.Request) { r.Netns = "run" },
		"longer than 4096 bytes":        func(r *protocol.Request) { r.Pod.Name = strings.Repeat("x", 5000) },
	} {
		r := good
		change(&r)
		_, err := n.Add(t.Context(), r)
		wants(t, err, protocol.CodeInvalidEnvironment, text)
	}
	r := good
	r.PortMappings = []protocol.PortMapping{{HostPort: 80, ContainerPort: 80, Protocol: "ICMP"}}
	_, err := n.Add(t.Context(), r)
	wants(t, err, protocol.CodeInvalidConfig, `portMappings[0].protocol: "ICMP" is not TCP, UDP or SCTP`)
	r.PortMappings = make([]protocol.PortMapping, 4000)
	_, err = n.Add(t.Context(), r)
	wants(t, err, protocol.CodeDecoding, "request body too large")
	wants(t, n.Collect(t.Context(), nil), protocol.CodeInvalidConfig, "the list of valid attachments is missing")
	resp, err := post(t, n.Socket, protocol.PathAdd, []byte("{"))
	if err != nil || resp != http.StatusBadRequest {
		t.Errorf("%v, %v", resp, err)
	}
}

func post(t *testing.T, socket, path string, body []byte) (int, error) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DialContext: dialer(socket), DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// gate blocks calls at a step until it is opened.
type gate struct {
	step    string
	reached chan struct{}
	open    chan struct{}
	deaf    bool // ignores the end of the call's context
}

func newGate(step string, deaf bool) *gate {
	return &gate{step, make(chan struct{}, 100), make(chan struct{}), deaf}
}

func (g *gate) before(ctx context.Context, step string, _ protocol.Attachment) error {
	if step != g.step {
		return nil
	}
	g.reached <- struct{}{}
	if g.deaf {
		ctx = context.Background()
	}
	select {
	case <-g.open:
	case <-ctx.Done():
	}
	return nil
}

// A DEL that arrives while an ADD of its container runs ends the ADD, and nothing is left: at every step, also if the network is done
// before it notices.
func TestDeleteOvertakesAdd(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for _, part := range append(cnitest.Parts(), "end") {
			t.Run(fmt.Sprint(part, " deaf=", deaf), func(t *testing.T) {
				g := newGate("add "+part, deaf)
				n := newNode(t, cni.Config{}, g.before)
				n.Deaf = deaf
				r := n.request("c1")
				var added error
				var calls sync.WaitGroup
				calls.Go(func() { _, added = n.Add(t.Context(), r) })
				<-g.reached
				var deleted atomic.Bool
				calls.Go(func() {
					if err := n.Delete(t.Context(), r); err != nil {
						t.Error(err)
					}
					deleted.Store(true)
				})
				if deaf {
					<-time.After(20 * time.Millisecond)
					if deleted.Load() {
						t.Error("the DEL did not wait for the ADD")
					}
					close(g.open)
				}
				calls.Wait()
				wants(t, added, protocol.CodeTryAgainLater, "a DEL of the same interface arrived")
				n.empty(t)
			})
		}
	}
}

// Calls for other containers do not wait.
func TestContainersAreIndependent(t *testing.T) {
	g := newGate("add veth", false)
	n := newNode(t, cni.Config{}, func(ctx context.Context, step string, a protocol.Attachment) error {
		if a.ContainerID != "c1" {
			return nil
		}
		return g.before(ctx, step, a)
	})
	done := make(chan error, 1)
	slow := n.request("c1")
	go func() { _, err := n.Add(t.Context(), slow); done <- err }()
	<-g.reached
	if _, err := n.Add(t.Context(), n.request("c2")); err != nil {
		t.Error(err)
	}
	close(g.open)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An ADD whose plugin was killed leaves nothing, at whatever step, and also if the plugin ends just before the answer.
func TestKilledPluginLeavesNothing(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		for _, part := range append(cnitest.Parts(), "end") {
			g := newGate("add "+part, deaf)
			n := newNode(t, cni.Config{}, g.before)
			n.Deaf = deaf
			ctx, kill := context.WithCancel(t.Context())
			done := make(chan struct{})
			r := n.request("c1")
			go func() { _, _ = n.Add(ctx, r); close(done) }()
			<-g.reached
			kill()
			<-done
			close(g.open)
			n.empty(t)
		}
	}
}

// A step that fails or panics leaves nothing; the server continues.
func TestFailedAddLeavesNothing(t *testing.T) {
	for _, part := range append(cnitest.Parts(), "end") {
		for name, fault := range map[string]func() error{
			"fails":  func() error { return protocol.Errorf(113, "VPP refused") },
			"panics": func() error { panic("index out of range") },
		} {
			t.Run(part+" "+name, func(t *testing.T) {
				var broken atomic.Bool
				broken.Store(true)
				n := newNode(t, cni.Config{}, func(_ context.Context, step string, _ protocol.Attachment) error {
					if broken.Load() && step == "add "+part {
						return fault()
					}
					return nil
				})
				_, err := n.Add(t.Context(), n.request("c1"))
				if name == "panics" {
					wants(t, err, protocol.CodeInternal, "internal error of contiv-agent")
					if strings.Contains(err.Error(), "goroutine") {
						t.Errorf("the runtime gets a stack: %v", err)
					}
				} else {
					wants(t, err, 113, "VPP refused")
				}
				n.empty(t)
				broken.Store(false)
				if _, err := n.Add(t.Context(), n.request("c1")); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A clean-up that fails is recorded, and repeated until it succeeds, without a DEL of the runtime.
func TestFailedCleanUpIsRepeated(t *testing.T) {
	var failures atomic.Int32
	n := newNode(t, cni.Config{}, func(_ context.Context, step string, _ protocol.Attachment) error {
		if step == "add route" || step == "delete lists" && failures.Add(1) == 1 {
			return errors.New("VPP is away")
		}
		return nil
	})
	_, err := n.Add(t.Context(), n.request("c1"))
	wants(t, err, protocol.CodeInternal, "VPP is away")
	n.empty(t)
	for begin := time.Now(); n.spool.Has(protocol.Attachment{ContainerID: "c1", IfName: "eth0"}); {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("the record stays")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A server with all its places taken refuses ADDs, and still serves DELs and STATUS.
func TestCallsAreBounded(t *testing.T) {
	g := newGate("add veth", false)
	n := newNode(t, cni.Config{Calls: 4}, g.before)
	var calls sync.WaitGroup
	for i := range 3 {
		r := n.request(fmt.Sprint("c", i))
		calls.Go(func() { _, _ = n.Add(t.Context(), r) })
		<-g.reached
	}
	_, err := n.Add(t.Context(), n.request("c9"))
	wants(t, err, protocol.CodeTryAgainLater, "contiv-agent has 3 calls in progress")
	if err := errors.Join(n.Status(t.Context()), n.Delete(t.Context(), n.request("c9"))); err != nil {
		t.Error(err)
	}
	close(g.open)
	calls.Wait()
}

// An ADD that takes too long ends with the code 11 and leaves nothing.
func TestAddIsBoundedInTime(t *testing.T) {
	g := newGate("add lists", false)
	n := newNode(t, cni.Config{AddLimit: 50 * time.Millisecond}, g.before)
	_, err := n.Add(t.Context(), n.request("c1"))
	wants(t, err, protocol.CodeTryAgainLater, "context deadline exceeded")
	n.empty(t)
}

// DELs that were recorded without an agent are carried out before the first ADD. A damaged record is set aside.
func TestRecordedDeletesComeFirst(t *testing.T) {
	spool := protocol.Spool{Dir: filepath.Join(t.TempDir(), "spool")}
	old := protocol.Request{Attachment: protocol.Attachment{ContainerID: "old", IfName: "eth0"}}
	if err := spool.Record(old); err != nil {
		t.Fatal(err)
	}
	bad := spool.Path(protocol.Attachment{ContainerID: "bad", IfName: "eth0"})
	if err := os.WriteFile(bad, []byte(`{"containerID":"other"`), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGate("delete route", false)
	var order []string
	var mu sync.Mutex
	n := newNode(t, cni.Config{Spool: spool.Dir}, func(ctx context.Context, step string, a protocol.Attachment) error {
		mu.Lock()
		order = append(order, step+" "+a.ContainerID)
		mu.Unlock()
		return g.before(ctx, step, a)
	})
	<-g.reached
	wants(t, n.Status(t.Context()), protocol.CodeNotAvailable, "contiv-agent starts")
	done := make(chan error, 1)
	r := n.request("new")
	go func() { _, err := n.Add(t.Context(), r); done <- err }()
	<-time.After(20 * time.Millisecond)
	close(g.open)
	if err := errors.Join(<-done, n.Status(t.Context())); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	first := slices.Index(order, "add intent new")
	if last := slices.Index(order, "delete intent old"); last < 0 || last > first {
		t.Errorf("order %q", order)
	}
	if spool.Has(old.Attachment) {
		t.Error("the record stays")
	}
	if _, err := os.Stat(bad + ".damaged"); err != nil {
		t.Error(err)
	}
}

// A record that its plugin left behind although an agent ran does not hit a later container of the same name.
func TestOldRecordDoesNotHitNewContainer(t *testing.T) {
	n := newNode(t, cni.Config{}, nil)
	r := n.request("c1")
	if _, err := n.Add(t.Context(), r); err != nil { // Run has begun
		t.Fatal(err)
	}
	if err := n.spool.Record(r); err != nil {
		t.Fatal(err)
	}
	if err := n.Delete(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n.spool.Has(r.Attachment) {
		t.Error("a DEL that succeeds leaves its record")
	}
	if err := n.spool.Record(r); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Add(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n.spool.Has(r.Attachment) || !n.Complete(r.Attachment) {
		t.Errorf("record %v, complete %v", n.spool.Has(r.Attachment), n.Complete(r.Attachment))
	}
}

// A GC waits for the ADDs in progress and spares them: the runtime's list is older than they are.
func TestCollectSparesRunningAdds(t *testing.T) {
	g := newGate("add veth", false)
	n := newNode(t, cni.Config{}, g.before)
	done := make(chan error, 2)
	r := n.request("c1")
	go func() { _, err := n.Add(t.Context(), r); done <- err }()
	<-g.reached
	go func() { done <- n.Collect(t.Context(), []protocol.Attachment{}) }()
	<-time.After(20 * time.Millisecond)
	close(g.open)
	if err := errors.Join(<-done, <-done); err != nil {
		t.Error(err)
	}
	if !n.Complete(r.Attachment) {
		t.Errorf("left: %q", n.Left())
	}
}

func TestStatus(t *testing.T) {
	n := newNode(t, cni.Config{}, nil)
	_, err := n.Add(t.Context(), n.request("c1")) // the start has ended
	if err != nil {
		t.Fatal(err)
	}
	n.SetUnready(errors.New("VPP does not answer at /run/vpp/api.sock"))
	wants(t, n.Status(t.Context()), protocol.CodeNotAvailable, "VPP does not answer at /run/vpp/api.sock")
	n.SetUnready(protocol.Errorf(protocol.CodeLimited, "the uplink is down"))
	wants(t, n.Status(t.Context()), protocol.CodeLimited, "the uplink is down")
	n.SetUnready(nil)
	if err := n.Status(t.Context()); err != nil {
		t.Error(err)
	}
	none := protocol.Client{Socket: n.Socket + "-none"}
	if err := none.Status(t.Context()); !errors.Is(err, protocol.ErrNoAgent) {
		t.Error(err)
	}
}
