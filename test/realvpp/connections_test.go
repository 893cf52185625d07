package realvpp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/cnat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

const (
	// askedFor is how many requests of each family have to be answered, leastChanges how many changes they have to see.
	askedFor     = 1000
	leastChanges = 24
	// askers is how many requests of each family are under way at any time.
	askers = 4
	// mourning is how long after a change it is sure that a connection VPP ended hangs.
	mourning = time.Second
)

// TestVPPConnections: real TCP connections through VIPs, while endpoints are added and removed. Clients and endpoints have separate
// network stacks, VPP is between them. Function judge says which must be answered; the connections that stay are checked after each
// change: nat44 ends those to endpoints that are taken out, cnat none.
func TestVPPConnections(t *testing.T) {
	path := theVPP(t)
	if isNewerVPP(path) {
		t.Skip("cnat of VPP 26.06 spoils the ICMP errors that refuse a connection")
	}
	seed := oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	for _, k := range []struct {
		name     string
		renderer agent.ServiceRenderer
		keep     bool
	}{
		{"IPv4 by nat44, IPv6 by cnat", agent.RendererAuto, false},
		{"both by cnat", agent.RendererCNAT, false},
		{"terminating endpoints kept", agent.RendererAuto, true},
	} {
		t.Run(k.name, func(t *testing.T) {
			c := openCrowd(t, path, seed, agent.Config{Services: config.Services{Renderer: builtin.Config{Choice: k.renderer}, Config: service.Config{KeepTerminating: k.keep}}}, 0)
			c.run()
		})
	}
}

// endpoint is a pod that serves, here or on the other node.
type endpoint struct {
	pod   *model.Pod
	local bool
}

// crowd is a client, endpoints, and an agent whose VPP is between them.
type crowd struct {
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	lab       *lab
	cni       *cni.CNI
	config    agent.Config
	drained   set // endpoints that terminate or are not ready, and keep their connections
	agent     *agent.Stepper
	objects   []model.Object // those that stay
	endpoints []endpoint
	is        []condition // of the endpoints
	families  []*family
}

// openCrowd makes a client with some addresses more, and a Service that remembers it if there are any.
func openCrowd(t *testing.T, path string, seed uint64, cfg agent.Config, more int) *crowd {
	l, err := openLab(path)
	if l != nil {
		t.Cleanup(l.close)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), lab: l, cni: cni.New(l, "node-1"), config: cfg}
	c.config.NodeName, c.config.VPP.Socket, c.config.VPPAgent.Journal = "node-1", l.socket(), filepath.Join(l.dir, "journal")
	c.config.Sources, c.config.Override = map[string]agent.Source{source: agent.Fed{}}, cni.Located()
	objects := dualStack()
	client := objects[2].(*model.Pod)
	for i := range more {
		client.IPs = append(client.IPs, netip.AddrFrom4([4]byte{10, 1, 1, byte(100 + i)}))
	}
	for i := range 5 {
		node, name := 1+i/3, fmt.Sprintf("web-%d", i)
		p := podAt(name, fmt.Sprintf("node-%d", node), fmt.Sprintf("10.1.%d.%d", node, 10+i))
		p.IPs = append(p.IPs, netip.MustParseAddr(fmt.Sprintf("fd00:1:%d::%d", node, 10+i)))
		c.endpoints, c.is = append(c.endpoints, endpoint{p, node == 1}), append(c.is, ready)
		objects = append(objects, p)
	}
	objects = append(objects, web(func(s *model.Service) {
		s.ClusterIPs = append(s.ClusterIPs, netip.MustParseAddr("fd00:96::10"))
		if more > 0 {
			s.SessionAffinityTimeout = time.Hour
			return
		}
		nodePort(model.PolicyLocal)(s) // its endpoints change with those on this node, and no connection through the cluster IP may notice
	}),
		&model.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}})
	if err := errors.Join(c.cni.Apply(puts(objects)), l.err); err != nil {
		t.Fatal(err)
	}
	c.populate(client)
	c.startAgent()
	t.Cleanup(func() { c.agent.Close() })
	c.objects = objects
	c.emit(append(slices.Clone(objects), c.slices()...), true)
	for _, f := range c.families {
		f.past = history{{usable: usable(c.is, cfg.Services.KeepTerminating)}}
	}
	return c
}

// populate gives everybody a network stack: the client, local endpoints each one, those of the other node one behind the overlay.
func (c *crowd) populate(client *model.Pod) {
	c.t.Helper()
	home, err := c.lab.inhabit(door(client), client.IPs...)
	if err != nil {
		c.t.Fatal(err)
	}
	for i, vip := range []string{"10.96.0.10:80", "[fd00:96::10]:80"} {
		f := &family{six: i == 1, vip: netip.MustParseAddrPort(vip), home: home, own: client.IPs[i], port: 10000, taken: map[uint16]int{}, flying: map[uint16]*flying{}}
		f.ends = !f.six && c.config.Services.Renderer.Choice != agent.RendererCNAT
		c.families = append(c.families, f)
	}
	var far []netip.Addr
	for _, e := range c.endpoints {
		if !e.local {
			far = append(far, e.pod.IPs...)
		}
	}
	away, err := c.lab.inhabit(cni.Overlay, far...)
	if err != nil {
		c.t.Fatal(err)
	}
	for i, e := range c.endpoints {
		at := away
		if e.local {
			if at, err = c.lab.inhabit(door(e.pod), e.pod.IPs...); err != nil {
				c.t.Fatal(err)
			}
		}
		for k, f := range c.families {
			c.serve(f, i, at, e.pod.IPs[k])
		}
	}
	c.lab.frames.close() // nothing is injected here
}

// serve is the program of an endpoint: it says who it is, and answers each line with as many bytes as it names.
func (c *crowd) serve(f *family, i int, at *netns, addr netip.Addr) {
	c.t.Helper()
	var l net.Listener
	var err error
	at.do(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 8080).String()) })
	if err != nil {
		c.t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	c.t.Cleanup(func() {
		stop()
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f.take(conn.RemoteAddr(), i)
			all.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				answer(conn, i)
			})
		}
	})
}

func answer(conn net.Conn, i int) {
	_, err := fmt.Fprintln(conn, i)
	for in := bufio.NewReader(conn); err == nil; {
		var n int
		if _, err = fmt.Fscanln(in, &n); err == nil {
			_, err = io.WriteString(conn, strings.Repeat("x", n))
		}
	}
}

func (c *crowd) startAgent() {
	c.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	a, err := agent.NewStepper(ctx, c.config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.agent = a
}

// emit returns when VPP has acknowledged all changes.
func (c *crowd) emit(objects []model.Object, inSync bool) {
	c.t.Helper()
	events := []event.Event{&event.Update{Source: source, Changes: puts(objects)}}
	if inSync {
		events = append(events, &event.SyncStatus{Source: source, Status: event.InSync})
	}
	if err := c.agent.Feed(context.Background(), events...); err != nil {
		c.t.Fatal(errors.Join(err, c.lab.alive()))
	}
	if unwell := c.agent.Status().Unwell; len(unwell) > 0 {
		c.t.Fatalf("VPP was not configured as wanted: %+v", unwell)
	}
}

// slices are what Kubernetes says of the endpoints now.
func (c *crowd) slices() []model.Object {
	var out []model.Object
	for k := range c.families {
		s := endpoints()
		s.ID.Name, s.IPv6 = fmt.Sprintf("web-%d", k), k == 1
		for i, e := range c.endpoints {
			if is := c.is[i]; is != absent {
				s.Endpoints = append(s.Endpoints, model.Endpoint{
					Addr: e.pod.IPs[k], NodeName: e.pod.NodeName, Pod: e.pod.ID,
					Ready: is == ready, Serving: is == ready || is == draining, Terminating: is == draining || is == ending,
				})
			}
		}
		out = append(out, s)
	}
	return out
}

func (c *crowd) run() {
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, f := range c.families {
		for n := range askers {
			rng := rand.New(rand.NewPCG(c.seed, uint64(n)))
			ended, err := f.home.beside(func() {
				for ctx.Err() == nil {
					port, r := f.ask(1+rng.IntN(4), rng.IntN(20_000), time.Duration(rng.IntN(30))*time.Millisecond)
					f.note(port, r)
					if r.err != nil {
						wait(ctx, mourning/2) // VPP refuses few at a time
					}
				}
			})
			if err != nil {
				stop()
				c.t.Fatal(err)
			}
			all.Go(func() { <-ended })
		}
	}
	for n := 0; !c.t.Failed() && (n < leastChanges || c.few()); n++ {
		c.hold()
		c.step(n)
		c.reach()
		c.linger(askedFor / leastChanges * (n + 1))
	}
	stop()
	all.Wait()
	for _, f := range c.families {
		f.report(c.t)
	}
	if err := c.lab.alive(); err != nil {
		c.t.Error(err)
	}
}

// linger waits until that many requests were answered, unless no endpoint exists.
func (c *crowd) linger(n int) {
	if usable(c.is, false) == 0 {
		return
	}
	for end := time.Now().Add(patience); time.Now().Before(end); wait(context.Background(), time.Millisecond) {
		if c.families[0].answered() >= n && c.families[1].answered() >= n {
			return
		}
	}
}

// few reports whether there have to be more requests.
func (c *crowd) few() bool {
	for _, f := range c.families {
		if f.answered() < askedFor {
			return true
		}
	}
	return false
}

// step is one change: of some endpoints, or the agent starts again, or it weighs local endpoints otherwise.
func (c *crowd) step(n int) {
	c.t.Helper()
	before := usable(c.is, c.config.Services.KeepTerminating)
	what := ""
	said := time.Now()
	switch n % 6 {
	case 3:
		what = "the agent starts again"
		c.restart()
	case 5:
		w := uint8(1 + c.rng.IntN(3))
		what = fmt.Sprintf("local endpoints weigh %d", w)
		c.config.Services.Renderer.NAT44, c.config.Services.Renderer.CNAT = nat44.Config{LocalEndpointWeight: w}, cnat.Config{LocalEndpointWeight: w}
		c.restart()
	default:
		for range 1 + c.rng.IntN(2) {
			i := c.rng.IntN(len(c.is))
			c.is[i] = []condition{absent, ready, ready, draining, ending, unready}[c.rng.IntN(6)]
		}
		switch deserted := n%12 == 6; {
		case deserted:
			for i := range c.is {
				c.is[i] = []condition{absent, ending, unready}[c.rng.IntN(3)]
			}
		case n%12 == 1 || n%12 == 2: // those of the other node alone, and then the first one here
			for i, e := range c.endpoints {
				c.is[i] = absent
				if !e.local || n%12 == 2 && i == 0 {
					c.is[i] = ready
				}
			}
		case usable(c.is, false) == 0:
			c.is[c.rng.IntN(len(c.is))] = []condition{ready, draining}[c.rng.IntN(2)]
		}
		what = fmt.Sprint("endpoints are ", c.is)
		c.emit(c.slices(), false)
	}
	done, after := time.Now(), usable(c.is, c.config.Services.KeepTerminating)
	had := before | c.drained
	if c.drained = 0; after != 0 {
		c.drained = leaving(c.is) & had &^ after
	}
	for _, f := range c.families {
		e := era{said: said, done: done, usable: after}
		if f.ends {
			e.cut = had &^ after &^ c.drained
		}
		f.past = append(f.past, e)
		f.stays(c.t, what, e.cut)
		if e.cut != 0 {
			f.abandon(done, e.cut, mourning)
		}
	}
}

func (c *crowd) restart() {
	c.t.Helper()
	c.agent.Close()
	c.startAgent()
	c.emit(append(slices.Clone(c.objects), c.slices()...), true)
}

// hold sees to it that there is a connection to every usable endpoint.
func (c *crowd) hold() {
	c.t.Helper()
	for _, f := range c.families {
		want := usable(c.is, c.config.Services.KeepTerminating)
		for try := 0; ; try++ {
			var have set
			for _, s := range f.held {
				have = have.with(s.by)
			}
			if want&^have == 0 {
				break
			}
			if try == manyTries {
				c.t.Fatalf("%s: no connection reached %b", f, want&^have)
			}
			s, err := f.open()
			switch {
			case err != nil:
				c.t.Fatalf("%s: %v", f, err)
			case have.has(s.by):
				s.conn.Close()
			default:
				f.held = append(f.held, s)
			}
		}
	}
}

// reach sees to it that every usable endpoint gets new connections, and that dialling is refused where there is none.
func (c *crowd) reach() {
	c.t.Helper()
	for _, f := range c.families {
		want := usable(c.is, c.config.Services.KeepTerminating)
		if want == 0 {
			c.refused(f)
			continue
		}
		var got set
		for try := 0; got != want; try++ {
			if try == manyTries {
				c.t.Fatalf("%s: %b are usable, new connections reach %b only", f, want, got)
			}
			s, err := f.open()
			if err != nil {
				c.t.Fatalf("%s: %v", f, err)
			}
			s.conn.Close()
			if got = got.with(s.by); got&^want != 0 {
				c.t.Fatalf("%s: new connections reach %b, usable are %b", f, got, want)
			}
		}
	}
}

// refused checks that dialling is answered with an error at once. VPP refuses at most ten a second, of all clients together.
func (c *crowd) refused(f *family) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; {
		ctx, stop := context.WithTimeout(context.Background(), mourning)
		s, err := f.openFor(ctx)
		stop()
		switch {
		case err == nil:
			c.t.Fatalf("%s: endpoint %d took a connection, and none is usable", f, s.by)
		case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES):
			return
		case time.Now().After(end):
			c.t.Fatalf("%s: nobody is there, but dialling is not refused: %v", f, err)
		}
	}
}
