package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
	"github.com/contiv-agent/contiv-agent/verify"
)

const nodeName = "node1"

// node has a VPP, a kernel, and an agent that is started again whenever it ends.
type node struct {
	dir     string // of the agent's files
	log     *slog.Logger
	sim     *sim.VPP
	toVPP   *network.Network
	toAgent *network.Network
	kernel  *kernel
	objects *objects

	mu       sync.Mutex
	life     *life
	away     time.Duration // until the next agent
	stopping bool
	ended    error         // why an agent ended by itself
	over     chan struct{} // closed when the last agent has ended
}

// life is one agent from start to end.
type life struct {
	*agent.Agent
	pool  *ipam.Pool
	net   *podnet.Network
	dead  atomic.Bool // killed: nothing that it still does has an effect
	files map[string][]byte
	kill  context.CancelFunc
	proof verify.Config
}

// spool is the folder with the DELs that found no agent.
func (n *node) spool() string { return filepath.Join(n.dir, "spool") }

// state is the folder of the files that only agents write.
func (n *node) state() string { return filepath.Join(n.dir, "state") }

// run runs agents until stop.
func (n *node) run() {
	defer close(n.over)
	for {
		ctx, kill := context.WithCancel(context.Background())
		l := &life{kill: kill}
		n.mu.Lock()
		stopping := n.stopping
		n.life = l
		n.mu.Unlock()
		if stopping {
			kill()
			return
		}
		err := n.live(ctx, l)
		kill()
		if l.dead.Load() {
			err = errors.Join(os.RemoveAll(n.state()), writeFiles(n.state(), l.files))
		}
		n.log.Info("AGENT ENDED", "err", err)
		n.mu.Lock()
		if n.life = nil; err != nil && !errors.Is(err, context.Canceled) {
			n.ended = errors.Join(n.ended, err)
		}
		away := n.away
		n.away = time.Second
		n.mu.Unlock()
		time.Sleep(away)
	}
}

// live runs an agent as contiv-agent run --cni wires it, until ctx ends.
func (n *node) live(ctx context.Context, l *life) (err error) {
	if l.pool, err = ipam.Open(time.Now(), ipam.Config{File: filepath.Join(n.state(), "addresses.db")}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.pool.Close()) }()
	l.net, err = podnet.New(podnet.Config{
		Settings: podnet.Settings{NodeName: nodeName}, File: filepath.Join(n.state(), "attachments.db"), Memifs: filepath.Join(n.state(), "memif"), Pool: l.pool, Closed: true, Logger: n.log,
	})
	if err != nil {
		return err
	}
	cfg := agent.Config{NodeName: nodeName, Sources: map[string]agent.Source{"objects": n.objects}}
	cfg.Listen.Status = "agent.sock" // which Listener replaces
	cfg.Pods = &config.Pods{Network: l.net, ToNodes: podnet.Overlay, Spool: n.spool(), Kernel: n.kernel.kinds(&l.dead), Listener: network.Join(n.toAgent)}
	cfg.VPP.Dial = func(ctx context.Context) (net.Conn, error) {
		if l.dead.Load() {
			return nil, context.Canceled
		}
		return n.toVPP.Dial(ctx)
	}
	cfg.VPPAgent.Journal, cfg.VPPAgent.Recheck = filepath.Join(n.state(), "journal", "journal"), config.DefaultRecheck
	cfg.Process.Registry, cfg.Process.Logger = prometheus.NewRegistry(), n.log
	l.proof = cfg.Proof(&event.Located{HostIPs: []netip.Addr{netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fd00:1::1")}})
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	n.mu.Lock()
	l.Agent = a
	n.mu.Unlock()
	return a.Run(ctx)
}

// killAgent ends the agent as a signal would that nothing can catch: its files stay as they are now. All other goroutines wait.
func (n *node) killAgent(away time.Duration) error {
	n.mu.Lock()
	l := n.life
	n.away = away
	n.mu.Unlock()
	if l == nil || l.dead.Load() {
		return nil
	}
	l.dead.Store(true)
	var err error
	l.files, err = readFiles(n.state())
	n.toVPP.Sever()
	n.toAgent.Sever()
	l.kill()
	return err
}

// present returns the agent; nil: none runs.
func (n *node) present() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil || n.life.dead.Load() || n.life.Agent == nil {
		return nil
	}
	return n.life
}

// isDying reports that a killed agent has not ended yet.
func (n *node) isDying() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life != nil && n.life.dead.Load()
}

// killVPP ends VPP by around, and starts it again without anything.
func (n *node) killVPP(away time.Duration, around func(end func())) {
	n.toVPP.Change(func(f *network.Faults) { f.Cut++ })
	around(n.sim.Restart)
	time.Sleep(away)
	n.toVPP.Change(func(f *network.Faults) { f.Cut-- })
}

// stop ends the agent in order.
func (n *node) stop() {
	n.mu.Lock()
	n.stopping = true
	if n.life != nil {
		n.life.kill()
	}
	n.mu.Unlock()
	<-n.over
}

func readFiles(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			out[path[len(dir):]], err = os.ReadFile(path)
		}
		return err
	})
	return out, err
}

func writeFiles(dir string, files map[string][]byte) (err error) {
	for path, content := range files {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(dir+path), 0o700), os.WriteFile(dir+path, content, 0o600))
	}
	return err
}

// objects is a source of objects that agents follow one after the other.
type objects struct {
	mu       sync.Mutex
	all      map[model.Ref]model.Object
	listener chan event.Change // of the present agent; nil: none
}

// Run implements agent.Source.
func (o *objects) Run(ctx context.Context, emit func(event.Event)) error {
	ch := make(chan event.Change, 1000)
	o.mu.Lock()
	var first []event.Change
	for ref, obj := range o.all {
		first = append(first, event.Change{Ref: ref, Object: obj})
	}
	o.listener = ch
	o.mu.Unlock()
	emit(&event.Update{Source: "objects", Changes: first, At: time.Now()})
	emit(&event.SyncStatus{Source: "objects", Status: event.InSync})
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case c := <-ch:
			emit(&event.Update{Source: "objects", Changes: []event.Change{c}, At: time.Now()})
		}
	}
}

// list has all objects.
func (o *objects) list() []model.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.all))
}

// put changes an object; nil removes it.
func (o *objects) put(ref model.Ref, obj model.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if obj == nil {
		delete(o.all, ref)
	} else {
		o.all[ref] = obj
	}
	if o.listener != nil {
		select {
		case o.listener <- event.Change{Ref: ref, Object: obj}:
		default: // of an agent that has ended
		}
	}
}
