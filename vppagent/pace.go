package vppagent

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
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
	stall  time.Duration // the longest group

	debt  time.Duration       // how long VPP was busy for which it had no room since
	ahead time.Duration       // of that, what small requests took that did not wait for a pause
	at    time.Time           // when debt was that
	known map[string]measured // by name of request
}

// measured is how much longer requests took than estimated, at least 1, and when that was.
type measured struct {
	scale float64
	at    time.Time
}

// forgetAfter is how long a measurement of what is not counted by rules holds: NAT sessions come by thousands in a second.
const forgetAfter = time.Second

// estimate is what a request costs VPP.
type estimate struct {
	name  string
	cost  time.Duration
	rules bool // it is counted by rules; else it depends on what is not known, as on NAT sessions
}

// most bounds what measurements make of an estimate: a busy machine measures itself.
func (e estimate) most() float64 {
	if e.rules {
		return 4
	}
	return 16
}

// do sends calls, of which each costs VPP about that much, and returns the replies.
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

// group is how many of the next calls go together, and what they cost.
func (p *pacer) group(costs []estimate) (n int, sum time.Duration) {
	for _, e := range costs {
		c := p.scaled(e)
		if n > 0 && sum+c > p.stall {
			break
		}
		n, sum = n+1, sum+c
	}
	return n, sum
}

// total is what calls cost.
func (p *pacer) total(costs []estimate) (sum time.Duration) {
	for _, e := range costs {
		sum += p.scaled(e)
	}
	return sum
}

func (p *pacer) scaled(e estimate) time.Duration {
	return time.Duration(float64(e.cost) * p.scale(e))
}

// scale is how much longer a request takes than estimated. What is not counted by rules begins with few requests.
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

// room pauses if what VPP is asked for now would come too soon after what it did before.
func (p *pacer) room(ctx context.Context, next time.Duration) {
	p.debt = max(0, p.debt-p.now().Sub(p.at))
	p.at = p.now()
	switch {
	case p.debt == 0 || p.debt+next <= p.stall:
	case p.ahead+next <= p.stall/4: // a small change goes first, and the pause is longer by it
		p.ahead += next
		return
	default:
		p.pause(ctx, p.debt)
		p.debt = 0
	}
	p.ahead = 0
}

// free is when VPP will have had its pause; zero: it has.
func (p *pacer) free() time.Time { return p.at.Add(p.debt) }

// spent notes how long a group took. Of its requests those that cost most are taken to be what made it longer than estimated.
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
	if is > was && took < p.stall/4 { // the way there and back counts more
		is = was
	}
	if p.known == nil {
		p.known = map[string]measured{}
	}
	p.known[main.name] = measured{min(max((was+is)/2, 1), main.most()), p.at}
}

// costs are what requests cost VPP.
func (a *Agent) costs(batch []request) []estimate {
	if a.pace.pause == nil {
		return nil
	}
	out := make([]estimate, len(batch))
	for i := range batch {
		op := &batch[i].op
		if op.Call.Msg != nil {
			out[i] = estimate{name: op.Call.Msg.GetMessageName(), cost: op.Cost, rules: op.Cost > 0}
		}
		if op.Cost == 0 {
			out[i].cost = a.g.world.Cost.Message(out[i].name)
		}
	}
	return out
}
