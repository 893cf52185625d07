package vppagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// look finds out what VPP has, as far as the plan needs it: everything when it is not known or the transaction says so,
// otherwise the kinds of the values that are unsure. The error is that VPP cannot be reached.
func (a *Agent) look(ctx context.Context, p *planner, resync event.ResyncKind) error {
	if a.stale || resync == event.Full || resync == event.Downstream {
		if err := a.retrieve(ctx, p, a.g.kinds); err != nil {
			return err
		}
		if err := a.askReclassify(ctx); err != nil {
			return err
		}
		a.stale = false
		return nil
	}
	if resync == event.Upstream {
		for _, v := range a.g.values {
			p.touch(v)
		}
	}
	return a.refreshUnsure(ctx, p)
}

// askReclassify finds out whether a policy that is revoked is revoked for flows that exist, once per connection.
func (a *Agent) askReclassify(ctx context.Context) error {
	if !a.stale || !slices.ContainsFunc(a.g.kinds, func(k *kind) bool { return k.Stands != nil }) {
		return nil
	}
	r, err := descriptor.Reclassification(ctx, a.cfg.Caller.Do)
	if err != nil {
		return err
	}
	if a.reclassify = r; r.Consequence() != "" {
		a.cfg.Logger.Warn("acl sessions", "reclassify", r.String(), "consequence", r.Consequence())
	}
	return nil
}

// refreshUnsure dumps the kinds of which a touched value is unsure.
func (a *Agent) refreshUnsure(ctx context.Context, p *planner) error {
	for _, v := range p.touched {
		for u := range v.users {
			if u.unsure {
				p.touch(u)
			}
		}
	}
	asked := map[*kind]bool{}
	for { // looking touches more values, which may be unsure in turn
		var kinds []*kind
		for _, k := range a.g.kinds {
			unsure := func(v *value) bool { return v.unsure && v.kind == k }
			if !asked[k] && slices.ContainsFunc(p.touched, unsure) {
				asked[k] = true
				kinds = append(kinds, k)
			}
		}
		if len(kinds) == 0 {
			return nil
		}
		if err := a.retrieve(ctx, p, kinds); err != nil {
			return err
		}
	}
}

// retrieve dumps kinds of values, in two batches: the interfaces first, as the other questions depend on them.
func (a *Agent) retrieve(ctx context.Context, p *planner, kinds []*kind) error {
	if err := a.learnInterfaces(ctx, p); err != nil {
		return err
	}
	var requests []descriptor.Request
	asked := map[string]bool{}
	for _, k := range kinds {
		for _, r := range k.Dumps(a.g.world, candidates{k}) {
			if !asked[r.ID] {
				asked[r.ID] = true
				requests = append(requests, r)
			}
		}
	}
	d, err := a.ask(ctx, requests)
	if err != nil {
		return err
	}
	if len(kinds) == len(a.g.kinds) {
		a.foreign = nil
	}
	type result struct {
		found []descriptor.Found
		err   error
	}
	results := make([]result, len(kinds))
	read := func(i int) { results[i].found, results[i].err = kinds[i].Retrieve(a.g.world, d, candidates{kinds[i]}) }
	for i, k := range kinds {
		if !k.Many {
			read(i)
		}
	}
	var reading sync.WaitGroup
	for i, k := range kinds {
		if k.Many {
			reading.Go(func() { read(i) })
		}
	}
	reading.Wait()
	for i, k := range kinds {
		a.take(p, k, results[i].found, results[i].err)
	}
	return nil
}

func (a *Agent) learnInterfaces(ctx context.Context, p *planner) error {
	d, err := a.ask(ctx, descriptor.WorldDumps())
	if err != nil {
		return err
	}
	if err := a.g.world.Learn(d); err != nil {
		return fmt.Errorf("%w: %w", vpp.ErrDisconnected, err)
	}
	for v := range a.g.ifaces() {
		p.touch(v)
	}
	return nil
}

func (a *Agent) ask(ctx context.Context, requests []descriptor.Request) (*descriptor.Dump, error) {
	calls := make([]vpp.Call, len(requests))
	for i, r := range requests {
		calls[i] = r.Call
	}
	replies := a.cfg.Caller.Do(ctx, calls...)
	for _, r := range replies {
		if unreachable(r.Err) {
			return nil, r.Err
		}
	}
	return descriptor.NewDump(requests, replies), nil
}

// take makes what was found of a kind what VPP has. Every value of the kind is looked at again, unless it is as it should be.
func (a *Agent) take(p *planner, k *kind, found []descriptor.Found, err error) {
	if _, lacking := errors.AsType[*vpp.MissingError](err); lacking {
		err = nil // VPP has no such thing, and nothing of it; creating tells why
	}
	if err != nil {
		for _, v := range k.values {
			p.touch(v)
			if v.want != nil {
				v.plan.err, v.unsure = err, true
			}
		}
		return
	}
	for _, f := range found {
		if f.Foreign {
			a.foreign = append(a.foreign, f.Text)
			continue
		}
		if v := a.takeFound(k, f); v != nil {
			v.found = a.epoch
		}
	}
	for _, v := range k.values {
		if v.have != nil && v.found != a.epoch {
			a.setHave(v, nil, false)
		}
		if !v.steady() || v.have != nil && !a.g.settled(v) {
			p.touch(v)
		}
		v.unsure, v.tried = false, nil
	}
}

// takeFound returns the value a find is of, nil if it is none of our business: untagged, and neither wanted nor made by us.
func (a *Agent) takeFound(k *kind, f descriptor.Found) *value {
	v := a.g.values[f.Key]
	wanted := v != nil && v.want != nil
	mine := f.Ours || !k.Tagged && v != nil && v.ours
	if !wanted && !mine || v != nil && v.rebind {
		return nil
	}
	if v == nil {
		v = a.g.node(f.Key)
	}
	if f.Base != "" && v.base == nil {
		v.base = a.g.node(f.Base)
	}
	state := f.State
	if wanted && k.Equal(state, v.want) && (k.Beside == nil || !k.Beside.Stale(state)) {
		state = v.want
		mine = mine || !k.Tagged // adopted without a write
	}
	if v.have == state && v.ours == mine && v.steady() {
		return v // and the journal knows
	}
	a.setHave(v, state, mine)
	if !wanted {
		a.g.setDeps(v)
	}
	return v
}

// candidates shows the values of a kind to its descriptor.
type candidates struct{ k *kind }

func (c candidates) Wanted(key string) any {
	if v := c.k.values[key]; v != nil {
		return v.want
	}
	return nil
}

func (c candidates) Each(f func(key string, state any, wanted bool)) {
	for key, v := range c.k.values {
		if v.want != nil {
			f(key, v.want, true)
		}
		if v.have != nil && v.have != v.want && v.ours {
			f(key, v.have, false)
		}
		if v.tried != nil && v.tried != v.want && v.tried != v.have {
			f(key, v.tried, false)
		}
	}
}
