package vppagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/unchanged"
)

// A round of rechecks compares all objects of the agent in VPP with the desired state, slice by slice:
//
//	attachments ─ access lists ─ attachments ─ mappings ─ attachments ─ … ─ the rest ─▶ next round
//
// VPP answers a dump while all its workers wait, so one dump of everything would stop forwarding for the sum of all dumps. A
// slice dumps a few kinds of values, and pauses keep the share of time in which VPP answers small. Every other slice is
// attachments and features: their dumps are cheap, and they decide whether a policy is enforced at all.

// sliceTable has the slices of a round as names of kinds. The last slice has all kinds that no slice names.
func sliceTable() [][]string {
	return [][]string{
		{"interface-acls", "nat44-interface", "nat44-global", "nat44-settings", "sctp-filter", "cnat-interface"}, // attachments and features
		// the objects that attachments stand on: compare relies on its index
		{"acl", "acl-deny", "acl-permit", "acl-source-ranges", "source-ranges-enforced", "source-ranges", "sctp-ports", "interface-acls"},
		{"nat44-pool", "dnat44"},
		{"cnat-translation", "cnat-snat-policy"},
		{"route", "reject-route"},
		{},
	}
}

const (
	// After a slice that occupied VPP for a time, the agent pauses for at least idleShare times that time, but for at most idleRounds rounds (ADR 15).
	idleShare, idleRounds = 50, 2
	// contestedAfter repairs of one key within contestedIn prove that another program changes it.
	contestedAfter = 3
	contestedIn    = 10 * time.Minute
	// maxPutOff bounds the pause before a contested key is repaired again.
	maxPutOff = 5 * time.Minute
	// maxDrifting bounds the number of keys with a recorded drift, mostNamed those that the log line of a round names.
	maxDrifting, mostNamed = 1000, 5
	wholeRound             = -1 // stands for all turns of a round at once
)

// recheck is the progress and the findings of the rounds.
type recheck struct {
	every  time.Duration // period of a round; 0: no rounds
	slices [][]*kind
	turn   int           // turn in the round, from 0
	next   time.Time     // due time of the next turn; zero: not known yet
	took   time.Duration // VPP's time to answer the last turn
	probed string        // the next interface to probe
	// lacking is the number of consecutive rounds in which the lookups of mappings were missing.
	lacking int
	round   []event.Drift
	answers unchanged.Answers    // of the turns that found nothing to do
	found   map[string]*drifting // by key
	shown   []Drifted            // found, as in snapshots; immutable
}

// drifting is the history of a key that drifted.
type drifting struct {
	event.Drift
	last    time.Time
	times   []time.Time // times of repairs within contestedIn
	backoff time.Duration
	owed    bool // a repair was postponed: if the key drifts again, that repair was made
}

func newRecheck(every time.Duration, kinds []*kind) recheck {
	table := sliceTable()
	r := recheck{every: every, slices: make([][]*kind, len(table)), found: map[string]*drifting{}}
	for _, k := range kinds {
		named := false
		for i, names := range table {
			if slices.Contains(names, k.Name) {
				r.slices[i], named = append(r.slices[i], k), true
			}
		}
		if !named {
			r.slices[len(table)-1] = append(r.slices[len(table)-1], k)
		}
	}
	return r
}

// turns is the number of turns in a round.
func (r *recheck) turns() int { return 2 * (len(r.slices) - 1) }

// kinds are the kinds of the current turn of which VPP may have objects of ours.
func (r *recheck) kinds() (out []*kind) {
	slice := r.slices[0]
	if r.turn%2 == 1 {
		slice = r.slices[1+r.turn/2]
	}
	for _, k := range slice {
		if k.Tagged || len(k.values) > 0 || k.Rest != nil {
			out = append(out, k)
		}
	}
	return out
}

// advance schedules the next turn: one turn later, and after a pause in proportion to the time that VPP took.
func (r *recheck) advance(now time.Time, took time.Duration) (ended bool) {
	r.next = now.Add(max(r.every/time.Duration(r.turns()), min(idleShare*took, idleRounds*r.every)))
	r.turn++
	if r.turn < r.turns() {
		return false
	}
	r.turn = 0
	return true
}

// nextCheck is the due time of the next turn; zero: none.
func (a *Agent) nextCheck() time.Time {
	if a.check.every <= 0 || a.stale || !a.informed {
		return time.Time{}
	}
	if a.check.next.IsZero() {
		a.check.next = a.cfg.Now().Add(a.check.every / time.Duration(a.check.turns()))
	}
	return a.check.next
}

// Recheck compares one slice with the desired state if its time has come, and repairs differences. It returns nil if no slice is
// due, or if nothing differs.
func (a *Agent) Recheck(ctx context.Context) *event.Committed {
	now := a.cfg.Now()
	if next := a.nextCheck(); next.IsZero() || next.After(now) || a.away() != nil {
		return nil
	}
	c := a.compareKinds(ctx, a.check.kinds(), a.check.turn, now)
	if a.check.advance(a.cfg.Now(), a.check.took) {
		a.endRound()
	}
	return c
}

// RecheckAll runs a whole round in one turn: VPP stops forwarding for the sum of all dumps. Run executes it between two transactions,
// and emits its result if it has one. RecheckAll fails with ctx, while VPP is away, and before the first transaction stated the desired
// state.
func (a *Agent) RecheckAll(ctx context.Context) (*event.Committed, error) {
	var c *event.Committed
	var err error
	asked := a.between(ctx, func() {
		if err = a.away(); err == nil && (a.stale || !a.informed) {
			err = errUnknown
		}
		if err != nil {
			return
		}
		if c = a.compareKinds(ctx, a.g.kinds, wholeRound, a.cfg.Now()); c != nil {
			a.unsaid = append(a.unsaid, c)
		}
		a.endRound()
	})
	return c, errors.Join(asked, err)
}

// compareKinds runs one turn. Those of attachments also probe facts that dumps do not show. If VPP answers all requests as in the last comparison of the
// turn, nothing is decoded or compared (package unchanged).
func (a *Agent) compareKinds(ctx context.Context, kinds []*kind, turn int, now time.Time) *event.Committed {
	p := a.newPlanner()
	x := &execution{a: a, p: p, c: &event.Committed{Cause: "recheck"}, began: now}
	p.drift = &drift{now: now, rest: a.rest.values, seen: map[*value]bool{}}
	names := a.g.world.Names()
	began, answers := time.Now(), &a.check.answers
	defer answers.Drop()
	same := turn != wholeRound && answers.Unchanged(ctx, turn)
	var err error
	if !same {
		answers.Record()
		_, err = a.retrieve(ctx, p, kinds, nil)
	}
	if err == nil && slices.ContainsFunc(p.drift.list, func(d driftOf) bool { return d.v.kind.Stands != nil }) {
		_, err = a.retrieve(ctx, p, a.check.slices[1], nil) // the objects they stand on may be missing as well, and are put first
	}
	var probed []event.Drift
	if err == nil && turn != wholeRound && turn%2 == 0 {
		probed, err = a.probe(ctx, x, now)
	}
	a.check.took = time.Since(began)
	if same && err == nil && len(probed) == 0 {
		return nil
	}
	if err == nil {
		err = a.refreshUnsure(ctx, p)
	}
	if err == nil && !maps.Equal(names, a.g.world.Names()) {
		a.changed.Store(true) // and Run replans everything that this concerns
		a.poke()
	}
	a.complete(ctx, x, err)
	x.c.Drift = a.drifted(p.drift, probed, now)
	if x.c.Err == nil && x.c.Writes+len(x.c.Drift) == 0 && !x.news {
		if turn != wholeRound && len(a.retrying)+len(a.rest.values) == 0 {
			answers.Keep(turn)
		}
		return nil
	}
	answers.Forget()
	return x.c
}

// drift is the result of one turn.
type drift struct {
	now  time.Time
	rest map[*value]bool // values that proceed puts
	list []driftOf
	seen map[*value]bool
}

type driftOf struct {
	v    *value
	what event.DriftKind
}

// addDrift records a drift of a value, once.
func (d *drift) addDrift(v *value, what event.DriftKind) {
	if d.seen[v] {
		return
	}
	d.seen[v] = true
	d.list = append(d.list, driftOf{v, what})
}

// waits reports that v waits for its retry after a refusal, or that its requests wait for a pause: a recheck does not try it earlier.
func (d *drift) waits(v *value) bool {
	if d == nil {
		return false
	}
	_, left := d.rest[v]
	return left || v.retryAt.After(d.now)
}

// see records that VPP's object of v differs from what v was given. was is the actual object; nil: certainly none.
func (a *Agent) see(p *planner, v *value, was any) {
	var what event.DriftKind
	switch {
	case p.drift == nil || v.unsure || v.rebind:
		return
	case was != nil && v.have == nil:
		what = event.DriftMissing
	case was != nil && !v.kind.Equal(was, v.have):
		what = event.DriftChanged
	case was == nil && v.have != nil && v.want == nil && v.ours:
		what = event.DriftExtra
	default:
		return
	}
	p.drift.addDrift(v, what)
	a.putOff(p.drift, v, what)
}

// putOff delays the repair of a key that another program changes repeatedly. It never delays the repair of values that keep
// traffic out, or of values that others stand on.
func (a *Agent) putOff(d *drift, v *value, what event.DriftKind) {
	f := a.check.found[v.key]
	if f != nil && f.owed {
		f.times, f.owed = append(f.times, d.now), false
	}
	if f == nil || !f.contested(d.now) || v.want == nil || v.outlives > 0 || v.kind.Replace != nil || len(v.dependents)+len(v.derived)+len(v.users) > 0 {
		return
	}
	f.owed, f.backoff = true, backoff.Range{Min: a.check.every, Max: max(maxPutOff, a.check.every)}.Next(f.backoff)
	v.state, v.retryAt = event.Retrying, d.now.Add(f.backoff)
	v.err = fmt.Sprintf("%s: %s; the agent repairs it again in %s", what, f.contest(d.now), f.backoff)
	a.retrying[v] = struct{}{}
	a.board.setStatus(v, d.now)
}

// contested reports that a key was repaired so often that another program must change it.
func (f *drifting) contested(now time.Time) bool {
	f.times = slices.DeleteFunc(f.times, func(t time.Time) bool { return now.Sub(t) >= contestedIn })
	return len(f.times) >= contestedAfter
}

// contest is the remark on a contested key.
func (f *drifting) contest(now time.Time) string {
	minutes := max(1, int((now.Sub(f.times[0])+time.Minute-1)/time.Minute))
	return fmt.Sprintf("another program changes it: repaired %d times in %d min", len(f.times), minutes)
}

// drifted are the repaired differences, sorted by key. A difference that needs no request is an error in our record, not a drift
// of VPP. Repairs of probed facts are already recorded.
func (a *Agent) drifted(d *drift, probed []event.Drift, now time.Time) []event.Drift {
	out := probed
	for _, one := range d.list {
		v := one.v
		putOff := v.state == event.Retrying && v.retryAt.After(now) && v.plan.err == nil
		if !putOff && !v.plan.sent && v.plan.err == nil {
			continue
		}
		e := event.Drift{Key: v.key, Kind: v.kind.Name, What: one.what, Repaired: !putOff && v.plan.err == nil}
		if !e.Repaired {
			e.Err = v.err
		}
		out = append(out, a.remember(e, now))
	}
	slices.SortFunc(out, func(x, y event.Drift) int { return strings.Compare(x.Key, y.Key) })
	if len(out) > 0 {
		a.check.round = append(a.check.round, out...)
		a.check.show()
		a.publishSnapshot()
	}
	return out
}

// remember records a drift of a key.
func (a *Agent) remember(e event.Drift, now time.Time) event.Drift {
	f := a.check.found[e.Key]
	if f == nil {
		a.check.makeRoom()
		f = &drifting{}
		a.check.found[e.Key] = f
	}
	e.Times = f.Times + 1
	f.last = now
	if e.Repaired {
		f.times = append(f.times, now)
	}
	if f.contested(now) {
		e.Contest = f.contest(now)
	} else {
		f.backoff = 0
	}
	f.Drift = e
	return e
}

// show makes the list for snapshots.
func (r *recheck) show() {
	r.shown = make([]Drifted, 0, len(r.found))
	for _, f := range r.found {
		r.shown = append(r.shown, Drifted{f.Drift, f.last})
	}
	slices.SortFunc(r.shown, func(a, b Drifted) int { return strings.Compare(a.Key, b.Key) })
}

// makeRoom removes the key with the oldest drift if there are too many keys.
func (r *recheck) makeRoom() {
	if len(r.found) < maxDrifting {
		return
	}
	oldest := ""
	for key, f := range r.found {
		if o := r.found[oldest]; o == nil || f.last.Before(o.last) || f.last.Equal(o.last) && key < oldest {
			oldest = key
		}
	}
	delete(r.found, oldest)
}

// endRound logs the result of a round.
func (a *Agent) endRound() {
	if repaired, names := event.SummarizeDrift(a.check.round, mostNamed); names != "" {
		a.cfg.Logger.Warn("drift", "found", len(a.check.round), "repaired", repaired, "what", names)
	}
	a.check.round = nil
}
