package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/test/simulate/etcdserver"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// world is one simulation.
type world struct {
	hosts    []*host
	cluster  *cluster
	relay    *servers.Fanout // nil: agents follow the API server
	traffic  *traffic
	log      *slog.Logger
	seed     uint64
	faulting sync.WaitGroup
}

// host is a node with its container runtime.
type host struct {
	*node
	*runtime
	refused int // of 1,000 requests that change something in VPP
}

// newWorld makes nodes with a policy. The caller calls end.
func newWorld(seed uint64, dir string, log *slog.Logger) (w *world, end func()) {
	w = &world{cluster: newCluster(seed), traffic: newTraffic(), log: log, seed: seed}
	store := etcdserver.New()
	if w.fanout() {
		followers := uint64(1 << 20) // unlike any agent
		w.relay = servers.NewFanout(nodeNames, func() (agent.Source, error) {
			followers++
			return servers.Source(w.cluster.server, followers, true, log)
		}, log)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	var kernels []*kernel
	for i, name := range nodeNames {
		n := &node{
			name: name, number: i, dir: filepath.Join(filesOf(seed, dir), name), netns: filepath.Join(dir, "netns", name), log: log.With("node", name), sim: sim.New(sim.Config{Seed: seed + uint64(i), PuntLocal: true, LogLimit: 1 << 12}),
			toVPP: network.New(), toAgent: network.New(), kernel: &kernel{have: map[string]any{}, open: connections{}},
			cluster: w.cluster, etcd: servers.JoinEtcd(store, name), relay: w.relay, away: time.Second, over: make(chan struct{}),
		}
		n.toVPP.Change(func(f *network.Faults) { f.Slow = 3 * time.Millisecond })
		h := &host{node: n, runtime: newRuntime(n, w.traffic)}
		w.hosts, kernels = append(w.hosts, h), append(kernels, n.kernel)
		w.traffic.places = append(w.traffic.places, &place{vpp: n.sim, open: n.kernel.openConnection})
	}
	for i, h := range w.hosts {
		h.kernels = kernels
		h.sim.After(func(m sim.Record) { w.traffic.send(i, m.String()) })
		serving.Go(func() { _ = h.sim.Serve(ctx, h.toVPP) })
		go h.run()
	}
	return w, func() {
		for _, h := range w.hosts {
			h.node.stop()
		}
		store.Stop()
		if w.relay != nil {
			w.relay.Close()
		}
		for _, h := range w.hosts {
			h.sim.Close()
		}
		stop()
		for _, h := range w.hosts {
			_ = h.toVPP.Close()
			h.toVPP.Sever()
		}
		serving.Wait()
	}
}

// fanout reports whether agents follow a fan-out server: in every third seed.
func (w *world) fanout() bool { return w.seed%3 == 0 }

// pods are those of all nodes, by number.
func (w *world) pods() (out []*pod) {
	for _, h := range w.hosts {
		out = append(out, h.runtime.pods...)
	}
	return out
}

// forget ends a VPP by end, while no packets are sent.
func (h *host) forget(end func()) { h.traffic.forget(h.number, end) }

// laws returns what is broken after a quiet time.
func (w *world) laws() error {
	time.Sleep(quiet)
	synctest.Wait()
	w.traffic.sendAll("the quiet time")
	w.traffic.mayBe(false, false)
	errs := w.traffic.errors()
	if w.relay != nil {
		errs = append(errs, w.relay.Bad())
	}
	for _, h := range w.hosts {
		if err := h.laws(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.name, err))
		}
	}
	return errors.Join(errs...)
}

// laws returns what is broken at a node.
func (h *host) laws() error {
	h.runtime.mu.Lock()
	errs := slices.Clone(h.bad)
	h.runtime.mu.Unlock()
	errs = append(errs, h.kernel.hanging())
	h.node.mu.Lock()
	errs = append(errs, h.ended, h.sim.Crashed())
	h.node.mu.Unlock()
	l := h.present()
	if l == nil {
		return errors.Join(append(errs, errors.New("no agent runs"))...)
	}
	errs = append(errs, healthy(l))
	dump := h.sim.Dump()
	routes := routesOf(dump)
	var attached []protocol.Attachment
	for _, p := range h.pods {
		var at *protocol.Attachment
		if p.req != nil {
			at = &p.req.Attachment
			attached = append(attached, *at)
			if err := h.check(p); err != nil {
				errs = append(errs, fmt.Errorf("CHECK of %s: %w", *at, err))
			}
		}
		errs = append(errs, inVPP(dump, routes, p))
	}
	errs = append(errs, h.leftovers(l, routes, attached), h.sockets(dump), h.verify(l), h.etcd.Check(dump))
	return errors.Join(errs...)
}

// healthy is an error unless the agent has reached its desired state and serves ADDs.
func healthy(l *life) error {
	st, err := l.Status(context.Background())
	if err != nil {
		return err
	}
	if !st.InSync || !st.VPP.Connected || st.VPP.Silent != "" || st.Busy != "" {
		return fmt.Errorf("the agent is not in sync: waiting for %q, VPP %+v, busy %q", st.Waiting, st.VPP, st.Busy)
	}
	if held := l.guard.Held(); len(held) > 0 {
		return fmt.Errorf("removals are still held: %v", held)
	}
	for _, v := range st.Unwell {
		if v.State == event.Retrying.String() || v.State == event.Failed.String() {
			return fmt.Errorf("%s is %s: %s", v.Key, v.State, v.Error)
		}
	}
	var e *protocol.Error
	if err := l.net.Status(context.Background()); errors.As(err, &e) && e.Code != protocol.CodeLimited {
		return fmt.Errorf("the agent serves no ADD: %w", err)
	}
	return nil
}

// inVPP is an error unless VPP has the interface and the routes of a pod with a sandbox, and none of another pod.
func inVPP(dump string, routes map[netip.Prefix]string, p *pod) error {
	var ifaces []string
	for line := range strings.Lines(dump) {
		if name, is := strings.CutPrefix(line, "interface "); is && strings.Contains(line, namespace+"/"+p.name) {
			ifaces = append(ifaces, strings.Fields(name)[0])
		}
	}
	want := 0
	if p.req != nil {
		want = 1
	}
	if len(ifaces) != want {
		return fmt.Errorf("VPP has %d interfaces of %s instead of %d: %q", len(ifaces), p.name, want, ifaces)
	}
	if p.res == nil {
		return nil
	}
	for _, ip := range p.res.IPs {
		if line := routes[ip.Address]; !strings.Contains(line, ifaces[0]) {
			return fmt.Errorf("VPP has the route %q to %s of %s, whose interface is %s", line, ip.Address, p.name, ifaces[0])
		}
	}
	return nil
}

// routesOf are the routes of the first table, by prefix.
func routesOf(dump string) map[netip.Prefix]string {
	out := map[netip.Prefix]string{}
	for line := range strings.Lines(dump) {
		if text, is := strings.CutPrefix(line, "route 0:"); is {
			text, _, _ = strings.Cut(text, " ")
			if to, err := netip.ParsePrefix(text); err == nil {
				out[to] = line
			}
		}
	}
	return out
}

// leftovers is an error if VPP's routes, the agent's files or the kernel have something that belongs to no sandbox.
func (h *host) leftovers(l *life, routes map[netip.Prefix]string, attached []protocol.Attachment) error {
	var errs []error
	h.runtime.mu.Lock()
	for _, a := range poolAddresses(h.number) {
		if _, has := h.held[a]; !has && routes[netip.PrefixFrom(a, a.BitLen())] != "" {
			errs = append(errs, fmt.Errorf("VPP has a route to %s, which no sandbox has", a))
		}
	}
	h.runtime.mu.Unlock()
	order := func(a, b protocol.Attachment) int { return cmp.Compare(a.String(), b.String()) }
	held := l.pool.Attachments()
	slices.SortFunc(held, order)
	slices.SortFunc(attached, order)
	if !slices.Equal(held, attached) {
		errs = append(errs, fmt.Errorf("addresses belong to %v, and the sandboxes are %v", held, attached))
	}
	links := 0
	for _, p := range h.pods {
		if p.req != nil && p.res.Interface.Socket == "" {
			links++
		}
	}
	if got := h.kernel.links(); len(got) != links {
		errs = append(errs, fmt.Errorf("the kernel has %d interfaces in sandboxes instead of %d: %q", len(got), links, got))
	}
	for _, folder := range []string{h.spool(), filepath.Join(h.state(), "memif")} {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		want := 0
		for _, p := range h.pods {
			if p.res != nil && strings.HasPrefix(p.res.Interface.Socket, folder) {
				want++
			}
		}
		if len(entries) != want {
			errs = append(errs, fmt.Errorf("%s has %d files instead of %d", folder, len(entries), want))
		}
	}
	return errors.Join(errs...)
}

// poolAddresses are the addresses that the first sandboxes of a node get.
func poolAddresses(node int) (out []netip.Addr) {
	for _, a := range rangesOf(node) {
		a = a.Next() // VPP's
		for range 200 {
			a = a.Next()
			out = append(out, a)
		}
	}
	return out
}

// restarted kills VPPs, and then the agents: the next VPPs get what the sandboxes need, and the next agents change nothing in them.
func (w *world) restarted() error {
	for _, h := range w.hosts {
		h.killVPP(time.Second, h.forget)
	}
	if err := w.laws(); err != nil {
		return fmt.Errorf("after the end of VPPs: %w", err)
	}
	for _, h := range w.hosts {
		h.sim.ClearLog()
	}
	for _, h := range w.hosts {
		synctest.Wait()
		if err := h.killAgent(time.Second); err != nil {
			return err
		}
	}
	if err := w.laws(); err != nil {
		return fmt.Errorf("after the end of agents: %w", err)
	}
	for _, h := range w.hosts {
		if h.sim.Writes() != 0 {
			return fmt.Errorf("the restarted agent of %s wrote %d messages in an unchanged world: %v", h.name, h.sim.Writes(), h.sim.Log())
		}
	}
	return nil
}

// simulate runs a seed inside a bubble.
func simulate(seed uint64, dir string, log *slog.Logger, total map[string]int) (err error) {
	w, end := newWorld(seed, dir, log)
	defer end()
	rng := rand.New(rand.NewPCG(seed, 31))
	var played []action
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nafter %v", err, played)
		}
		for _, h := range w.hosts {
			for verb, n := range h.did {
				total[verb] += n
			}
			total["connections that the agent ended"] += h.kernel.endedConnections()
		}
		for what, n := range w.traffic.figures() {
			total[what] += n
		}
	}()
	if err := w.laws(); err != nil {
		return fmt.Errorf("at the start: %w", err)
	}
	for round := range 3 {
		list := draw(rng, w.fanout())
		list = append(list, w.drawLosses(round, list)...)
		slices.SortStableFunc(list, func(a, b action) int { return cmp.Compare(a.at, b.at) })
		played = append(played, list...)
		w.play(list)
		for _, a := range list {
			total[a.kind]++
		}
		if err := w.laws(); err != nil {
			return err
		}
	}
	return w.restarted()
}

// TestSandboxes runs some seeds: CONTIV_SEED and CONTIV_SEEDS choose others, CONTIV_LOG=1 writes the agents' logs.
func TestSandboxes(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("CONTIV_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if _, err := os.Stat("/dev/shm"); err == nil { // the agent's files in memory: their syncs are most of the time that passes otherwise
		t.Setenv("TMPDIR", "/dev/shm")
	}
	total := map[string]int{}
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_SEEDS", pace.Fewer[uint64](5, 5)) && !t.Failed(); seed++ {
		fmt.Printf("seed %d\n", seed) // at once: a panic ends the process
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			if err := simulate(seed, dir, log, total); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	t.Logf("%v", total)
	if n, all := total[byFormer], total["forbidden packets between nodes"]; n > max(10, all/1000) {
		t.Errorf("%d of %d %s", n, all, byFormer)
	}
}
