package controller

import (
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// A transaction has everything that changed since the previous one. Each namespace has a share of a transaction, so that no
// namespace makes the transactions of others large. Changes beyond the share wait in the namespace's lane for the next transaction.
// A lane keeps the latest change of each object.
//
//	Update ─ light, within the share ─▶ processors ─▶ this transaction
//	       └─ beyond it, or heavy ────▶ lane ───────▶ a later one, alternating with those of others
//
// The share depends on the work that the namespace's last changes made: see work.go.
//
// While VPP is behind (event.Committed.Left), a namespace has one small share for all transactions until VPP has caught up; lanes
// with changes beyond it wait. Most changes of the busiest namespace then concern keys that wait anyway, and rendering them would
// take time from other namespaces.
//
// Cluster-scoped objects, and all changes before the first sync, do not wait.

// lane holds the waiting changes of a namespace, in order.
type lane struct {
	list []event.Change
	at   map[model.Ref]int // by object: number of the change, counted from the beginning of the lane
	left int               // number of the changes that left the lane
}

func (l *lane) putChange(ch event.Change) {
	if i, waits := l.at[ch.Ref]; waits {
		l.list[i-l.left] = ch
		return
	}
	l.at[ch.Ref] = l.left + len(l.list)
	l.list = append(l.list, ch)
}

// joinSlices moves the EndpointSlices of the first one's Service to the front, and returns their number; 0: the first change is none. The processors
// build a Service once, however many of its slices changed.
func (l *lane) joinSlices() (n int) {
	first, is := l.list[0].Object.(*model.EndpointSlice)
	if !is {
		return 0
	}
	slices.SortStableFunc(l.list, func(a, b event.Change) int {
		joins := func(ch event.Change) int {
			if s, is := ch.Object.(*model.EndpointSlice); is && s.Service == first.Service {
				return 0
			}
			return 1
		}
		return joins(a) - joins(b)
	})
	for i := range l.list {
		l.at[l.list[i].Ref] = l.left + i
		if s, is := l.list[i].Object.(*model.EndpointSlice); is && s.Service == first.Service {
			n++
		}
	}
	return n
}

// admit returns the changes that need not wait, and puts the others into lanes.
func (f *fair) admit(changes []event.Change) []event.Change {
	changes = latest(changes)
	waiting := 0
	now := changes
	for i := range changes {
		ch := &changes[i]
		ns := ch.Ref.Namespace
		f.turns.hears(ns)
		if ns == "" || f.lanes[ns] == nil && !f.turns.rests(ns) && f.pays(ch) {
			f.does(ch.Ref, cost(ch))
			if waiting > 0 {
				now = append(now, *ch)
			}
			continue
		}
		if waiting++; waiting == 1 { // at the first waiting change, the changes before it are the whole result so far
			now = slices.Clone(changes[:i])
		}
		f.wait(ns).putChange(*ch)
	}
	return now
}

// pays reports whether a change is within its namespace's share of the next transaction, and charges its cost.
func (f *fair) pays(ch *event.Change) bool {
	price := cost(ch)
	if _, again := f.seen[ch.Ref]; again && price < heavyCost {
		return true
	}
	ns := ch.Ref.Namespace
	if !f.affords(ch.Ref, price) {
		return false
	}
	if f.spent == nil {
		f.spent, f.seen = map[string]int{}, map[model.Ref]struct{}{}
	}
	f.spent[ns] += price
	f.seen[ch.Ref] = struct{}{}
	return true
}

// affords reports whether a change of that cost is within the rest of the namespace's share.
func (f *fair) affords(ref model.Ref, price int) bool {
	most := f.load.share(ref)
	if f.behind {
		most = min(most, restShare)
	}
	return price < heavyCost && f.spent[ref.Namespace]+price <= most
}

// does notes changes that the next turn renders.
func (f *fair) does(ref model.Ref, cost int) {
	f.load.does(ref, cost)
	f.turns.does(ref.Namespace, cost)
}

func (f *fair) wait(ns string) *lane {
	l := f.lanes[ns]
	if l == nil {
		l = &lane{at: map[model.Ref]int{}}
		if f.lanes == nil {
			f.lanes = map[string]*lane{}
		}
		f.lanes[ns] = l
	}
	return l
}

// releaseChanges returns the changes that are due from the lanes: for each lane the changes within a share, but at least one. If other
// namespaces have changes for this transaction, lanes wait for the next one, once, so that those are not rendered together with theirs.
func (f *fair) releaseChanges() (out []event.Change) {
	if len(f.lanes) == 0 {
		return nil
	}
	if f.waited = !f.waited && len(f.load.present) > 0 && f.anyMayLeave(); f.waited {
		return nil
	}
	if f.behind {
		return f.releaseBehind()
	}
	for _, ns := range slices.Sorted(maps.Keys(f.lanes)) {
		l, n, total := f.lanes[ns], 0, f.spent[ns]
		if !f.turns.rests(ns) && cost(&l.list[0]) >= heavyCost {
			n = l.joinSlices()
		}
		for n < len(l.list) && !f.turns.rests(ns) {
			if total += cost(&l.list[n]); n > 0 && total > f.load.share(l.list[n].Ref) {
				break
			}
			n++
		}
		out = append(out, f.dequeue(ns, n)...)
	}
	return out
}

// dequeue takes the first changes out of a lane. It takes no longer for a lane with many more.
func (f *fair) dequeue(ns string, n int) []event.Change {
	if n == 0 {
		return nil
	}
	l := f.lanes[ns]
	out := l.list[:n]
	for i := range out {
		delete(l.at, out[i].Ref)
		f.does(out[i].Ref, cost(&out[i]))
	}
	l.left += n
	if l.list = l.list[n:]; len(l.list) == 0 {
		delete(f.lanes, ns)
	}
	return out
}

// releaseBehind returns what is due from the lanes while VPP is behind: the changes within the rest of a share. So the lane of a namespace that
// did not spend its share does not wait for VPP.
func (f *fair) releaseBehind() (out []event.Change) {
	for _, ns := range slices.Sorted(maps.Keys(f.lanes)) {
		l, n := f.lanes[ns], 0
		for n < len(l.list) && f.mayLeave(ns, l) && f.pays(&l.list[n]) {
			n++
		}
		out = append(out, f.dequeue(ns, n)...)
	}
	return out
}

// mayLeave reports that the lane of a namespace need not wait.
func (f *fair) mayLeave(ns string, l *lane) bool {
	return !f.turns.rests(ns) && (!f.behind || f.affords(l.list[0].Ref, cost(&l.list[0])))
}

// anyMayLeave reports that some lane need not wait.
func (f *fair) anyMayLeave() bool {
	for ns, l := range f.lanes {
		if f.mayLeave(ns, l) {
			return true
		}
	}
	return false
}

// nextDue is when the changes in one of the lanes are due; zero: not before an event.
func (f *fair) nextDue() (next time.Time) {
	for ns, l := range f.lanes {
		until := f.turns.until[ns]
		switch {
		case f.mayLeave(ns, l):
			until = f.turns.clock()
		case !f.turns.rests(ns):
			continue
		}
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	return next
}

// waits reports that every lane waits, or that there is none.
func (f *fair) waits() bool {
	for ns := range f.lanes {
		if !f.turns.rests(ns) {
			return false
		}
	}
	return true
}

// beginShares begins the shares of a new transaction: every namespace has its full share again, unless VPP is behind.
func (f *fair) beginShares() {
	if f.behind {
		return
	}
	clear(f.spent)
	clear(f.seen)
}
