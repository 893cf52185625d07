package felix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/enforce"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// SupervisorConfig says which driver is run, and how. Path is needed.
type SupervisorConfig struct {
	Path string   // of the program; it gets no arguments, as from Felix
	Env  []string // "NAME=value", beside this process's environment

	// Parameters are Felix's configuration as far as the calculation does not know it: FelixHostname. What it knows wins.
	Parameters map[string]string

	Limit    int           // longest frame that is read; 0: DefaultLimit
	Grace    time.Duration // how long a driver may take to end after its pipe was closed, and after SIGTERM; 0: 2 s each
	MinPause time.Duration // before the first restart; it doubles; 0: 200 ms
	MaxPause time.Duration // the longest; 0: 30 s
	Steady   time.Duration // a driver that lived this long after it was told everything is restarted at once; 0: 1 min

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent; gets what the driver prints, too
	// OnMessage sees all that the driver says, in its order, in a goroutine of the supervisor's; nil: nobody.
	OnMessage func(*pb.FromDataplane)
}

func (c *SupervisorConfig) defaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Grace, 2 * time.Second}, {&c.MinPause, 200 * time.Millisecond}, {&c.MaxPause, 30 * time.Second}, {&c.Steady, time.Minute}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Supervisor runs an external dataplane driver as Felix does, and tells it what it is told itself: the other end of Driver.
//
//	OnUpdate, Apply ─ batches ─▶ keeper (ledger) ─ rounds ─▶ writer ─ fd 3 ─▶ the driver's process
//	Status           ◀────────── keeper          ◀─ events ─ reader ◀─ fd 4 ─┘
//
// A driver that ends, or says what is no message, is started anew and told everything. One that does not read costs no memory
// but that of what there is. It implements the seam of plugins/policy; a driver outside knows VPP, and the node, itself.
type Supervisor struct {
	cfg     SupervisorConfig
	staged  []*pb.ToDataplane // by OnUpdate
	batches chan []*pb.ToDataplane
	done    chan struct{} // the keeper is gone
	waits   chan chan struct{}
	status  atomic.Pointer[SupervisorStatus]
}

// SupervisorStatus is how it stands with a driver. It must not be changed.
type SupervisorStatus struct {
	Path      string
	PID       int           // 0: it does not run
	Starts    uint64        // how often it was started
	Trouble   string        // why it ended last, or why it does not start; "" never
	Pause     time.Duration // between its last end and the start that followed, or will
	InSync    bool          // it was told that all is known
	Behind    int           // things it was not told as they are
	Sequence  uint64        // messages it was told
	Alive     string        // when it last said that it lives, in its words; "" never
	Uptime    float64
	Endpoints map[EndpointID]Health // what it says of them
	Unknown   uint64                // what it said and nobody understands
}

// NewSupervisor returns a supervisor that has not begun.
func NewSupervisor(cfg SupervisorConfig) *Supervisor {
	cfg.defaults()
	s := &Supervisor{cfg: cfg, batches: make(chan []*pb.ToDataplane), done: make(chan struct{}), waits: make(chan chan struct{})}
	s.status.Store(&SupervisorStatus{Path: cfg.Path})
	return s
}

// OnUpdate stages a message, which must not be changed afterwards.
func (s *Supervisor) OnUpdate(m *pb.ToDataplane) { s.staged = append(s.staged, m) }

// Apply hands over what is staged. It waits for nothing but that Run has begun; how far the driver is, Status says.
func (s *Supervisor) Apply() (again bool) {
	if len(s.staged) > 0 {
		select {
		case s.batches <- s.staged:
		case <-s.done:
		}
		s.staged = nil
	}
	return false
}

// SetNode does nothing: a driver outside finds out about the node itself.
func (s *Supervisor) SetNode(enforce.Node) {}

// Resync does nothing: a driver that was told everything knows everything, and one that does not was started anew.
func (s *Supervisor) Resync() {}

// Cause knows nothing: what stands in VPP is the driver's.
func (s *Supervisor) Cause(string, bool, int, int) (enforce.Cause, bool) {
	return enforce.Cause{}, false
}

// Status is how it stands with the driver. It may be called from anywhere.
func (s *Supervisor) Status() *SupervisorStatus { return s.status.Load() }

// Told waits until the driver was told everything that was handed over; what it makes of it, it says itself.
func (s *Supervisor) Told(ctx context.Context) error {
	told := make(chan struct{})
	ask := s.waits
	for {
		select {
		case ask <- told:
			ask = nil // asked
		case <-told:
			return nil
		case <-s.done:
			return errUnsupervised
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errUnsupervised = errors.New("the driver is not supervised any more")

// Run keeps a driver running until ctx ends. Then the driver is stopped: its pipe is closed, SIGTERM, SIGKILL, each with some
// grace. A Supervisor runs once.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.done)
	k := &keeper{
		cfg: s.cfg, ledger: newLedger(), batches: s.batches, waits: s.waits, publish: s.status.Store,
		events: make(chan childEvent), pause: time.NewTimer(0), next: s.cfg.MinPause,
		now: SupervisorStatus{Path: s.cfg.Path, Endpoints: map[EndpointID]Health{}},
	}
	defer k.pause.Stop()
	k.ledger.take(k.configured(&pb.ToDataplane{Payload: &pb.ToDataplane_ConfigUpdate{ConfigUpdate: &pb.ConfigUpdate{}}}))
	return k.run(ctx)
}

// keeper owns the ledger and the driver's life. Nothing it does waits for the driver.
type keeper struct {
	cfg      SupervisorConfig
	ledger   *ledger
	batches  <-chan []*pb.ToDataplane
	waits    <-chan chan struct{}
	waiting  []chan struct{} // closed when the driver was told everything
	publish  func(*SupervisorStatus)
	events   chan childEvent
	pause    *time.Timer   // until the next start
	next     time.Duration // how long that is to last, if the driver ends early
	child    *child        // nil: none runs
	stopping bool
	onTheWay int       // messages of the round the driver is taking
	synced   time.Time // since when the child knows everything; zero: it does not
	now      SupervisorStatus
}

func (k *keeper) run(ctx context.Context) error {
	for {
		k.tell()
		k.report()
		select {
		case <-ctx.Done():
			k.stop()
			return ctx.Err()
		case batch := <-k.batches:
			for _, m := range batch {
				k.ledger.take(k.configured(m))
			}
		case told := <-k.waits:
			k.waiting = append(k.waiting, told)
		case <-k.pause.C:
			k.start(ctx)
		case ev := <-k.events:
			k.take(ev)
		}
	}
}

// stop waits for the end of the driver, and of what it says.
func (k *keeper) stop() {
	k.stopping = true
	for k.child != nil {
		select {
		case <-k.batches: // nobody is told any more
		case ev := <-k.events:
			k.take(ev)
		}
	}
	k.pause.Stop()
	k.report()
}

// configured puts what the calculation does not know into a configuration.
func (k *keeper) configured(m *pb.ToDataplane) *pb.ToDataplane {
	u := m.GetConfigUpdate()
	if u == nil || len(k.cfg.Parameters) == 0 {
		return m
	}
	merged := maps.Clone(k.cfg.Parameters)
	maps.Copy(merged, u.Config)
	u = &pb.ConfigUpdate{Config: merged, SourceToRawConfig: u.SourceToRawConfig, Message: u.Message}
	return &pb.ToDataplane{Payload: &pb.ToDataplane_ConfigUpdate{ConfigUpdate: u}}
}

// tell hands the next round to the driver, if it has taken the last.
func (k *keeper) tell() {
	if k.child == nil || !k.child.idle || !k.ledger.due() {
		return
	}
	round := k.ledger.round()
	if len(round) == 0 {
		return
	}
	k.child.idle, k.onTheWay = false, len(round)
	k.child.rounds <- round // it has room for one
}

// start starts a driver; if that fails it is tried again later.
func (k *keeper) start(ctx context.Context) {
	c, err := startChild(ctx, k.cfg, k.events)
	if err != nil {
		k.ended(fmt.Errorf("start: %w", err))
		return
	}
	k.child = c
	k.ledger.restart()
	k.now.PID, k.now.Starts, k.now.Sequence = c.pid, k.now.Starts+1, 0
	k.cfg.Logger.Info("driver started", "path", k.cfg.Path, "pid", c.pid)
}

// steady tells whether the driver has lived long enough, knowing everything.
func (k *keeper) steady() bool {
	return !k.synced.IsZero() && k.cfg.Now().Sub(k.synced) >= k.cfg.Steady
}

// ended plans the next start.
func (k *keeper) ended(why error) {
	if k.steady() {
		k.next = 0
	}
	if k.stopping {
		k.cfg.Logger.Info("driver stopped", "path", k.cfg.Path, "how", why)
	} else {
		k.now.Pause = k.next
		k.cfg.Logger.Warn("driver ended", "path", k.cfg.Path, "err", why, "pause", k.now.Pause)
		k.pause.Reset(k.now.Pause)
	}
	k.next = min(max(2*k.next, k.cfg.MinPause), k.cfg.MaxPause)
	k.now.PID, k.now.Trouble, k.synced, k.onTheWay = 0, why.Error(), time.Time{}, 0
	k.now.Endpoints, k.now.Alive, k.now.Uptime = map[EndpointID]Health{}, "", 0
}

// take takes what happened to the driver.
func (k *keeper) take(ev childEvent) {
	switch {
	case ev.gone != nil:
		k.child = nil
		k.ended(ev.gone)
	case ev.written > 0:
		k.child.idle, k.onTheWay = true, 0
		k.now.Sequence += ev.written
		if k.ledger.toldInSync && k.synced.IsZero() {
			k.synced = k.cfg.Now()
			k.cfg.Logger.Info("driver was told everything", "path", k.cfg.Path, "messages", k.now.Sequence)
		}
	case ev.message != nil:
		k.heard(ev.message)
	case ev.garbage != nil:
		k.now.Unknown++
		k.cfg.Logger.Warn("driver said what nobody understands", "err", ev.garbage)
	}
}

// heard takes what the driver says.
func (k *keeper) heard(m *pb.FromDataplane) {
	set := func(id EndpointID, health Health) {
		k.now.Endpoints = maps.Clone(k.now.Endpoints) // others read it
		if k.now.Endpoints[id] = health; health == "" {
			delete(k.now.Endpoints, id)
		}
	}
	switch p := m.Payload.(type) {
	case *pb.FromDataplane_ProcessStatusUpdate:
		k.now.Alive, k.now.Uptime = p.ProcessStatusUpdate.GetIsoTimestamp(), p.ProcessStatusUpdate.GetUptime()
	case *pb.FromDataplane_WorkloadEndpointStatusUpdate:
		set(workloadOf(p.WorkloadEndpointStatusUpdate.GetId()), Health(p.WorkloadEndpointStatusUpdate.GetStatus().GetStatus()))
	case *pb.FromDataplane_WorkloadEndpointStatusRemove:
		set(workloadOf(p.WorkloadEndpointStatusRemove.GetId()), "")
	case *pb.FromDataplane_HostEndpointStatusUpdate:
		set(EndpointID{Endpoint: p.HostEndpointStatusUpdate.GetId().GetEndpointId()}, Health(p.HostEndpointStatusUpdate.GetStatus().GetStatus()))
	case *pb.FromDataplane_HostEndpointStatusRemove:
		set(EndpointID{Endpoint: p.HostEndpointStatusRemove.GetId().GetEndpointId()}, "")
	case *pb.FromDataplane_WireguardStatusUpdate, *pb.FromDataplane_DataplaneInSync:
	default:
		k.now.Unknown++
	}
	if k.cfg.OnMessage != nil {
		k.cfg.OnMessage(m)
	}
}

func workloadOf(id *pb.WorkloadEndpointID) EndpointID {
	return EndpointID{Orchestrator: id.GetOrchestratorId(), Workload: id.GetWorkloadId(), Endpoint: id.GetEndpointId()}
}

// report makes the state visible.
func (k *keeper) report() {
	k.now.InSync, k.now.Behind = !k.synced.IsZero(), k.ledger.behind()+k.onTheWay
	now := k.now
	k.publish(&now)
	if k.child != nil && k.child.idle && !k.ledger.due() {
		for _, told := range k.waiting {
			close(told)
		}
		k.waiting = nil
	}
}
