package transient_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const closedNode = `
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
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: prod}
spec:
  podSelector: {matchLabels: {app: db}}
  policyTypes: [Ingress]
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: prod}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], type: ClusterIP, ports: [{port: 53, protocol: UDP, targetPort: 53}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: prod, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 53, protocol: UDP}]
endpoints: [{addresses: [10.1.1.5], nodeName: node-1}]
`

func closedPod(name string, last int) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: prod, labels: {app: %s}}
spec: {nodeName: node-1, containers: [{name: c}]}
status: {phase: Running, podIP: 10.1.1.%d, podIPs: [{ip: 10.1.1.%d}]}
`, name, name, last, last)
}

// stream is a UDP flow that never stops, with a server that answers.
type stream struct {
	from     string // pod
	src, dst netip.AddrPort
	denied   bool

	arrived, answered int
	since             int // answers since the last check
}

// closing is one node with streams: after every message to VPP each stream sends a datagram.
type closing struct {
	t       *testing.T
	vpp     *sim.VPP
	cni     *cni.CNI
	cfg     agent.Config
	agent   *agent.Stepper
	streams []*stream
	pods    map[string]string // interface by address

	messages  int
	shut      map[string]bool // interfaces that have had lists in both directions since VPP's start
	early     int             // denied datagrams that arrived through other interfaces
	late      []string        // and through those
	firstShut int             // messages until the isolated pod had lists; 0: it has none yet
}

func newClosing(t *testing.T, renderer agent.ServiceRenderer) *closing {
	v := sim.New(sim.Config{Seed: 1, PuntLocal: true, LogLimit: 1})
	t.Cleanup(v.Close)
	c := &closing{t: t, vpp: v, cni: cni.New(v, "node-1"), pods: map[string]string{}, shut: map[string]bool{}}
	c.cfg = agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, Sources: map[string]agent.Source{source: agent.Fed{}}, Override: cni.Located(), Process: config.Process{Now: v.Now}, Services: config.ServedBy(renderer),
	}
	at := netip.MustParseAddrPort
	c.streams = []*stream{
		{from: "client", src: at("10.1.1.3:4000"), dst: at("10.1.1.2:6379")},
		{from: "evil", src: at("10.1.1.4:4000"), dst: at("10.1.1.2:6379"), denied: true},
		{from: "evil", src: at("10.1.1.4:4001"), dst: at("10.1.1.5:9000")},
		{from: "web", src: at("10.1.1.5:4000"), dst: at("10.1.1.3:9000")},
		{from: "client", src: at("10.1.1.3:4002"), dst: at("10.96.0.10:53")},
		{from: "db", src: at("10.1.1.2:4000"), dst: at("10.96.0.10:53")},
	}
	return c
}

func (c *closing) start() {
	c.t.Helper()
	a, err := agent.NewStepper(context.Background(), c.cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(a.Close)
	c.agent = a
}

// load returns the objects of the manifests.
func (c *closing) load(yaml string) []event.Change {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		c.t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		c.t.Fatal(err)
	}
	return changes
}

// plumb makes the interfaces of pods.
func (c *closing) plumb(changes []event.Change) {
	c.t.Helper()
	if err := c.cni.Apply(changes); err != nil {
		c.t.Fatal(err)
	}
	for _, ch := range changes {
		if pod, ok := ch.Object.(*model.Pod); ok {
			c.pods[pod.IPs[0].String()] = cni.PodInterface(pod.ID)
		}
	}
}

func (c *closing) feed(changes ...event.Change) {
	c.t.Helper()
	err := c.agent.Feed(context.Background(), &event.Update{Source: source, Changes: changes}, &event.SyncStatus{Source: source, Status: event.InSync})
	if err != nil {
		c.t.Fatal(err)
	}
}

// bothDirections reports whether the text of an acl_interface_set_acl_list has lists for input and output.
func bothDirections(text string) bool {
	return !strings.Contains(text, "input=[]") && !strings.Contains(text, "output=[]")
}

// watch makes every stream send after each message.
func (c *closing) watch() {
	c.messages, c.firstShut, c.early, c.late, c.shut = 0, 0, 0, nil, map[string]bool{}
	c.vpp.After(func(r sim.Record) {
		c.messages++
		if r.Name == "acl_interface_set_acl_list" && r.Retval == 0 {
			for _, door := range c.pods {
				if strings.Contains(r.Text, "="+door+" ") && bothDirections(r.Text) {
					c.shut[door] = true
				}
			}
			if c.shut["pod-prod/db"] && c.firstShut == 0 {
				c.firstShut = c.messages
			}
		}
		if r.Write && strings.HasPrefix(r.Name, "nat44") && c.firstShut == 0 && len(c.pods) == 4 {
			c.t.Errorf("NAT44 comes before lists: %s", r.Text)
		}
		c.send()
	})
}

// send sends one datagram of each stream, and its answer.
func (c *closing) send() {
	for _, s := range c.streams {
		in := "pod-prod/" + s.from
		if c.pods[s.src.Addr().String()] != in {
			continue
		}
		out, ok := c.pass(in, packet.NewUDP(s.src, s.dst))
		if !ok {
			continue
		}
		s.arrived++
		if s.denied {
			if c.shut[out.Interface] {
				c.late = append(c.late, fmt.Sprintf("after message %d: %s -> %s", c.messages, s.src, s.dst))
			} else {
				c.early++
			}
		}
		p := out.Packet
		back, ok := c.pass(out.Interface, packet.NewUDP(netip.AddrPortFrom(p.Dst, p.DstPort), netip.AddrPortFrom(p.Src, p.SrcPort)))
		if q := back.Packet; ok && back.Interface == in && q.Src == s.dst.Addr() && q.SrcPort == s.dst.Port() && q.DstPort == s.src.Port() {
			s.answered++
			s.since++
		}
	}
}

// pass returns where a packet leaves through a pod's interface; false: it does not.
func (c *closing) pass(in string, p sim.Packet) (sim.Output, bool) {
	fate := c.vpp.Send(in, p)
	if len(fate.Out) == 0 || !strings.HasPrefix(fate.Out[0].Interface, "pod-") {
		return sim.Output{}, false
	}
	return fate.Out[0], true
}

// settled sends more datagrams: those of denied streams must not arrive, all others must be answered.
func (c *closing) settled(when string) {
	c.t.Helper()
	c.vpp.After(nil)
	if len(c.late) > 0 {
		c.t.Errorf("%s: %d denied datagrams passed lists, the first %s", when, len(c.late), c.late[0])
	}
	before := make([]int, len(c.streams))
	for i, s := range c.streams {
		s.since, before[i] = 0, s.arrived
	}
	for range 5 {
		c.send()
	}
	for i, s := range c.streams {
		want := 5
		if s.denied {
			want = 0
		}
		if s.since != want || s.denied && s.arrived != before[i] {
			c.t.Errorf("%s: %s -> %s (denied: %v): %d of 5 answered, %d arrived", when, s.src, s.dst, s.denied, s.since, s.arrived-before[i])
		}
	}
	c.t.Logf("%s: %d messages, isolated pod closed after %d, %d denied datagrams before that", when, c.messages, c.firstShut, c.early)
}

// TestStreamsAcrossRestarts: denied streams stay denied and allowed ones continue over every restart. No denied datagram
// passes an interface that has lists, and the agent makes nothing of NAT44 before the lists.
func TestStreamsAcrossRestarts(t *testing.T) {
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		t.Run(string(renderer), func(t *testing.T) {
			c := newClosing(t, renderer)
			objects := c.load(closedNode + closedPod("db", 2) + closedPod("client", 3) + closedPod("evil", 4) + closedPod("web", 5))
			c.plumb(objects)
			c.watch()
			c.start()
			c.feed(objects...)
			c.settled("first start")

			for i := range 3 {
				c.vpp.Restart()
				c.watch()
				if err := c.agent.WaitConnected(t.Context(), uint64(i+2)); err != nil {
					t.Fatal(err)
				}
				c.feed()
				c.settled("restart of VPP")
			}

			c.agent.Close()
			c.watch()
			c.start()
			c.vpp.ClearLog()
			c.feed(objects...)
			c.early = 0
			c.settled("restart of the agent")
			if slices.ContainsFunc(c.vpp.Log(), func(r sim.Record) bool { return r.Write }) {
				t.Error("restart of the agent: it wrote")
			}
		})
	}
}

// TestNewPodIsClosed: from the agent's first message after it sees an interface, the interface passes nothing until the
// agent knows the pod with its address; and nothing after the pod is deleted and the interface remains.
func TestNewPodIsClosed(t *testing.T) {
	for name, check := range map[string]acl.SourceCheck{"source check": acl.SourceStrict, "pods without lists": acl.SourceOff} {
		t.Run(name, func(t *testing.T) { newPodIsClosed(t, check) })
	}
}

func newPodIsClosed(t *testing.T, check acl.SourceCheck) {
	c := newClosing(t, agent.RendererNAT44)
	c.cfg.Policies.ACL.SourceCheck = check
	objects := c.load(closedNode + closedPod("client", 3) + closedPod("evil", 4) + closedPod("web", 5))
	c.plumb(objects)
	c.start()
	c.feed(objects...)
	db := c.load(closedPod("db", 2))
	c.plumb(db)
	c.watch()
	c.feed() // the agent sees the interface
	if c.early > 0 && c.messages == 0 || len(c.late) > 0 {
		t.Errorf("%d before, %q", c.early, c.late)
	}
	was := c.streams[0].arrived + c.streams[1].arrived
	c.send()
	if now := c.streams[0].arrived + c.streams[1].arrived; now != was {
		t.Errorf("%d datagrams arrive at an unknown pod", now-was)
	}
	c.feed(db...)
	c.settled("new pod")

	db[0].Object = nil
	c.watch()
	c.shut[c.pods["10.1.1.2"]], c.firstShut = true, 1
	c.feed(db[0])
	was = c.streams[0].arrived + c.streams[1].arrived
	c.send()
	if now := c.streams[0].arrived + c.streams[1].arrived; now != was || len(c.late) > 0 {
		t.Errorf("%d datagrams arrive at an interface whose pod is no more, %q on the way", now-was, c.late)
	}
}

// TestPodMadeWhileTheAgentWasAway: a starting agent closes the interfaces that no agent evaluated, before its sources are in
// sync, and writes nothing else.
func TestPodMadeWhileTheAgentWasAway(t *testing.T) {
	c := newClosing(t, agent.RendererNAT44)
	objects := c.load(closedNode + closedPod("client", 3) + closedPod("evil", 4) + closedPod("web", 5))
	c.plumb(objects)
	c.start()
	c.feed(objects...)
	c.agent.Close()
	db := c.load(closedPod("db", 2))
	c.plumb(db)
	c.send()
	if c.streams[1].arrived != 1 {
		t.Fatal("the interface is closed without an agent")
	}
	c.watch()
	c.start()
	if err := c.agent.Feed(context.Background()); err != nil { // no source has sent anything
		t.Fatal(err)
	}
	if c.messages != 3 || len(c.late) > 0 { // lists, the end of the sessions, lists
		t.Errorf("%d messages, late %q", c.messages, c.late)
	}
	was := c.streams[0].arrived + c.streams[1].arrived
	c.streams[2].since, c.streams[3].since = 0, 0
	c.send()
	if now := c.streams[0].arrived + c.streams[1].arrived; now != was || c.streams[2].since != 1 || c.streams[3].since != 1 {
		t.Errorf("%d datagrams arrive at a pod that was not evaluated; of the others %d and %d are answered", now-was, c.streams[2].since, c.streams[3].since)
	}
	c.feed(append(objects, db...)...)
	c.settled("all known")
}
