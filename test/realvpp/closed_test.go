package realvpp

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

const closedObjects = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: default}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: default}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], type: ClusterIP, ports: [{port: 53, protocol: UDP, targetPort: 53}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 53, protocol: UDP}]
endpoints: [{addresses: [10.1.1.5], nodeName: node-1}]
`

// closedStream is a UDP flow with a separate server port that continues during all events.
type closedStream struct {
	from     string
	src, dst netip.AddrPort
	denied   bool

	sent, arrived, answered int
}

// streaming sends and answers the datagrams of streams on a lab's wires, in a goroutine.
type streaming struct {
	l       *lab
	doors   map[int]string // pods by pair
	pairs   map[string]int
	streams map[uint16]*closedStream // by server port
	at      chan func()
}

// run sends a datagram of each stream every 2 ms until ctx ends.
func (s *streaming) run(ctx context.Context) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-s.at:
			do()
		case <-tick.C:
			for _, st := range s.streams {
				st.sent++
				_ = s.l.frames.put(s.pairs[st.from], packet.NewUDP(st.src, st.dst)) // a VPP that is away loses it
			}
			s.take()
		}
	}
}

// take answers what arrived.
func (s *streaming) take() {
	s.l.frames.mu.Lock()
	got := s.l.frames.got
	s.l.frames.got = nil
	s.l.frames.mu.Unlock()
	for _, c := range got {
		p := c.packet
		if c.err != nil || p.Proto != model.UDP || s.doors[c.pair] == "" {
			continue
		}
		if st := s.streams[p.DstPort]; st != nil {
			st.arrived++
			_ = s.l.frames.put(c.pair, packet.NewUDP(netip.AddrPortFrom(p.Dst, p.DstPort), netip.AddrPortFrom(p.Src, p.SrcPort)))
		}
		if st := s.streams[p.SrcPort]; st != nil && s.doors[c.pair] == st.from && p.Src == st.dst.Addr() && p.DstPort == st.src.Port() {
			st.answered++
		}
	}
}

// counts is what the streams did so far, by server port.
func (s *streaming) counts() map[uint16]closedStream {
	out := make(chan map[uint16]closedStream)
	s.at <- func() {
		now := map[uint16]closedStream{}
		for port, st := range s.streams {
			now[port] = *st
		}
		out <- now
	}
	return <-out
}

// settle waits until every allowed stream is answered and no denied datagram arrives, for a while. It shows what there was since began.
func (s *streaming) settle(t *testing.T, when string, began map[uint16]closedStream) {
	t.Helper()
	var wrong string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		before := s.counts()
		time.Sleep(500 * time.Millisecond)
		after := s.counts()
		wrong = ""
		for port, b := range before {
			a := after[port]
			answered, arrived, sent := a.answered-b.answered, a.arrived-b.arrived, a.sent-b.sent
			if b.denied && arrived > 0 || !b.denied && answered < sent/2 {
				wrong += fmt.Sprintf("%s -> %s (denied: %v): %d sent, %d arrived, %d answered\n", b.src, b.dst, b.denied, sent, arrived, answered)
			}
		}
		if wrong == "" {
			for port, b := range began {
				t.Logf("%s: %s -> %s (denied: %v): %d sent, %d arrived, %d answered", when, b.src, b.dst, b.denied,
					after[port].sent-b.sent, after[port].arrived-b.arrived, after[port].answered-b.answered)
			}
			return
		}
	}
	t.Fatalf("%s:\n%s%s", when, wrong, s.l.cli("show nat44 sessions"))
}

// TestVPPStreamsAcrossRestarts kills a real VPP below streams that do not stop: those that are denied are denied afterwards, too, and
// those that are allowed go on.
func TestVPPStreamsAcrossRestarts(t *testing.T) {
	l, err := openLab(theVPP(t))
	t.Cleanup(l.close)
	if err != nil {
		t.Fatal(err)
	}
	yaml, network, pods := closedObjects, cni.New(l, "node-1"), map[string]string{"db": "10.1.1.2", "client": "10.1.1.3", "evil": "10.1.1.4", "web": "10.1.1.5"}
	objects := []model.Object{nodeAt(1)}
	for name, ip := range maps.All(pods) {
		yaml += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: default, labels: {app: %s}}\nspec: {nodeName: node-1, containers: [{name: c}]}\nstatus: {phase: Running, podIP: %s, podIPs: [{ip: %s}]}\n", name, name, ip, ip)
		objects = append(objects, podAt(name, "node-1", ip))
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := network.Apply(puts(objects)); err != nil || l.err != nil {
		t.Fatal(err, l.err)
	}
	at := netip.MustParseAddrPort
	s := &streaming{l: l, doors: map[int]string{}, pairs: map[string]int{}, at: make(chan func()), streams: map[uint16]*closedStream{
		6379: {from: "client", src: at("10.1.1.3:4000"), dst: at("10.1.1.2:6379")},
		6380: {from: "evil", src: at("10.1.1.4:4000"), dst: at("10.1.1.2:6380"), denied: true},
		9000: {from: "evil", src: at("10.1.1.4:4001"), dst: at("10.1.1.5:9000")},
		9001: {from: "web", src: at("10.1.1.5:4000"), dst: at("10.1.1.3:9001")},
		53:   {from: "client", src: at("10.1.1.3:4002"), dst: at("10.96.0.10:53")},
	}}
	for name := range pods {
		pair := l.pairs[cni.PodInterface(model.PodID{Namespace: "default", Name: name})]
		s.doors[pair], s.pairs[name] = name, pair
	}
	a, err := agent.New(agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Socket: l.socket()}, Override: cni.Located(), VPPAgent: vppagent.Config{Recheck: time.Second}, Services: config.ServedBy(agent.RendererNAT44),
		Sources: map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}})},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { s.run(ctx); done <- struct{}{} }()
	go func() { _ = a.Run(ctx); done <- struct{}{} }()
	t.Cleanup(func() { stop(); <-done; <-done })
	s.settle(t, "first start", s.counts())
	for n := range 3 {
		began := s.counts()
		if err := l.restart(); err != nil {
			t.Fatal(err)
		}
		s.settle(t, fmt.Sprintf("VPP killed, %d", n+1), began)
	}
}
