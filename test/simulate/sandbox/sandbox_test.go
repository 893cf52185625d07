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
	*node
	*runtime
	seed     uint64
	faulting sync.WaitGroup
	refused  int
}

// newWorld makes a node with a policy. The caller calls end.
func newWorld(seed uint64, dir string, log *slog.Logger) (w *world, end func(), err error) {
	v := sim.New(sim.Config{Seed: seed, PuntLocal: true, LogLimit: 1 << 12})
	n := &node{
		dir: dir, log: log, sim: v, toVPP: network.New(), toAgent: network.New(), kernel: &kernel{have: map[string]any{}, open: connections{}},
		cluster: newCluster(seed), away: time.Second, over: make(chan struct{}),
	}
	store := etcdserver.New()
	n.etcd = servers.JoinEtcd(store, nodeName)
	n.toVPP.Change(func(f *network.Faults) { f.Slow = 3 * time.Millisecond })
	w = &world{node: n, runtime: newRuntime(n, pods), seed: seed}
	v.After(func(m sim.Record) { w.traffic.send(v, m.String(), false, n.kernel.openConnection) })
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = v.Serve(ctx, n.toVPP) })
	go n.run()
	return w, func() {
		n.stop()
		store.Stop()
		v.Close()
		stop()
		_ = n.toVPP.Close()
		n.toVPP.Sever()
		serving.Wait()
	}, nil
}

// laws returns what is broken after a quiet time.
func (w *world) laws() error {
	time.Sleep(quiet)
	synctest.Wait()
	w.runtime.mu.Lock()
	errs := slices.Clone(w.bad)
	w.runtime.mu.Unlock()
	w.traffic.send(w.sim, "the quiet time", true, w.kernel.openConnection)
	w.traffic.mayBe(false, false)
	errs = append(errs, w.traffic.errors()...)
	errs = append(errs, w.kernel.hanging())
	w.node.mu.Lock()
	errs = append(errs, w.ended, w.sim.Crashed())
	w.node.mu.Unlock()
	l := w.present()
	if l == nil {
		return errors.Join(append(errs, errors.New("no agent runs"))...)
	}
	errs = append(errs, healthy(l))
	dump := w.sim.Dump()
	routes := routesOf(dump)
	var attached []protocol.Attachment
	for _, p := range w.pods {
		var at *protocol.Attachment
		if p.req != nil {
			at = &p.req.Attachment
			attached = append(attached, *at)
			if err := w.check(p); err != nil {
				errs = append(errs, fmt.Errorf("CHECK of %s: %w", *at, err))
			}
		}
		errs = append(errs, inVPP(dump, routes, p))
	}
	errs = append(errs, w.leftovers(l, routes, attached), w.sockets(dump), w.verify(l), w.etcd.Check(dump))
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
func (w *world) leftovers(l *life, routes map[netip.Prefix]string, attached []protocol.Attachment) error {
	var errs []error
	w.runtime.mu.Lock()
	for _, a := range poolAddresses() {
		if _, has := w.held[a]; !has && routes[netip.PrefixFrom(a, a.BitLen())] != "" {
			errs = append(errs, fmt.Errorf("VPP has a route to %s, which no sandbox has", a))
		}
	}
	w.runtime.mu.Unlock()
	order := func(a, b protocol.Attachment) int { return cmp.Compare(a.String(), b.String()) }
	held := l.pool.Attachments()
	slices.SortFunc(held, order)
	slices.SortFunc(attached, order)
	if !slices.Equal(held, attached) {
		errs = append(errs, fmt.Errorf("addresses belong to %v, and the sandboxes are %v", held, attached))
	}
	links := 0
	for _, p := range w.pods {
		if p.req != nil && p.res.Interface.Socket == "" {
			links++
		}
	}
	if got := w.kernel.links(); len(got) != links {
		errs = append(errs, fmt.Errorf("the kernel has %d interfaces in sandboxes instead of %d: %q", len(got), links, got))
	}
	for _, folder := range []string{w.spool(), filepath.Join(w.state(), "memif")} {
		entries, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		want := 0
		for _, p := range w.pods {
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

// poolAddresses are the addresses that the first sandboxes get.
func poolAddresses() (out []netip.Addr) {
	for _, a := range []netip.Addr{netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("fd00:1::2")} {
		for range 200 {
			out = append(out, a)
			a = a.Next()
		}
	}
	return out
}

// restarted kills VPP, and then the agent: the next VPP gets what the sandboxes need, and the next agent changes nothing in it.
func (w *world) restarted() error {
	w.killVPP(time.Second, w.traffic.forget)
	if err := w.laws(); err != nil {
		return fmt.Errorf("after VPP's end: %w", err)
	}
	w.sim.ClearLog()
	synctest.Wait()
	if err := w.killAgent(time.Second); err != nil {
		return err
	}
	if err := w.laws(); err != nil {
		return fmt.Errorf("after the agent's end: %w", err)
	}
	if w.sim.Writes() != 0 {
		return fmt.Errorf("the restarted agent wrote %d messages in an unchanged world: %v", w.sim.Writes(), w.sim.Log())
	}
	return nil
}

// simulate runs a seed inside a bubble.
func simulate(seed uint64, dir string, log *slog.Logger, total map[string]int) (err error) {
	w, end, err := newWorld(seed, dir, log)
	if err != nil {
		return err
	}
	defer end()
	rng := rand.New(rand.NewPCG(seed, 31))
	var played []action
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nafter %v", err, played)
		}
		for verb, n := range w.did {
			total[verb] += n
		}
		for what, n := range w.traffic.figures() {
			total[what] += n
		}
		total["connections that the agent ended"] += w.kernel.endedConnections()
	}()
	if err := w.laws(); err != nil {
		return fmt.Errorf("at the start: %w", err)
	}
	for range 3 {
		list := draw(rng)
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
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_SEEDS", pace.Fewer[uint64](6, 6)) && !t.Failed(); seed++ {
		fmt.Printf("seed %d\n", seed) // at once: a panic ends the process
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			if err := simulate(seed, dir, log, total); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
	t.Logf("%v", total)
}
