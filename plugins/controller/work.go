package controller

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
)

// The loop renders one share of a namespace at a time, and other namespaces wait meanwhile. So a share is bounded by the work that it makes:
//
//	share ─▶ rules read + rules written ─▶ next share: as many changes as make turnWork
//
// Work is counted, not measured: the same changes make the same shares on any machine. A namespace begins with few changes. Its share
// doubles while its changes make little work. A share of changes of members does not depend on their work: see ofMembers.

// Costs of changes, and the work that they make, approximately in rules of access lists.
const (
	lightCost = 16      // of any change
	share     = 1 << 12 // the largest of a namespace in a transaction
	restShare = 1 << 8  // of a namespace while VPP has not acknowledged all of the ended transactions
	heavyCost = share / 4
	turnWork  = 1 << 9 // rendering takes about 8 µs for a rule
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
		l.putChange(changes[i])
	}
	return l.list
}

// load learns how much work the changes of namespaces make. The zero value knows nothing.
type load struct {
	shares  map[string]int // by namespace, if known: cost of the changes that the next turn may have
	present map[string]int // costs by namespace, of changes since the last turn
	members bool           // some of these are changes of members
	changes int            // their number
	written int            // rules in values that the present turn changed
}

// maxShares bounds the namespaces that a load remembers.
const maxShares = 1 << 10

// ofMembers reports whether a change may change the members of sets. A hundred such changes write the same tables as one, so the share of them
// does not depend on their work.
func ofMembers(ref model.Ref) bool {
	return ref.Kind == model.KindPod || ref.Kind == model.KindNamespace || ref.Kind == model.KindServiceAccount
}

// share is the cost of the changes that a namespace may have in a transaction, up to that change.
func (l *load) share(ref model.Ref) int {
	if ofMembers(ref) {
		return share
	}
	if n, known := l.shares[ref.Namespace]; known {
		return n
	}
	return turnWork
}

// does notes a change that the present turn renders.
func (l *load) does(ref model.Ref, cost int) {
	if l.present == nil {
		l.present = map[string]int{}
	}
	l.present[ref.Namespace] += cost
	l.changes++
	l.members = l.members || ofMembers(ref)
}

// wrote notes values that the present turn changed.
func (l *load) wrote(values map[string]proto.Message) {
	for _, m := range values {
		l.written++
		switch m := m.(type) {
		case nil:
		case *acl.ACL:
			l.written += len(m.GetRules())
		default:
			l.written += proto.Size(m) / ruleBytes
		}
	}
}

// learn ends a turn. Its work counts for each namespace by the costs of its changes. Held: VPP is behind, so that values are not written yet.
func (l *load) learn(held bool) {
	all := 0
	for _, n := range l.present {
		all += n
	}
	work := all - (lightCost-1)*l.changes + l.written
	for ns, n := range l.present {
		if ns != "" && !held && !l.members {
			l.setShare(ns, n, work*n/all)
		}
	}
	clear(l.present)
	l.changes, l.written, l.members = 0, 0, false
}

// setShare sets the share of a namespace after a turn of that cost and work.
func (l *load) setShare(ns string, cost, work int) {
	now, known := l.shares[ns]
	if !known {
		now = turnWork
	}
	switch {
	case work > turnWork:
		now = max(lightCost, cost*turnWork/work)
	case 2*cost > now: // the share was used
		now = min(2*now, share)
	}
	if l.shares == nil || len(l.shares) >= maxShares {
		l.shares = map[string]int{}
	}
	l.shares[ns] = now
}
