// Package watch turns the answers of agents into snapshots of a cluster: the state of each node, and the flows of all nodes.
//
//	Source ── every period, all nodes at the same time ──▶ Run ──▶ Snapshot ──▶ readers
//
// Invariant: a Snapshot never changes and is bounded. A node whose agent does not answer keeps its last state, with the reason.
package watch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

const (
	// MostFlows bounds the flows of a Snapshot.
	MostFlows = 10000
	// mostQueries bounds the nodes that are queried at the same time.
	mostQueries = 8
	// queryLimit bounds the time of all queries to one node in a round.
	queryLimit = 20 * time.Second
	// statusRounds is the number of rounds in which a node's status is queried once.
	statusRounds = 3
	// idleAfter is how long after the last reader the agents are queried.
	idleAfter = time.Minute
)

// Source queries agents. Its functions may be called at the same time.
type Source interface {
	// Nodes returns the names of the nodes that have an agent.
	Nodes(ctx context.Context) ([]string, error)
	Status(ctx context.Context, node string) (*status.Status, error)
	// Flows returns at least the flows of a node that changed after a number.
	Flows(ctx context.Context, node string, after uint64) (*agentflows.Answer, error)
	// Policy returns the policies of a pod as its node's agent applies them.
	Policy(ctx context.Context, pod model.PodID) (*policy.Description, error)
}

// Snapshot is a cluster at one time.
type Snapshot struct {
	// At is the end of the round that made the snapshot; zero: no round has ended yet.
	At time.Time
	// Nodes are sorted by name.
	Nodes []Node
	// Flows has the latest flow first.
	Flows []Flow
	// Forgotten counts the flows that had no room, here and in agents.
	Forgotten uint64
	// Problem is why the nodes are not known; Nodes are then the former ones. "": none.
	Problem string

	replaced chan struct{}
}

// Replaced is closed when a later snapshot exists.
func (s *Snapshot) Replaced() <-chan struct{} { return s.replaced }

// Flow is a flow, and the time of this machine at which it was seen to change. Clocks of nodes may differ.
type Flow struct {
	flows.Flow
	Changed time.Time
}

// Node is the state of one node.
type Node struct {
	Name string
	// Status is the last status; nil: none yet.
	Status *status.Status
	// Answered is the time of the last answer; zero: none yet.
	Answered time.Time
	// Problem is why the agent did not answer in the last round, FlowProblem why it showed no flows. "": none.
	Problem, FlowProblem string
	// Sources are the sources of its flows.
	Sources   []agentflows.Source
	Forgotten uint64

	next  uint64 // number from which its flows continue
	round int    // rounds since its first
}

// Watcher queries agents while it has readers.
type Watcher struct {
	source Source
	every  time.Duration
	now    func() time.Time
	last   atomic.Pointer[Snapshot]
	demand chan struct{}

	// Run owns the rest.
	nodes     map[string]*Node
	flows     map[any]*Flow
	forgotten uint64
}

// New returns a watcher that queries agents once in a period. It has seen nothing.
func New(source Source, every time.Duration, now func() time.Time) *Watcher {
	w := &Watcher{source: source, every: every, now: now, demand: make(chan struct{}, 1), nodes: map[string]*Node{}, flows: map[any]*Flow{}}
	w.last.Store(&Snapshot{replaced: make(chan struct{})})
	return w
}

// Latest returns the last snapshot; never nil. The call is the demand for which Run continues to query.
func (w *Watcher) Latest() *Snapshot {
	select {
	case w.demand <- struct{}{}:
	default:
	}
	return w.last.Load()
}

// Policy queries the policies of a pod.
func (w *Watcher) Policy(ctx context.Context, pod model.PodID) (*policy.Description, error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	return w.source.Policy(ctx, pod)
}

// Run queries until ctx ends, and pauses while nobody calls Latest.
func (w *Watcher) Run(ctx context.Context) error {
	last := w.now()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		w.lookAround(ctx)
		pause.Reset(w.every)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		select {
		case <-w.demand:
			last = w.now()
			continue
		default:
		}
		if w.now().Sub(last) < idleAfter {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.demand:
			last = w.now()
		}
	}
}

// lookAround queries every node once, and publishes a snapshot.
func (w *Watcher) lookAround(ctx context.Context) {
	names, err := w.source.Nodes(ctx)
	problem := ""
	if err != nil {
		problem = err.Error()
		for name := range w.nodes {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for name := range w.nodes {
		if !slices.Contains(names, name) {
			delete(w.nodes, name)
		}
	}
	got := make([]answers, len(names))
	var running sync.WaitGroup
	free := make(chan struct{}, mostQueries)
	for i, name := range names {
		n := w.nodes[name]
		if n == nil {
			n = &Node{Name: name}
			w.nodes[name] = n
		}
		withStatus, after := n.round%statusRounds == 0 || n.Problem != "", n.next
		n.round++
		running.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			got[i] = w.query(ctx, name, withStatus, after)
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return
	}
	for i, name := range names {
		w.takeAnswers(w.nodes[name], &got[i])
	}
	w.publish(names, problem)
}

// answers are those of one node in one round.
type answers struct {
	status   *status.Status // nil: not queried
	flows    *agentflows.Answer
	err      error // of the status
	errFlows error
}

func (w *Watcher) query(ctx context.Context, node string, withStatus bool, after uint64) (a answers) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	if withStatus {
		if a.status, a.err = w.source.Status(ctx, node); a.err != nil {
			a.errFlows = a.err
			return a
		}
	}
	a.flows, a.errFlows = w.source.Flows(ctx, node, after)
	if a.errFlows == nil && a.flows.Next < after { // the agent has been restarted
		a.flows, a.errFlows = w.source.Flows(ctx, node, 0)
	}
	return a
}

func (w *Watcher) takeAnswers(n *Node, a *answers) {
	now := w.now()
	n.Problem, n.FlowProblem = "", ""
	if a.err != nil {
		n.Problem = a.err.Error()
		return
	}
	if a.status != nil {
		n.Status, n.Answered = a.status, now
	}
	if a.errFlows != nil {
		n.FlowProblem = a.errFlows.Error()
		return
	}
	n.Answered, n.Sources, n.Forgotten, n.next = now, a.flows.Sources, a.flows.Forgotten, a.flows.Next
	for i := range a.flows.Flows {
		f := &a.flows.Flows[i]
		id := f.Identity()
		if was := w.flows[id]; was != nil && was.Number == f.Number && was.Last.Equal(f.Last) {
			continue // a source may show it again
		}
		w.flows[id] = &Flow{Flow: *f, Changed: now}
	}
}

// publish makes a snapshot, after the least recent flows without room are forgotten.
func (w *Watcher) publish(names []string, problem string) {
	s := &Snapshot{At: w.now(), Problem: problem, replaced: make(chan struct{}), Nodes: make([]Node, 0, len(names)), Flows: make([]Flow, 0, len(w.flows))}
	for _, f := range w.flows {
		s.Flows = append(s.Flows, *f)
	}
	slices.SortFunc(s.Flows, later)
	if len(s.Flows) > MostFlows {
		for i := range s.Flows[MostFlows:] {
			delete(w.flows, s.Flows[MostFlows+i].Identity())
			w.forgotten++
		}
		s.Flows = s.Flows[:MostFlows]
	}
	s.Forgotten = w.forgotten
	for _, name := range names {
		s.Nodes = append(s.Nodes, *w.nodes[name])
		s.Forgotten += w.nodes[name].Forgotten
	}
	close(w.last.Swap(s).replaced)
}

// later orders flows: the latest first; those of equal times by node and number.
func later(a, b Flow) int {
	return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Node, b.Node), cmp.Compare(b.Number, a.Number))
}
