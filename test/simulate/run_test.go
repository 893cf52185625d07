package simulate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/atomicfile"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
	"github.com/contiv-agent/contiv-agent/test/simulate/etcdserver"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// Figures count what a simulation did.
type Figures struct {
	Virtual   time.Duration // simulated time
	Actions   map[Kind]int
	Requests  uint64 // that VPPs read
	Compared  int    // checks of verify that were decided
	Revoked   int    // packets of connections that policies do not allow any more
	Continued int    // packets of connections that are allowed all the time
	Lasting   int    // those of them that are of SCTP
	Hidden    int    // the same, of associations of SCTP whose addresses nat44 changes: they may end
	Untracked int    // of associations of SCTP that end because policies restrict their pod's other direction
	Packets   int    // packets that were sent between two requests, which policies forbid
	Mixed     int    // such packets that passed because the agent had some objects of one version and some of another, each once in a round
	Acked     int    // acknowledged values of external clients that were looked for
	Lives     uint64 // of agents
	TooBig    int    // checks of verify that differ because VPP drops what a policy allows that is too big for it, which the agent says
}

// Config says how to run a schedule.
type Config struct {
	Dir    string       // a folder for the agents' files; it must be empty
	Logger *slog.Logger // of the agents; nil: silent
	// Night is the time after the last round without any fault, at the end of which all checks are repeated.
	Night time.Duration
	// Least is how many removals an agent holds if they are more than half of a class; 0: 3.
	Least int
}

// run is one simulation.
type run struct {
	Schedule
	Figures
	cfg      Config
	log      *slog.Logger
	server   *apiserver.Server
	etcd     *etcdserver.Server // nil: agents follow none
	relay    *relay             // nil: agents follow the API server
	history  []*version
	now      int // index of the present version
	former   int // of the version before it
	nodes    []*node
	lives    atomic.Uint64
	faulting sync.WaitGroup // actions that last
	watching forbidden
	base     map[string]int // goroutines at the first quiet time
	fresh    freshStates
	round    setting
	talks    []*dialled
	dialled  int // connections that were begun

	mu  sync.Mutex
	bad []error
}

func newRun(s Schedule, cfg Config) *run {
	r := &run{Schedule: s, cfg: cfg, log: cfg.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.Figures.Actions = map[Kind]int{}
	return r
}

// Run runs a schedule inside a bubble of testing/synctest. The error is the first law that is broken, with what happened.
func Run(s Schedule, cfg Config) (Figures, error) {
	r, began := newRun(s, cfg), time.Now()
	err := r.simulate()
	r.Virtual, r.Lives = time.Since(began), r.lives.Load()
	for _, n := range r.nodes {
		r.Requests += n.link.requests()
	}
	return r.Figures, err
}

func (r *run) failf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = append(r.bad, fmt.Errorf(format, args...))
}

func (r *run) broken() error {
	if r.relay != nil && r.relay.Bad() != nil {
		return r.relay.Bad()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.bad) == 0 {
		return nil
	}
	return r.bad[0]
}

// simulate plays the schedule.
func (r *run) simulate() error {
	end, err := r.begin()
	defer end()
	if err != nil {
		return err
	}
	began := time.Now()
	for round := range r.Rounds {
		if r.IsDay() {
			if err := r.idle(r.Pauses[round]); err != nil {
				return err
			}
		}
		r.playRound(round)
		if err := r.rest(fmt.Sprintf("round %d", round), r.quietAfter(round)); err != nil {
			return err
		}
	}
	if r.IsDay() {
		if err := r.idle(time.Until(began.Add(24 * time.Hour))); err != nil {
			return err
		}
	}
	if err := r.sleepThrough(); err != nil {
		return err
	}
	return r.restartWritesNothing()
}

// begin makes the nodes of the first version, starts them and waits until they are right. The caller must call end, with an error too.
func (r *run) begin() (end func(), err error) {
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	end = func() {
		for _, n := range r.nodes {
			n.stop()
			n.sim.Close()
		}
		if r.etcd != nil {
			r.etcd.Stop()
		}
		r.closeFanout()
		stop()
		serving.Wait()
	}
	if r.history, err = history(r.Seed, r.Versions, r.Fanout); err != nil {
		return end, err
	}
	r.server = apiserver.New(r.Seed)
	if r.IsDay() {
		r.server.Lengthen(dayWatches)
	}
	if err := r.server.Set(r.history[0].stored); err != nil {
		return end, err
	}
	if r.Etcd {
		r.etcd = etcdserver.New()
	}
	r.openFanout(r.history[0].nodes())
	for _, name := range r.history[0].nodes() {
		n, err := r.addNode(name)
		if err != nil {
			return end, err
		}
		if r.etcd != nil {
			n.etcd = servers.JoinEtcd(r.etcd, name)
		}
		serving.Go(func() { _ = n.sim.Serve(ctx, n.link) })
		go n.run(r)
	}
	return end, r.rest("the start", quiet)
}

func (r *run) addNode(name string) (*node, error) {
	dir := filepath.Join(r.cfg.Dir, name)
	if err := os.MkdirAll(filepath.Join(dir, journalFolder), 0o700); err != nil {
		return nil, err
	}
	for _, folder := range []string{dir, r.cfg.Dir, filepath.Dir(r.cfg.Dir)} { // the agent finds its folder, and need not sync its name
		if err := atomicfile.SyncFolder(folder); err != nil {
			return nil, err
		}
	}
	v := sim.New(sim.Config{Seed: r.Seed, PuntLocal: true, LogLimit: 1 << 12})
	n := &node{
		name: name, dir: dir, sim: v, link: newLink(), cni: cni.New(v, name), over: make(chan struct{}), away: time.Second,
		clients: &clients{acked: map[string]uint32{}}, disk: disk{dir: dir}, heard: r.relay.hears(),
	}
	if err := n.cni.Apply(r.history[0].changes); err != nil {
		return nil, err
	}
	r.nodes = append(r.nodes, n)
	return n, nil
}

// playRound carries out the actions of a round, and waits until the faults have ended.
func (r *run) playRound(round int) {
	began := time.Now()
	versions := []int{r.now}
	quietRound := true // without an action that opens pods for a time
	var actions []Action
	for _, a := range r.Schedule.Actions {
		if a.Round != round || !r.rechecks() && (a.Kind == DriftVPP || a.Kind == LoseDumps) {
			continue
		}
		actions = append(actions, a)
		if a.Kind == Change || a.Kind == BackAPI {
			versions = append(versions, a.N)
		}
		if a.Kind == StaleAPI {
			versions = append(versions, r.former)
		}
		quietRound = quietRound && !slices.Contains([]Kind{KillVPP, BareVPP, LosePower, DriftVPP, EmptyAPI, LoseDumps}, a.Kind)
	}
	r.round = r.settingOf(versions, actions)
	if quietRound {
		r.watch(versions)
	}
	for _, a := range actions {
		time.Sleep(time.Until(began.Add(a.At)))
		r.log.Info("ACTION", "what", a.String())
		r.Figures.Actions[a.Kind]++
		r.act(a, r.nodes[a.Node%len(r.nodes)], rand.New(rand.NewPCG(r.Seed, uint64(a.ID))))
	}
	r.faulting.Wait()
	for _, n := range r.nodes {
		n.link.setFault((*link).hasten)
	}
	if r.IsDay() {
		r.awaitAgents()
	}
	r.unwatch()
}

// rechecks reports whether agents compare VPP with their values from time to time. In every fourth seed they do not, and no fault needs it: retries, the events of VPP
// and the comparison after a connection have to suffice.
func (r *run) rechecks() bool { return r.Seed%4 != 3 }

// during carries out what begins a fault, and after the action's time what ends it.
func (r *run) during(a Action, begin, end func()) {
	begin()
	r.faulting.Go(func() {
		time.Sleep(a.For)
		end()
	})
}

// act begins an action.
func (r *run) act(a Action, n *node, rng *rand.Rand) {
	fault := func(change func(*link)) func() { return func() { n.link.setFault(change) } }
	switch a.Kind {
	case Change, BackAPI:
		r.moveTo(a.N)
		if a.Kind == BackAPI && a.ID%2 == 0 { // restored from a backup: clients have to list again
			r.server.Expire()
		}
	case External:
		r.faulting.Go(func() { n.clients.request(n, rng) })
	case KillVPP, BareVPP:
		r.faulting.Go(func() {
			if err := n.killVPP(a.For, a.Kind == BareVPP, rng); err != nil {
				r.failf("%w", err)
			}
		})
	case HangVPP:
		r.during(a, fault(func(l *link) { l.hung++ }), fault(func(l *link) { l.hung-- }))
	case SlowVPP:
		each := time.Duration(a.N) * time.Millisecond
		r.during(a, fault(func(l *link) { l.slow += each }), fault(func(l *link) { l.slow -= each }))
	case LoseDumps:
		r.during(a, fault(func(l *link) { l.lose = append(l.lose, &a.N) }), fault(func(l *link) { l.lose = slices.DeleteFunc(l.lose, func(n *int) bool { return n == &a.N }) }))
	case RefuseVPP:
		r.during(a, func() { n.refuse(rng, a.N) }, func() { n.refuse(rng, -a.N) })
	case CutVPP:
		n.link.after(a.N, n.link.sever)
	case KillAgent, SetClock, LosePower:
		r.actEnd(a, n, rng)
	case DriftVPP:
		if err := drift(n, rng); err != nil && !errors.Is(err, context.DeadlineExceeded) && !n.link.isDown() {
			r.failf("drift: %w", err)
		}
	case CutAPI, EmptyAPI, SlowAPI, FailAPI, CutWatch, TearWatch, ExpireAPI, StaleAPI:
		r.actServer(a, func(f servers.Fault) func() { return servers.BeginAPI(r.server, f) })
	case PutEtcd, CutEtcd, HangEtcd, SlowEtcd, CompactEtcd, BackEtcd, LoseLease, DeadEtcd, SlipEtcd:
		r.actEtcd(a, n, rng)
	case CutFanout, HangFanout, SlowFanout, KillFanout, DeadFanout:
		r.actFanout(a, n)
	case FullDisk:
		r.during(a, func() { n.disk.full.Add(1) }, func() { n.disk.full.Add(-1) })
	case NoJournal:
		lock := func(f func(*disk) error) func() {
			return func() {
				if err := f(&n.disk); err != nil {
					r.failf("%w", err)
				}
			}
		}
		r.during(a, lock((*disk).hideJournal), lock((*disk).showJournal))
	}
}

// actEnd begins an action that ends the agent. An agent whose journal cannot be written is not killed: it would leave objects without a tag
// behind, which is what its log says.
func (r *run) actEnd(a Action, n *node, rng *rand.Rand) {
	switch {
	case a.Kind == LosePower && rng.IntN(2) == 0: // while the store is written, by a request of a client
		n.disk.atSave.Store(&powerLoss{r, n, a, rng})
		r.faulting.Go(func() {
			n.clients.request(n, rng)
			if p := n.disk.atSave.Swap(nil); p != nil {
				p.happen(nil)
			}
		})
	case a.Kind == LosePower:
		n.link.after(a.N, func() { go (&powerLoss{r, n, a, rng}).happen(nil) })
	default:
		n.link.after(a.N, func() {
			switch {
			case n.disk.unsaved.Load():
				n.link.sever()
			case a.Kind == SetClock:
				n.killAgent(a.For, func() error { return n.setClock(time.Duration(1-a.N%2*2) * time.Hour) })
			default:
				n.killAgent(a.For, nil)
			}
		})
	}
}

// moveTo changes the cluster to another version: pods first, as kubelets do, then objects.
func (r *run) moveTo(to int) {
	r.mu.Lock()
	was := r.now
	r.former, r.now = was, to
	r.mu.Unlock()
	for _, n := range r.nodes {
		if err := n.plumb(changesBetween(r.history[was].objects, r.history[to].objects)); err != nil {
			r.failf("the CNI of %s: %w", n.name, err)
		}
	}
	if err := r.server.Set(r.history[to].stored); err != nil {
		r.failf("%w", err)
	}
}

// refusal is the return value of a refused request.
const refusal = api.UNSPECIFIED

// refuse lets VPP refuse more of 1,000 requests that change something, or fewer.
func (n *node) refuse(rng *rand.Rand, more int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused += more
	refused := n.refused
	n.sim.Fail(func(name string) (int32, bool) {
		if sim.Writes(name) && rng.IntN(1000) < refused {
			return int32(refusal), false
		}
		return 0, false
	})
}

// rest waits for the quiet time and checks everything.
func (r *run) rest(after string, quiet time.Duration) error {
	time.Sleep(quiet)
	synctest.Wait()
	err := r.broken()
	if err == nil {
		err = r.check()
	}
	r.round = setting{versions: []int{r.now}}
	for _, n := range r.nodes {
		n.disk.unsaved.Store(false)
	}
	if err != nil {
		return fmt.Errorf("%s after %s: %w", quiet, after, err)
	}
	return nil
}

// most is how much the heap may grow in a night.
const most = 2 << 20

// sleepThrough lets a night pass in which nothing happens: no request changes a VPP, and memory does not grow.
func (r *run) sleepThrough() error {
	if r.cfg.Night == 0 {
		return nil
	}
	time.Sleep(r.cfg.Night / 2)
	before := heapInUse()
	for _, n := range r.nodes {
		n.sim.ClearLog()
	}
	time.Sleep(r.cfg.Night / 2)
	if grown := heapInUse() - before; grown > most {
		return fmt.Errorf("the heap grows by %d bytes in %s in which nothing happens", grown, r.cfg.Night/2)
	}
	for _, n := range r.nodes {
		if n.sim.Writes() != 0 {
			return fmt.Errorf("the agent of %s wrote %d messages in a night in which nothing happened: %v", n.name, n.sim.Writes(), n.sim.Log())
		}
	}
	return r.rest("the night", quiet)
}

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// restartWritesNothing starts the agents again: an unchanged world costs no write.
func (r *run) restartWritesNothing() error {
	before := map[*node]string{}
	for _, n := range r.nodes {
		n.sim.ClearLog()
		before[n] = n.sim.Dump()
		n.link.setFault(func(*link) { n.killAgent(0, nil) })
	}
	if err := r.rest("the restart of all agents", quiet); err != nil {
		return err
	}
	for _, n := range r.nodes {
		if n.sim.Writes() != 0 {
			return fmt.Errorf("the restarted agent of %s wrote %d messages in an unchanged world: %v", n.name, n.sim.Writes(), n.sim.Log())
		}
	}
	return nil
}
