package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/plugins/podnet"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
	"github.com/contiv-agent/contiv-agent/test/simulate/powerloss"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
	"github.com/contiv-agent/contiv-agent/verify"
)

// node has a VPP, a kernel, and an agent that is started again whenever it ends.
type node struct {
	name    string
	number  int
	dir     string // of the agent's files
	netns   string // of the names of network namespaces
	asked   int    // losses of power
	log     *slog.Logger
	sim     *sim.VPP
	toVPP   *network.Network
	toAgent *network.Network
	kernel  *kernel
	cluster *cluster
	etcd    *servers.Etcd
	relay   *servers.Fanout // nil: the agent follows the API server

	mu       sync.Mutex
	life     *life
	lives    uint64
	away     time.Duration // until the next agent
	clock    time.Duration // what the clock of the next agent is off
	stopping bool
	ended    error         // why an agent ended by itself
	over     chan struct{} // closed when the last agent has ended
}

// life is one agent from start to end.
type life struct {
	*agent.Agent
	pool  *ipam.Pool
	net   *podnet.Network
	dead  atomic.Bool       // killed: nothing that it still does has an effect
	files map[string][]byte // at its end
	owed  map[string][]byte // recorded DELs at its end
	kill  context.CancelFunc
	proof verify.Config
	guard *lossguard.Guard
}

// spool is the folder with the DELs that found no agent.
func (n *node) spool() string { return filepath.Join(n.dir, "spool") }

// state is the folder of the files that only agents write.
func (n *node) state() string { return filepath.Join(n.dir, "state") }

// namespaceOf makes the network namespace of a sandbox: another name of that of the test.
func (n *node) namespaceOf(sandbox string) (string, error) {
	path := filepath.Join(n.netns, sandbox)
	return path, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink("/proc/self/ns/net", path))
}

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
			err = errors.Join(os.RemoveAll(n.state()), writeFiles(n.state(), l.files), os.RemoveAll(n.spool()), writeFiles(n.spool(), l.owed))
			if os.Getenv(powerloss.AskIn) != "" {
				err = errors.Join(err, syncFiles(n.dir))
			}
			n.toAgent.Change(func(f *network.Faults) { f.Cut-- })
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
	n.mu.Lock()
	off := n.clock
	n.mu.Unlock()
	now := func() time.Time { return time.Now().Add(off) }
	if l.pool, err = ipam.Open(now(), ipam.Config{File: filepath.Join(n.state(), "addresses.db")}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.pool.Close()) }()
	l.net, err = podnet.New(podnet.Config{
		Settings: podnet.Settings{NodeName: n.name}, File: filepath.Join(n.state(), "attachments.db"), Memifs: filepath.Join(n.state(), "memif"), Pool: l.pool, Closed: true, Now: now, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.lives++
	objects, source, err := n.source()
	if err != nil {
		return err
	}
	stored, err := n.etcd.Source(l.dead.Load, n.log)
	if err != nil {
		return err
	}
	cfg := agent.Config{NodeName: n.name, Sources: map[string]agent.Source{objects: source}, External: []controller.ExternalConfigSource{stored}}
	cfg.Listen.Status = "agent.sock" // which Listener replaces
	cfg.Pods = &config.Pods{Network: l.net, ToNodes: podnet.Overlay, Spool: n.spool(), Kernel: n.kernel.kinds(&l.dead), Listener: network.Join(n.toAgent), Connections: n.kernel.connectionsOf(&l.dead)}
	cfg.VPP.Dial = func(ctx context.Context) (net.Conn, error) {
		if l.dead.Load() {
			return nil, context.Canceled
		}
		return n.toVPP.Dial(ctx)
	}
	cfg.VPPAgent.Journal, cfg.VPPAgent.Recheck = filepath.Join(n.state(), "journal", "journal"), config.DefaultRecheck
	cfg.Process.Registry, cfg.Process.Logger = prometheus.NewRegistry(), n.log
	l.guard = lossguard.New(lossguard.Config{
		Limits: lossguard.Limits{Share: lossguard.DefaultShare, Least: 1, For: hold}, Record: cfg.VPPAgent.Journal + ".counts",
		Gone: cfg.Pods.Disconnected(n.name), Now: now, Logger: n.log,
	})
	cfg.Process.Removals, cfg.Process.Now = l.guard, now
	located := &event.Located{}
	for _, a := range rangesOf(n.number) {
		located.HostIPs = append(located.HostIPs, a.Next())
	}
	l.proof = cfg.Proof(located)
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	n.mu.Lock()
	l.Agent = a
	n.mu.Unlock()
	return a.Run(ctx)
}

// source is what an agent follows, and its name: the fan-out server, or the API server.
func (n *node) source() (string, agent.Source, error) {
	if n.relay != nil {
		name, s := n.relay.Source(n.name)
		return name, s, nil
	}
	s, err := servers.Source(n.cluster.server, n.lives*uint64(len(nodeNames))+uint64(n.number), false, n.log)
	return kube.Name, s, err
}

// setClock sets the clock of the agents that start from now on.
func (n *node) setClock(off time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock = off
}

// killAgent ends the agent as a signal would that nothing can catch: its files and the recorded DELs stay as they are now. All other goroutines wait.
func (n *node) killAgent(away time.Duration) error {
	return n.endAgent(away, func() (state, spool map[string][]byte, err error) {
		state, errState := readFiles(n.state())
		spool, errSpool := readFiles(n.spool())
		return state, spool, errors.Join(errState, errSpool)
	})
}

// endAgent ends the agent, and leaves its files and the recorded DELs as left returns them.
func (n *node) endAgent(away time.Duration, left func() (state, spool map[string][]byte, err error)) (err error) {
	n.mu.Lock()
	l := n.life
	n.away = away
	n.mu.Unlock()
	if l == nil || l.dead.Load() {
		return nil
	}
	l.dead.Store(true)
	l.files, l.owed, err = left()
	n.toVPP.Sever()
	n.toAgent.Change(func(f *network.Faults) { f.Cut++ }) // it would still answer
	n.toAgent.Sever()
	n.etcd.Net.Sever()
	synctest.Wait() // whatever the dead agent still does, it does each time
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
	around(func() {
		n.sim.Restart()
		n.kernel.loseTranslations()
	})
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

// readFiles reads a folder's files, by their path below it. Meanwhile others may remove some.
func readFiles(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var content []byte
		if err == nil && d.Type().IsRegular() {
			if content, err = os.ReadFile(path); err == nil {
				out[path[len(dir):]] = content
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
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
