package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/reasons"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// maxSteps bounds the transactions that follow from one event: more means an endless loop between the parts.
const maxSteps = 1000

// Stepper is an agent that works only when it is fed: the parts of Agent without its goroutines, for what-if questions,
// plans and tests. It is not safe for concurrent use. Only the connection to VPP runs by itself.
type Stepper struct {
	*parts
	reasons.Finder
	stop   context.CancelFunc
	ended  chan struct{}
	failed error // of the last transaction; nil: none
	// Collected at the first request after a Feed.
	notes    map[model.Ref][]string
	rendered map[model.ServiceID]*renderer.ContivService

	mu    sync.Mutex
	moved chan struct{} // closed at the next change of the connection's state
	state vpp.State
}

// NewStepper connects to VPP and returns an agent without objects. Sources are names only. The caller must Close it.
func NewStepper(ctx context.Context, cfg Config) (*Stepper, error) {
	cfg.Lock = ""
	var pause func(context.Context, time.Duration)
	if cfg.Stall > 0 {
		pause = func(context.Context, time.Duration) {}
	}
	p, err := assemble(cfg, pause)
	if err != nil {
		return nil, err
	}
	s := &Stepper{parts: p, Finder: reasons.Finder{Values: p.values, VPPAgent: p.vppagent}, ended: make(chan struct{}), moved: make(chan struct{})}
	if p.policies != nil {
		s.Finder.Policies = p.policies
	}
	p.onState = s.announce
	if p.nat != nil {
		p.nat.Pods = func(context.Context) (map[netip.Addr]string, error) { return p.podsByAddress(), nil }
		p.nat.Rest = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go func() {
		defer close(s.ended)
		_ = p.conn.Run(running) // running ends it
	}()
	if err := s.WaitConnected(ctx, 1); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the connection. VPP keeps its configuration.
func (s *Stepper) Close() {
	s.stop()
	<-s.ended
}

func (s *Stepper) announce(st vpp.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = st
	close(s.moved)
	s.moved = make(chan struct{})
}

// Generation returns the number of connections to VPP so far.
func (s *Stepper) Generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Generation
}

// WaitConnected waits until a connection of at least that generation is up.
func (s *Stepper) WaitConnected(ctx context.Context, generation uint64) error {
	for {
		s.mu.Lock()
		st, moved := s.state, s.moved
		s.mu.Unlock()
		if st.Connected && st.Generation >= generation {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("vpp is not connected: %w", context.Cause(ctx)), st.Err)
		case <-moved:
		}
	}
}

// Feed feeds events to the controller, one after the other, and commits every transaction that follows, until no work is
// left. The work that a transaction left (event.Committed) is done at the end. The error means that VPP could not be reached.
func (s *Stepper) Feed(ctx context.Context, events ...event.Event) error {
	s.failed, s.notes, s.rendered = nil, nil, nil
	s.vppagent.InterfacesChanged() // the caller of a Stepper also changes the interfaces
	s.mu.Lock()
	st := s.state
	s.mu.Unlock()
	if err := s.drain(ctx, s.controller.Step(vppStatus(st))); err != nil {
		return err
	}
	for _, ev := range events {
		if err := s.drain(ctx, s.controller.Step(ev)); err != nil {
			return err
		}
	}
	for s.vppagent.Unfinished() {
		if err := s.drain(ctx, nil); err != nil {
			return err
		}
	}
	return s.failed
}

// drain commits a transaction and those that follow from it; nil commits only the VPP agent's due work.
func (s *Stepper) drain(ctx context.Context, txn *event.Txn) error {
	for range maxSteps {
		s.controller.Meanwhile()
		results := s.vppagent.Step(ctx, txn)
		txn = nil
		for _, ev := range results {
			if c, ok := ev.(*event.Committed); ok && c.Err != nil {
				s.failed = c.Err
			}
			if next := s.controller.Step(ev); next != nil {
				txn = next
			}
		}
		if txn == nil {
			return nil
		}
	}
	return fmt.Errorf("more than %d transactions follow from one event", maxSteps)
}

// Status returns the state of the agent, of every Service and of every policy.
func (s *Stepper) Status() *status.Status { return s.reader.Capture().Full() }

// LookAtNAT does the periodic work of a running agent on the NAT table: it counts sessions, and frees some if the table is
// nearly full.
func (s *Stepper) LookAtNAT(ctx context.Context) error {
	if s.nat == nil {
		return nil
	}
	_, err := s.nat.Look(ctx)
	return err
}

// VPPAgent returns the agent's vppagent, with its snapshot and history.
func (s *Stepper) VPPAgent() *vppagent.Agent { return s.vppagent }

// Notes returns the remarks of the processors and the renderers on an object, in a fixed order.
func (s *Stepper) Notes(ref model.Ref) []string {
	if s.notes == nil {
		s.notes = map[model.Ref][]string{}
		notes := s.processor.Notes()
		if s.policies != nil {
			notes = append(notes, s.policies.Notes()...)
		}
		for _, n := range notes {
			s.notes[n.Ref] = append(s.notes[n.Ref], n.Reason)
		}
		for _, o := range s.controller.Owners("") {
			for _, n := range s.reader.Named(o.Notes) {
				s.notes[n.Ref] = append(s.notes[n.Ref], n.Reason)
			}
		}
	}
	return s.notes[ref]
}

// Rendered returns a Service as the renderers got it; nil: they did not.
func (s *Stepper) Rendered(id model.ServiceID) *renderer.ContivService {
	if s.rendered == nil {
		s.rendered = map[model.ServiceID]*renderer.ContivService{}
		for _, svc := range s.processor.Services() {
			s.rendered[svc.ID] = svc.Rendered
		}
	}
	return s.rendered[id]
}

// PlanFor returns the changes that an agent would make in VPP with the objects of the update; it only reads VPP. With
// sessions it also counts the NAT sessions that the changes would cut, which stops VPP's forwarding while it counts.
func PlanFor(ctx context.Context, cfg Config, objects *event.Update, sessions bool) (*vppagent.Plan, error) {
	s, err := NewStepper(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	txn := s.controller.Step(&event.VPPStatus{Connected: true, Generation: s.Generation()})
	for _, ev := range []event.Event{objects, &event.SyncStatus{Source: objects.Source, Status: event.InSync}} {
		if txn = s.controller.Step(ev); txn != nil {
			break
		}
	}
	for range maxSteps {
		if txn == nil {
			return nil, errors.New("the agent would not start: a source is not in sync")
		}
		s.controller.Meanwhile()
		if txn.Resync == event.Full {
			if sessions {
				return s.vppagent.PlanSessions(ctx, txn)
			}
			return s.vppagent.Plan(ctx, txn)
		}
		txn, err = s.lookup(ctx, txn)
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("more than %d look-ups before the first sync", maxSteps)
}

// lookup answers a transaction that only looks up interfaces.
func (s *Stepper) lookup(ctx context.Context, txn *event.Txn) (*event.Txn, error) {
	located := &event.Located{}
	if txn.Locate != nil {
		var err error
		if located, err = s.vppagent.Locate(ctx, txn.Locate); err != nil {
			return nil, err
		}
	}
	next := s.controller.Step(&event.Committed{Seq: txn.Seq})
	if next == nil {
		next = s.controller.Step(located)
	}
	return next, nil
}
