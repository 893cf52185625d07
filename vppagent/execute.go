package vppagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/history"
	"github.com/contiv-agent/contiv-agent/vppagent/pace"
)

// execution is the execution of one plan.
type execution struct {
	a        *Agent
	p        *planner
	c        *event.Committed
	began    time.Time
	balance  time.Duration // of the pacer, when it began
	statuses event.StatusLists
	done     []history.Op // done or tried; as many as the history keeps
	over     int          // not kept
	news     bool         // a status changed
	calls    []vpp.Call
	// divisible: it may end before all steps are done; proceed carries out the remaining steps.
	divisible bool
	before    map[*value]bool // remaining from earlier executions, and part of the plan
	refused   []*value
}

// request is an operation with its reply.
type request struct {
	op descriptor.Op
	v  *value
}

// execute executes level after level. The error says that VPP cannot be reached; a refusal is an error of its value.
func (x *execution) execute(ctx context.Context, plan [][]Step) error {
	x.noteOlder()
	for i, level := range plan {
		x.awaitAnswers(ctx, level)
		others, lost := x.portion(ctx, level)
		if lost != nil {
			return lost
		}
		if len(others) > 0 {
			x.leaveSteps(others, plan[i+1:])
			return nil
		}
	}
	return nil
}

// whole executes a level.
func (x *execution) whole(ctx context.Context, level []Step) error {
	if len(level) > 2*bunchSize && !slices.ContainsFunc(level, func(s Step) bool { return s.Action != Create || s.v.rebind }) {
		return x.stream(ctx, level)
	}
	return x.level(ctx, level)
}

// level executes steps in one batch.
func (x *execution) level(ctx context.Context, level []Step) error {
	b := x.prepare(level)
	orderClaims(b.requests)
	lost := x.sendRequests(ctx, b.requests)
	x.finishAll(b, lost)
	return lost
}

// stream executes many creations, which free no claim.
func (x *execution) stream(ctx context.Context, level []Step) error {
	s := stream{x: x}
	if lost := s.push(ctx, level); lost != nil {
		return lost
	}
	return s.drain(ctx)
}

// prepare makes the requests of steps, whose memory it uses.
func (x *execution) prepare(steps []Step) *bunch {
	b := &bunch{p: x.p, tried: steps[:0], requests: make([]request, 0, len(steps))}
	for _, s := range steps {
		if ops, ok := x.operations(s); ok {
			b.tried = append(b.tried, s)
			s.v.plan.sent = s.v.plan.sent || len(ops) > 0
			for _, op := range ops {
				b.requests = append(b.requests, request{op, s.v})
			}
		}
	}
	x.intend(b.tried)
	return b
}

func (x *execution) finishAll(b *bunch, lost error) {
	for _, s := range b.tried {
		x.finish(s, lost)
	}
}

// intend records in the journal the objects without a tag that the next requests make, take over from another owner or remove: whatever happens, they are known to be ours.
func (x *execution) intend(level []Step) {
	if x.a.journal.Path == "" {
		return
	}
	for _, s := range level {
		k := s.v.kind
		if !k.journalled() || s.v.plan.err != nil && !s.v.plan.sent {
			continue
		}
		if s.Action == Create || s.Action == Update && !s.v.plan.beside && (!k.Tagged && !s.v.ours || !k.Tagged && k.Unmarked != nil && k.Unmarked(s.v.have)) {
			x.a.journal.Set(s.Key, k.Descriptor, s.v.want, true)
		} else if s.Action == Delete {
			x.a.journal.Doubt(s.Key)
		}
	}
	x.a.saveJournal()
}

// operations are the requests of a step; ok is false if the step has become impossible because a value it needs failed.
func (x *execution) operations(s Step) (ops []descriptor.Op, ok bool) {
	v, w := s.v, x.a.g.world
	if s.sweep {
		return x.sweep(v)
	}
	if s.Action == Create && v.have != nil { // to be recreated, but the deletion failed: plan.err has the reason
		return nil, false
	}
	v.plan.err, v.plan.unsent = nil, false
	switch {
	case s.shut:
		v.plan.after = v.plan.shut
		ops, v.plan.err = v.kind.Create(w, v.plan.shut)
	case s.Action == Delete && v.plan.action == Recreate && v.guardsOn():
		return nil, false
	case s.Action == Delete:
		if user := v.stillUsed(); user != nil {
			v.plan.err = fmt.Errorf("%s is still there and needs it", user.key)
			return nil, true
		}
		if s.stage != nil {
			ops, v.plan.after, v.plan.err = x.toStage(s)
			return ops, true
		}
		ops, v.plan.err = v.kind.Delete(w, v.have)
	case !x.a.g.should(v):
		return nil, false
	case (s.Action != Create || v.kind.Stands == nil) && x.p.inTheWay(v, func(h *value) bool { return h.have != nil && h.plan.err != nil }):
		v.plan.err = errors.New("what has to go before is still there")
		return nil, true
	case x.notReady(v):
		return nil, true
	case v.kind.Stands != nil:
		ops, v.plan.err = x.reach(v)
	case v.plan.beside:
		ops, v.plan.after = v.kind.Replace.Make(w, v.have, v.want)
	case s.stage != nil:
		ops, v.plan.after, v.plan.err = x.toStage(s)
	case s.Action == Create:
		if v.rebind {
			ops, _ = v.kind.Delete(w, v.want)
		}
		var create []descriptor.Op
		create, v.plan.err = v.kind.Create(w, v.want)
		ops, v.plan.after = append(ops, create...), v.want // even if the desired state changes before the reply
	default:
		ops, v.plan.err = v.kind.Update(w, v.have, v.want)
		if b := v.kind.Replace; b != nil && b.Stale(v.have) {
			v.plan.after = b.Carry(v.have, v.want)
		}
	}
	return ops, true
}

// stillUsed returns a value in VPP that needs v because its removal failed. VPP would often delete v nevertheless, and keep a
// broken remainder of the other value that nothing can remove any more.
func (v *value) stillUsed() *value {
	for _, d := range slices.AppendSeq(slices.Clone(v.derived), maps.Keys(v.dependents)) {
		if d.have != nil && d.kind != nil && d.plan.epoch == v.plan.epoch && d.plan.err != nil {
			return d
		}
	}
	for d := range v.users {
		return d
	}
	return nil
}

// orderClaims moves a request that frees a claim to the front if another value's request takes the claim.
func orderClaims(batch []request) {
	var taken map[descriptor.Claim]*value
	for _, r := range batch {
		if r.op.Frees != (descriptor.Claim{}) {
			taken = map[descriptor.Claim]*value{}
			break
		}
	}
	if taken == nil {
		return
	}
	for _, r := range batch {
		if r.op.Takes != (descriptor.Claim{}) {
			taken[r.op.Takes] = r.v
		}
	}
	early := func(r request) bool {
		taker := taken[r.op.Frees]
		return r.op.Frees != (descriptor.Claim{}) && taker != nil && taker != r.v
	}
	slices.SortStableFunc(batch, func(a, b request) int {
		switch ea, eb := early(a), early(b); {
		case ea == eb:
			return 0
		case ea:
			return -1
		}
		return 1
	})
}

// sendRequests sends requests and the requests that follow from the replies, until none follows.
func (x *execution) sendRequests(ctx context.Context, batch []request) (lost error) {
	for len(batch) > 0 {
		x.calls = appendCalls(x.calls[:0], batch)
		if batch, lost = x.takeReplies(batch, x.a.pace.Do(ctx, x.calls, x.a.costs(batch))); lost != nil {
			return lost
		}
	}
	return nil
}

// costs are the estimated costs of requests for VPP; nil: the agent does not pause.
func (a *Agent) costs(batch []request) []pace.Estimate {
	if a.pace.Pause == nil {
		return nil
	}
	out := make([]pace.Estimate, len(batch))
	for i := range batch {
		op := &batch[i].op
		if op.Call.Msg != nil {
			out[i] = pace.Estimate{Name: op.Call.Msg.GetMessageName(), Cost: op.Cost, Size: descriptor.Size(op.Call.Msg), Known: op.Cost > 0, Apart: op.Apart}
		}
		if op.Cost == 0 {
			out[i].Cost = a.g.world.Cost.Message(out[i].Name)
		}
		if op.Apart != 0 {
			out[i].Name += " apart" // another scale
		}
	}
	return out
}

func appendCalls(calls []vpp.Call, batch []request) []vpp.Call {
	calls = slices.Grow(calls, len(batch))
	for i := range batch {
		calls = append(calls, batch[i].op.Call)
		calls[len(calls)-1].For = batch[i].v.key
	}
	return calls
}

// takeReplies handles replies and returns the requests that follow from them.
func (x *execution) takeReplies(batch []request, replies []vpp.Reply) (next []request, lost error) {
	for i, reply := range replies {
		r := &batch[i]
		err := reply.Err
		if unreachable(err) {
			lost = err
		}
		if _, refused := errors.AsType[*vpp.GuardError](err); !refused && !r.op.Asks {
			x.c.Writes++
		}
		if r.op.Gone && descriptor.Gone(err) {
			err = nil
		}
		if err == nil && r.op.Refuses != nil {
			err = r.op.Refuses(reply)
		}
		if err != nil {
			r.v.plan.err = errors.Join(r.v.plan.err, consequence(r.v.plan.err, err))
			if r.op.Else != nil {
				for _, op := range r.op.Else() {
					next = append(next, request{op, r.v})
				}
			}
			continue
		}
		for _, op := range r.op.Next {
			next = append(next, request{op, r.v})
		}
		if r.op.Then != nil {
			for _, op := range r.op.Then(reply) {
				next = append(next, request{op, r.v})
			}
		}
	}
	return next, x.a.cfg.Quarantine.Lost(lost)
}

// consequence returns err, with one exception: the guard refuses a request after VPP refused an earlier one of the same value.
// The guard then only prevents half a change (for example, a removed backend whose successor was not added), and the value is not
// invalid.
func consequence(earlier, err error) error {
	if _, guarded := errors.AsType[*vpp.GuardError](err); guarded && earlier != nil {
		return errors.New(err.Error())
	}
	return err
}

// unreachable reports that a request got no answer, so that its effect is unknown.
func unreachable(err error) bool {
	return errors.Is(err, vpp.ErrDisconnected) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// finish records the result of a step.
func (x *execution) finish(s Step, lost error) {
	v := s.v
	x.noteStep(s)
	now := v.want
	if v.plan.after != nil {
		now = v.plan.after
	}
	if v.plan.err != nil || lost != nil {
		x.note(v)
		if s.Action == Create && !s.shut {
			x.notCreated(v)
		}
		if v.plan.unsent && lost == nil {
			return
		}
		if s.Action != Delete && v.kind.journalled() {
			// VPP may have the object nevertheless, or half of it, and only the journal knows that it is ours.
			v.tried, v.ours = now, true
			if v.have == nil {
				v.have = now
			}
		}
		v.unsure = true
		return
	}
	switch {
	case s.stage != nil && s.Action != Create:
		x.a.setHave(v, now, true)
	case s.Action == Delete:
		x.a.setHave(v, nil, false)
		x.c.Del++
	case s.Action == Create:
		x.a.setHave(v, now, true)
		x.c.Add++
		if s.shut {
			x.a.closing.at = x.a.cfg.Now()
		}
	default:
		x.a.setHave(v, now, true)
		if !s.sweep {
			x.c.Mod++
		}
	}
	v.unsure, v.tried, v.rebind, v.plan.after = false, nil, false, nil
	x.a.cfg.Quarantine.Acquit(v.key)
}

// notCreated makes the values that need v wait.
func (x *execution) notCreated(v *value) {
	x.a.g.setWill(v, false, x.p.touch)
	for len(x.p.queue) > 0 {
		d := x.p.queue[len(x.p.queue)-1]
		x.p.queue = x.p.queue[:len(x.p.queue)-1]
		d.plan.queued = false
		if !x.a.g.should(d) {
			x.a.g.setWill(d, false, x.p.touch)
		}
	}
}

// setHave records the actual state of v, and writes it to the journal if VPP keeps no tag of ours on it.
func (a *Agent) setHave(v *value, have any, ours bool) {
	a.check.answers.Forget()
	differed := v.differs()
	v.have, v.ours = have, ours && have != nil
	if differed || v.differs() {
		a.g.setDeps(v)
	}
	a.g.setUses(v)
	a.g.noteChange(v)
	if v.kind.journalled() {
		untagged := v.ours && (!v.kind.Tagged || v.kind.Unmarked(have))
		a.journal.Confirm(v.key, v.kind.Descriptor, v.have, untagged)
	}
}

// hasUntagged reports that VPP has objects of the kind that are ours, and that its list of interfaces does not show by a tag.
func (k *kind) hasUntagged(w *descriptor.World) bool {
	return k.Tagged && k.Unmarked != nil && slices.ContainsFunc(k.values, func(v *value) bool { return v.have != nil && v.ours && k.Unmarked(v.have) && !w.Owns(v.ifname) })
}

// journalled reports that VPP may have untagged objects of the kind that are ours.
func (k *kind) journalled() bool { return !k.Tagged || k.Unmarked != nil }

// observe turns results into statuses.
func (a *Agent) observe(p *planner, x *execution) {
	now := a.cfg.Now()
	p.sort()
	out := make([]event.ValueStatus, 0, len(p.touched))
	for _, v := range p.touched {
		if v.any != "" || v.kind == nil && v.msg == nil && v.state == event.Nonexistent {
			a.g.collect(v)
			continue
		}
		old, why := v.state, v.err
		if put, left := a.rest.values[v]; left && put && x.c.Err == nil {
			if v.want == nil {
				continue
			}
			v.state, v.err, v.missing = event.Pending, pausing, nil
			delete(a.retrying, v)
		} else {
			a.setResult(v, x.c.Err, now)
		}
		x.news = x.news || v.state != old || v.err != why
		if v.state == event.Nonexistent {
			if old != event.Nonexistent {
				out = append(out, event.ValueStatus{Key: v.key, State: event.Removed})
			}
			a.board.removeStatus(v)
			a.g.setDeps(v)
			a.g.collect(v)
			continue
		}
		out = append(out, event.ValueStatus{Key: v.key, State: v.state, Err: v.err, Details: v.missing})
		a.board.setStatus(v, now)
	}
	x.statuses.AddList(out)
}

// setResult gives v its status. lost: VPP could not be reached, and the plan was not executed.
func (a *Agent) setResult(v *value, lost error, now time.Time) {
	v.err, v.missing = "", nil
	delete(a.retrying, v)
	err := v.plan.err
	switch {
	case v.bad != nil:
		v.state, v.err = event.Invalid, v.bad.Error()
		if errors.Is(v.bad, errUnimplemented) {
			v.state = event.Unimplemented
		}
		if err != nil && lost == nil { // the removal of the earlier object failed
			a.retryLater(v, now)
		}
	case v.want == nil && (v.have == nil || !v.ours) && err == nil:
		v.state = event.Nonexistent
	case lost != nil:
		v.state, v.err = event.Retrying, lost.Error() // retried at the next connection, not by the clock
	case err != nil:
		a.judgeFailure(v, err, now)
	case v.want != nil && !v.will:
		v.state, v.missing = event.Pending, v.missingKeys()
	case v.never != "":
		v.state, v.err = event.Invalid, v.never
	case len(v.held) > 0 && v.have != nil:
		v.state, v.missing, v.err = event.Pending, v.held, v.kind.Stands.Note(v.have)
	default:
		v.state = event.Configured
		v.backoff, v.retryAt = 0, time.Time{}
	}
}

func (a *Agent) judgeFailure(v *value, err error, now time.Time) {
	v.err = err.Error()
	refusal, guarded := errors.AsType[*vpp.GuardError](err)
	_, fixed := errors.AsType[*descriptor.FixedError](err)
	switch {
	case guarded && !refusal.Stateful: // the refusal depends on VPP's state: dump it again and retry
		v.state = event.Invalid
	case fixed:
		v.state = event.Failed
	default:
		v.state = event.Retrying
		a.retryLater(v, now)
	}
}

func (a *Agent) retryLater(v *value, now time.Time) {
	v.backoff = a.cfg.Backoff.Next(v.backoff)
	v.retryAt = now.Add(v.backoff)
	a.retrying[v] = struct{}{}
}
