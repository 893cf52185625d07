package simulate

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/calico/fanout"
	"github.com/contiv-agent/contiv-agent/calico/feed"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
)

// The kinds of faults of a fan-out server, which all nodes share.
const (
	CutFanout  Kind = "fan-out unreachable" // For, by a node
	HangFanout Kind = "fan-out hangs"       // For, at a node
	SlowFanout Kind = "fan-out is slow"     // For: N ms in each direction, at a node, with little room for what is not read
	KillFanout Kind = "fan-out is killed"   // For: it is away
	DeadFanout Kind = "fan-out goes silent" // For: connections of a node die without a reset, after N further bytes
)

// fanoutFaults are drawn beside faults, as apiFaults are.
var fanoutFaults = []Kind{CutFanout, HangFanout, SlowFanout, KillFanout}

// laterFanoutFaults are drawn beside fanoutFaults, for the same reason.
var laterFanoutFaults = []Kind{DeadFanout}

// relay is a fan-out server between the API server and the agents.
type relay struct {
	nets     map[string]*network.Network // to each node
	heard    heard                       // by the server
	mu       sync.Mutex
	away     time.Duration // after the end of the present server
	kill     context.CancelFunc
	stopping bool
	ended    chan struct{}
}

// openFanout starts a fan-out server for nodes, if the seed has one.
func (r *run) openFanout(nodes []string) {
	if !r.Fanout {
		return
	}
	r.relay = &relay{nets: map[string]*network.Network{}, ended: make(chan struct{})}
	for _, name := range nodes {
		r.relay.nets[name] = network.New()
	}
	go r.runFanout()
}

// runFanout runs servers, one after the other, until stopping.
func (r *run) runFanout() {
	l := r.relay
	defer close(l.ended)
	for {
		ctx, kill := context.WithCancel(context.Background())
		l.mu.Lock()
		l.kill = kill
		stopping, away := l.stopping, l.away
		l.away = 0
		l.mu.Unlock()
		if stopping {
			kill()
			return
		}
		time.Sleep(away)
		if err := r.serveFanout(ctx); err != nil {
			r.failf("the fan-out server ended: %w", err)
		}
		kill()
	}
}

// serveFanout runs a fan-out server as contiv-agent fanout wires it, until ctx ends.
func (r *run) serveFanout(ctx context.Context) error {
	source, err := r.newSource(r.lives.Add(1), true)
	if err != nil {
		return err
	}
	felix := []wire.SyncerType{wire.Felix}
	server, err := fanout.New(fanout.Config{Syncers: felix, Modern: felix, Logger: r.log})
	if err != nil {
		return err
	}
	keys := &feed.Feed{Objects: map[string]feed.Source{kube.Name: r.relay.heard.of(source)}, Syncers: felix, Modern: true, Logger: r.log}
	var all []*network.Network
	for _, n := range r.relay.nets {
		all = append(all, n)
	}
	fed := make(chan error, 1)
	go func() { fed <- keys.Run(ctx, server.Publish) }()
	err = server.Serve(ctx, network.Join(all...))
	if fedErr := <-fed; err == nil && ctx.Err() == nil {
		err = fedErr
	}
	return err
}

// hears is what records the objects for a node: all nodes of a fan-out server share it.
func (l *relay) hears() *heard {
	if l == nil {
		return &heard{}
	}
	return &l.heard
}

// killFanout ends the server; the next one starts later.
func (l *relay) killFanout(away time.Duration, stop bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away, l.stopping = away, l.stopping || stop
	for _, n := range l.nets {
		n.Sever()
	}
	l.kill()
}

func (r *run) closeFanout() {
	if r.relay != nil {
		r.relay.killFanout(0, true)
		<-r.relay.ended
	}
}

// objectSource is where an agent gets objects from, and its name: the fan-out server, or the API server.
func (r *run) objectSource(n *node) (string, agent.Source, error) {
	if r.relay == nil {
		s, err := r.newSource(r.lives.Add(1), false)
		return kube.Name, n.heard.of(s), err
	}
	r.lives.Add(1)
	return typha.Name, typha.New(typha.Config{
		Addrs: []string{"fanout:5473"}, Hostname: n.name, Logger: r.log,
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return r.relay.nets[n.name].Dial(ctx) },
	}), nil
}

// actFanout begins a fault of the fan-out server.
func (r *run) actFanout(a Action, n *node) {
	if r.relay == nil {
		return
	}
	link := r.relay.nets[n.name]
	begin := func(change func(f *network.Faults, by int)) {
		r.during(a, func() { link.Change(func(f *network.Faults) { change(f, 1) }) }, func() { link.Change(func(f *network.Faults) { change(f, -1) }) })
	}
	switch a.Kind {
	case CutFanout:
		begin(func(f *network.Faults, by int) { f.Cut += by })
	case HangFanout:
		begin(func(f *network.Faults, by int) { f.Hung += by })
	case SlowFanout:
		begin(func(f *network.Faults, by int) {
			f.Slow += time.Duration(by*a.N) * time.Millisecond
			f.Thin += by
		})
	case DeadFanout:
		begin(func(f *network.Faults, by int) { f.Dead, f.Rest = f.Dead+by, a.N })
	case KillFanout:
		r.during(a, func() { r.relay.killFanout(a.For, false) }, func() {})
	}
}
