package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const objects = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}], phase: Running}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{port: 80}]}
`

const endpoints = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080, name: "", protocol: TCP}]
endpoints: [{addresses: [10.1.1.2], nodeName: node-1}]
`

// world is a running agent on a simulated VPP and a folder of manifests.
type world struct {
	t         *testing.T
	dir       string
	vpp       *sim.VPP
	log       *logbuffer.Buffer
	agent     *Agent
	committed chan *event.Committed
	stop      func() error
}

func start(t *testing.T, change func(*Config), more ...string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), vpp: sim.New(sim.Config{PuntLocal: true}), log: &logbuffer.Buffer{}, committed: make(chan *event.Committed, 100)}
	w.write("objects.yaml", strings.Join(append([]string{objects}, more...), "\n---\n"))
	t.Cleanup(w.vpp.Close) // after the agent's end, because the agent would dial again
	w.run(change)
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// run starts an agent; VPP keeps the configuration of an earlier one.
func (w *world) run(change func(*Config)) {
	w.t.Helper()
	src := manifest.New(manifest.Config{Paths: []string{w.dir}, Watch: true, Debounce: time.Millisecond})
	cfg := Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: w.vpp.Dial}, Override: cni.Located(),
		Sources: map[string]Source{manifest.Name: cni.New(w.vpp, "node-1").Before(src, func(err error) { panic(err) })},
		Process: config.Process{Logger: slog.New(slog.NewTextHandler(w.log, nil)), OnCommitted: w.keep},
		Listen:  config.Listeners{Status: filepath.Join(w.t.TempDir(), "agent.sock")},
	}
	if change != nil {
		change(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	w.agent = a
	w.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	w.t.Cleanup(func() { _ = w.stop() })
}

// keep puts a transaction into committed. If that is full, the oldest is forgotten: the agent's loop never waits for a test.
func (w *world) keep(c *event.Committed) {
	for {
		select {
		case w.committed <- c:
			return
		default:
		}
		select {
		case <-w.committed:
		default:
		}
	}
}

// wait returns the first transaction that matches.
func (w *world) wait(what string, fits func(*event.Committed) bool) *event.Committed {
	w.t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case c := <-w.committed:
			if fits(c) {
				return c
			}
		case <-limit:
			w.t.Fatalf("no %s; log:\n%s", what, w.log)
		}
	}
}

// settled waits until the agent is in sync and has found the pod.
func (w *world) settled() {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		st, err := w.agent.Status(w.t.Context())
		if err == nil && st.InSync && st.Ifs != nil && st.Ifs.Pods["10.1.1.2"] != "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not settled: %+v, %v; log:\n%s", st, err, w.log)
		}
	}
}

func firstSync(c *event.Committed) bool { return c.Resync == event.Full && c.Err == nil }

func TestRunFollowsFiles(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := start(t, func(c *Config) { c.Process.Registry = registry })
	w.wait("first sync", firstSync)
	w.settled()

	w.write("slice.yaml", endpoints)
	c := w.wait("change", func(c *event.Committed) bool { return strings.Contains(c.Cause, "endpointslice/default/web-1") })
	if c.Writes != 1 {
		t.Errorf("an endpoint appeared: %d writes, want 1", c.Writes)
	}
	st, err := control.FetchStatus(t.Context(), w.agent.cfg.Listen.Status, true)
	if err != nil {
		t.Fatal(err)
	}
	if !st.InSync || st.Waiting != "" || len(st.Services) != 1 || st.Services[0].State != "CONFIGURED" || !strings.Contains(st.Services[0].Text, "10.1.1.2:8080") {
		t.Errorf("status %+v", st)
	}
	last := st.History[len(st.History)-1]
	if len(last.Ops) != 1 || !strings.Contains(last.Ops[0], "config/vpp/nat/v2/dnat44/default/web") {
		t.Errorf("last transaction of the history: %+v", last)
	}
	if line := "cause=endpointslice/default/web-1 add=1"; strings.Count(w.log.String(), line) != 1 {
		t.Errorf("log has not exactly one line with %q:\n%s", line, w.log)
	}
	if err := w.stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
	}
	for _, name := range []string{
		"kubeproxy_sync_proxy_rules_duration_seconds", "kubeproxy_network_programming_duration_seconds",
		"contiv_vpp_connected", "contiv_vpp_api_requests_total", "contiv_nat_sessions_limit",
	} {
		if !seen[name] {
			t.Errorf("no metric %s", name)
		}
	}
}

func TestSecondStartWritesNothing(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	w.settled()
	w.write("slice.yaml", endpoints)
	w.wait("endpoint", func(c *event.Committed) bool { return strings.Contains(c.Cause, "endpointslice") })
	w.startsAgain()
}

// startsAgain stops the agent in a settled state and starts another, which must have nothing to do.
func (w *world) startsAgain() {
	w.t.Helper()
	w.settled()
	_ = w.stop()
	dump := w.vpp.Dump()
	w.vpp.ClearLog()
	w.committed = make(chan *event.Committed, 100)
	w.run(nil)
	w.wait("first sync", firstSync)
	w.settled()
	if n := w.vpp.Writes(); n != 0 || w.vpp.Dump() != dump {
		w.t.Errorf("%d writes; log %v", n, w.vpp.Log())
	}
}

func TestVPPRestartIsRepaired(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	w.settled()
	before := w.vpp.Dump()
	w.vpp.Restart()
	w.wait("repair", func(c *event.Committed) bool { return c.Resync == event.Downstream && c.Writes > 0 && c.Err == nil })
	w.settled()
	if diff := cmp.Diff(before, w.vpp.Dump()); diff != "" {
		t.Errorf("after the restart (-before +after):\n%s", diff)
	}
}

func TestHealth(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	handler := httpserver.Mux(prometheus.NewRegistry(), w.agent.gallery.Ready, true)
	get := func(path string) (int, string) {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, fromLoopback(path))
		body, _ := io.ReadAll(rec.Body)
		return rec.Code, string(body)
	}
	for _, path := range []string{"/healthz", "/readyz", "/livez", "/metrics", "/debug/pprof/cmdline"} {
		if code, body := get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	_ = w.stop()
	code, body := get("/readyz")
	var h httpserver.Health
	if err := json.Unmarshal([]byte(body), &h); err != nil || code != http.StatusServiceUnavailable || h.Healthy || h.Reason == "" {
		t.Errorf("stopped agent: %d %s", code, body)
	}
	bare := httpserver.Mux(prometheus.NewRegistry(), w.agent.gallery.Ready, false)
	rec := httptest.NewRecorder()
	if bare.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil)); rec.Code != http.StatusNotFound {
		t.Errorf("profiling is off, yet /debug/pprof/ answers %d", rec.Code)
	}
}

// An agent that waits for a source is alive, and reports which source.
func TestHealthWaitsForEverySource(t *testing.T) {
	w := start(t, func(c *Config) { c.Sources["late"] = Fed{} })
	handler := httpserver.Mux(prometheus.NewRegistry(), w.agent.gallery.Ready, false)
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusServiceUnavailable} {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, fromLoopback(path))
		if rec.Code != want || want != http.StatusOK && !strings.Contains(rec.Body.String(), "late") {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
	}
}

// unlucky is a source that reports one error.
type unlucky struct{ err error }

// Run implements Source.
func (u unlucky) Run(ctx context.Context, emit func(event.Event)) error {
	emit(&event.SyncStatus{Source: "unlucky", Err: u.err})
	<-ctx.Done()
	return ctx.Err()
}

// /readyz, the status command, the log and the report name what a source lacks.
func TestHealthReportsWhatASourceLacks(t *testing.T) {
	const lacks = "no right to list tiers in API group crd.projectcalico.org"
	const said = "source unlucky is wait-for-ready: " + lacks
	l := newListening()
	w := start(t, func(c *Config) { c.Sources["unlucky"], c.Reporter = unlucky{errors.New(lacks)}, l })
	if rep := w.report(l, func(rep *event.Report) bool { return strings.Contains(rep.Waiting, said) }); rep.Ready {
		t.Errorf("%+v", rep)
	}
	handler, rec := httpserver.Mux(prometheus.NewRegistry(), w.agent.gallery.Ready, false), httptest.NewRecorder()
	handler.ServeHTTP(rec, fromLoopback("/readyz"))
	var h httpserver.Health
	if err := json.Unmarshal(rec.Body.Bytes(), &h); err != nil || rec.Code != http.StatusServiceUnavailable || !strings.Contains(h.Reason, said) {
		t.Errorf("%d %s %v", rec.Code, rec.Body, err)
	}
	st, err := w.agent.Status(t.Context())
	if err != nil || !strings.Contains(st.Waiting, said) || !slices.ContainsFunc(st.Sources, func(s status.Source) bool { return s.Error == lacks }) {
		t.Errorf("%+v %v", st, err)
	}
	if !strings.Contains(w.log.String(), lacks) {
		t.Errorf("log:\n%s", w.log)
	}
}

// counting is a renderer that only counts.
type counting struct {
	renderer.ServiceRendererAPI
	resyncs, added int
}

func (c *counting) Resync(*renderer.ResyncEventData) error                { c.resyncs++; return nil }
func (c *counting) AddService(*renderer.ContivService) error              { c.added++; return nil }
func (c *counting) UpdateLocalFrontendIfs(_, _ renderer.Interfaces) error { return nil }
func (c *counting) UpdateLocalBackendIfs(_, _ renderer.Interfaces) error  { return nil }
func (c *counting) UpdateNodePortServices(*renderer.IPAddresses, []*renderer.ContivService) error {
	return nil
}

func (c *counting) UpdateService(_, _ *renderer.ContivService, _ []*renderer.ContivService) error {
	return nil
}

func TestFurtherRenderersGetTheSameData(t *testing.T) {
	more := &counting{}
	w := start(t, func(c *Config) {
		c.Services.More = []func(renderer.Sink) renderer.ServiceRendererAPI{func(renderer.Sink) renderer.ServiceRendererAPI { return more }}
	})
	w.wait("first sync", firstSync)
	w.settled()
	w.write("second.yaml", strings.NewReplacer("name: web", "name: second", "10.96.0.10", "10.96.0.11").Replace(objects[strings.LastIndex(objects, "---"):]))
	w.wait("second service", func(c *event.Committed) bool { return strings.Contains(c.Cause, "service/default/second") })
	_ = w.stop()
	if more.resyncs != 1 || more.added != 1 {
		t.Errorf("%d resyncs, %d added, want 1 and 1", more.resyncs, more.added)
	}
}

func TestStatusSocketIsOccupied(t *testing.T) {
	w := start(t, nil)
	w.wait("first sync", firstSync)
	_, err := httpserver.Unix(t.Context(), w.agent.cfg.Listen.Status)
	if err == nil || !strings.Contains(err.Error(), "another agent listens there") {
		t.Errorf("second agent on one socket: %v", err)
	}
	if _, err := control.FetchStatus(t.Context(), filepath.Join(t.TempDir(), "none.sock"), false); err == nil {
		t.Error("no agent, no error")
	}
}

func TestPlanWritesNothing(t *testing.T) {
	changes, err := manifest.Load("../examples/guestbook")
	if err != nil {
		t.Fatal(err)
	}
	v := sim.New(sim.Config{PuntLocal: true})
	defer v.Close()
	if err := cni.New(v, "node-1").Apply(changes); err != nil {
		t.Fatal(err)
	}
	cfg := Config{NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, Override: cni.Located(), Sources: map[string]Source{manifest.Name: Fed{}}}
	update := &event.Update{Source: manifest.Name, Changes: changes}
	plan, err := PlanFor(t.Context(), cfg, update, false)
	if err != nil || plan.Empty() || v.Writes() != 0 {
		t.Fatalf("plan %v, %v; %d writes", plan, err, v.Writes())
	}
	s, err := NewStepper(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Feed(t.Context(), update, &event.SyncStatus{Source: manifest.Name, Status: event.InSync}); err != nil {
		t.Fatal(err)
	}
	if again, err := PlanFor(t.Context(), cfg, update, false); err != nil || !again.Empty() {
		t.Errorf("after the plan was carried out: %v, %v", again, err)
	}
	ask := packet.NewTCP(netip.MustParseAddrPort("10.1.1.4:40000"), netip.MustParseAddrPort("10.96.0.20:6379"))
	if fate := v.Send("pod-guestbook/client", ask); len(fate.Out) != 1 {
		t.Fatalf("client: %v", fate)
	}
	nothing := &event.Update{Source: manifest.Name, Changes: nil}
	if cut, err := PlanFor(t.Context(), cfg, nothing, true); err != nil || cut.Sessions == nil || *cut.Sessions != 1 {
		t.Errorf("plan of removing everything: %v, %v, want one session cut", cut, err)
	}
	if use, err := s.VPPAgent().SessionUse(t.Context()); err != nil || use.Used != 1 || use.Limit == 0 {
		t.Errorf("session use %+v, %v, want 1 of many", use, err)
	}
}
