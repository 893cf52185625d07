package controller

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// The loop renders one share of a namespace at a time, and other namespaces wait meanwhile. So a share is bounded by the work that it makes:
//
//	share ─▶ rules read + rules written ─▶ next share: as many changes as make turnWork
//
// Work is counted, not measured: the same changes make the same shares on any machine. A namespace begins with few changes. Its share
// doubles while its changes make little work.

// Costs of changes, and the work that they make, approximately in rules of access lists.
const (
	lightCost = 16      // of any change
	share     = 1 << 12 // the largest of a namespace in a transaction
	restShare = 1 << 8  // of a namespace while VPP has not acknowledged all of the ended transactions
	heavyCost = share / 4
	turnWork  = 1 << 9 // rendering takes about 8 µs for a rule
	smallWork = turnWork / 8
	// ruleBytes is the size of a rule in a value; selectorBytes is the length of a selector that takes as long as a rule.
	ruleBytes, selectorBytes = 64, 256
)

// cost returns the cost of a change.
func cost(ch *event.Change) int {
	switch o := ch.Object.(type) {
	case *model.Policy:
		return lightCost + budget.OfPolicy(o, false)[budget.Rules] + selectors(o)/selectorBytes
	case *model.Service:
		return lightCost + len(o.Ports)*(len(o.ClusterIPs)+len(o.ExternalIPs)+len(o.LoadBalancerIPs)) + len(o.LoadBalancerSourceRanges)*len(o.Ports)
	case *model.EndpointSlice:
		return lightCost + len(o.Endpoints)*len(o.Ports)
	}
	return lightCost
}

// selectors returns the length of all selectors of a policy.
func selectors(p *model.Policy) int {
	n := len(p.Selector)
	for _, rules := range [2][]model.Rule{p.InboundRules, p.OutboundRules} {
		for i := range rules {
			for _, peer := range [2]*model.Peer{&rules[i].Source, &rules[i].Destination} {
				n += len(peer.Selector) + len(peer.NotSelector)
			}
		}
	}
	return n
}

// latest drops the changes that a later change of the same object replaces.
func latest(changes []event.Change) []event.Change {
	if len(changes) < 2 {
		return changes
	}
	l := lane{at: make(map[model.Ref]int, len(changes))}
	for i := range changes {
		l.put(changes[i])
	}
	return l.list
}

// load learns how much work the changes of namespaces make. The zero value knows nothing.
type load struct {
	rates   map[string]rate // by namespace
	present map[string]int  // costs by namespace, of changes since the last turn
	changes int             // number of them
	written int             // rules in values that the present turn changed
}

// rate is what the last turn of a namespace showed.
type rate struct {
	share int // cost of the changes that the next turn may have
	cost  int // of the last turn; 0: none yet
	work  int // of the last turn
	turns int // with more than turnWork
}

// maxRates bounds the namespaces that a load remembers.
const maxRates = 1 << 10

// share is the cost of the changes that a namespace may have in a transaction.
func (l *load) share(ns string) int {
	if r, known := l.rates[ns]; known {
		return r.share
	}
	return turnWork
}

// does notes a change that the present turn renders.
func (l *load) does(ns string, cost int) {
	if l.present == nil {
		l.present = map[string]int{}
	}
	l.present[ns] += cost
	l.changes++
}

// wrote notes values that the present turn changed.
func (l *load) wrote(values map[string]proto.Message) {
	for _, m := range values {
		l.written++
		if m != nil {
			l.written += proto.Size(m) / ruleBytes
		}
	}
}

// learn ends a turn, and calls small for each namespace that made little work. The work counts for each namespace by the costs of its changes.
// Held: VPP is behind, so that values are not written yet.
func (l *load) learn(held bool, small func(ns string)) {
	all := 0
	for _, n := range l.present {
		all += n
	}
	work := all - (lightCost-1)*l.changes + l.written
	for ns, n := range l.present {
		if work*n/all <= smallWork {
			small(ns)
		}
		r, known := l.rates[ns]
		if !known {
			r.share = turnWork
			if len(l.rates) >= maxRates {
				clear(l.rates)
			}
		}
		if l.rates == nil {
			l.rates = map[string]rate{}
		}
		if ns != "" && !held {
			l.rates[ns] = r.after(n, work*n/all)
		}
	}
	clear(l.present)
	l.changes, l.written = 0, 0
}

// after returns the rate after a turn of that cost and work. Two turns of different costs show a fixed part of the work, and a part that grows with
// the cost. A hundred changes of members write the same tables as one, so the share does not shrink where the fixed part alone is more than
// turnWork: then it is so large that both parts are equal.
func (r rate) after(cost, work int) rate {
	next := r.share
	near := 8*max(cost-r.cost, r.cost-cost) <= cost
	switch {
	case work <= turnWork && 2*cost <= r.share: // the share was not used
	case work <= turnWork:
		next = 2 * r.share
	case r.cost == 0, near && work > 2*r.work:
		next = cost / 4
	case near:
		if r.turns%16 == 15 {
			next = 2 * cost
		}
	default:
		each := float64(work-r.work) / float64(cost-r.cost)
		fixed := float64(work) - each*float64(cost)
		next = 4 * cost
		if most := max(turnWork-fixed, fixed); each*float64(next) > most {
			next = int(most / each)
		}
	}
	if work > turnWork {
		r.turns++
	}
	return rate{share: min(max(next, lightCost), share), cost: cost, work: work, turns: r.turns}
}
