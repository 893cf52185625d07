package lossguard

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Limits say which removals are too many at once, and how long they are held.
type Limits struct {
	Share uint8         // percent of a class, which removals within the window may not exceed
	Least int           // fewer lost things of a class than this are never too many
	For   time.Duration // how long removals are held; 0: until they are confirmed
}

// Removals that follow each other within the window count together. Beyond a small part, they wait until none has arrived for quiet, at most for
// settle: a source delivers an empty list in many updates, and the first of them must not pass before the last arrives.
const (
	window = 10 * time.Second
	quiet  = 200 * time.Millisecond
	settle = 2 * time.Second
)

// book has the objects of one source that are in force, and the removals that wait.
type book struct {
	limits *Limits
	gone   func(model.PodID, string) bool // a pod of that node is known to be disconnected; nil: of no pod

	objects map[model.Ref]object
	have    tally // of objects
	waiting map[model.Ref]removal
	order   []model.Ref // of waiting; also of some that wait no longer
	lost    tally       // of waiting
	recent  []loss      // passed within the window
	taken   map[netip.Addr]model.Ref

	since       time.Time // the removals are too many since then; zero: they are not
	what        string    // the excess
	first, last time.Time // removals that wait and are not too many arrived then
}

// object is an object in force. Form is nil for kinds whose removal alone matters.
type object struct {
	parts int
	form  model.Object
}

// counts is what the object of that kind counts for.
func (o object) counts(kind model.Kind) tally {
	t := tally{string(kind): 1}
	if o.parts > 0 {
		t[classOf(kind)] = o.parts
	}
	return t
}

// removal is a change of the source that waits.
type removal struct {
	change event.Change
	lost   tally
}

// loss is what passed changes removed.
type loss struct {
	at   time.Time
	lost tally
}

func newBook(l *Limits, gone func(model.PodID, string) bool) *book {
	return &book{limits: l, gone: gone, objects: map[model.Ref]object{}, have: tally{}, waiting: map[model.Ref]removal{}, lost: tally{}, taken: map[netip.Addr]model.Ref{}}
}

// recordAll takes changes that all pass.
func (b *book) recordAll(changes []event.Change) {
	for i := range changes {
		b.setForce(changes[i].Ref, changes[i].Object)
	}
}

// setForce notes the object that is in force now; nil: none.
func (b *book) setForce(ref model.Ref, obj model.Object) {
	if was, known := b.objects[ref]; known {
		b.have.addTally(was.counts(ref.Kind), -1)
		delete(b.objects, ref)
	}
	if obj == nil {
		return
	}
	o := object{parts: parts(obj)}
	switch obj.(type) {
	case *model.EndpointSlice, *model.Service, *model.Pod:
		o.form = obj
	}
	b.objects[ref] = o
	b.have.addTally(o.counts(ref.Kind), 1)
}

// takeChanges takes changes of the source and returns those that pass now, in order.
func (b *book) takeChanges(changes []event.Change, now time.Time) (pass []event.Change) {
	b.forget(now)
	if len(b.waiting) == 0 {
		lost := b.passed()
		sum := tally{}
		for i := range changes {
			_, part := b.divide(&changes[i])
			sum.addTally(part, 1)
		}
		lost.addTally(sum, 1)
		if small(lost, b.base(), b.limits) && excess(lost, b.base(), b.limits) == "" {
			b.recordAll(changes)
			b.note(sum, now)
			return changes
		}
	}
	for _, ch := range changes {
		for _, a := range addrsOf(ch.Object) {
			b.taken[a] = ch.Ref
		}
		pass = append(pass, b.hold(ch)...)
	}
	pass = append(pass, b.review()...) // behind: a change that passed may be of the same object
	return append(pass, b.decideHold(len(changes) > 0, now)...)
}

// hold returns the part of a change that passes, and keeps the rest.
func (b *book) hold(ch event.Change) []event.Change {
	b.drop(ch.Ref)
	now, lost := b.divide(&ch)
	if len(lost) == 0 {
		b.setForce(ch.Ref, ch.Object)
		return []event.Change{ch}
	}
	b.waiting[ch.Ref] = removal{ch, lost}
	b.order = append(b.order, ch.Ref)
	b.lost.addTally(lost, 1)
	if now == nil {
		return nil
	}
	b.setForce(ch.Ref, now)
	part := ch
	part.Object = now
	return []event.Change{part}
}

// drop forgets that the removal of an object waits.
func (b *book) drop(ref model.Ref) {
	if r, waits := b.waiting[ref]; waits {
		b.lost.addTally(r.lost, -1)
		delete(b.waiting, ref)
	}
}

// divide returns what a change loses, and the object that has all of the change but its losses; nil: the object in force.
func (b *book) divide(ch *event.Change) (without model.Object, lost tally) {
	was, known := b.objects[ch.Ref]
	switch now := ch.Object.(type) {
	case nil:
		if !known || ch.Err != nil { // a refused object is no removal
			return nil, nil
		}
		if pod, is := was.form.(*model.Pod); is && b.isGone(pod.ID, pod.NodeName, pod.IPs...) || b.isTaken(ch.Ref, addrsOf(was.form)) {
			return nil, nil
		}
		if slice, is := was.form.(*model.EndpointSlice); is {
			if rest := b.keep(slice, &model.EndpointSlice{Service: slice.Service}); len(rest) == 0 && was.parts > 0 {
				return nil, nil
			}
		}
		return nil, was.counts(ch.Ref.Kind)
	case *model.EndpointSlice:
		before, is := was.form.(*model.EndpointSlice)
		if !is {
			return ch.Object, nil
		}
		kept := b.keep(before, now)
		if len(kept) == 0 {
			return ch.Object, nil
		}
		return joinEndpoints(now, kept), tally{endpoints: len(kept)}
	}
	return ch.Object, nil
}

// keep returns the ready endpoints of a slice that its next version lacks, unless they are known to have ended.
func (b *book) keep(before, now *model.EndpointSlice) (kept []model.Endpoint) {
	if before.Service != now.Service || len(before.Endpoints) == 0 {
		return nil
	}
	ready := make(map[netip.Addr]bool, len(now.Endpoints))
	for i := range now.Endpoints {
		ready[now.Endpoints[i].Addr] = now.Endpoints[i].Ready
	}
	for i := range before.Endpoints {
		if e := &before.Endpoints[i]; e.Ready && !ready[e.Addr] && !b.isGone(e.Pod, e.NodeName, e.Addr) {
			kept = append(kept, *e)
		}
	}
	return kept
}

// joinEndpoints returns a slice with further endpoints, which replace its endpoints of the same addresses.
func joinEndpoints(now *model.EndpointSlice, kept []model.Endpoint) *model.EndpointSlice {
	out := *now
	out.Endpoints = slices.Clone(kept)
	for _, e := range now.Endpoints {
		if !slices.ContainsFunc(kept, func(k model.Endpoint) bool { return k.Addr == e.Addr }) {
			out.Endpoints = append(out.Endpoints, e)
		}
	}
	return &out
}

// isGone reports that a pod is disconnected, or that another pod has one of its addresses.
func (b *book) isGone(pod model.PodID, node string, addrs ...netip.Addr) bool {
	if pod == (model.PodID{}) {
		return false
	}
	ref := model.Ref{Kind: model.KindPod, Namespace: pod.Namespace, Name: pod.Name}
	return b.gone != nil && b.gone(pod, node) || b.isTaken(ref, addrs)
}

// isTaken reports that another object has one of the addresses since removals wait.
func (b *book) isTaken(ref model.Ref, addrs []netip.Addr) bool {
	for _, a := range addrs {
		if by, taken := b.taken[a]; taken && by != ref {
			return true
		}
	}
	return false
}

// review returns the removals that need not wait any more, because their pods are disconnected or their addresses have other owners.
func (b *book) review() (pass []event.Change) {
	if b.gone == nil && len(b.taken) == 0 {
		return nil
	}
	for _, ref := range b.order {
		r, waits := b.waiting[ref]
		if !waits {
			continue
		}
		switch b.objects[ref].form.(type) {
		case *model.Pod, *model.Service, *model.EndpointSlice:
			before := r.lost
			if _, lost := b.divide(&r.change); !equalTallies(before, lost) {
				pass = append(pass, b.hold(r.change)...)
			}
		}
	}
	return pass
}

// equalTallies reports that two tallies have the same numbers.
func equalTallies(a, o tally) bool {
	diff := tally{}
	diff.addTally(a, 1)
	diff.addTally(o, -1)
	return len(diff) == 0
}

// decideHold begins or ends the hold, and returns the removals that pass now.
func (b *book) decideHold(news bool, now time.Time) []event.Change {
	if len(b.waiting) == 0 {
		b.end()
		return nil
	}
	switch {
	case !b.since.IsZero():
		if b.limits.For > 0 && now.Sub(b.since) >= b.limits.For {
			return b.release()
		}
		return nil
	case b.measure() != "":
		b.since, b.what = now, b.measure()
		return nil
	case news && b.first.IsZero():
		b.first = now
	}
	if news {
		b.last = now
	}
	lost := b.passed()
	lost.addTally(b.lost, 1)
	if small(lost, b.base(), b.limits) || !now.Before(b.settled()) {
		b.note(maps.Clone(b.lost), now)
		return b.release()
	}
	return nil
}

// measure returns what is too much of the waiting removals, and of those that passed within the window; "": nothing.
func (b *book) measure() string {
	lost := b.passed()
	lost.addTally(b.lost, 1)
	return excess(lost, b.base(), b.limits)
}

// release returns all removals that wait: they pass.
func (b *book) release() (pass []event.Change) {
	for _, ref := range b.order {
		if r, waits := b.waiting[ref]; waits {
			pass = append(pass, r.change)
			b.drop(ref)
			b.setForce(ref, r.change.Object)
		}
	}
	if !b.since.IsZero() {
		b.recent = nil // a decision about these removals is made
	}
	b.end()
	return pass
}

// end notes that no removal waits.
func (b *book) end() {
	b.order, b.since, b.what, b.first, b.last = nil, time.Time{}, "", time.Time{}, time.Time{}
	clear(b.taken)
}

// settled is when removals that are not too many pass.
func (b *book) settled() time.Time {
	at, most := b.last.Add(quiet), b.first.Add(settle)
	if most.Before(at) {
		return most
	}
	return at
}

// next is when the book must be asked again; zero: not before a change.
func (b *book) next() time.Time {
	switch {
	case len(b.waiting) == 0 || !b.since.IsZero() && b.limits.For == 0:
		return time.Time{}
	case !b.since.IsZero():
		return b.since.Add(b.limits.For)
	}
	return b.settled()
}

// forget drops losses that are older than the window.
func (b *book) forget(now time.Time) {
	b.recent = slices.DeleteFunc(b.recent, func(l loss) bool { return now.Sub(l.at) >= window })
}

// note remembers a loss that passed.
func (b *book) note(lost tally, now time.Time) {
	if len(lost) > 0 {
		b.recent = append(b.recent, loss{now, lost})
	}
}

// passed is what was lost within the window.
func (b *book) passed() tally {
	t := tally{}
	for _, l := range b.recent {
		t.addTally(l.lost, 1)
	}
	return t
}

// base is what was in force at the beginning of the window, as far as it was not replaced.
func (b *book) base() tally {
	t := b.passed()
	t.addTally(b.have, 1)
	return t
}
