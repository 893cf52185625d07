// Package replay turns the journal of a flight recorder into an agent on a simulated VPP, and finds the record that changed the fate of a packet.
//
//	journal ─ Load ─▶ Timeline: steps ─ Play ─▶ one agent, one sim, the recorded node
//	                                  └ Bisect ─▶ trace.Cluster: an agent and a sim for each Node
//
// Invariant: the state after a step depends on the recorded objects and values only, so a step can be undone.
package replay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/vppagent/history"
)

// sourceName is the name of the only source of a replayed agent.
const sourceName = "journal"

// maxPause bounds the reconnect pause: this VPP always runs.
const maxPause = time.Millisecond

// Player is the recorded node: an agent and a simulated VPP. It is not safe for concurrent use.
type Player struct {
	VPP   *sim.VPP
	cni   *cni.CNI
	agent *agent.Stepper
	clock time.Time       // of the last step; zero: none
	last  *history.Record // the last transaction that was reported; nil: none
}

// NewPlayer returns a node without objects, with the agent's flags that cfg was made of. The caller must Close it.
func NewPlayer(ctx context.Context, node string, cfg agent.Config) (*Player, error) {
	v := sim.New(sim.Config{Seed: 1, PuntLocal: true})
	cfg.NodeName, cfg.VPP.Dial, cfg.Sources = node, v.Dial, map[string]agent.Source{sourceName: agent.Fed{}}
	cfg.Override, cfg.Process.Now, cfg.VPP.MaxBackoff, cfg.VPPAgent.Journal = cni.Located(), v.Now, maxPause, ""
	cfg.VPPAgent.History = historySize
	a, err := agent.NewStepper(ctx, cfg)
	if err != nil {
		v.Close()
		return nil, err
	}
	return &Player{VPP: v, cni: cni.New(v, node), agent: a}, nil
}

// historySize bounds the memory of the operations of one step.
const historySize = 64 << 20

// Close ends the agent and the VPP.
func (p *Player) Close() {
	p.agent.Close()
	p.VPP.Close()
}

// Played is a step and what the agent then did in the simulated VPP.
type Played struct {
	Record     uint64   `json:"record,omitempty"`
	At         string   `json:"at,omitempty"`
	Text       string   `json:"text"`
	Operations []string `json:"operations,omitempty"`
}

// PlayStep plays one step, and returns what the agent did. The error means that VPP could not be programmed.
func (p *Player) PlayStep(ctx context.Context, s *Step) (Played, error) {
	out := Played{Record: s.Record, At: timeText(s.At), Text: s.Text}
	if len(s.Moves) == 0 {
		return out, nil
	}
	changes, values := forward(s.Moves)
	if err := p.cni.Apply(changes); err != nil {
		return out, fmt.Errorf("record %d: %w", s.Record, err)
	}
	var events []event.Event
	if !s.At.IsZero() {
		if pause := s.At.Sub(p.clock); pause > 0 && !p.clock.IsZero() {
			p.VPP.Advance(pause)
			events = append(events, &event.Tick{Now: p.VPP.Now()})
		}
		p.clock = s.At
	}
	if len(changes) > 0 {
		events = append(events, &event.Update{Source: sourceName, Changes: changes})
	}
	events = append(append(events, values...), &event.SyncStatus{Source: sourceName, Status: event.InSync})
	err := p.agent.Feed(ctx, events...)
	out.Operations = p.operations()
	if err != nil {
		return out, fmt.Errorf("record %d: %w", s.Record, err)
	}
	return out, nil
}

// operations returns what the agent did since the last call.
func (p *Player) operations() (out []string) {
	past := p.agent.VPPAgent().Snapshot().History
	begin := slices.Index(past, p.last) + 1 // all, if the last one was dropped
	for _, r := range past[begin:] {
		for _, op := range r.Ops {
			out = append(out, op.String())
		}
		if r.Dropped > 0 {
			out = append(out, fmt.Sprintf("and %d more operations", r.Dropped))
		}
		if r.Err != "" {
			out = append(out, "the transaction failed: "+r.Err)
		}
		p.last = r
	}
	return out
}

// Values returns the values that the agent then wants in VPP, as lines, sorted by key. Values that are not configured have their state.
func (p *Player) Values() (out []string) {
	for _, v := range p.agent.VPPAgent().Snapshot().Values() {
		if v.Value == nil {
			continue
		}
		line := kv.Format(v.Key, v.Value)
		if v.State != event.Configured {
			line += "  # " + (&event.ValueStatus{Key: v.Key, State: v.State, Err: v.Err, Details: v.Wait}).Line()
		}
		out = append(out, line)
	}
	return out
}

// Status returns the state of the agent.
func (p *Player) Status() *status.Status { return p.agent.Status() }

// forward returns the changes and events of moves; of an object, the last counts.
func forward(moves []Move) (changes []event.Change, values []event.Event) {
	for i := range moves {
		m := &moves[i]
		if m.Source == "" {
			changes = append(changes, m.Is)
			continue
		}
		values = append(values, &event.External{Source: m.Source, Values: m.Values, Merge: withoutZero(m.Merge)})
	}
	return changes, values
}

// backward returns the changes and events that undo moves.
func backward(moves []Move) (changes []event.Change, values []event.Event) {
	for i := len(moves) - 1; i >= 0; i-- {
		m := &moves[i]
		if m.Source == "" {
			changes = append(changes, m.Was)
			continue
		}
		values = append(values, &event.External{Source: m.Source, Values: m.Before, Merge: withoutZero(m.Unmerge)})
	}
	return changes, values
}

// withoutZero drops merges that are plain, as sources do.
func withoutZero(merges map[string]event.Merge) map[string]event.Merge {
	out := maps.Clone(merges)
	maps.DeleteFunc(out, func(_ string, m event.Merge) bool { return m.Zero() })
	return out
}

func timeText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339Nano)
}
