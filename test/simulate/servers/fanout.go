package servers

import (
	"context"
	"fmt"
	"log/slog"
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

// Fanout is a fan-out server by calico/fanout between the API server and the agents of nodes. Create with NewFanout.
type Fanout struct {
	source func() (agent.Source, error)
	log    *slog.Logger
	nets   map[string]*network.Network // to each node

	mu       sync.Mutex
	away     time.Duration // after the end of the present server
	kill     context.CancelFunc
	stopping bool
	ended    chan struct{}
	bad      error // why a server ended by itself
}

// NewFanout starts a server for nodes. Each server after the end of another one follows another source.
func NewFanout(nodes []string, source func() (agent.Source, error), log *slog.Logger) *Fanout {
	f := &Fanout{source: source, log: log, nets: map[string]*network.Network{}, kill: func() {}, ended: make(chan struct{})}
	for _, name := range nodes {
		f.nets[name] = network.New()
	}
	go f.run()
	return f
}

// run runs servers, one after the other, until Close.
func (f *Fanout) run() {
	defer close(f.ended)
	for {
		ctx, kill := context.WithCancel(context.Background())
		f.mu.Lock()
		f.kill = kill
		stopping, away := f.stopping, f.away
		f.away = 0
		f.mu.Unlock()
		if stopping {
			kill()
			return
		}
		<-time.After(away)
		if err := f.feed(ctx); err != nil {
			f.mu.Lock()
			f.bad = fmt.Errorf("the fan-out server ended: %w", err)
			f.mu.Unlock()
		}
		kill()
	}
}

// feed runs a fan-out server as contiv-agent fanout wires it, until ctx ends.
func (f *Fanout) feed(ctx context.Context) error {
	source, err := f.source()
	if err != nil {
		return err
	}
	felix := []wire.SyncerType{wire.Felix}
	server, err := fanout.New(fanout.Config{Syncers: felix, Modern: felix, Logger: f.log})
	if err != nil {
		return err
	}
	keys := &feed.Feed{Objects: map[string]feed.Source{kube.Name: source}, Syncers: felix, Modern: true, Logger: f.log}
	var all []*network.Network
	for _, n := range f.nets {
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

// Bad is why a server ended by itself; nil: none did.
func (f *Fanout) Bad() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bad
}

// Source returns what the agent of a node follows, and its name.
func (f *Fanout) Source(node string) (string, agent.Source) {
	return typha.Name, typha.New(typha.Config{
		Addrs: []string{"fanout:5473"}, Hostname: node, Logger: f.log,
		Dial: func(ctx context.Context, _ string) (net.Conn, error) { return f.nets[node].Dial(ctx) },
	})
}

// endServer ends the server, and all servers if stop; otherwise the next one starts later.
func (f *Fanout) endServer(away time.Duration, stop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away, f.stopping = away, f.stopping || stop
	for _, n := range f.nets {
		n.Sever()
	}
	f.kill()
}

// Close ends the server, and waits for its end.
func (f *Fanout) Close() {
	f.endServer(0, true)
	<-f.ended
}

// Begin begins a fault, at a node unless it is one of the server. end ends it; the end of KillFanout does nothing.
func (f *Fanout) Begin(a Fault, node string) (end func()) {
	link := f.nets[node]
	begin := func(change func(f *network.Faults, by int)) func() {
		link.Change(func(f *network.Faults) { change(f, 1) })
		return func() { link.Change(func(f *network.Faults) { change(f, -1) }) }
	}
	switch a.Kind {
	case CutFanout:
		end = begin(func(f *network.Faults, by int) { f.Cut += by })
	case HangFanout:
		end = begin(func(f *network.Faults, by int) { f.Hung += by })
	case SlowFanout:
		end = begin(func(f *network.Faults, by int) {
			f.Slow += time.Duration(by*a.N) * time.Millisecond
			f.Thin += by
		})
	case DeadFanout:
		end = begin(func(f *network.Faults, by int) { f.Dead, f.Rest = f.Dead+by, a.N })
	case KillFanout:
		f.endServer(a.For, false)
		end = func() {}
	}
	return end
}
