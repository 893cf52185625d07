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

	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
)

// Times of a round.
const (
	window = time.Minute     // in which actions begin
	quiet  = 3 * time.Minute // without faults, for the back-off of retries and recorded DELs
)

// The kinds of actions.
const (
	startPod      = "start"
	stopPod       = "stop"
	giveUp        = "start, and the plugin is killed" // after N ms
	repeatAdd     = "ADD again"
	removeUnknown = "DEL of an unknown sandbox"
	checkPod      = "CHECK"
	collect       = "GC"
	killAgent     = "agent is killed" // For: it is away
	killVPP       = "VPP is killed"   // For: it is away
	cutVPP        = "connection cut"
	hangVPP       = "VPP hangs" // For
	slowVPP       = "VPP is slow"
	refuseVPP     = "VPP refuses" // For: N of 1,000 requests that change something
	hangAgent     = "the agent's socket hangs"
)

var (
	requests = []string{startPod, startPod, startPod, stopPod, stopPod, giveUp, repeatAdd, removeUnknown, checkPod, collect}
	faults   = []string{killAgent, killAgent, killVPP, cutVPP, hangVPP, slowVPP, refuseVPP, hangAgent}
)

type action struct {
	at   time.Duration
	kind string
	pod  int
	d    time.Duration
	n    int
}

func (a action) String() string {
	return fmt.Sprintf("%6.2fs %s, pod %d, for %s, %d", a.at.Seconds(), a.kind, a.pod, a.d, a.n)
}

// pods is the number of pods that a seed starts and stops.
const pods = 5

// draw draws a round. Half of the kills are within 400 ms of a request, while it is in progress.
func draw(rng *rand.Rand) (list []action) {
	at := func() time.Duration { return time.Duration(rng.IntN(int(window/time.Millisecond))) * time.Millisecond }
	for range 8 + rng.IntN(8) {
		list = append(list, action{at(), requests[rng.IntN(len(requests))], rng.IntN(pods), time.Duration(rng.IntN(400)) * time.Millisecond, rng.IntN(1 << 20)})
	}
	for range rng.IntN(5) {
		a := action{at(), faults[rng.IntN(len(faults))], 0, time.Duration(100+rng.IntN(15000)) * time.Millisecond, rng.IntN(1 << 20)}
		if rng.IntN(2) == 0 {
			a.at = list[rng.IntN(len(list))].at + time.Duration(rng.IntN(400))*time.Millisecond
		}
		list = append(list, a)
	}
	slices.SortStableFunc(list, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	return list
}

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
		dir: dir, log: log, sim: v, toVPP: network.New(), toAgent: network.New(), kernel: &kernel{have: map[string]any{}},
		objects: &objects{all: map[model.Ref]model.Object{}}, away: time.Second, over: make(chan struct{}),
	}
	n.toVPP.Change(func(f *network.Faults) { f.Slow = 3 * time.Millisecond })
	w = &world{node: n, runtime: newRuntime(n, pods), seed: seed}
	v.After(func(m sim.Record) { w.traffic.send(v, m.String(), false) })
	policy := &networking.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: networking.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Ingress:     []networking.NetworkPolicyIngressRule{{From: []networking.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}}}}},
		},
	}
	converted, err := convert.Object(policy)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range []model.Object{
		&model.Node{Name: nodeName, InternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1::/64")}},
		&model.Namespace{Name: namespace}, converted,
	} {
		n.objects.put(o.Ref(), o)
	}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = v.Serve(ctx, n.toVPP) })
	go n.run()
	return w, func() {
		n.stop()
		v.Close()
		stop()
		_ = n.toVPP.Close()
		n.toVPP.Sever()
		serving.Wait()
	}, nil
}

// play carries out the actions of a round, and waits until the requests and faults have ended.
func (w *world) play(list []action) {
	began := time.Now()
	for _, a := range list {
		time.Sleep(time.Until(began.Add(a.at)))
		w.log.Info("ACTION", "what", a.String())
		w.act(a)
	}
	w.faulting.Wait()
}

func (w *world) act(a action) {
	p, rng := w.pods[a.pod], rand.New(rand.NewPCG(w.seed, uint64(a.n)))
	inTurn := func(f func()) { w.faulting.Go(func() { p.inTurn(f) }) }
	during := func(of *network.Network, change func(f *network.Faults, by int)) {
		of.Change(func(f *network.Faults) { change(f, 1) })
		w.faulting.Go(func() {
			time.Sleep(a.d)
			of.Change(func(f *network.Faults) { change(f, -1) })
		})
	}
	kind := []string{"", protocol.InterfaceVeth, protocol.InterfaceTap, protocol.InterfaceMemif}[a.n%4]
	switch a.kind {
	case startPod:
		inTurn(func() { w.start(p, kind, patience) })
	case giveUp:
		inTurn(func() { w.start(p, kind, 1+a.d) })
	case stopPod:
		inTurn(func() { w.runtime.stop(p) })
	case repeatAdd:
		inTurn(func() { w.repeat(p) })
	case removeUnknown:
		inTurn(func() { w.removeUnknown(p, rng) })
	case checkPod:
		inTurn(func() { _ = w.check(p) })
	case collect:
		w.faulting.Go(w.collect)
	case killAgent:
		synctest.Wait()
		if err := w.killAgent(a.d); err != nil {
			w.failf("%w", err)
		}
	case killVPP:
		w.faulting.Go(func() { w.killVPP(a.d, w.traffic.forget) })
	case cutVPP:
		w.toVPP.Sever()
	case hangVPP:
		during(w.toVPP, func(f *network.Faults, by int) { f.Hung += by })
	case slowVPP:
		during(w.toVPP, func(f *network.Faults, by int) { f.Slow += time.Duration(by) * 150 * time.Millisecond })
	case hangAgent:
		during(w.toAgent, func(f *network.Faults, by int) { f.Hung += by })
	case refuseVPP:
		w.refuse(rng, 1+a.n%1000)
		w.faulting.Go(func() {
			time.Sleep(a.d)
			w.refuse(rng, -1-a.n%1000)
		})
	}
}

// refuse lets VPP refuse more of 1,000 requests that change something, or fewer.
func (w *world) refuse(rng *rand.Rand, more int) {
	w.node.mu.Lock()
	defer w.node.mu.Unlock()
	w.refused += more
	refused := w.refused
	w.sim.Fail(func(name string) (int32, bool) {
		if sim.Writes(name) && rng.IntN(1000) < refused {
			return -1, false // VNET_API_ERROR_UNSPECIFIED
		}
		return 0, false
	})
}

// laws returns what is broken after a quiet time.
func (w *world) laws() error {
	time.Sleep(quiet)
	synctest.Wait()
	w.runtime.mu.Lock()
	errs := slices.Clone(w.bad)
	w.runtime.mu.Unlock()
	w.traffic.send(w.sim, "the quiet time", true)
	errs = append(errs, w.traffic.errors()...)
	w.node.mu.Lock()
	errs = append(errs, w.ended, w.sim.Crashed())
	w.node.mu.Unlock()
	l := w.present()
	if l == nil {
		return errors.Join(append(errs, errors.New("no agent runs"))...)
	}
	errs = append(errs, healthy(l))
	dump := w.sim.Dump()
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
		errs = append(errs, inVPP(dump, p))
	}
	errs = append(errs, w.leftovers(l, dump, attached), w.sockets(dump), w.verify(l))
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
func inVPP(dump string, p *pod) error {
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
		if line := routeTo(dump, ip.Address); !strings.Contains(line, ifaces[0]) {
			return fmt.Errorf("VPP has the route %q to %s of %s, whose interface is %s", line, ip.Address, p.name, ifaces[0])
		}
	}
	return nil
}

// routeTo is the route of a prefix; "": VPP has none.
func routeTo(dump string, to netip.Prefix) string {
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "route 0:"+to.String()+" ") {
			return line
		}
	}
	return ""
}

// leftovers is an error if VPP's routes, the agent's files or the kernel have something that belongs to no sandbox.
func (w *world) leftovers(l *life, dump string, attached []protocol.Attachment) error {
	var errs []error
	w.runtime.mu.Lock()
	for _, a := range poolAddresses() {
		if _, has := w.held[a]; !has && routeTo(dump, netip.PrefixFrom(a, a.BitLen())) != "" {
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
		for what, n := range w.traffic.packets {
			total[what] += n
		}
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
	total := map[string]int{}
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_SEEDS", pace.Fewer[uint64](6, 3)) && !t.Failed(); seed++ {
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
