package trace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// AnswerStep answers a step as Answer does: for every backend that the load balancer may choose, without a change of state.
// A step with something to do before its packet is an error.
func (c *Cluster) AnswerStep(s Step) Answer {
	a := Answer{From: s.From, To: s.To, Protocol: s.Protocol}
	if field := s.needsState(); field != "" {
		a.Error = field + ": needs --stateful: without it, every question meets the same state"
		return a
	}
	sent, err := c.packet(&s)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	c.fillAnswer(&a, &sent, func() []attempt { return c.explore(&sent) })
	return a
}

// Send answers a step and keeps the state that its packets made: sessions of NAT, access lists and translations, affinity.
// The load balancers choose themselves, so it returns at most one outcome. The answer has a Sender. An invalid step changes
// nothing, except if only its packet is invalid: its names are resolved after its changes.
func (c *Cluster) Send(ctx context.Context, s Step) Answer {
	a := Answer{From: s.From, To: s.To, Protocol: s.Protocol}
	if err := c.before(ctx, &s); err != nil {
		a.Error = err.Error()
		return a
	}
	if s.Question == (Question{}) && s.needsState() != "" {
		a.Reason = "no packet was asked about"
		return a
	}
	sent, err := c.packet(&s)
	if err != nil {
		a.Error = err.Error()
		return a
	}
	a.Sender = sent.from.String()
	c.fillAnswer(&a, &sent, func() []attempt {
		return []attempt{c.attempt(&sent, nil)}
	})
	return a
}

// fillAnswer fills in the fate of a packet.
func (c *Cluster) fillAnswer(a *Answer, s *sending, run func() []attempt) {
	p := s.packet
	if id, is := c.world.vips[p.Dst]; is && p.Dst.Is6() && !c.cfg.Agent.ServedFamilies().IPv6 {
		a.Verdict, a.Reason = Dropped, fmt.Sprintf("Service %s: IPv6: no active renderer serves it", id)
		return
	}
	runs := run()
	for _, r := range runs {
		if r.outcome != nil {
			a.Outcomes = append(a.Outcomes, *r.outcome)
		} else if a.Path == nil {
			a.Path = r.path
		}
	}
	slices.SortStableFunc(a.Outcomes, func(x, y Outcome) int { return strings.Compare(x.Address, y.Address) })
	a.Verdict, a.Reason = c.summary(s.from, p, runs)
}

// before does the things that a step names before its packet: a restart, changed objects, time.
func (c *Cluster) before(ctx context.Context, s *Step) error {
	pause, err := s.duration()
	if err != nil {
		return err
	}
	changes, err := s.objectChanges()
	if err != nil {
		return err
	}
	if err := c.restartPart(ctx, s.Restart); err != nil {
		return err
	}
	if len(changes) > 0 {
		if err := c.Apply(ctx, changes); err != nil {
			return err
		}
	}
	if pause > 0 {
		return c.Advance(ctx, pause)
	}
	return nil
}

// restartPart restarts the VPP or agent that Step.Restart names.
func (c *Cluster) restartPart(ctx context.Context, what string) error {
	if what == "" {
		return nil
	}
	kind, name, _ := strings.Cut(what, ":")
	switch {
	case kind != "vpp" && kind != "agent":
		return fmt.Errorf("restart: %q: want vpp:<node> or agent:<node>", what)
	case c.nodes[name] == nil:
		return fmt.Errorf("restart: %q: unknown node %q", what, name)
	case kind == "vpp":
		return c.RestartVPP(ctx, name)
	}
	return c.RestartAgent(ctx, name)
}

// objectChanges returns the objects that a step applies and deletes. A manifest with any unusable part is an error.
func (s *Step) objectChanges() ([]event.Change, error) {
	var out []event.Change
	if len(s.Apply) > 0 {
		loaded, err := manifest.Load(s.Apply...)
		for _, ch := range loaded {
			err = errors.Join(err, ch.Err)
		}
		if err != nil {
			return nil, fmt.Errorf("apply: %w", err)
		}
		out = loaded
	}
	for _, text := range s.Delete {
		ref, err := parseRef(text)
		if err != nil {
			return nil, fmt.Errorf("delete: %w", err)
		}
		out = append(out, event.Change{Ref: ref})
	}
	return out, nil
}

// parseRef parses the output of model.Ref's String.
func parseRef(s string) (model.Ref, error) {
	kind, name, ok := strings.Cut(s, " ")
	ns, rest, namespaced := strings.Cut(name, "/")
	if !namespaced {
		ns, rest = "", name
	}
	if !ok || kind == "" || rest == "" || strings.Contains(rest, "/") {
		return model.Ref{}, fmt.Errorf("%q: want <kind> <namespace>/<name> or <kind> <name>", s)
	}
	return model.Ref{Kind: model.Kind(kind), Namespace: ns, Name: rest}, nil
}
