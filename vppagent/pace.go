package vppagent

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// VPP forwards nothing while its main thread serves a request (package cost). So the agent sends requests in groups. After each group
// it pauses for as long as VPP was busy:
//
//	group ─▶ replies ─▶ pause ─▶ group ─▶ replies ─▶ pause     a group takes cost.Stall at most, or is one request
//
// VPP spends at most half of its time on requests, and a transaction takes at most twice as long as without pauses. Small transactions
// do not pause: the pacer counts only the busy time since the last pause.

// pacer sends requests in groups with pauses. One goroutine at a time may use it.
type pacer struct {
	caller Caller
	pause  func(context.Context, time.Duration) // nil: no pauses, and one group
	now    func() time.Time
	stall  time.Duration // the longest group

	debt  time.Duration       // busy time of VPP that no pause has made up for
	ahead time.Duration       // the part of debt from small requests that did not wait for a pause
	at    time.Time           // the time of that debt
	known map[string]measured // by request name
}

// measured is the factor by which requests took longer than estimated, at least 1, and the time of the measurement.
type measured struct {
	scale float64
	at    time.Time
}

// forgetAfter is the lifetime of a measurement whose estimate does not count rules: thousands of NAT sessions may be added in a second.
const forgetAfter = time.Second

// estimate is the estimated cost of a request for VPP.
type estimate struct {
	name  string
	cost  time.Duration
	rules bool // it follows from known numbers, as of rules; else it depends on unknown facts, such as the number of NAT sessions
	apart uint64
}

// most bounds the measured factor: a busy machine measures itself.
func (e estimate) most() float64 {
	if e.rules && e.apart == 0 {
		return 4
	}
	return 16
}

// do sends calls, each with its estimated cost, and returns the replies.
func (p *pacer) do(ctx context.Context, calls []vpp.Call, costs []estimate) []vpp.Reply {
	if p.pause == nil {
		return p.caller.Do(ctx, calls...)
	}
	var out []vpp.Reply
	for len(calls) > 0 {
		n, sum := p.group(costs)
		p.room(ctx, sum)
		began := p.now()
		replies := p.caller.Do(ctx, calls[:n]...)
		p.spent(costs[:n], p.now().Sub(began))
		if n == len(calls) && out == nil {
			return replies
		}
		out, calls, costs = append(out, replies...), calls[n:], costs[n:]
	}
	return out
}

// group is the number of calls in the next group, and their cost.
func (p *pacer) group(costs []estimate) (n int, sum time.Duration) {
	var apart map[uint64]bool
	for _, e := range costs {
		c := p.scaled(e)
		if n > 0 && sum+c > p.stall || apart[e.apart] {
			break
		}
		if e.apart != 0 {
			if apart == nil {
				apart = map[uint64]bool{}
			}
			apart[e.apart] = true
		}
		n, sum = n+1, sum+c
	}
	return n, sum
}

// total is the cost of calls.
func (p *pacer) total(costs []estimate) (sum time.Duration) {
	for _, e := range costs {
		sum += p.scaled(e)
	}
	return sum
}

func (p *pacer) scaled(e estimate) time.Duration {
	return time.Duration(float64(e.cost) * p.scale(e))
}

// scale is the factor by which a request takes longer than estimated. A request whose cost does not follow from rules begins in small
// groups.
func (p *pacer) scale(e estimate) float64 {
	m, known := p.known[e.name]
	switch {
	case known && (e.rules || p.now().Sub(m.at) < forgetAfter):
		return m.scale
	case e.rules:
		return 1
	}
	return e.most()
}

// room pauses if the next requests would follow the earlier ones too soon.
func (p *pacer) room(ctx context.Context, next time.Duration) {
	p.debt = max(0, p.debt-p.now().Sub(p.at))
	p.at = p.now()
	switch {
	case p.debt == 0 || p.debt+next <= p.stall:
	case p.ahead+next <= p.stall/4: // a small change does not wait, and the next pause grows by its cost
		p.ahead += next
		return
	default:
		p.pause(ctx, p.debt)
		p.debt = 0
	}
	p.ahead = 0
}

// free is the time when VPP's pause ends; zero: it has ended.
func (p *pacer) free() time.Time { return p.at.Add(p.debt) }

// spent records the duration of a group. It attributes the excess over the estimate to the requests with the highest estimates.
func (p *pacer) spent(group []estimate, took time.Duration) {
	var sum time.Duration
	of := map[string]time.Duration{}
	main := group[0]
	for _, e := range group {
		sum += e.cost
		if of[e.name] += e.cost; of[e.name] > of[main.name] {
			main = e
		}
	}
	p.debt += max(sum, min(took, time.Duration(main.most()*float64(sum))))
	p.at = p.now()
	was, is := p.scale(main), float64(took)/float64(sum)
	if is > was && took < p.stall/4 { // the round trip dominates
		is = was
	}
	if p.known == nil {
		p.known = map[string]measured{}
	}
	p.known[main.name] = measured{min(max((was+is)/2, 1), main.most()), p.at}
}

// costs are the estimated costs of requests for VPP.
func (a *Agent) costs(batch []request) []estimate {
	if a.pace.pause == nil {
		return nil
	}
	out := make([]estimate, len(batch))
	for i := range batch {
		op := &batch[i].op
		if op.Call.Msg != nil {
			out[i] = estimate{name: op.Call.Msg.GetMessageName(), cost: op.Cost, rules: op.Cost > 0, apart: op.Apart}
		}
		if op.Cost == 0 {
			out[i].cost = a.g.world.Cost.Message(out[i].name)
		}
		if op.Apart != 0 {
			out[i].name += " apart" // another scale
		}
	}
	return out
}
