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
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

// lookAtVPP dumps VPP as far as the plan needs it: everything if the actual state is not known or the transaction demands it, otherwise the kinds of the unsure values. The error says
// that VPP cannot be reached.
func (a *Agent) lookAtVPP(ctx context.Context, p *planner, resync event.ResyncKind) error {
	if a.stale || resync == event.Full || resync == event.Downstream {
		_, err := a.lookAll(ctx, p, nil)
		return err
	}
	if resync == event.Upstream {
		for _, v := range a.g.values {
			p.touch(v)
		}
	}
	return a.refreshUnsure(ctx, p)
}

// lookAll dumps all of VPP and returns the answers; it does not repeat the requests whose answers known has.
func (a *Agent) lookAll(ctx context.Context, p *planner, known *descriptor.Dump) (*descriptor.Dump, error) {
	known, err := a.retrieve(ctx, p, a.g.kinds, known)
	if err == nil {
		err = a.askReclassify(ctx)
	}
	a.stale = a.stale && err != nil
	return known, err
}

// askReclassify asks VPP, once per connection, whether the revocation of a policy applies to existing flows.
func (a *Agent) askReclassify(ctx context.Context) error {
	if !a.stale || !slices.ContainsFunc(a.g.kinds, func(k *kind) bool { return k.Stands != nil }) {
		return nil
	}
	r, err := acl.Reclassification(ctx, a.cfg.Caller.Do)
	if err != nil {
		return err
	}
	if a.reclassify = r; r.Consequence() != "" {
		a.cfg.Logger.Warn("acl sessions", "reclassify", r.String(), "consequence", r.Consequence())
	}
	return nil
}

// refreshUnsure dumps the kinds of unsure values that the plan touches, or will touch because of others.
func (a *Agent) refreshUnsure(ctx context.Context, p *planner) error {
	asked := map[*kind]bool{}
	for { // a dump touches more values, which may be unsure in turn
		p.settleValues()
		p.touchUnsure()
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
		if _, err := a.retrieve(ctx, p, kinds, nil); err != nil {
			return err
		}
	}
}

// retrieve dumps kinds of values: first the interfaces, because the other requests depend on them; then the kinds with few values; then the kinds with thousands, in parallel. It skips
// requests whose answers in known still hold. It returns all answers.
func (a *Agent) retrieve(ctx context.Context, p *planner, kinds []*kind, known *descriptor.Dump) (*descriptor.Dump, error) {
	if err := a.learnInterfaces(ctx, p); err != nil {
		return nil, err
	}
	// The list of interfaces does not show that those without a tag are ours, only their own dumps do: without them none could be removed.
	kinds = slices.DeleteFunc(slices.Clone(a.g.kinds), func(k *kind) bool { return !slices.Contains(kinds, k) && !k.hasUntagged(a.g.world) })
	few, many := partition(kinds)
	answers, err := a.ask(ctx, a.dumps(few, known))
	if err != nil {
		return nil, err
	}
	answers.Join(known)
	known = answers
	found := map[*kind]*findings{}
	for _, k := range kinds {
		found[k] = &findings{}
	}
	read := func(k *kind, d *descriptor.Dump) {
		found[k].list, found[k].err = k.Retrieve(a.g.world, d, candidates{a.g, k})
	}
	for _, k := range few {
		if err := a.askMore(ctx, k, known); err != nil {
			return nil, err
		}
		read(k, known)
	}
	if known, err = a.readMany(ctx, many, known, read); err != nil {
		return nil, err
	}
	for _, k := range kinds {
		a.adoptFound(p, k, found[k].list, found[k].err)
	}
	return known, nil
}

// askMore adds the answers to the requests that k has now and did not have before: the answers of others may show that an interface is ours, for example.
func (a *Agent) askMore(ctx context.Context, k *kind, known *descriptor.Dump) error {
	for {
		more := a.dumps([]*kind{k}, known)
		if len(more) == 0 {
			return nil
		}
		d, err := a.ask(ctx, more)
		known.Join(d)
		if err != nil {
			return err
		}
	}
}

// readMany handles the first answers while VPP sends the rest. It returns all answers.
func (a *Agent) readMany(ctx context.Context, many []*kind, known *descriptor.Dump, read func(*kind, *descriptor.Dump)) (*descriptor.Dump, error) {
	d, all := descriptor.Ask(ctx, a.check.answers.Do, a.dumps(many, known))
	d.Join(known)
	var reading sync.WaitGroup
	for _, k := range many {
		reading.Go(func() { read(k, d) })
	}
	reading.Wait()
	return d, lost(all())
}

// foreign are the objects of other clients in VPP.
func (a *Agent) foreign() (out []string) {
	for _, k := range a.g.kinds {
		out = append(out, k.foreign...)
	}
	return out
}

// findings are the objects of a kind in the dumps.
type findings struct {
	list []descriptor.Found
	err  error
}

// partition separates kinds with thousands of values from the others.
func partition(kinds []*kind) (few, many []*kind) {
	many = slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return !k.Many })
	return slices.DeleteFunc(slices.Clone(kinds), func(k *kind) bool { return k.Many }), many
}

// dumps are the dump requests of kinds, each once, without those that known has the answers to.
func (a *Agent) dumps(kinds []*kind, known *descriptor.Dump) (requests []descriptor.Request) {
	asked := map[string]bool{}
	for _, k := range kinds {
		for _, r := range k.Dumps(a.g.world, candidates{a.g, k}, known) {
			if !asked[r.ID] && !known.Has(r.ID) {
				asked[r.ID] = true
				requests = append(requests, r)
			}
		}
	}
	return requests
}

func (a *Agent) learnInterfaces(ctx context.Context, p *planner) error {
	d, err := a.ask(ctx, descriptor.WorldDumps())
	if err != nil {
		return err
	}
	a.g.partsDue = true
	if err := a.g.world.Learn(d); err != nil {
		return fmt.Errorf("%w: %w", vpp.ErrDisconnected, err)
	}
	for v := range a.g.ifaces() {
		p.touch(v)
	}
	return a.learnAddressed(ctx)
}

func (a *Agent) ask(ctx context.Context, requests []descriptor.Request) (*descriptor.Dump, error) {
	d, all := descriptor.Ask(ctx, a.check.answers.Do, requests)
	return d, lost(all())
}

// lost is the error that VPP cannot be reached; nil if VPP answered.
func lost(replies []vpp.Reply) error {
	if i := slices.IndexFunc(replies, func(r vpp.Reply) bool { return unreachable(r.Err) }); i >= 0 {
		return replies[i].Err
	}
	return nil
}

// adoptFound makes the findings the actual state of a kind. It touches every value of the kind unless the value's actual state equals its desired
// state.
func (a *Agent) adoptFound(p *planner, k *kind, found []descriptor.Found, err error) {
	if _, lacking := errors.AsType[*vpp.MissingError](err); lacking {
		err = nil // VPP lacks the feature and has no object of it; a creation would report the reason
	}
	if err != nil {
		a.check.answers.Forget()
		if k.Rest != nil { // the kind is dumped again although nothing of it is wanted
			a.g.nodeOf(k.Rest.Key).unsure = true
		}
		for _, v := range k.values {
			p.touch(v)
			if v.want != nil || v.unsure { // or VPP may have a part of it, although no owner wants it
				v.plan.err, v.unsure = err, true
			}
		}
		return
	}
	at := 0
	k.foreign = nil
	for i := range found {
		f := &found[i]
		if f.Foreign {
			k.foreign = append(k.foreign, f.Text)
			continue
		}
		if v := a.takeFound(p, k, f, k.nextValue(&at, f.Key)); v != nil {
			v.found = a.epoch
		}
	}
	for _, v := range slices.Clone(k.values) { // the loop may remove some
		if v.have != nil && v.found != a.epoch {
			was := v.have
			a.setHave(v, nil, false)
			a.see(p, v, was)
		}
		if settled := v.have == nil || a.g.settled(v); !settled || !v.steady() {
			if p.drift != nil && !settled && v.steady() { // a foreign access list precedes ours
				p.drift.addDrift(v, event.DriftChanged)
			}
			p.touch(v)
		}
		v.unsure, v.tried = false, nil
	}
}

// nextValue is the value with the key if its index is the given one or the one behind it; nil: look it up. Findings arrive mostly in
// the order of the values, and thousands of lookups would take longer than all other work.
func (k *kind) nextValue(at *int, key string) *value {
	for i := *at; i < min(*at+2, len(k.values)); i++ {
		if k.values[i].key == key {
			*at = i + 1
			return k.values[i]
		}
	}
	return nil
}

// takeFound returns the value of a finding, which v is if no lookup was needed. nil: the object is untagged, not in the journal, and not wanted or doubtful; or wanted, doubtful and only begun.
func (a *Agent) takeFound(p *planner, k *kind, f *descriptor.Found, v *value) *value {
	if v == nil {
		v = a.g.values[f.Key]
	}
	wanted := v != nil && v.want != nil
	mine := f.Ours || !k.Tagged && v != nil && v.ours
	if !mine && (!wanted || f.Doubtful && !a.journal.Empty()) || wanted && f.Doubtful && a.journal.Begun(f.Key) {
		return nil
	}
	if v == nil {
		v = a.g.nodeOf(f.Key)
	}
	if f.Base != "" && v.base == nil {
		v.base = a.g.nodeOf(f.Base)
	}
	state := f.State
	if wanted && k.Equal(state, v.want) && (k.Replace == nil || !k.Replace.Stale(state)) {
		state = v.want
		mine = mine || !k.Tagged // adopts it without a write
	}
	if v.have == state && v.ours == mine && v.steady() {
		return v // and the journal records it
	}
	was := v.have
	a.setHave(v, state, mine)
	if !wanted {
		a.g.setDeps(v)
	}
	a.see(p, v, was)
	return v
}

// candidates passes the values of a kind to its descriptor.
type candidates struct {
	g *graph
	k *kind
}

func (c candidates) Wanted(key string) any {
	if v := c.g.values[key]; v != nil && v.kind == c.k {
		return v.want
	}
	return nil
}

func (c candidates) Each(f func(key string, state any, wanted bool)) {
	for _, v := range c.k.values {
		if v.want != nil {
			f(v.key, v.want, true)
		}
		if v.have != nil && v.have != v.want && v.ours {
			f(v.key, v.have, false)
		}
		if v.tried != nil && v.tried != v.want && v.tried != v.have {
			f(v.key, v.tried, false)
		}
	}
}
