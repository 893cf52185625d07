package vppagent

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/cost"
)

// While VPP's main thread is at a request, nothing is forwarded (package cost). So requests are sent in groups, and after a group comes
// a pause that is as long as VPP was busy:
//
//	group ─▶ replies ─▶ pause ─▶ group ─▶ replies ─▶ pause     a group takes cost.Stall at most, or is one request
//
// VPP spends half of its time on requests at most, and a transaction takes at most twice as long as without pauses. Small transactions
// do not pause: only the time that VPP was busy since it last had room counts.

// pacer is for one goroutine at a time.
type pacer struct {
	caller Caller
	pause  func(context.Context, time.Duration) // nil: none, and one group
	now    func() time.Time

	debt  time.Duration // how long VPP was busy for which it had no room since
	at    time.Time     // when debt was that
	scale float64       // how much longer VPP takes than estimated; 0: not known
}

// mostScale bounds what measurements make of an estimate: a busy machine measures itself.
const mostScale = 4

// do sends calls, of which each costs VPP about that much, and returns the replies.
func (p *pacer) do(ctx context.Context, calls []vpp.Call, costs []time.Duration) []vpp.Reply {
	if p.pause == nil {
		return p.caller.Do(ctx, calls...)
	}
	var out []vpp.Reply
	for len(calls) > 0 {
		n, sum := p.group(costs)
		p.room(ctx, sum)
		began := p.now()
		replies := p.caller.Do(ctx, calls[:n]...)
		p.spent(sum, p.now().Sub(began))
		if n == len(calls) && out == nil {
			return replies
		}
		out, calls, costs = append(out, replies...), calls[n:], costs[n:]
	}
	return out
}

// group is how many of the next calls go together, and what they cost.
func (p *pacer) group(costs []time.Duration) (n int, sum time.Duration) {
	for _, c := range costs {
		if c = p.scaled(c); n > 0 && sum+c > cost.Stall {
			break
		}
		n, sum = n+1, sum+c
	}
	return n, sum
}

func (p *pacer) scaled(c time.Duration) time.Duration {
	if p.scale == 0 {
		return c
	}
	return time.Duration(float64(c) * p.scale)
}

// room pauses if what VPP is asked for now would come too soon after what it did before.
func (p *pacer) room(ctx context.Context, next time.Duration) {
	p.debt = max(0, p.debt-p.now().Sub(p.at))
	if p.debt > 0 && p.debt+next > cost.Stall {
		p.pause(ctx, p.debt)
		p.debt = 0
	}
}

// spent notes what a group was estimated to cost and how long it took.
func (p *pacer) spent(estimate, took time.Duration) {
	p.debt += max(estimate, min(took, mostScale*estimate))
	p.at = p.now()
	if estimate < cost.Stall/4 { // the way there and back counts more
		return
	}
	ratio := float64(took) / float64(estimate)
	if p.scale == 0 {
		p.scale = 1
	}
	p.scale = min(max(p.scale*(1+(ratio-1)/4), 1), mostScale)
}

// costs are what requests cost VPP.
func (a *Agent) costs(batch []request) []time.Duration {
	if a.pace.pause == nil {
		return nil
	}
	out := make([]time.Duration, len(batch))
	for i := range batch {
		op := &batch[i].op
		switch {
		case op.Cost > 0:
			out[i] = op.Cost
		case op.Call.Msg != nil:
			out[i] = a.g.world.Cost.Message(op.Call.Msg.GetMessageName())
		}
	}
	return out
}
