// Package agent turns a configuration into one running agent: it wires sources, controller, renderers, the VPP agent and the
// connection to VPP, and holds no other logic.
//
//	Config.Sources ─ events ─▶ controller ─ Txn ─▶ vppagent ─ Call ─▶ vpp.Conn ─▶ VPP
//	                              ▲                   │
//	                              └─ Committed, Located, VPPStatus
//
// Invariant: when Run returns, every goroutine that it started has ended.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/heap"
	"github.com/contiv-agent/contiv-agent/agent/kubeproxy"
	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/agent/metrics"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/agent/proof"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/agent/stepper"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/plugins/service/health"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/renderer/adapter"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	aclvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// Config is the configuration of one agent.
type Config = config.Config

// Source delivers Kubernetes objects.
type Source = config.Source

// eventBacklog is how many events may wait for the loop before sources and the committer block.
const eventBacklog = 256

// parts are the components of one agent; Agent runs them, Stepper steps them.
type parts struct {
	cfg        Config
	log        *slog.Logger
	metrics    *meters
	conn       *vpp.Conn
	vppagent   *vppagent.Agent
	processor  *service.Processor
	policies   *policy.Processor // nil: policies are not enforced
	values     *controller.Values
	controller *controller.Controller
	session    *attachment.Session // nil: no Felix
	health     *health.Server      // nil: no health checks
	proxy      *kubeproxy.Health   // nil: no kube-proxy health endpoint
	nat        *nattable.Watcher   // nil: sessions are not counted
	rivals     *owner.Rivals
	onlookers  []controller.Onlooker
	reader     *status.Reader
	onState    func(vpp.State)
	calm       func() // to be called when the first sync is done
	counters   *counters.SourceChecks
}

// meters are the metrics of all rooms that have some whatever the configuration is.
type meters struct {
	*metrics.Metrics
	proxy *kubeproxy.Metrics
	nat   *nattable.Metrics
	proof *proof.Metrics
	flows *flows.Meter
}

// newMeters returns the metrics of an agent that serves these families of addresses.
func newMeters(families []string) *meters {
	return &meters{metrics.New(), kubeproxy.NewMetrics(families), nattable.NewMetrics(), proof.NewMetrics(), flows.NewMeter()}
}

// register registers all metrics; a second agent with the same registry is an error.
func (m *meters) register(r prometheus.Registerer) error {
	return errors.Join(m.proxy.Register(r), m.nat.Register(r), m.proof.Register(r), m.flows.Register(r), m.Register(r))
}

// assemble makes the parts of an agent. pause waits, so that VPP forwards between two requests; nil: no pauses.
func assemble(cfg Config, pause func(context.Context, time.Duration)) (*parts, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	if cfg.Process.Logger == nil {
		cfg.Process.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.ConnectPods()
	if cfg.Policies.Felix != nil && cfg.Policies.Felix.Driver != nil {
		cfg.Sources = maps.Clone(cfg.Sources)
		if cfg.Sources == nil {
			cfg.Sources = map[string]Source{}
		}
		cfg.Sources[felix.SourceName] = cfg.Policies.Felix.Source()
	}
	if cfg.VPPAgent.Journal != "" {
		if err := os.MkdirAll(filepath.Dir(cfg.VPPAgent.Journal), 0o755); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
	}
	log := cfg.Process.Logger
	p := &parts{cfg: cfg, log: log, metrics: newMeters(kubeproxy.Families(cfg.Services.Renderer.Choice.Served())), onState: func(vpp.State) {}, calm: func() {}}
	cfg.Process.Flows.CountIn(p.metrics.flows)
	p.conn = p.connection()
	frontends := &nattable.Frontends{}
	p.vppagent = vppagent.New(p.vppagentConfig(pause, frontends))
	descriptor.WatchInterfaces(p.conn, p.vppagent.InterfacesChanged, p.vppagent.InterfaceGone)
	p.rivals = &owner.Rivals{VPP: p.conn, Self: cfg.Share().ClientName(), Logger: log, Changed: func() {}}
	p.values = controller.NewValues()
	p.values.OnSent(frontends.Sent)
	p.values.ByInterim(nat44.Interim)
	p.values.EndsBy(builtin.Ended)
	if cfg.Listen.Healthz != "" {
		p.proxy = kubeproxy.NewHealth(cfg.NodeName, p.metrics.proxy)
	}
	p.controller = controller.New(controller.Config{Sources: cfg.SourceNames(), Observer: p.observer()}, p.values, p.processors()...)
	if p.policies != nil && cfg.Policies.Felix != nil {
		p.session = attachment.NewSession(cfg.Policies.Felix, attachment.Loop{Policies: p.policies, Values: p.values, Controller: p.controller})
	}
	p.counters = counters.NewSourceChecks(&counters.Reader{Counters: cfg.Policies.Counters, Lists: p.vppagent, Policies: p.policies, Values: p.values, InLoop: p.inLoop})
	p.giveViews()
	if !cfg.Services.Off {
		p.nat = p.natTable()
	}
	p.reader = p.newReader(frontends.Count)
	return p, nil
}

// connection returns the connection to VPP.
func (p *parts) connection() *vpp.Conn {
	cfg, share := p.cfg.VPP, p.cfg.Share()
	cfg.Logger, cfg.Needs, cfg.OnConnect = p.log.With("room", "vpp"), all.Needs(), onConnect(p.cfg)
	cfg.OnState, cfg.Observe = p.state, p.cfg.Process.Recorder.CountRequests(p.metrics.proof.Observe(p.metrics.Request))
	cfg.Lock, cfg.ClientName = share.Lock(p.cfg.Lock, p.cfg.NodeName), share.ClientName()
	return vpp.New(cfg)
}

// vppagentConfig returns the configuration of what keeps VPP equal to the desired state.
func (p *parts) vppagentConfig(pause func(context.Context, time.Duration), frontends *nattable.Frontends) vppagent.Config {
	cfg := p.cfg.VPPAgent
	cfg.Caller, cfg.Descriptors = p.cfg.WithHost(p.conn, p.cfg.Share().Kinds())
	cfg.Logger, cfg.Now, cfg.Pause = p.log, p.cfg.Process.Now, pause
	cfg.DenyUnknown = p.cfg.DeniesUnknown()
	cfg.DenyEarly = cfg.DenyUnknown && p.cfg.Policies.ACL.SourceCheck != acl.SourceOff
	cfg.Options.NATSessions = func() (int, bool) { return p.nat.Used() }
	cfg.Options.NATBegan = func() { p.cfg.Pods.Sever(frontends.HasTCP, p.log) }
	cfg.Options.NATDrained = func(drained, lost int) { p.nat.Drained(drained, lost) }
	return cfg
}

// newReader returns the reader of the agent's state.
func (p *parts) newReader(mappings func() int) *status.Reader {
	return &status.Reader{
		Node: p.cfg.NodeName, Services: !p.cfg.Services.Off, Settings: p.cfg.Process.Flags, Recheck: p.cfg.VPPAgent.Recheck, Now: p.now,
		Loop: status.Loop{
			Controller: p.controller, Processor: p.processor, Policies: p.policies, Session: p.session, Mappings: mappings,
		},
		Beside: status.Beside{
			VPPAgent: p.vppagent, Conn: p.conn, Driver: p.cfg.Policies.Driver, NAT: p.nat, Counters: p.counters,
			Rival: p.rivals.Problem, Healthz: p.proxy.Problem, NIC: p.cfg.Pods.Refusal, Unserved: p.healthProblems,
			Unrecorded: p.cfg.Process.Recorder.Problem, Held: p.cfg.Process.Removals.Held, Flows: p.cfg.Process.Flows,
		},
	}
}

// natTable returns the watcher of the NAT44 session table.
func (p *parts) natTable() *nattable.Watcher {
	cfg := p.cfg.NATTable
	cfg.Table, cfg.Sessions, cfg.Rest = p.vppagent, p.cfg.Services.Renderer.NAT44.Sessions, wait
	cfg.Now, cfg.Logger, cfg.Metrics = p.now, p.log, p.metrics.nat
	cfg.Pods = func(ctx context.Context) (out map[netip.Addr]string, err error) {
		err = p.inLoop(ctx, func() { out = p.podsByAddress() })
		return out, err
	}
	return nattable.New(cfg)
}

// inLoop calls a function in the controller's loop.
func (p *parts) inLoop(ctx context.Context, f func()) error {
	return p.controller.Ask(ctx, func(*controller.Controller) { f() })
}

// podsByAddress returns the pods of this node by their addresses; in the loop.
func (p *parts) podsByAddress() map[netip.Addr]string {
	out := map[netip.Addr]string{}
	if located := p.controller.Status().Located; located != nil {
		for a := range located.Pods {
			if pod, ok := p.processor.PodAt(a); ok {
				out[a] = pod.String()
			}
		}
	}
	return out
}

// processors returns the processors, which turn objects into values.
func (p *parts) processors() []controller.Processor {
	cfg := p.cfg
	renderers := p.serviceRenderers()
	for _, more := range cfg.Services.More {
		renderers = append(renderers, more(p.values))
	}
	if !cfg.Policies.Off {
		p.policies = newPolicies(cfg, p.values)
		renderers = append(renderers, p.policies.Translations())
	}
	if p.health = p.healthServer(); p.health != nil {
		renderers = append(renderers, adapter.Listen(p.health))
	}
	if !cfg.Services.Off {
		renderers = append(renderers, adapter.Listen(p.metrics.proxy.Dropping()))
	}
	services := cfg.Services.Config
	services.NodeName, services.Override, services.Limits = cfg.NodeName, cfg.Override, cfg.Limits
	p.processor = service.New(services, renderers...)
	switch {
	case p.policies == nil:
		return []controller.Processor{p.processor}
	case cfg.Services.Off:
		return []controller.Processor{p.policies}
	}
	out := []controller.Processor{p.processor, p.policies} // policies follow services: they need their translations
	if cfg.Policies.Driver != nil {
		out = append(out, attachment.NewNodeFeed(cfg.NodeName, cfg.Policies.Driver))
	}
	return out
}

// onConnect returns the requests that each new connection begins with.
func onConnect(cfg Config) []vpp.Call {
	calls := descriptor.OnConnect()
	if cfg.Policies.Counters != nil && !cfg.Policies.Off {
		calls = append(calls, aclvalues.CountRules())
	}
	return calls
}

func (p *parts) now() time.Time {
	if p.cfg.Process.Now != nil {
		return p.cfg.Process.Now()
	}
	return time.Now()
}

// state forwards the state of the connection.
func (p *parts) state(st vpp.State) {
	p.vppagent.Connected(st)
	p.metrics.State(st)
	p.onState(st)
}

// observer logs and counts the controller's work: one line per transaction, one per refused object.
func (p *parts) observer() controller.Observer {
	return controller.Observer{
		Event: p.cfg.Process.Recorder.Observe,
		Changed: func(ch event.Change) {
			p.cfg.Process.Flows.Changed(p.reader.Proof.Changed(ch), ch.Object)
			p.metrics.proxy.Changed(ch.Ref, time.Now())
			p.proxy.Took()
		},
		Sent: func(*event.Txn) { p.metrics.proxy.Sent() },
		Refused: func(ch event.Change) {
			p.metrics.Refused()
			p.log.Warn("refused", "object", ch.Ref.String(), "err", ch.Err)
		},
		Committed: p.committed,
		Source: func(s *event.SyncStatus) {
			if s.Err != nil {
				p.log.Warn("source", "name", s.Source, "status", s.Status.String(), "err", s.Err)
				return
			}
			p.log.Info("source", "name", s.Source, "status", s.Status.String())
		},
		Trouble: func(err error) { p.log.Error("renderer", "err", err) },
		VPP: func(ev *event.VPPStatus) {
			p.proxy.VPP(ev.Connected)
			p.session.VPP(ev)
		},
		Idle: func() {
			p.metrics.proxy.Idle(p.controller.Well(), time.Now())
			p.proxy.Idle(p.controller.Started())
			p.session.Idle()
		},
	}
}

func (p *parts) committed(ev *event.Committed) {
	p.metrics.Committed(ev)
	if ev.Err == nil {
		p.metrics.proxy.Committed(ev, time.Now())
	}
	p.proxy.Committed(ev)
	p.metrics.Unwell(p.controller.CountUnwell())
	if p.policies != nil {
		p.metrics.Policies(p.policies.Counts(), p.vppagent.Snapshot().Reclassify)
	}
	p.session.Committed(ev)
	if ev.Resync == event.Full && ev.Err == nil {
		p.calm()
	}
	for _, st := range ev.Statuses {
		if st.State == event.Unimplemented || st.State == event.Invalid || st.State == event.Failed || st.State == event.Retrying {
			p.log.Warn("value", "key", st.Key, "state", st.State.String(), "err", st.Err)
		}
	}
	for _, o := range p.onlookers {
		o.Committed(ev, p.values.Sent)
	}
	if p.cfg.Process.OnCommitted != nil {
		p.cfg.Process.OnCommitted(ev)
	}
}

// Agent is one running agent.
type Agent struct {
	*parts
	events   chan event.Event
	gallery  *status.Gallery
	changes  changes
	cni      *cni.Server // nil: another program connects pods
	registry *prometheus.Registry
}

// New returns an agent. Run starts it.
func New(cfg Config) (*Agent, error) {
	p, err := assemble(cfg, func(ctx context.Context, d time.Duration) { _ = wait(ctx, d) }) // if ctx ends, the request fails
	if err != nil {
		return nil, err
	}
	a := &Agent{parts: p, events: make(chan event.Event, eventBacklog), registry: cfg.Process.Registry}
	a.rivals.Changed = a.changes.happened
	a.reader.Proof = proof.New(proof.Config{
		Every: p.cfg.Process.VerifyEvery, Look: proof.Loop{Controller: p.controller, Settings: p.cfg.Proof, Waiting: status.Waiting, Policies: p.policies, Writes: p.metrics.proof.Writes}.Look,
		Rest: wait, Now: p.now, Logger: p.log, Metrics: p.metrics.proof,
	})
	a.gallery = status.NewGallery(p.reader, p.inLoop)
	a.cni = p.cfg.Pods.Server(p.log)
	if a.registry == nil {
		a.registry = prometheus.NewRegistry()
		a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if p.session != nil {
		err = a.registry.Register(p.session.Metrics())
	}
	if cfg.Policies.Driver != nil {
		err = errors.Join(err, a.registry.Register(attachment.NewDriverMetrics(cfg.Policies.Driver)))
	}
	if a.cni != nil {
		err = errors.Join(err, a.registry.Register(a.cni.Metrics()))
	}
	return a, errors.Join(err, p.metrics.register(a.registry), p.counters.Register(a.registry), registerExternal(p.cfg.External, a.registry), cfg.Process.Flows.StagedMetrics().Register(a.registry), cfg.Process.Recorder.Register(a.registry),
		a.registry.Register(metrics.Build(cfg.Process.Version)), p.cfg.Process.Removals.Register(a.registry), p.cfg.VPPAgent.Quarantine.Register(a.registry))
}

// Run runs the agent until ctx ends or a part of it fails. An Agent runs once.
func (a *Agent) Run(ctx context.Context) error {
	listeners, err := a.listen(ctx)
	if err != nil {
		return err
	}
	if a.cfg.Process.Alone {
		a.calm = heap.Hurry()
		defer a.calm()
	}
	g, ctx := errgroup.WithContext(ctx)
	emit := a.proxy.Watch(func(ev event.Event) {
		select {
		case a.events <- ev:
		case <-ctx.Done():
		}
	})
	emit = a.cfg.Process.Removals.Watch(a.cfg.Pods.Watch(a.changes.watched(emit), a.reader.Hung))
	a.cfg.Pods.Serve(ctx, a.cni, func() uint32 { return a.conn.State().PID }, a.log, g.Go)
	a.onState = func(st vpp.State) { emit(stepper.StatusOf(st)) }
	txns := make(chan *event.Txn, 1)
	g.Go(func() error { return a.vppagent.Run(ctx, txns, emit) })
	g.Go(func() error { return a.controller.Run(ctx, a.events, txns) })
	g.Go(func() error { return a.conn.Run(ctx) })
	g.Go(func() error { return a.gallery.Run(ctx) })
	g.Go(func() error { return a.rivals.Run(ctx) })
	g.Go(func() error { return live.EndTraces(ctx, a.conn) })
	g.Go(func() error { return a.reader.Proof.Run(ctx) })
	g.Go(func() error { return a.cfg.Process.Recorder.Run(ctx) })
	g.Go(func() error { return a.cfg.Process.Removals.Run(ctx) })
	g.Go(func() error {
		return a.cfg.Process.Flows.Run(ctx, flows.Loop{Do: a.conn.Do, InLoop: a.inLoop, Objects: a.reader.Proof.Objects, Policies: a.policies, Sent: a.values.Sent})
	})
	for name, src := range a.cfg.Sources {
		g.Go(func() error {
			if err := src.Run(ctx, emit); err != nil {
				return fmt.Errorf("source %s: %w", name, err)
			}
			return nil
		})
	}
	a.runExternal(ctx, g, emit)
	if a.cfg.Policies.Driver != nil {
		g.Go(func() error { return a.cfg.Policies.Driver.Run(ctx) })
	}
	for _, l := range listeners {
		g.Go(func() error { return httpserver.HTTP(ctx, l.Listener, l.handler, a.cfg.Process.Logger) })
	}
	if a.health != nil {
		g.Go(func() error { return a.health.Run(ctx) })
	}
	if a.cfg.Reporter != nil {
		g.Go(func() error { return a.cfg.Reporter.Run(ctx, a.changes.n.Load, a.gallery.Report) })
	}
	if a.proxy != nil {
		g.Go(func() error { a.proxy.Serve(ctx, a.cfg.Listen.Healthz, a.log); return nil })
	}
	if a.cfg.NATTable.Every > 0 && a.nat != nil {
		g.Go(func() error { return a.nat.Run(ctx) })
	}
	if a.cfg.NATTable.Every > 0 && a.cfg.Policies.Counters != nil && a.policies != nil && a.cfg.Policies.ACL.SourceCheck != acl.SourceOff {
		g.Go(func() error { return a.counters.Run(ctx, a.cfg.NATTable.Every, a.log) })
	}
	return g.Wait()
}

// listener is a socket with its HTTP handler.
type listener struct {
	net.Listener
	handler http.Handler
}

// listen opens the agent's listeners, so that an occupied port is an error before anything runs.
func (a *Agent) listen(ctx context.Context) ([]listener, error) {
	var out []listener
	if a.cfg.Listen.Metrics != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.cfg.Listen.Metrics)
		if err != nil {
			return nil, fmt.Errorf("metrics and health: %w", err)
		}
		out = append(out, listener{l, httpserver.Mux(a.registry, a.gallery.Ready, a.cfg.Listen.Profiling)})
	}
	if a.cfg.Listen.Status != "" {
		l, err := a.cfg.Pods.Socket(ctx, a.cfg.Listen.Status)
		if err != nil {
			for _, open := range out {
				err = errors.Join(err, open.Close())
			}
			return nil, fmt.Errorf("status socket: %w", err)
		}
		out = append(out, listener{l, config.WithCNI(a.cni, a.control(ctx).Handler())})
	}
	return out, nil
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Status returns the state of the agent, of every Service and of every policy. If the loop is busy for longer than 2 s, it returns the last known status with the reason in Busy.
func (a *Agent) Status(ctx context.Context) (*status.Status, error) { return a.gallery.Status(ctx) }

// Recheck compares all objects of the agent in VPP with the desired state at once, and repairs differences. VPP does not
// forward while it dumps; the periodic VPPAgent.Recheck compares in small parts instead. nil: no differences.
func (a *Agent) Recheck(ctx context.Context) (*event.Committed, error) {
	return a.vppagent.RecheckAll(ctx)
}
