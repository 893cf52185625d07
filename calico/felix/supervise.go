package felix

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// SupervisorConfig names the driver to run, and its limits. Path is required.
type SupervisorConfig struct {
	Path string   // of the program; it gets no arguments, as from Felix
	Env  []string // "NAME=value", added to this process's environment

	// Parameters are settings of Felix that the calculation does not know, such as FelixHostname. Settings from the
	// calculation override them.
	Parameters map[string]string

	Limit    int           // longest frame in bytes; 0: DefaultLimit
	Grace    time.Duration // time for a driver to end after its pipe was closed, and after SIGTERM; 0: 2 s each
	MinPause time.Duration // pause before the first restart; it doubles; 0: 200 ms
	MaxPause time.Duration // the longest pause; 0: 30 s
	Steady   time.Duration // a driver that ran this long after it received everything is restarted at once; 0: 1 min

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: silent; also gets the driver's output
	// OnMessage is called for each message of the driver, in order, in a goroutine of the supervisor; nil: not called.
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

// Supervisor runs an external dataplane driver as Felix does, and sends it the desired state: the other end of Driver.
//
//	OnUpdate, Apply ─ batches ─▶ keeper (ledger) ─ rounds ─▶ writer ─ fd 3 ─▶ the driver's process
//	Status           ◀────────── keeper          ◀─ events ─ reader ◀─ fd 4 ─┘
//
// If the driver ends or sends garbage, the supervisor restarts it and sends it everything. A driver that does not read
// costs no memory beyond the desired state. Supervisor implements the driver interface of plugins/policy; an external
// driver knows VPP and the node itself.
type Supervisor struct {
	cfg     SupervisorConfig
	staged  []*pb.ToDataplane // by OnUpdate
	batches chan []*pb.ToDataplane
	done    chan struct{} // closed when the keeper has ended
	waits   chan chan struct{}
	status  atomic.Pointer[SupervisorStatus]
}

// SupervisorStatus is the state of a driver. It must not be changed.
type SupervisorStatus struct {
	Path      string
	PID       int           // 0: not running
	Starts    uint64        // number of starts
	Trouble   string        // why it ended last, or why it cannot start; "": neither happened
	Pause     time.Duration // between its last end and the following start, past or planned
	InSync    bool          // the driver received in_sync
	Behind    int           // things it has not received in their latest state
	Sequence  uint64        // number of messages sent to it
	Alive     string        // time of its last status message, as the driver wrote it; "": none
	Uptime    float64
	Endpoints map[EndpointID]Health // states it reported
	Unknown   uint64                // number of unknown messages from it
}

// NewSupervisor returns a supervisor; Run starts the driver.
func NewSupervisor(cfg SupervisorConfig) *Supervisor {
	cfg.defaults()
	s := &Supervisor{cfg: cfg, batches: make(chan []*pb.ToDataplane), done: make(chan struct{}), waits: make(chan chan struct{})}
	s.status.Store(&SupervisorStatus{Path: cfg.Path})
	return s
}

// OnUpdate stages a message, which must not change afterwards.
func (s *Supervisor) OnUpdate(m *pb.ToDataplane) { s.staged = append(s.staged, m) }

// Apply passes the staged messages on. It blocks only until Run has begun; Status has the driver's progress.
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

// SetNode does nothing: an external driver finds out about the node itself.
func (s *Supervisor) SetNode(dataplane.Node) {}

// Resync does nothing: a driver has received everything, or is restarted.
func (s *Supervisor) Resync() {}

// Cause returns false: the external driver owns its configuration in VPP.
func (s *Supervisor) Cause(string, bool, int, int) (dataplane.Cause, bool) {
	return dataplane.Cause{}, false
}

// Status returns the driver's state. It is safe for concurrent use.
func (s *Supervisor) Status() *SupervisorStatus { return s.status.Load() }

// WaitDelivered waits until the driver has received everything passed on before. The driver reports itself what it does with that.
func (s *Supervisor) WaitDelivered(ctx context.Context) error {
	told := make(chan struct{})
	ask := s.waits
	for {
		select {
		case ask <- told:
			ask = nil // sent
		case <-told:
			return nil
		case <-s.done:
			return errUnsupervised
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errUnsupervised = errors.New("the supervisor of the driver has ended")

// Run keeps a driver running until ctx ends. Then it stops the driver: it closes the pipe, then sends SIGTERM, then
// SIGKILL, each after Grace. A Supervisor runs once.
func (s *Supervisor) Run(ctx context.Context) error {
	defer close(s.done)
	k := &keeper{
		cfg: s.cfg, ledger: newLedger(), batches: s.batches, waits: s.waits, publish: s.status.Store,
		events: make(chan childEvent), pause: time.NewTimer(0), next: s.cfg.MinPause,
		now: SupervisorStatus{Path: s.cfg.Path, Endpoints: map[EndpointID]Health{}},
	}
	defer k.pause.Stop()
	k.ledger.recordMessage(k.configured(&pb.ToDataplane{Payload: &pb.ToDataplane_ConfigUpdate{ConfigUpdate: &pb.ConfigUpdate{}}}))
	return k.runRounds(ctx)
}

// keeper owns the ledger and the driver's process. It never blocks on the driver.
type keeper struct {
	cfg      SupervisorConfig
	ledger   *ledger
	batches  <-chan []*pb.ToDataplane
	waits    <-chan chan struct{}
	waiting  []chan struct{} // closed when the driver has received everything
	publish  func(*SupervisorStatus)
	events   chan childEvent
	pause    *time.Timer   // fires at the next start
	next     time.Duration // the pause if the driver ends early
	child    *child        // nil: not running
	stopping bool
	onTheWay int       // messages of the round being sent
	synced   time.Time // since when the driver has everything; zero: it has not
	now      SupervisorStatus
}

func (k *keeper) runRounds(ctx context.Context) error {
	for {
		k.sendRound()
		k.report()
		select {
		case <-ctx.Done():
			k.stop()
			return ctx.Err()
		case batch := <-k.batches:
			for _, m := range batch {
				k.ledger.recordMessage(k.configured(m))
			}
		case told := <-k.waits:
			k.waiting = append(k.waiting, told)
		case <-k.pause.C:
			k.start(ctx)
		case ev := <-k.events:
			k.handleEvent(ev)
		}
	}
}

// stop waits for the end of the driver and of its output.
func (k *keeper) stop() {
	k.stopping = true
	for k.child != nil {
		select {
		case <-k.batches: // no driver is left to send them to
		case ev := <-k.events:
			k.handleEvent(ev)
		}
	}
	k.pause.Stop()
	k.report()
}

// configured adds Parameters to a configuration.
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

// sendRound sends the next round to the driver, if it has received the last one.
func (k *keeper) sendRound() {
	if k.child == nil || !k.child.idle || !k.ledger.due() {
		return
	}
	round := k.ledger.round()
	if len(round) == 0 {
		return
	}
	k.child.idle, k.onTheWay = false, len(round)
	k.child.rounds <- round // buffered for one round
}

// start starts a driver; a failed start is retried later.
func (k *keeper) start(ctx context.Context) {
	c, err := startChild(ctx, k.cfg, k.events)
	if err != nil {
		k.ended(fmt.Errorf("start: %w", err))
		return
	}
	k.child = c
	k.ledger.recordRestart()
	k.now.PID, k.now.Starts, k.now.Sequence = c.pid, k.now.Starts+1, 0
	k.cfg.Logger.Info("driver started", "path", k.cfg.Path, "pid", c.pid)
}

// steady reports whether the driver has run long enough after it received everything.
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

// handleEvent handles an event of the driver.
func (k *keeper) handleEvent(ev childEvent) {
	switch {
	case ev.gone != nil:
		k.child = nil
		k.ended(ev.gone)
	case ev.written > 0:
		k.child.idle, k.onTheWay = true, 0
		k.now.Sequence += ev.written
		if k.ledger.sentInSync && k.synced.IsZero() {
			k.synced = k.cfg.Now()
			k.cfg.Logger.Info("driver has received everything", "path", k.cfg.Path, "messages", k.now.Sequence)
		}
	case ev.message != nil:
		k.handleMessage(ev.message)
	case ev.garbage != nil:
		k.now.Unknown++
		k.cfg.Logger.Warn("driver sent an unreadable message", "err", ev.garbage)
	}
}

// handleMessage handles a message of the driver.
func (k *keeper) handleMessage(m *pb.FromDataplane) {
	set := func(id EndpointID, health Health) {
		k.now.Endpoints = maps.Clone(k.now.Endpoints) // readers may hold the old one
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

// report makes the state visible to Status.
func (k *keeper) report() {
	k.now.InSync, k.now.Behind = !k.synced.IsZero(), k.ledger.countUnsent()+k.onTheWay
	now := k.now
	k.publish(&now)
	if k.child != nil && k.child.idle && !k.ledger.due() {
		for _, told := range k.waiting {
			close(told)
		}
		k.waiting = nil
	}
}
