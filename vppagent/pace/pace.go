// Package pace turns requests for VPP and their estimated costs into groups with pauses between them.
//
// Invariant: VPP serves requests for Stall at most before it forwards, by their estimates, scaled by the measured time of earlier requests, or
// serves one request.
//
// VPP forwards nothing while its main thread serves a request (package cost). So the agent sends requests in groups. After each group
// it pauses for as long as VPP was busy:
//
//	group ─▶ replies ─▶ pause ─▶ group ─▶ replies ─▶ pause     a group takes cost.Stall at most, or is one request
//	light requests ─▶ replies                                  no pause: VPP forwards between them
//
// VPP reads 4,096 bytes of requests at once, serves them, and forwards what waits before it reads more (vl_socket_read_ready, 24.06 to 26.06). If
// it has much to forward it reads again only after 1,024 rounds (vlib_file_poll). Requests are light if 4,096 bytes of them take half of
// Stall at most, and thus what ends in one read takes Stall at most: mappings of Services and routes, by the thousand. A pause between them
// would shorten no stall.
//
// Of other requests VPP spends at most half of its time on requests, and a transaction takes at most twice as long as without pauses. Small
// transactions do not pause: the pacer counts only the busy time since the last pause.
package pace

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Caller sends requests to VPP in order and returns one reply per request. *vpp.Conn is one.
type Caller interface {
	Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply
}

// Pacer sends requests in groups with pauses. One goroutine at a time may use it.
type Pacer struct {
	Caller Caller
	Pause  func(context.Context, time.Duration) // nil: no pauses, and one group
	Now    func() time.Time
	Stall  time.Duration // the longest group

	Balance time.Duration // how long VPP served requests so far, less the pauses

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

// Estimate is the estimated cost of a request for VPP.
type Estimate struct {
	Name  string // of the message, or of a use of the message that takes another time
	Cost  time.Duration
	Size  int    // of the message, in bytes; 0: not known
	Known bool   // it follows from known numbers, as of rules; else it depends on unknown facts, such as the number of NAT sessions
	Apart uint64 // requests with the same number are in different groups: see descriptor.Op; 0: no matter
}

// most bounds the measured factor: a busy machine measures itself.
func (e Estimate) most() float64 {
	if e.Known && e.Apart == 0 {
		return 4
	}
	return 16
}

// Do sends calls, each with its estimated cost, and returns the replies.
func (p *Pacer) Do(ctx context.Context, calls []vpp.Call, costs []Estimate) []vpp.Reply {
	if p.Pause == nil {
		began := p.Now()
		defer func() { p.Balance += p.Now().Sub(began) }()
		return p.Caller.Do(ctx, calls...)
	}
	var out []vpp.Reply
	for len(calls) > 0 {
		n, sum := p.lightGroup(calls, costs)
		light := n > 0
		if !light {
			n, sum = p.group(calls, costs)
		}
		p.pauseBefore(ctx, sum)
		began := p.Now()
		replies := p.Caller.Do(ctx, calls[:n]...)
		took := p.Now().Sub(began)
		p.Balance += took
		p.measure(costs[:n], took, light)
		if n == len(calls) && out == nil {
			return replies
		}
		out, calls, costs = append(out, replies...), calls[n:], costs[n:]
	}
	return out
}

// readAtOnce is how many bytes of requests VPP reads before it forwards again.
const readAtOnce = 4096

// mostLight bounds a group of light requests, in multiples of Stall: the pacer then compares its estimates with the measured time.
const mostLight = 8

// light reports that as many such requests as VPP reads at once take half of Stall at most. The first of them may have begun in the read before.
func (p *Pacer) light(e Estimate) bool {
	return e.Apart == 0 && p.scaled(e)*readAtOnce <= p.Stall/2*time.Duration(min(e.Size, readAtOnce))
}

// lightGroup is the number of light calls before the first other one, and their cost. It ends behind no joined call.
func (p *Pacer) lightGroup(calls []vpp.Call, costs []Estimate) (n int, cost time.Duration) {
	sum := time.Duration(0)
	for i, e := range costs {
		if !p.light(e) || n > 0 && sum > mostLight*p.Stall {
			break
		}
		sum += p.scaled(e)
		if !calls[i].Joined {
			n, cost = i+1, sum
		}
	}
	return n, cost
}

// group is the number of calls in the next group, and their cost. It ends behind no joined call: see vpp.Call.
func (p *Pacer) group(calls []vpp.Call, costs []Estimate) (n int, sum time.Duration) {
	apart := map[uint64]bool{}
	whole, cost := 0, time.Duration(0) // of the calls up to the last that is not joined
	for i, e := range costs {
		sum += p.scaled(e)
		if whole > 0 && (sum > p.Stall || apart[e.Apart]) {
			return whole, cost
		}
		if e.Apart != 0 {
			apart[e.Apart] = true
		}
		if !calls[i].Joined {
			whole, cost = i+1, sum
		}
	}
	return len(costs), sum
}

// Total is the cost of calls.
func (p *Pacer) Total(costs []Estimate) (sum time.Duration) {
	for _, e := range costs {
		sum += p.scaled(e)
	}
	return sum
}

func (p *Pacer) scaled(e Estimate) time.Duration {
	return time.Duration(float64(e.Cost) * p.scale(e))
}

// scale is the factor by which a request takes longer than estimated. A request whose cost does not follow from rules begins in small
// groups.
func (p *Pacer) scale(e Estimate) float64 {
	m, known := p.known[e.Name]
	switch {
	case known && (e.Known || p.Now().Sub(m.at) < forgetAfter):
		return m.scale
	case e.Known:
		return 1
	}
	return e.most()
}

// pauseBefore pauses if the next requests would follow the earlier ones too soon.
func (p *Pacer) pauseBefore(ctx context.Context, next time.Duration) {
	p.debt = max(0, p.debt-p.Now().Sub(p.at))
	p.at = p.Now()
	switch {
	case p.debt == 0 || p.debt+next <= p.Stall:
	case p.ahead+next <= p.Stall/4: // a small change does not wait, and the next pause grows by its cost
		p.ahead += next
		return
	default:
		began := p.Now()
		p.Pause(ctx, p.debt)
		p.Balance -= p.Now().Sub(began)
		p.debt = 0
	}
	p.ahead = 0
}

// Free is the time when VPP's pause ends; zero: it has ended.
func (p *Pacer) Free() time.Time { return p.at.Add(p.debt) }

// measure records the duration of a group. It attributes the excess over the estimate to the requests with the highest estimates. A pause makes up
// for a group that is not light.
func (p *Pacer) measure(group []Estimate, took time.Duration, light bool) {
	var sum time.Duration
	of := map[string]time.Duration{}
	main := group[0]
	for _, e := range group {
		sum += e.Cost
		if of[e.Name] += e.Cost; of[e.Name] > of[main.Name] {
			main = e
		}
	}
	if !light {
		p.debt += max(sum, min(took, time.Duration(main.most()*float64(sum))))
	}
	p.at = p.Now()
	was, is := p.scale(main), float64(took)/float64(sum)
	if is > was && took < p.Stall/4 { // the round trip dominates
		is = was
	}
	if p.known == nil {
		p.known = map[string]measured{}
	}
	p.known[main.Name] = measured{min(max((was+is)/2, 1), main.most()), p.at}
}
