package fleet

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/feed"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/port"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/vpp"
)

var nodes = flag.Int("nodes", 4, "nodes behind the fan-out server")

// patience is how long the fleet may take to settle.
const patience = 5 * time.Minute

// cluster is a folder of manifests: nodes with two pods each, Services over some of them, policies.
type cluster struct {
	t   *testing.T
	dir string
}

func (c *cluster) write(name, text string) {
	c.t.Helper()
	temp := filepath.Join(c.t.TempDir(), "new")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(c.dir, name)); err != nil { // whole or not at all
		c.t.Fatal(err)
	}
}

func (c *cluster) remove(name string) {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.dir, name)); err != nil {
		c.t.Fatal(err)
	}
}

func nodeName(n int) string { return fmt.Sprintf("node-%03d", n) }

func podIP(n, p int) string { return fmt.Sprintf("10.%d.%d.%d", 1+n/250, n%250, 10+p) }

func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	c := &cluster{t, t.TempDir()}
	var b strings.Builder
	b.WriteString("{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: kubernetes}, spec: {cidrs: [10.96.0.0/16]}}\n")
	for _, ns := range []string{"shop", "ops"} {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {team: %s}}}\n", ns, ns)
	}
	for n := range nodes {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Node, metadata: {name: %s}, spec: {podCIDR: 10.%d.%d.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.%d.%d}]}}\n",
			nodeName(n), 1+n/250, n%250, 16+n/250, 1+n%250)
		for p, ns := range []string{"shop", "ops"} {
			fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Pod, metadata: {name: pod-%03d, namespace: %s, labels: {app: app-%d}}, spec: {nodeName: %s}, status: {phase: Running, podIPs: [{ip: %s}]}}\n",
				n, ns, n%5, nodeName(n), podIP(n, p))
		}
	}
	c.write("cluster.yaml", b.String())
	for s := range 10 {
		c.service(s, s%nodes, (s+1)%nodes)
	}
	for p := range 5 {
		c.policy(p, "shop")
	}
	return c
}

// service writes a Service of these nodes' pods.
func (c *cluster) service(s int, nodes ...int) {
	c.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "{apiVersion: v1, kind: Service, metadata: {name: svc-%d, namespace: shop}, spec: {clusterIP: 10.96.0.%d, clusterIPs: [10.96.0.%d], ports: [{port: 80}]}}\n---\n", s, 10+s, 10+s)
	fmt.Fprintf(&b, "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: svc-%d-1, namespace: shop, labels: {kubernetes.io/service-name: svc-%d}}, addressType: IPv4, ports: [{port: 8080}], endpoints: [", s, s)
	for i, n := range slices.Compact(slices.Sorted(slices.Values(nodes))) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "{addresses: [%s], nodeName: %s}", podIP(n, 0), nodeName(n))
	}
	b.WriteString("]}\n")
	c.write(fmt.Sprintf("svc-%d.yaml", s), b.String())
}

// policy writes a policy for one of the apps, which allows a namespace.
func (c *cluster) policy(p int, from string) {
	c.t.Helper()
	c.write(fmt.Sprintf("policy-%d.yaml", p), fmt.Sprintf(
		"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: policy-%d, namespace: shop}, spec: {podSelector: {matchLabels: {app: app-%d}}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: %s}}}], ports: [{port: 8080}]}]}}\n",
		p, p, from))
}

// read returns the objects of the manifests.
func (c *cluster) read() map[model.Ref]event.Change {
	c.t.Helper()
	changes, err := manifest.Load(c.dir)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[model.Ref]event.Change{}
	for _, ch := range changes {
		if ch.Err != nil {
			c.t.Fatal(ch.Err)
		}
		out[ch.Ref] = ch
	}
	return out
}

// steps returns the changes from one state of the manifests to another.
func steps(before, after map[model.Ref]event.Change) (out []event.Change) {
	for ref, ch := range after {
		if old, known := before[ref]; !known || !model.Equal(old.Object, ch.Object) {
			out = append(out, ch)
		}
	}
	for ref := range before {
		if _, there := after[ref]; !there {
			out = append(out, event.Change{Ref: ref})
		}
	}
	slices.SortFunc(out, func(a, b event.Change) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return out
}

// server is a fan-out server that follows the manifests, and can be killed.
type server struct {
	t    *testing.T
	addr string
	kill func()
}

// start starts a new server at the same address.
func (s *server) start(dir string) {
	s.t.Helper()
	var l net.Listener
	eventually(s.t, "the address is free", func() (err error) {
		l, err = net.Listen("tcp", s.addr)
		return err
	})
	felix := []wire.SyncerType{wire.Felix}
	srv, err := fanout.New(fanout.Config{Syncers: felix, Modern: felix})
	if err != nil {
		s.t.Fatal(err)
	}
	keys := &feed.Feed{
		Objects: map[string]feed.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}, Watch: true, Keys: true})},
		Syncers: felix, Modern: true,
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- keys.Run(ctx, srv.Publish) }()
	go func() { ended <- srv.Serve(ctx, l) }()
	s.kill = func() {
		stop()
		if err := errors.Join(<-ended, <-ended); err != nil && !errors.Is(err, context.Canceled) {
			s.t.Error(err)
		}
	}
}

// fleet is the agents with their VPPs.
type fleet struct {
	t     *testing.T
	sims  map[string]*sim.VPP
	names []string
}

func newFleet(t *testing.T, n int, addr string) *fleet {
	t.Helper()
	f := &fleet{t: t, sims: map[string]*sim.VPP{}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, n)
	for i := range n {
		name := nodeName(i)
		v := sim.New(sim.Config{Seed: 0, PuntLocal: true})
		f.sims[name], f.names = v, append(f.names, name)
		src := typha.New(typha.Config{Addrs: []string{addr}, Hostname: name, PauseFrom: 20 * time.Millisecond, PauseTo: 300 * time.Millisecond})
		a, err := agent.New(agent.Config{
			NodeName: name, VPP: vpp.Config{Dial: v.Dial}, Override: cni.Located(), Process: config.Process{Logger: slog.New(slog.DiscardHandler)},
			Sources: map[string]agent.Source{typha.Name: cni.New(v, name).Before(src, func(error) {})},
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- a.Run(ctx) }()
	}
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("an agent ended by itself: %v", err)
			n--
		default:
		}
		stop()
		for range n {
			<-ended
		}
		for _, v := range f.sims {
			v.Close()
		}
	})
	return f
}

// becomes waits until every VPP has the configuration of its twin.
func (f *fleet) becomes(twin *trace.Cluster) {
	f.t.Helper()
	for _, name := range f.names {
		want := twin.Sim(name).Dump()
		eventually(f.t, name+" is as its twin", func() error {
			if have := f.sims[name].Dump(); have != want {
				return errors.New(gocmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")))
			}
			return f.sims[name].Crashed()
		})
	}
}

func (f *fleet) clear() {
	for _, v := range f.sims {
		v.ClearLog()
	}
}

func written(v *sim.VPP) (out []string) {
	for _, r := range v.Log() {
		if r.Write {
			out = append(out, r.String())
		}
	}
	slices.Sort(out)
	return out
}

func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s: %v", what, err)
		}
	}
}

// TestServerDiesUnderChange kills the server, changes the manifests, and starts a server that does not know its clients.
// Every VPP ends as that of an agent that reads the manifests itself, and the only writes are those that this agent makes
// for the same changes: nothing else is removed, even for a moment. Then the test changes server and manifests in every
// order.
func TestServerDiesUnderChange(t *testing.T) {
	c := newCluster(t, *nodes)
	s := &server{t: t, addr: port.Address(t)}
	s.start(c.dir)
	defer func() { s.kill() }()
	f := newFleet(t, *nodes, s.addr)
	twin := trace.NewCluster(trace.Config{})
	defer twin.Close()
	now := c.read()
	follow := func() {
		t.Helper()
		next := c.read()
		if err := twin.Apply(context.Background(), steps(now, next)); err != nil {
			t.Fatal(err)
		}
		now = next
	}
	if err := twin.Apply(context.Background(), steps(nil, now)); err != nil {
		t.Fatal(err)
	}
	f.becomes(twin)

	f.clear()
	for _, name := range f.names {
		twin.Sim(name).ClearLog()
	}
	s.kill()
	c.service(1, 0)        // loses an endpoint
	c.service(11, 0, 1, 2) // is new
	c.remove("svc-2.yaml")
	c.policy(0, "ops") // allows others
	c.remove("policy-1.yaml")
	c.policy(6, "shop") // is new, and selects nothing
	follow()
	s.start(c.dir)
	f.becomes(twin)
	for _, name := range f.names {
		if d := gocmp.Diff(written(twin.Sim(name)), written(f.sims[name])); d != "" {
			t.Errorf("%s: writes of an agent that reads the manifests (-) and of one behind the server (+):\n%s", name, d)
		}
	}

	for round := range 2 {
		c.service(3, round%*nodes)
		if round%2 == 0 {
			s.kill()
		}
		c.policy(2, []string{"shop", "ops"}[round%2])
		c.service(12+round, round%*nodes, 0)
		if round%2 == 1 {
			s.kill()
			c.remove(fmt.Sprintf("svc-%d.yaml", 11+round))
		}
		follow()
		s.start(c.dir)
	}
	f.becomes(twin)
}
