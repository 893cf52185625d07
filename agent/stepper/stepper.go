// Package stepper drives the parts of an agent one event at a time: what-if questions, plans and tests feed events, and read what the agent
// then has in VPP.
//
// Invariant: only the connection to VPP runs by itself. Between two calls nothing else changes.
package stepper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/reasons"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// maxSteps bounds the transactions that follow from one event: more means an endless loop between the parts.
const maxSteps = 1000

// Parts are the parts of an agent that a Stepper drives.
type Parts struct {
	Conn       *vpp.Conn
	Controller *controller.Controller
	VPPAgent   *vppagent.Agent
	Values     *controller.Values
	Services   *service.Processor
	Policies   *policy.Processor // nil: policies are not enforced
	NAT        *nattable.Watcher // nil: sessions are not counted
	Reader     *status.Reader
}

// Stepper is an agent that works only when it is fed. It is not safe for concurrent use.
type Stepper struct {
	parts Parts
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

// New returns a Stepper that is not connected. The connection must announce its states to Announce.
func New(p Parts) *Stepper {
	s := &Stepper{parts: p, Finder: reasons.Finder{Values: p.Values, VPPAgent: p.VPPAgent}, ended: make(chan struct{}), moved: make(chan struct{})}
	if p.Policies != nil {
		s.Finder.Policies = p.Policies
	}
	return s
}

// Connect runs the connection to VPP, and waits until it is up. The caller must Close the Stepper, unless Connect fails.
func (s *Stepper) Connect(ctx context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	go func() {
		defer close(s.ended)
		_ = s.parts.Conn.Run(running) // running ends it
	}()
	if err := s.WaitConnected(ctx, 1); err != nil {
		s.Close()
		return err
	}
	return nil
}

// Close ends the connection. VPP keeps its configuration.
func (s *Stepper) Close() {
	s.stop()
	<-s.ended
}

// StatusOf returns a state of the connection as the event for the controller.
func StatusOf(st vpp.State) *event.VPPStatus {
	return &event.VPPStatus{Connected: st.Connected, Version: st.Version, Generation: st.Generation, Err: st.Err}
}

// Announce receives the states of the connection.
func (s *Stepper) Announce(st vpp.State) {
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

// WaitConnected waits until a connection of at least that generation is up. One that has failed is not, even if it has not been announced yet.
func (s *Stepper) WaitConnected(ctx context.Context, generation uint64) error {
	for {
		s.mu.Lock()
		st, moved := s.state, s.moved
		s.mu.Unlock()
		if st.Connected && st.Generation >= generation && s.parts.Conn.State().Connected {
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
	s.parts.VPPAgent.InterfacesChanged() // the caller of a Stepper also changes the interfaces
	s.mu.Lock()
	st := s.state
	s.mu.Unlock()
	if err := s.drain(ctx, s.parts.Controller.Step(StatusOf(st))); err != nil {
		return err
	}
	for _, ev := range events {
		if err := s.drain(ctx, s.parts.Controller.Step(ev)); err != nil {
			return err
		}
	}
	for s.parts.VPPAgent.Unfinished() {
		if err := s.drain(ctx, nil); err != nil {
			return err
		}
	}
	return s.failed
}

// drain commits a transaction and those that follow from it; nil commits only the VPP agent's due work.
func (s *Stepper) drain(ctx context.Context, txn *event.Txn) error {
	for range maxSteps {
		s.parts.Controller.Meanwhile()
		results := s.parts.VPPAgent.Step(ctx, txn)
		txn = nil
		for _, ev := range results {
			if c, ok := ev.(*event.Committed); ok && c.Err != nil {
				s.failed = c.Err
			}
			if next := s.parts.Controller.Step(ev); next != nil {
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
func (s *Stepper) Status() *status.Status { return s.parts.Reader.Capture().Full() }

// LookAtNAT does the periodic work of a running agent on the NAT table: it counts sessions, and frees some if the table is
// nearly full.
func (s *Stepper) LookAtNAT(ctx context.Context) error {
	if s.parts.NAT == nil {
		return nil
	}
	_, err := s.parts.NAT.Look(ctx)
	return err
}

// VPPAgent returns the agent's vppagent, with its snapshot and history.
func (s *Stepper) VPPAgent() *vppagent.Agent { return s.parts.VPPAgent }

// Notes returns the remarks of the processors and the renderers on an object, in a fixed order.
func (s *Stepper) Notes(ref model.Ref) []string {
	if s.notes == nil {
		s.notes = map[model.Ref][]string{}
		notes := s.parts.Services.Notes()
		if s.parts.Policies != nil {
			notes = append(notes, s.parts.Policies.Notes()...)
		}
		for _, n := range notes {
			s.notes[n.Ref] = append(s.notes[n.Ref], n.Reason)
		}
		for _, o := range s.parts.Controller.Owners("") {
			for _, n := range s.parts.Reader.Named(o.Notes) {
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
		for _, svc := range s.parts.Services.Services() {
			s.rendered[svc.ID] = svc.Rendered
		}
	}
	return s.rendered[id]
}

// Policy returns the policies of a pod of this node; false: it has no endpoint here.
func (s *Stepper) Policy(pod model.PodID) (*policy.Description, bool) {
	if s.parts.Policies == nil {
		return nil, false
	}
	return s.parts.Policies.Describe(pod)
}

// Plan returns the changes that a new agent would make in VPP with the objects of the update; it only reads VPP. With sessions it also
// counts the NAT sessions that the changes would cut, which stops VPP's forwarding while it counts. The Stepper must not have been fed.
func (s *Stepper) Plan(ctx context.Context, objects *event.Update, sessions bool) (*vppagent.Plan, error) {
	txn := s.parts.Controller.Step(&event.VPPStatus{Connected: true, Generation: s.Generation()})
	for _, ev := range []event.Event{objects, &event.SyncStatus{Source: objects.Source, Status: event.InSync}} {
		if txn = s.parts.Controller.Step(ev); txn != nil {
			break
		}
	}
	for range maxSteps {
		if txn == nil {
			return nil, errors.New("the agent would not start: a source is not in sync")
		}
		s.parts.Controller.Meanwhile()
		if txn.Resync == event.Full {
			if sessions {
				return s.parts.VPPAgent.PlanSessions(ctx, txn)
			}
			return s.parts.VPPAgent.Plan(ctx, txn)
		}
		var err error
		if txn, err = s.lookup(ctx, txn); err != nil {
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
		if located, err = s.parts.VPPAgent.Locate(ctx, txn.Locate); err != nil {
			return nil, err
		}
	}
	next := s.parts.Controller.Step(&event.Committed{Seq: txn.Seq})
	if next == nil {
		next = s.parts.Controller.Step(located)
	}
	return next, nil
}
