package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const natObjects = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: evil, namespace: shop}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {phase: Running, podIP: 10.1.1.66, podIPs: [{ip: 10.1.1.66}]}
---
apiVersion: v1
kind: Pod
metadata: {name: victim, namespace: shop}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {phase: Running, podIP: 10.1.1.5, podIPs: [{ip: 10.1.1.5}]}
---
apiVersion: v1
kind: Pod
metadata: {name: dns, namespace: shop, labels: {app: dns}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {phase: Running, podIP: 10.1.1.7, podIPs: [{ip: 10.1.1.7}]}
---
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: shop}
spec:
  clusterIP: 10.96.0.10
  selector: {app: dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: more, port: 54, protocol: UDP, targetPort: 53}, {name: tcp, port: 53, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-1, namespace: shop, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
ports: [{name: dns, port: 53, protocol: UDP}, {name: more, port: 53, protocol: UDP}, {name: tcp, port: 53, protocol: TCP}]
endpoints: [{addresses: [10.1.1.7], nodeName: node-1, targetRef: {kind: Pod, namespace: shop, name: dns}}]
`

// natWorld is a node with a Service on a simulated VPP.
type natWorld struct {
	t     *testing.T
	vpp   *sim.VPP
	agent *Stepper
	port  uint16 // port of the victim's next connection
	query int    // number of the next datagram from evil

	changes []event.Change
}

func startNAT(t *testing.T, change func(*Config)) *natWorld {
	t.Helper()
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(natObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &natWorld{t: t, vpp: sim.New(sim.Config{PuntLocal: true}), port: 20000, changes: changes}
	t.Cleanup(w.vpp.Close)
	if err := cni.New(w.vpp, "node-1").Apply(changes); err != nil {
		t.Fatal(err)
	}
	w.begin(change)
	return w
}

// begin starts an agent.
func (w *natWorld) begin(change func(*Config)) {
	t := w.t
	t.Helper()
	cfg := Config{NodeName: "node-1", VPP: vpp.Config{Dial: w.vpp.Dial}, Override: cni.Located(), Sources: map[string]Source{manifest.Name: Fed{}}, Process: config.Process{Now: w.vpp.Now}}
	if change != nil {
		change(&cfg)
	}
	var err error
	if w.agent, err = NewStepper(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.agent.Close)
	update := &event.Update{Source: manifest.Name, Changes: w.changes}
	if err := w.agent.Feed(t.Context(), update, &event.SyncStatus{Source: manifest.Name, Status: event.InSync}); err != nil {
		t.Fatal(err)
	}
}

// asVPPHas is the configuration without flags: VPP's default size and timeouts.
func asVPPHas(c *Config) {
	c.Services.Renderer.NAT44.Sessions = 64512
	c.Services.Renderer.NAT44.TimeoutUDP, c.Services.Renderer.NAT44.TimeoutTCPEstablished, c.Services.Renderer.NAT44.TimeoutTCPTransitory, c.Services.Renderer.NAT44.TimeoutICMP = 300, 7440, 240, 60
}

// datagrams sends n datagrams from evil to the Service, each from another port, and returns how many arrived.
func (w *natWorld) datagrams(n int) (arrived int) {
	for range n {
		port, service := uint16(1024+w.query%64000), uint16(53+w.query/64000%2)
		p := packet.Packet{
			Src: netip.MustParseAddr("10.1.1.66"), Dst: netip.MustParseAddr("10.96.0.10"), Proto: model.UDP, SrcPort: port, DstPort: service,
		}
		w.query++
		if fate := w.vpp.Send("pod-shop/evil", p); len(fate.Out) == 1 {
			arrived++
		}
	}
	return arrived
}

// connect opens 20 connections of the victim to the Service, and returns how many succeed.
func (w *natWorld) connect() (through int) {
	for range 20 {
		w.port++
		syn := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr("10.1.1.5"), w.port), netip.MustParseAddrPort("10.96.0.10:53"))
		if fate := w.vpp.Send("pod-shop/victim", syn); len(fate.Out) == 1 {
			through++
		}
	}
	return through
}

func (w *natWorld) look() *nattable.Status {
	w.t.Helper()
	if err := w.agent.LookAtNAT(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return w.agent.Status().NAT
}

// One pod fills the table. VPP then refuses new connections even after all sessions have expired. The agent frees expired
// sessions, and only as many as needed.
func TestExpiredSessionsAreFreedBeforeNewOnesFail(t *testing.T) {
	pace.NotRaced(t)
	w := startNAT(t, func(c *Config) { asVPPHas(c); c.NATTable.PodShare = 100 })
	if got := w.connect(); got != 20 {
		t.Fatalf("before: %d of 20 connections", got)
	}
	if got := w.datagrams(100_000); got != 64512-20 {
		t.Fatalf("%d datagrams arrived", got)
	}
	if got := w.connect(); got != 0 {
		t.Fatalf("in a full table: %d of 20 connections", got)
	}
	st := w.look() // nothing has expired, and no pod is above its share: nothing to free
	if st.Used != 64512 || st.Limit != 64512 || !st.Full || st.Expired+st.Evicted != 0 || w.connect() != 0 {
		t.Errorf("full of sessions that live: %+v", st)
	}
	if st := w.agent.Status(); st.Ready || st.Healthy || !strings.Contains(st.Waiting, "64512 of 64512 sessions (100 %): new connections through Services fail") ||
		!strings.Contains(st.Waiting, "most by pod shop/evil (10.1.1.66) 64492, pod shop/victim (10.1.1.5) 20") {
		t.Errorf("status: healthy %t, %q", st.Healthy, st.Waiting)
	}
	w.vpp.Advance(301 * time.Second)
	if got := w.connect(); got != 0 {
		t.Fatalf("all have expired, no one freed them: %d of 20 connections", got)
	}
	want := uint64(64512 - 64512*70/100)
	if st = w.look(); st.Expired != want || st.Used != 64512-want || st.Full || st.Problem != "" {
		t.Errorf("after: %+v, want %d freed", st, want)
	}
	if got := w.connect(); got != 20 {
		t.Errorf("after: %d of 20 connections", got)
	}
	if st := w.agent.Status(); !st.Ready || st.Waiting != "" {
		t.Errorf("status: healthy %t, %q", st.Healthy, st.Waiting)
	}
}

// While no session has expired, the pod above its share loses its longest idle sessions; no other pod loses one.
func TestPodAboveItsShareIsCut(t *testing.T) {
	pace.NotRaced(t)
	w := startNAT(t, asVPPHas)
	w.connect()
	w.datagrams(30_000)
	w.vpp.Advance(10 * time.Second)
	w.datagrams(70_000)
	if got := w.connect(); got != 0 {
		t.Fatalf("in a full table: %d of 20 connections", got)
	}
	st := w.look()
	const kept = 64512 / 4
	if st.Expired != 0 || st.Evicted != 64492-kept || st.Used != kept+20 || st.Full || !strings.Contains(st.Problem, "most had pod shop/evil (10.1.1.66) 64492") {
		t.Errorf("%+v", st)
	}
	if st := w.agent.Status(); !st.Ready || st.Healthy || st.Summary != "1 PARTIAL" || !strings.HasPrefix(st.Problems[0].String(), "NAT session table is PARTIAL: 16148 of 64512") {
		t.Errorf("status: ready %t, healthy %t, %v", st.Ready, st.Healthy, st.Problems)
	}
	if got := w.connect(); got != 20 {
		t.Errorf("after: %d of 20 connections", got)
	}
	old, of := 0, map[string]int{}
	for _, s := range w.vpp.Sessions() {
		of[s.Out2In.MatchSrc.Addr().String()]++
		if a := s.Out2In.MatchSrc; a.Addr().String() == "10.1.1.66" && s.Out2In.MatchDst.Port() == 53 && a.Port() < 1024+30_000 {
			old++
		}
	}
	if of["10.1.1.5"] != 40 || of["10.1.1.66"] != kept || old != 0 {
		t.Errorf("the victim has %d sessions, want all 40; evil %d, %d of the oldest", of["10.1.1.5"], of["10.1.1.66"], old)
	}
	w.vpp.Advance(10 * time.Minute)
	if st := w.look(); st.Problem != "" {
		t.Errorf("long after: %s", st.Problem)
	}
}

// With VPP's default timeouts, 215 new flows per second fill the table; with the agent's, a tenth of it.
func TestTenMinutesOfDNSQueries(t *testing.T) {
	pace.NotRaced(t)
	for _, c := range []struct {
		name   string
		change func(*Config)
		fills  bool
	}{{"as VPP has it", asVPPHas, true}, {"defaults", nil, false}} {
		t.Run(c.name, func(t *testing.T) {
			w := startNAT(t, c.change)
			most, lost := uint64(0), 0
			for range 600 {
				lost += 220 - w.datagrams(220)
				w.vpp.Advance(time.Second)
			}
			use, err := w.agent.VPPAgent().SessionUse(t.Context())
			if most = use.Used; err != nil || (lost > 0 || w.connect() < 20) != c.fills {
				t.Errorf("%d datagrams lost, %d sessions, %v", lost, most, err)
			}
			if !c.fills && most > 220*61 {
				t.Errorf("%d sessions of flows that begin 220 times a second and last 60 s", most)
			}
		})
	}
}

// Below the thresholds the agent sends no request that stops VPP; holders are known from half of the table on.
func TestNATTableBelowThresholds(t *testing.T) {
	counter := &countingSessions{}
	w := startNAT(t, func(c *Config) { asVPPHas(c); c.NATTable.Counter = counter })
	asked := func() (n int) {
		for _, r := range w.vpp.Log() {
			if r.Name == "nat44_user_dump" || r.Name == "nat44_user_session_v3_dump" {
				n++
			}
		}
		return n
	}
	w.datagrams(32_000)
	counter.n = 32_000
	if st := w.look(); st.Used != 32_000 || st.Problem != "" || len(st.Holders) != 0 || asked() != 0 {
		t.Errorf("below half: %+v, asked %d times", st, asked())
	}
	w.datagrams(1_000)
	counter.n = 33_000
	if st := w.look(); st.Problem != "" || len(st.Holders) != 1 || st.Holders[0].String() != "pod shop/evil (10.1.1.66) 33000" || asked() != 2 {
		t.Errorf("half: %+v, asked %d times", st, asked())
	}
	if st := w.look(); len(st.Holders) != 1 || asked() != 2 {
		t.Errorf("half, a second later: %+v, asked %d times", st, asked())
	}
	w.vpp.Advance(time.Minute)
	if w.look(); asked() != 4 {
		t.Errorf("half, a minute later: asked %d times", asked())
	}
	counter.err = errors.New("no stats segment")
	if st := w.look(); st.Used != 33_000 || asked() != 5 {
		t.Errorf("without a counter: %+v, asked %d times", st, asked())
	}
}

// TestMetricsNameNobody: metrics count sessions of the largest clients, and contain no name or address of the cluster, because their listener does
// not authenticate.
func TestMetricsNameNobody(t *testing.T) {
	w := startNAT(t, func(c *Config) { asVPPHas(c); c.NATTable.Counter = &countingSessions{n: 33_000} })
	w.datagrams(33_000)
	if st := w.look(); len(st.Holders) != 1 {
		t.Fatalf("%+v", st)
	}
	registry := prometheus.NewRegistry()
	if err := w.agent.metrics.register(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			fmt.Fprintln(&text, f.GetName(), m)
		}
	}
	if !strings.Contains(text.String(), "contiv_nat_holder_sessions ") || !strings.Contains(text.String(), "33000") {
		t.Errorf("no holder in\n%s", &text)
	}
	for line := range strings.Lines(text.String()) {
		for _, secret := range []string{"shop", "evil", "10.1.1.", "10.96.", "192.168.", "node-1"} {
			if strings.Contains(line, secret) {
				t.Errorf("%q is in the metrics: %s", secret, line)
			}
		}
	}
}

// countingSessions is a stats segment.
type countingSessions struct {
	n   uint64
	err error
}

func (c *countingSessions) NAT44Sessions(context.Context) (uint64, error) { return c.n, c.err }

// TestNATTableOfAnotherSize: a VPP whose NAT44 another agent enabled with another size is healthy. If the configuration has
// a different size, a remark describes the remedy.
func TestNATTableOfAnotherSize(t *testing.T) {
	w := startNAT(t, asVPPHas)
	w.agent.Close()
	for sessions, want := range map[uint32]string{
		0: "", 64512: "",
		200000: "--nat-sessions is 200000, but VPP's table has room for 64512 sessions per worker since NAT44 was enabled: restart VPP to change the size, or remove the flag",
	} {
		w.begin(func(c *Config) { c.Services.Renderer.NAT44.Sessions = sessions })
		st := w.look()
		if st == nil || st.Limit != 64512 || st.Remark != want || st.Problem != "" {
			t.Errorf("%d: %+v", sessions, st)
		}
		if now := w.agent.Status(); !now.Ready || len(now.Unwell) > 0 {
			t.Errorf("%d: ready %v, not well %v", sessions, now.Ready, now.Unwell)
		}
		w.agent.Close()
	}
}
