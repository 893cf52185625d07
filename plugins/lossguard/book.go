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
	grain  = 100 * time.Millisecond // losses that pass within it have one time
)

// book has the objects of one source that are in force, and the removals that wait.
type book struct {
	limits *Limits
	gone   func(model.PodID, string) bool // a pod of that node is known to be disconnected; nil: of no pod

	objects map[model.Ref]object
	have    sums // of objects
	waiting map[model.Ref]removal
	order   []model.Ref // of waiting; also of some that wait no longer
	recent  []loss      // of changes that passed within the window, or since the hold began
	passed  sums        // of recent
	lost    sums        // of recent and of waiting
	taken   map[netip.Addr]model.Ref

	since       time.Time // the removals are too many since then; zero: they are not
	first, last time.Time // changes arrived then since removals wait, or since the last decision about them; zero: none
}

// object is an object in force. Form is nil for kinds whose removal alone matters.
type object struct {
	parts int
	form  model.Object
}

func newObject(obj model.Object) object {
	o := object{parts: parts(obj)}
	switch obj.(type) {
	case *model.EndpointSlice, *model.Service, *model.Pod:
		o.form = obj
	}
	return o
}

// removal is a change of the source that waits.
type removal struct {
	change event.Change
	lost   delta
}

// loss is what changes removed and added that passed.
type loss struct {
	at time.Time
	of delta
}

func newBook(l *Limits, gone func(model.PodID, string) bool) *book {
	return &book{
		limits: l, gone: gone, objects: map[model.Ref]object{}, have: newSums(), waiting: map[model.Ref]removal{},
		passed: newSums(), lost: newSums(), taken: map[netip.Addr]model.Ref{},
	}
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
		b.have.addDelta(was.counts(ref), -1)
		delete(b.objects, ref)
	}
	if obj == nil {
		return
	}
	o := newObject(obj)
	b.objects[ref] = o
	b.have.addDelta(o.counts(ref), 1)
}

// takeChanges takes changes of the source and returns those that pass now, in order.
func (b *book) takeChanges(changes []event.Change, now time.Time) (pass []event.Change) {
	b.forget(now)
	if len(b.waiting) == 0 && b.takeAll(changes, now) {
		return changes
	}
	replaced, taken := false, false
	for _, ch := range changes {
		for _, a := range addrsOf(ch.Object) {
			taken = taken || b.taken[a] != ch.Ref
			b.taken[a] = ch.Ref
		}
		gained := b.gained(&ch)
		replaced = replaced || len(gained) > 0
		b.lost.addDelta(gained, 1)
		b.note(gained, now)
		pass = append(pass, b.hold(ch, now)...)
	}
	if taken { // behind: a change that passed may be of the same object
		pass = append(pass, b.review(now)...)
	}
	if replaced {
		pass = append(pass, b.passGroups(b.isReplaced, now)...)
	}
	return append(pass, b.decideHold(len(changes) > 0, now)...)
}

// takeAll takes changes that all pass at once, because they remove little; false: they remove more, or one object has two changes.
func (b *book) takeAll(changes []event.Change, now time.Time) bool {
	sum, seen := delta{}, make(map[model.Ref]bool, len(changes))
	for i := range changes {
		if seen[changes[i].Ref] {
			return false
		}
		seen[changes[i].Ref] = true
		_, lost := b.divide(&changes[i])
		sum.addDelta(lost)
		sum.addDelta(b.gained(&changes[i]))
	}
	b.lost.addDelta(sum, 1)
	if lost := b.lost.classes; !small(lost, b.base(), b.limits) || excess(lost, b.base(), b.limits) != "" {
		b.lost.addDelta(sum, -1)
		return false
	}
	b.note(sum, now)
	b.recordAll(changes)
	return true
}

// hold returns the part of a change that passes, and keeps the rest.
func (b *book) hold(ch event.Change, now time.Time) []event.Change {
	b.drop(ch.Ref)
	part, lost := b.divide(&ch)
	b.lost.addDelta(lost, 1)
	if b.isReplaced(lost) {
		b.note(lost, now)
		b.setForce(ch.Ref, ch.Object)
		return []event.Change{ch}
	}
	b.waiting[ch.Ref] = removal{ch, lost}
	b.order = append(b.order, ch.Ref)
	if part == nil {
		return nil
	}
	b.setForce(ch.Ref, part)
	ch.Object = part
	return []event.Change{ch}
}

// drop forgets that the removal of an object waits.
func (b *book) drop(ref model.Ref) {
	if r, waits := b.waiting[ref]; waits {
		b.lost.addDelta(r.lost, -1)
		delete(b.waiting, ref)
	}
}

// pass ends the waiting of a removal: it passes, and its loss is one that passed.
func (b *book) pass(r removal, now time.Time) event.Change {
	delete(b.waiting, r.change.Ref)
	b.note(r.lost, now)
	b.setForce(r.change.Ref, r.change.Object)
	return r.change
}

// passGroups returns the removals that wait and whose groups all can do without them.
func (b *book) passGroups(can func(delta) bool, now time.Time) (pass []event.Change) {
	for _, ref := range b.order {
		if r, waits := b.waiting[ref]; waits && can(r.lost) {
			pass = append(pass, b.pass(r, now))
		}
	}
	return pass
}

// isReplaced reports that the groups of lost things have as many new ones.
func (b *book) isReplaced(lost delta) bool {
	for g := range lost {
		if b.lost.groups[g] > 0 {
			return false
		}
	}
	return true
}

// isEnough reports that the groups of lost things have as many new ones, or have enough without them.
func (b *book) isEnough(lost delta) bool {
	for g := range lost {
		if !b.has(g) {
			return false
		}
	}
	return true
}

// has reports that a group has enough without the removals that wait.
func (b *book) has(g group) bool {
	lost := b.lost.groups[g]
	if lost <= 0 {
		return true
	}
	left := b.have.groups[g] - (lost - b.passed.groups[g])
	return left > 0 && 100*left >= g.enough()*(left+lost)
}

// divide returns what a change loses, and the object that has all of the change but its losses; nil: the object in force.
func (b *book) divide(ch *event.Change) (without model.Object, lost delta) {
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
			if rest := b.keep(slice, &model.EndpointSlice{Service: slice.Service}); len(rest) > 0 {
				return nil, delta{endpointsOf(slice): len(rest)}
			}
			return nil, nil
		}
		return nil, was.counts(ch.Ref)
	case *model.EndpointSlice:
		before, is := was.form.(*model.EndpointSlice)
		if !is {
			return ch.Object, nil
		}
		kept := b.keep(before, now)
		if len(kept) == 0 {
			return ch.Object, nil
		}
		return joinEndpoints(now, kept), delta{endpointsOf(before): len(kept)}
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
func (b *book) review(now time.Time) (pass []event.Change) {
	for _, ref := range b.order {
		r, waits := b.waiting[ref]
		if !waits {
			continue
		}
		switch b.objects[ref].form.(type) {
		case *model.Pod, *model.Service, *model.EndpointSlice:
			if _, lost := b.divide(&r.change); !maps.Equal(r.lost, lost) {
				pass = append(pass, b.hold(r.change, now)...)
			}
		}
	}
	return pass
}

// decideHold begins or ends the hold, and returns the removals that pass now.
func (b *book) decideHold(news bool, now time.Time) (pass []event.Change) {
	switch {
	case len(b.waiting) == 0:
		b.end()
		return nil
	case !b.since.IsZero() && b.limits.For > 0 && now.Sub(b.since) >= b.limits.For:
		return b.release(now)
	}
	if news {
		if b.last = now; b.first.IsZero() {
			b.first = now
		}
	}
	held := !b.since.IsZero()
	switch {
	case b.first.IsZero():
		return nil
	case !held && small(b.lost.classes, b.base(), b.limits):
		return b.release(now)
	case now.Before(b.settled()):
		return nil
	case !held && b.measure() == "":
		return b.release(now)
	case !held:
		b.since = now
	}
	b.first, b.last = time.Time{}, time.Time{}
	if pass = b.passGroups(b.isEnough, now); len(b.waiting) == 0 {
		b.end()
	}
	return pass
}

// measure returns what is too much of the waiting removals, and of those that passed within the window; "": nothing.
func (b *book) measure() string {
	lost := tally{}
	for g, n := range b.lost.groups {
		if !b.has(g) {
			lost.addCount(g.class, n)
		}
	}
	return excess(lost, b.base(), b.limits)
}

// release returns all removals that wait: they pass.
func (b *book) release(now time.Time) (pass []event.Change) {
	pass = b.passGroups(func(delta) bool { return true }, now)
	if !b.since.IsZero() { // a decision about these removals is made
		b.recent, b.passed, b.lost = nil, newSums(), newSums()
	}
	b.end()
	return pass
}

// end notes that no removal waits.
func (b *book) end() {
	b.order, b.since, b.first, b.last = nil, time.Time{}, time.Time{}, time.Time{}
	clear(b.taken)
}

// settled is when a decision is made about the removals that wait.
func (b *book) settled() time.Time {
	at, most := b.last.Add(quiet), b.first.Add(settle)
	if most.Before(at) {
		return most
	}
	return at
}

// next is when the book must be asked again; zero: not before a change.
func (b *book) next() (at time.Time) {
	if len(b.waiting) == 0 {
		return at
	}
	if !b.since.IsZero() && b.limits.For > 0 {
		at = b.since.Add(b.limits.For)
	}
	if !b.first.IsZero() && (at.IsZero() || b.settled().Before(at)) {
		at = b.settled()
	}
	return at
}

// forget drops losses that are older than the window. During a hold they count on.
func (b *book) forget(now time.Time) {
	for len(b.recent) > 0 && b.since.IsZero() && now.Sub(b.recent[0].at) >= window {
		b.passed.addDelta(b.recent[0].of, -1)
		b.lost.addDelta(b.recent[0].of, -1)
		b.recent = b.recent[1:]
	}
}

// note remembers what passed. The book knows the time to grain.
func (b *book) note(lost delta, now time.Time) {
	if len(lost) == 0 {
		return
	}
	b.passed.addDelta(lost, 1)
	if n := len(b.recent); n > 0 && (!b.since.IsZero() || now.Sub(b.recent[n-1].at) < grain) {
		b.recent[n-1].of.addDelta(lost)
		return
	}
	b.recent = append(b.recent, loss{now, maps.Clone(lost)})
}

// base is what was in force at the beginning of the window. Additions whose groups do not count gains are in it, too.
func (b *book) base() tally {
	t := maps.Clone(b.have.classes)
	for class, n := range b.passed.net {
		t.addCount(class, n)
	}
	return t
}
