package replay

import (
	"context"
	"fmt"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Turn is a record that changed the verdict of a packet.
type Turn struct {
	Record  uint64   `json:"record"`
	At      string   `json:"at,omitempty"`
	Text    string   `json:"text"`    // what happened
	Changes []string `json:"changes"` // objects, with the fields that differ
	Before  Fate     `json:"before"`
	After   Fate     `json:"after"`
}

// Fate is the verdict of a packet.
type Fate struct {
	Verdict string `json:"verdict"` // as of trace, or "not answerable"
	Reason  string `json:"reason,omitempty"`
}

// unanswerable is the verdict of a packet whose sender or destination does not exist.
const unanswerable = "not answerable"

// Found is the result of a bisection.
type Found struct {
	First  Fate   `json:"first"` // at the first step
	Last   Fate   `json:"last"`
	Turns  []Turn `json:"turns"`
	Probes int    `json:"probes"` // states in which the packet was sent
	Whole  bool   `json:"whole"`  // the packet was sent in every state, so no other record changed its verdict
}

// bisection moves a cluster along the steps.
type bisection struct {
	cluster *trace.Cluster
	node    string
	steps   []Step
	at      int // steps that are played
	packet  trace.Step
	known   map[int]Fate // by number of played steps
}

// Bisect finds the record that changed the verdict of a packet: one by binary search if the verdicts at both ends differ, or with all, or
// if they are equal, every one. A cluster has an agent and a simulated VPP for each Node.
func Bisect(ctx context.Context, t *Timeline, cfg agent.Config, packet trace.Step, all bool) (*Found, error) {
	b := &bisection{cluster: trace.NewCluster(trace.Config{Agent: cfg, Seed: 1}), node: t.Node, packet: packet, known: map[int]Fate{}}
	defer b.cluster.Close()
	for i := range t.Steps {
		if len(t.Steps[i].Moves) > 0 {
			b.steps = append(b.steps, t.Steps[i])
		}
	}
	if len(b.steps) == 0 {
		return nil, fmt.Errorf("%w: no object was recorded", errNoRecord)
	}
	out := &Found{Turns: []Turn{}}
	var err error
	if out.First, err = b.probe(ctx, 1); err != nil {
		return nil, err
	}
	if out.Last, err = b.probe(ctx, len(b.steps)); err != nil {
		return nil, err
	}
	if out.Whole = all || out.First.Verdict == out.Last.Verdict; out.Whole {
		err = b.walkAll(ctx, out)
	} else {
		err = b.search(ctx, out)
	}
	out.Probes = len(b.known)
	return out, err
}

// search finds one step at which the verdict changes: the verdicts at low and high always differ.
func (b *bisection) search(ctx context.Context, out *Found) error {
	low, high := 1, len(b.steps)
	for high-low > 1 {
		middle := low + (high-low)/2
		fate, err := b.probe(ctx, middle)
		if err != nil {
			return err
		}
		if fate.Verdict == b.known[low].Verdict {
			low = middle
		} else {
			high = middle
		}
	}
	out.Turns = append(out.Turns, b.turn(high))
	return nil
}

// walkAll sends the packet after every step.
func (b *bisection) walkAll(ctx context.Context, out *Found) error {
	if err := b.moveTo(ctx, 1); err != nil {
		return err
	}
	for i := 2; i <= len(b.steps); i++ {
		fate, err := b.probe(ctx, i)
		if err != nil {
			return err
		}
		if fate.Verdict != b.known[i-1].Verdict {
			out.Turns = append(out.Turns, b.turn(i))
		}
	}
	return nil
}

// turn describes the step that made i steps played.
func (b *bisection) turn(i int) Turn {
	s := &b.steps[i-1]
	t := Turn{Record: s.Record, At: timeText(s.At), Text: s.Text, Before: b.known[i-1], After: b.known[i]}
	for j := range s.Moves {
		t.Changes = append(t.Changes, differences(&s.Moves[j])...)
	}
	return t
}

// probe sends the packet after n steps.
func (b *bisection) probe(ctx context.Context, n int) (Fate, error) {
	if fate, is := b.known[n]; is {
		return fate, nil
	}
	if err := b.moveTo(ctx, n); err != nil {
		return Fate{}, err
	}
	a := b.cluster.AnswerStep(b.packet)
	fate := Fate{Verdict: string(a.Verdict), Reason: a.Reason}
	if a.Error != "" {
		fate = Fate{Verdict: unanswerable, Reason: a.Error}
	}
	b.known[n] = fate
	return fate, nil
}

// moveTo plays or undoes steps until n are played.
func (b *bisection) moveTo(ctx context.Context, n int) error {
	var changes []event.Change
	var values []event.Event
	for ; b.at < n; b.at++ {
		c, v := forward(b.steps[b.at].Moves)
		changes, values = append(changes, c...), append(values, v...)
	}
	for ; b.at > n; b.at-- {
		c, v := backward(b.steps[b.at-1].Moves)
		changes, values = append(changes, c...), append(values, v...)
	}
	if err := b.cluster.Apply(ctx, lastOfEach(changes)); err != nil {
		return err
	}
	node := b.cluster.Agent(b.node)
	if node == nil || len(values) == 0 {
		return nil
	}
	return node.Feed(ctx, values...)
}

// lastOfEach keeps the last change of each object, in order.
func lastOfEach(changes []event.Change) []event.Change {
	last := make(map[model.Ref]int, len(changes))
	for i := range changes {
		last[changes[i].Ref] = i
	}
	out := make([]event.Change, 0, len(last))
	for i := range changes {
		if last[changes[i].Ref] == i {
			out = append(out, changes[i])
		}
	}
	return out
}
