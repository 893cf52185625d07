package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// node is a node: a VPP, the CNI that makes its interfaces, and an agent that is started again whenever it ends.
type node struct {
	name string
	dir  string // of the agent's files
	sim  *sim.VPP
	link *link
	etcd *servers.Etcd // nil: none

	mu      sync.Mutex
	cni     *cni.CNI
	bare    bool             // VPP has lost the CNI's interfaces
	waiting [][]event.Change // for the CNI, while bare
	agent   *life            // nil: there is none now
	away    time.Duration    // how long the agent stays away after its end
	before  []func() error   // what happens before its next start
	refused int              // of 1,000 requests that change something
	clock   time.Duration    // what the clock of the next agent is off

	guard    atomic.Pointer[lossguard.Guard] // of the last agent
	mixed    atomic.Bool                     // the agent has held removals in this round: it had objects of two versions
	stopping atomic.Bool
	over     chan struct{} // closed when the last agent has ended
	clients  *clients
	disk     disk
	open     []connection
	heard    *heard // by the agent, or by the fan-out server that it follows
}

// life is one agent from start to end.
type life struct {
	*agent.Agent
	keeper *extconfig.Keeper
	kill   context.CancelFunc
	dead   atomic.Bool // killed: nothing that it still does has an effect
}

// errKilled is the error of whatever a killed agent tries to write.
var errKilled = errors.New("the agent is killed")

// store is the file of external values, on a disk that may be full.
type store struct {
	extconfig.Storage
	node *node
	life *life
}

// Save implements extconfig.Storage.
func (s *store) Save(client string, changes map[string]proto.Message, terms map[string]extconfig.Terms) error {
	switch {
	case s.life.dead.Load():
		return errKilled
	case s.node.disk.full.Load() > 0:
		return syscall.ENOSPC
	}
	save := func() error { return s.Storage.Save(client, changes, terms) }
	if p := s.node.disk.atSave.Swap(nil); p != nil {
		s.life.dead.Store(true)
		return p.during(save)
	}
	return save()
}

// run runs agents until stopping.
func (n *node) run(r *run) {
	defer close(n.over)
	for first := true; !n.stopping.Load(); first = false {
		if !first {
			n.mu.Lock()
			pause := n.away
			n.away = time.Second
			n.mu.Unlock()
			time.Sleep(pause)
		}
		for n.disk.isHidden() && !n.stopping.Load() { // the journal of a full disk could be read
			time.Sleep(time.Second)
		}
		if err := n.prepare(); err != nil {
			r.failf("%s: %w", n.name, err)
		}
		ctx, kill := context.WithCancel(context.Background())
		l := &life{kill: kill}
		err := n.start(ctx, r, l)
		kill()
		if !l.dead.Load() && !n.stopping.Load() {
			r.failf("the agent of %s ended: %v", n.name, err)
		}
	}
}

// prepare does what faults ask for between two agents.
func (n *node) prepare() error {
	n.mu.Lock()
	before := n.before
	n.before = nil
	n.mu.Unlock()
	var errs []error
	for _, f := range before {
		errs = append(errs, f())
	}
	return errors.Join(append(errs, n.disk.keepShadow())...)
}

// setClock sets the clock of the agents that start from now on.
func (n *node) setClock(off time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock = off
	return nil
}

// start starts an agent and waits for its end.
func (n *node) start(ctx context.Context, r *run, l *life) error {
	l.keeper = extconfig.NewKeeper(extconfig.Config{Name: "grpc", File: n.disk.store(), Logger: r.log, Open: func(file string) (extconfig.Storage, error) {
		s, err := extconfig.OpenStore(file)
		return &store{s, n, l}, err
	}})
	name, source, err := r.objectSource(n)
	if err != nil {
		return err
	}
	stored, err := r.etcdSource(n, l)
	if err != nil {
		return err
	}
	cfg := agent.Config{
		NodeName: n.name, Override: cni.Located(),
		Sources:  map[string]agent.Source{name: source},
		External: append(stored, l.named()),
	}
	cfg.VPP.Dial = n.link.Dial
	if r.IsDay() {
		cfg.VPP.Probe = dayProbe
	}
	cfg.VPPAgent.Journal = n.disk.journal()
	if r.rechecks() {
		cfg.VPPAgent.Recheck = r.Recheck
	}
	cfg.Process.Registry, cfg.Process.Logger = prometheus.NewRegistry(), r.log.With(slog.String("node", n.name))
	cfg.Process.Removals = lossguard.New(lossguard.Config{
		Limits: lossguard.Limits{Share: lossguard.DefaultShare, Least: cmp.Or(r.cfg.Least, 3), For: hold}, Record: cfg.VPPAgent.Journal + ".counts", Logger: cfg.Process.Logger,
	})
	n.guard.Store(cfg.Process.Removals)
	n.mu.Lock()
	off := n.clock
	n.mu.Unlock()
	cfg.Process.Now = func() time.Time { return time.Now().Add(off) }
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	l.Agent = a
	n.mu.Lock()
	n.agent = l
	n.mu.Unlock()
	if n.stopping.Load() { // stop has not seen this agent
		l.kill()
	}
	defer func() {
		n.mu.Lock()
		n.agent = nil
		n.mu.Unlock()
	}()
	return a.Run(ctx)
}

// named is the keeper as a source with a name.
func (l *life) named() controller.ExternalConfigSource { return keeper{l.keeper} }

type keeper struct{ *extconfig.Keeper }

// String implements fmt.Stringer.
func (keeper) String() string { return "grpc" }

// present returns the agent; nil: there is none now.
func (n *node) present() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agent
}

// killAgent ends the agent: no further request of it reaches VPP, and nothing that it writes reaches the store. The caller holds link.mu.
// before happens between its end and the start of the next one; nil: nothing does.
func (n *node) killAgent(away time.Duration, before func() error) {
	n.link.sever()
	go func() { // not under the link's lock
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.agent != nil {
			n.away = away
			if before != nil {
				n.before = append(n.before, before)
			}
			n.agent.dead.Store(true)
			if n.etcd != nil {
				n.etcd.Net.Sever()
			}
			n.agent.kill()
		}
	}()
}

// stop ends the node's agent in order.
func (n *node) stop() {
	n.stopping.Store(true)
	if l := n.present(); l != nil {
		l.kill()
	}
	<-n.over
}

// plumb lets the CNI follow changes of objects.
func (n *node) plumb(changes []event.Change) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bare {
		n.waiting = append(n.waiting, changes)
		return nil
	}
	return n.cni.Apply(changes)
}

// killVPP ends VPP and starts it again. If it is bare, the CNI makes its interfaces and routes again one after the other, in any order that
// their dependencies permit.
func (n *node) killVPP(away time.Duration, bare bool, rng *rand.Rand) error {
	n.mu.Lock()
	if n.bare {
		n.mu.Unlock()
		return nil // it is being restored
	}
	n.bare = bare
	n.mu.Unlock()
	n.link.setFault(func(l *link) {
		l.down++
		l.sever()
	})
	var again []func() error
	if bare {
		again = n.restorers(rng)
	} else {
		n.sim.Restart()
	}
	time.Sleep(away)
	n.link.setFault(func(l *link) { l.down-- })
	if !bare {
		return nil // it may be restored from another end
	}
	for _, f := range again {
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		if err := f(); err != nil {
			return fmt.Errorf("the CNI of %s: %w", n.name, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.bare = false
	for _, changes := range n.waiting {
		if err := n.cni.Apply(changes); err != nil {
			return fmt.Errorf("the CNI of %s: %w", n.name, err)
		}
	}
	n.waiting = nil
	return nil
}

// restorers restart VPP without the CNI's objects, and return what makes each of them again.
func (n *node) restorers(rng *rand.Rand) (again []func() error) {
	ifs, routes, neighbors := n.sim.RestartBare()
	rng.Shuffle(len(ifs), func(i, j int) { ifs[i], ifs[j] = ifs[j], ifs[i] })
	if i := slices.IndexFunc(ifs, func(i sim.Interface) bool { return i.Name == cni.Gateway }); i >= 0 { // others borrow its addresses
		n.sim.AddInterface(ifs[i]) // at once: a client's loopback must not take its name
		ifs = slices.Delete(ifs, i, i+1)
	}
	rng.Shuffle(len(routes), func(i, j int) { routes[i], routes[j] = routes[j], routes[i] })
	for _, i := range ifs {
		again = append(again, func() error { n.sim.AddInterface(i); return nil })
	}
	for _, r := range routes {
		again = append(again, func() error { return n.sim.AddRoute(r) })
	}
	for _, nb := range neighbors {
		again = append(again, func() error { return n.sim.AddNeighbor(nb) })
	}
	return again
}
