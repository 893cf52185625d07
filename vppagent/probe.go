package vppagent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
)

// Two facts are not in dumps: whether packets of an interface meet the graph nodes of its lists and roles, and whether VPP
// evaluates existing flows again. The agent probes them otherwise. A turn for attachments probes some interfaces, a full round all.

// ReclassifyKey is the key, in Drift, of the VPP setting that no value represents.
const ReclassifyKey = "acl-plugin reclassify-sessions"

// probed is an interface with the graph nodes that its values need.
type probed struct {
	name  string
	nodes []descriptor.Node
	of    []*value // by node
}

// probe probes the facts that dumps do not show, and repairs differences. The error says that VPP cannot be reached.
func (a *Agent) probe(ctx context.Context, x *execution, now time.Time) (out []event.Drift, _ error) {
	if a.check.turn == 0 {
		d, err := a.probeReclassify(ctx, x, now)
		if err != nil {
			return nil, err
		}
		out = append(out, d...)
		if d, err = a.probeLookups(ctx, now); err != nil {
			return out, err
		}
		out = append(out, d...)
	}
	some := a.someProbed()
	calls := make([]vpp.Call, 0, len(some))
	asked := some[:0]
	for _, p := range some {
		if call, ok := descriptor.AskNodes(a.g.world, p.name); ok {
			calls, asked = append(calls, call), append(asked, p)
		}
	}
	if len(calls) == 0 {
		return out, nil
	}
	replies := a.cfg.Caller.Do(ctx, calls...)
	if err := lost(replies); err != nil {
		return out, err
	}
	for i, p := range asked {
		missing, err := descriptor.MissingNodes(replies[i], p.nodes)
		if err != nil {
			continue // deleted meanwhile: VPP sends an event
		}
		for _, n := range missing {
			d, err := a.putBack(ctx, x, p, n, now)
			if err != nil {
				return out, err
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// putBack puts a missing node back on its feature arc.
func (a *Agent) putBack(ctx context.Context, x *execution, p probed, n descriptor.Node, now time.Time) (event.Drift, error) {
	v := p.of[slices.Index(p.nodes, n)]
	e := event.Drift{Key: v.key, Kind: v.kind.Name, What: event.DriftDisabled}
	call, ok := descriptor.PutNode(a.g.world, p.name, n)
	if !ok {
		return e, nil
	}
	replies := a.cfg.Caller.Do(ctx, call)
	if err := lost(replies); err != nil {
		return e, err
	}
	x.c.Writes++
	if e.Repaired = replies[0].Err == nil; !e.Repaired {
		e.Err = n.Name + " is not on " + n.Arc + ": " + replies[0].Err.Error()
	}
	return a.remember(e, now), nil
}

// someProbed are the next interfaces to probe, as many as are needed to probe all of them in a round.
func (a *Agent) someProbed() []probed {
	by := map[string]*probed{}
	var names []string
	for _, k := range a.g.kinds {
		if k.Nodes == nil {
			continue
		}
		for _, v := range k.values {
			if v.have == nil || v.unsure {
				continue
			}
			name := strings.TrimPrefix(v.key, k.Prefix)
			nodes := k.Nodes(a.g.world, v.have)
			if by[name] == nil && len(nodes) > 0 {
				by[name] = &probed{name: name}
				names = append(names, name)
			}
			for _, n := range nodes {
				by[name].nodes, by[name].of = append(by[name].nodes, n), append(by[name].of, v)
			}
		}
	}
	slices.Sort(names)
	share := (len(names) + a.check.turns()/2 - 1) / max(1, a.check.turns()/2)
	from, _ := slices.BinarySearch(names, a.check.probed)
	if from == len(names) {
		from = 0
	}
	var out []probed
	for i := range share {
		out = append(out, *by[names[(from+i)%len(names)]])
	}
	if len(names) > 0 {
		a.check.probed = names[(from+share)%len(names)]
	}
	return out
}

// LookupsKey is the key, in Drift, of the table in which VPP looks up NAT44 mappings.
const LookupsKey = "nat44 lookups of mappings"

// probeLookups detects that the command 'set nat44 session limit' has recreated the table without the mappings: dumps show the
// mappings, and no packet finds one. Two rounds in turn must agree, because sessions change between the two answers. The only repair
// is to disable and enable NAT44, which the guard refuses.
func (a *Agent) probeLookups(ctx context.Context, now time.Time) ([]event.Drift, error) {
	mappings := 0
	for _, k := range a.g.kinds {
		for _, v := range k.values {
			mappings += nat.MappingCount(v.have)
		}
	}
	if mappings == 0 {
		a.check.lacking = 0
		return nil, nil
	}
	replies := a.cfg.Caller.Do(ctx, nat.AskLookups()...)
	if err := lost(replies); err != nil {
		return nil, err
	}
	if !nat.LookupsLack(mappings, replies) {
		a.check.lacking = 0
		return nil, nil
	}
	if a.check.lacking++; a.check.lacking < 2 {
		return nil, nil
	}
	e := event.Drift{Key: LookupsKey, Kind: "nat44", What: event.DriftDisabled}
	e.Err = fmt.Sprintf("VPP has %d mappings and finds none: somebody said 'set nat44 session limit'. Restart VPP; nothing else brings them back", mappings)
	return []event.Drift{a.remember(e, now)}, nil
}

// probeReclassify detects that another program switched off the reclassification that VPP did when the agent connected.
func (a *Agent) probeReclassify(ctx context.Context, x *execution, now time.Time) ([]event.Drift, error) {
	if a.reclassify != acl.ReclassifyOn {
		return nil, nil
	}
	r, err := acl.Reclassification(ctx, a.cfg.Caller.Do)
	if err != nil || r != acl.ReclassifyOff {
		return nil, err
	}
	e := event.Drift{Key: ReclassifyKey, Kind: "acl-setting", What: event.DriftDisabled}
	err = acl.SetReclassify(ctx, a.cfg.Caller.Do)
	if unreachable(err) {
		return nil, err
	}
	x.c.Writes++
	if e.Repaired = err == nil; !e.Repaired {
		e.Err = err.Error()
	}
	return []event.Drift{a.remember(e, now)}, nil
}
