package realvpp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

// sideChanges is how many changes TestVPPBothSides makes.
const sideChanges = 100

// messagePause is how long an agent waits before a message: some datagrams pass VPP meanwhile.
const messagePause = 5 * time.Millisecond

// sidePods are the pods of the node, from 10.1.1.2 on.
var sidePods = []string{"a", "b", "c", "d"}

// sidesNode has no policies.
const sidesNode = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: prod}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: prod}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], type: ClusterIP, ports: [{port: 53, protocol: UDP, targetPort: 53}]}
`

// sideFlow is a stream of datagrams: one connection that lives on, and beside it a new one for each datagram.
type sideFlow struct {
	door     string // of its sender
	src, dst netip.Addr
	port     uint16 // of the connection that lives on
	service  bool

	before, after string // the door that a new connection reaches at rest; "": none
	met           []meeting
}

// meeting is the fate of a datagram during a change.
type meeting struct {
	door string
	live bool
}

// sides is the node, and its count.
type sides struct {
	*twin
	t     *testing.T
	rng   *rand.Rand
	dir   string
	port  uint16
	flows []*sideFlow
	next  int                // the flow that sends next
	had   map[model.Ref]bool // policies and endpoints

	sent, kept, denied, lost, passed int
	unserved                         int // to the Service: lost
}

// TestVPPBothSides holds ADR 32 on a running VPP: while policies and the endpoint of a Service change at random, pods send datagrams without a pause. One that
// is allowed before and after the change arrives, and one that is denied before and after it does not. Datagrams to the Service that are lost are
// counted: ADR 32 has the exceptions.
func TestVPPBothSides(t *testing.T) {
	changes, seed := oracle.Setting(t, "CONTIV_VPP_CASES", sideChanges), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	s := &sides{twin: startTwin(t, theVPP(t), "node-1", agent.Config{}), t: t, rng: rand.New(rand.NewPCG(seed, 6)), dir: t.TempDir(), port: 20000, had: map[model.Ref]bool{}}
	s.slow()
	s.check(s.apply(s.load(sidesNode + s.pods() + s.endpoint())))
	s.pairs()
	s.look(false)
	for range changes {
		s.change()
	}
	t.Logf("seed %d: %d changes, %d datagrams during them; %d were allowed before and after, %d of them lost; %d were denied before and after, %d of them passed; "+
		"of those to the Service %d were lost", seed, changes, s.sent, s.kept, s.lost, s.denied, s.passed, s.unserved)
	if s.kept == 0 || s.denied == 0 {
		t.Error("no datagram was allowed, or none denied")
	}
	if s.lost > 0 || s.passed > 0 {
		t.Errorf("%d lost, %d passed", s.lost, s.passed)
	}
}

// slow makes the agent of the real VPP pause between its messages, so that datagrams meet each state.
func (s *sides) slow() {
	vpp := s.twin.sides[1]
	dial := vpp.tap.dial
	vpp.tap.dial = func(ctx context.Context) (net.Conn, error) {
		c, err := dial(ctx)
		return &slowConn{c}, err
	}
	vpp.agent.Close()
	s.check(s.startAgent(vpp))
}

// slowConn pauses before it writes.
type slowConn struct{ net.Conn }

func (c *slowConn) Write(b []byte) (int, error) {
	time.Sleep(messagePause)
	return c.Conn.Write(b)
}

func (s *sides) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *sides) load(text string) []event.Change {
	s.t.Helper()
	file := filepath.Join(s.dir, "objects.yaml")
	s.check(os.WriteFile(file, []byte(text), 0o600))
	changes, err := manifest.Load(file)
	s.check(err)
	return changes
}

func (s *sides) pods() string {
	var b strings.Builder
	for i, name := range sidePods {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: prod, labels: {app: %s}}\nspec: {nodeName: node-1, containers: [{name: c}]}\n"+
			"status: {phase: Running, podIP: 10.1.1.%d, podIPs: [{ip: 10.1.1.%d}]}\n", name, name, 2+i, 2+i)
	}
	return b.String()
}

// endpoint is the Service's only one.
func (s *sides) endpoint() string {
	return fmt.Sprintf("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: prod, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\n"+
		"ports: [{port: 53, protocol: UDP}]\nendpoints: [{addresses: [10.1.1.%d], nodeName: node-1}]\n", 2+s.rng.IntN(len(sidePods)))
}

// policies restricts some pods to some others, in one direction or both.
func (s *sides) policies() string {
	var b strings.Builder
	for _, pod := range sidePods {
		for _, d := range [2][2]string{{"Ingress", "from"}, {"Egress", "to"}} {
			if s.rng.IntN(2) == 0 {
				continue
			}
			fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s-%s, namespace: prod}\nspec:\n  podSelector: {matchLabels: {app: %s}}\n  policyTypes: [%s]\n  %s:\n",
				pod, strings.ToLower(d[0]), pod, d[0], strings.ToLower(d[0]))
			for _, peer := range sidePods {
				if s.rng.IntN(3) > 0 {
					fmt.Fprintf(&b, "  - %s: [{podSelector: {matchLabels: {app: %s}}}]\n", d[1], peer)
				}
			}
			b.WriteString("  - ports: [{port: 9, protocol: UDP}]\n")
		}
	}
	return b.String()
}

// pairs makes a flow for each pair of pods, and one of each pod to the Service.
func (s *sides) pairs() {
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 1, byte(2 + i)}) }
	for i, name := range sidePods {
		door := cni.PodInterface(model.PodID{Namespace: "prod", Name: name})
		for j := range sidePods {
			f := &sideFlow{door: door, src: addr(i), dst: addr(j), port: uint16(19000 + len(s.flows))}
			if j == i {
				f.dst, f.service = netip.MustParseAddr("10.96.0.10"), true
			}
			s.flows = append(s.flows, f)
		}
	}
}

// send sends a datagram and returns the door at which it arrives; "": none.
func (s *sides) send(f *sideFlow, port uint16) string {
	s.t.Helper()
	out, err := s.lab.send(f.door, packet.NewUDP(netip.AddrPortFrom(f.src, port), netip.AddrPortFrom(f.dst, 53)))
	s.check(err)
	for _, o := range out {
		if strings.HasPrefix(o.Interface, "pod-") && o.Packet.Proto == model.UDP {
			return o.Interface
		}
	}
	return ""
}

func (s *sides) fresh() uint16 {
	if s.port++; s.port >= 32000 {
		s.port = 20000
	}
	return s.port
}

// look finds what arrives at rest.
func (s *sides) look(after bool) {
	for _, f := range s.flows {
		if at := s.send(f, s.fresh()); after {
			f.after = at
		} else {
			f.before = at
		}
	}
}

// change makes a change while all pods send.
func (s *sides) change() {
	text := s.policies()
	if s.rng.IntN(2) == 0 {
		text += s.endpoint()
	}
	changes, now := s.load("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: prod}\n"+text), map[model.Ref]bool{}
	for _, ch := range changes {
		now[ch.Ref] = ch.Ref.Kind == model.Kind(model.KindNetworkPolicy)
	}
	for ref, policy := range s.had {
		if _, stays := now[ref]; policy && !stays {
			changes = append(changes, event.Change{Ref: ref})
		}
	}
	s.had = now
	done := make(chan error, 1)
	go func() {
		done <- s.twin.sides[1].agent.Feed(context.Background(), &event.Update{Source: source, Changes: changes})
	}()
	for ended := false; !ended; s.next++ {
		f := s.flows[s.next%len(s.flows)]
		f.met = append(f.met, meeting{s.send(f, s.fresh()), false}, meeting{s.send(f, f.port), true})
		select {
		case err := <-done:
			s.check(err)
			ended = true
		default:
		}
	}
	s.look(true)
	for _, f := range s.flows {
		s.count(f)
		f.before, f.met = f.after, nil
	}
}

// count compares what arrived during a change with what arrives before and after it.
func (s *sides) count(f *sideFlow) {
	for _, m := range f.met {
		s.sent++
		switch {
		case m.door != "" && m.door != f.before && m.door != f.after:
			s.passed++
			s.t.Errorf("%s -> %s (lives on: %v) arrives at %s, before the change at %q, after it at %q", f.src, f.dst, m.live, m.door, f.before, f.after)
		case f.before == "" && f.after == "":
			s.denied++
		case f.before == "" || f.after == "":
		case m.door == "" && f.service:
			s.unserved++
		case m.door == "":
			s.lost++
			s.t.Errorf("%s -> %s (lives on: %v) is lost", f.src, f.dst, m.live)
		default:
			s.kept++
		}
	}
}
