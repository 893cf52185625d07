package lossguard

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// sliceOf is a slice of a Service with endpoints of the pods from to to.
func sliceOf(service, name string, from, to int) *model.EndpointSlice {
	s := slice(from, to)
	s.ID.Name, s.Service.Name = name, service
	return s
}

// story feeds a book as the guard does, and follows what is in force.
type story struct {
	*book
	t     *testing.T
	now   time.Duration
	force map[model.Ref]model.Object
	holds int
}

func startStory(t *testing.T, list ...model.Object) *story {
	t.Helper()
	s := &story{book: with(nil, list...), t: t, force: map[model.Ref]model.Object{}}
	for _, o := range list {
		s.force[o.Ref()] = o
	}
	return s
}

// apply puts passed changes in force.
func (s *story) apply(pass []event.Change) {
	for _, ch := range pass {
		if delete(s.force, ch.Ref); ch.Object != nil {
			s.force[ch.Ref] = ch.Object
		}
	}
}

func (s *story) feed(changes ...event.Change) { s.apply(s.takeChanges(changes, at(s.now))) }

// wait lets time pass. Like the guard's tick, it asks the book when the book wants to be asked.
func (s *story) wait(d time.Duration) {
	for end := s.now + d; s.now < end; {
		s.now = end
		if next := s.next(); !next.IsZero() && next.Before(at(end)) {
			s.now = next.Sub(epoch)
		}
		held := !s.since.IsZero()
		s.apply(s.decideHold(false, at(s.now)))
		if !held && !s.since.IsZero() {
			s.holds++
		}
	}
}

// ready returns how many endpoints of a Service are ready in force.
func (s *story) ready(service string) (n int) {
	for _, o := range s.force {
		if e, is := o.(*model.EndpointSlice); is && e.Service.Name == service {
			n += parts(e)
		}
	}
	return n
}

func (s *story) want(what string, service string, ready, holds int) {
	s.t.Helper()
	if n := s.ready(service); n != ready || s.holds != holds {
		s.t.Errorf("%s: %d endpoints of %s, want %d; %d holds, want %d", what, n, service, ready, s.holds, holds)
	}
}

// In any order of the events, a Service whose endpoints are replaced has lost nothing, and is not held.
func TestReplacedEndpointsAreNotHeld(t *testing.T) {
	const n = 40
	for name, replace := range map[string]func(s *story){
		"all at once": func(s *story) { s.feed(put(sliceOf("web", "e", 100, 100+n))) },
		"one after the other": func(s *story) {
			for i := range n {
				s.feed(put(sliceOf("web", "e", i+1, n)), put(sliceOf("web", "f", 100, 101+i)))
				s.wait(50 * time.Millisecond)
			}
		},
		"added, then removed": func(s *story) {
			s.feed(put(sliceOf("web", "f", 100, 100+n)))
			s.wait(3 * time.Second)
			s.feed(remove(sliceOf("web", "e", 0, n)))
		},
		"removed, then added": func(s *story) {
			s.feed(remove(sliceOf("web", "e", 0, n)))
			s.wait(quiet / 2)
			s.feed(put(sliceOf("web", "f", 100, 100+n)))
		},
		"each removed, and added a second later": func(s *story) {
			for i := range n {
				s.feed(put(sliceOf("web", "e", i+1, n)))
				s.wait(time.Second)
				s.feed(put(sliceOf("web", "f", 100, 101+i)))
			}
		},
		"to three slices": func(s *story) {
			s.feed(put(sliceOf("web", "f", 0, 10)), remove(sliceOf("web", "e", 0, n)), put(sliceOf("web", "g", 10, 30)))
			s.feed(put(sliceOf("web", "h", 30, n)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startStory(t, sliceOf("web", "e", 0, n), sliceOf("db", "d", 200, 210))
			replace(s)
			s.want("at once", "web", n, 0)
			s.wait(time.Minute)
			s.want("later", "web", n, 0)
		})
	}
}

// A Service that is recreated is held while it has no endpoint at all. The first new ones end that: those that are held would take their connections away.
func TestRecreatedEndpointsEndTheHold(t *testing.T) {
	s := startStory(t, sliceOf("web", "e", 0, 40), sliceOf("db", "d", 200, 210))
	s.feed(put(sliceOf("web", "e", 0, 0)))
	s.wait(20 * time.Second)
	s.want("without endpoints", "web", 40, 1)
	s.feed(put(sliceOf("web", "e", 100, 103)))
	s.want("with three", "web", 43, 1)
	s.wait(window + quiet)
	s.want("with three of 40: not yet enough", "web", 43, 1)
	s.feed(put(sliceOf("web", "e", 100, 104)))
	s.wait(quiet)
	s.want("with four", "web", 4, 1)
	if !s.since.IsZero() {
		t.Error("still held")
	}
}

func TestScaledServices(t *testing.T) {
	s := startStory(t, sliceOf("web", "e", 0, 100), sliceOf("db", "d", 200, 230))
	s.feed(put(sliceOf("web", "e", 90, 100)))
	s.want("burst", "web", 100, 0)
	s.wait(quiet)
	s.want("a tenth is left", "web", 10, 0)
	others := services(0, 40) // some of which are removed meanwhile
	s = startStory(t, append(others, sliceOf("web", "e", 0, 100))...)
	s.feed(append(each(remove, others[:15]), put(sliceOf("web", "e", 90, 100)))...)
	if s.wait(quiet); len(s.force) != 26 || s.holds != 0 {
		t.Errorf("%d objects, %d holds", len(s.force), s.holds)
	}
	s = startStory(t, sliceOf("web", "e", 0, 100), sliceOf("db", "d", 200, 230))
	s.feed(put(sliceOf("web", "e", 91, 100)))
	s.wait(quiet)
	s.want("less than a tenth is left", "web", 100, 1)
	s = startStory(t, sliceOf("web", "e", 0, 40), sliceOf("db", "d", 200, 250))
	s.feed(put(sliceOf("web", "e", 0, 0)))
	s.wait(quiet)
	s.want("to zero, and others have most endpoints", "web", 0, 0)
	s = startStory(t, sliceOf("web", "e", 0, 19))
	s.feed(remove(sliceOf("web", "e", 0, 19)))
	s.wait(quiet)
	s.want("fewer than the guard ever holds", "web", 0, 0)
}

// The gain of one Service is no gain of another, and IPv6 does not replace IPv4.
func TestOnlyTheSameServiceReplaces(t *testing.T) {
	six := sliceOf("web", "x", 100, 140)
	six.IPv6 = true
	s := startStory(t, sliceOf("web", "e", 0, 40))
	s.feed(put(sliceOf("other", "f", 100, 140)), put(six))
	s.feed(remove(sliceOf("web", "e", 0, 40)))
	s.wait(quiet)
	s.want("held", "web", 80, 1)
}

// An API server that lost everything, in many updates and one kind after the other: Services keep their endpoints. Meanwhile a Service whose pods are
// replaced follows.
func TestAnEmptyAnswerIsHeldAndReplacementsAreNot(t *testing.T) {
	list := services(0, 10)
	for i := range 10 {
		list = append(list, sliceOf(fmt.Sprint(i), fmt.Sprint("e", i), 10*i, 10*i+5), sliceOf(fmt.Sprint(i), fmt.Sprint("f", i), 10*i+5, 10*i+10))
	}
	s := startStory(t, append(list, pods(0, 100)...)...)
	var gone []model.Object
	for _, o := range list {
		if e, is := o.(*model.EndpointSlice); !is || e.Service.Name != "7" {
			gone = append(gone, o)
		}
	}
	for _, o := range append(gone, pods(0, 100)...) {
		s.feed(remove(o))
		s.wait(50 * time.Millisecond)
	}
	s.wait(3 * time.Second)
	for i := range 10 { // the first ten endpoints passed before the decision
		if n := s.ready(fmt.Sprint(i)); i > 0 && n != 10 {
			t.Errorf("Service %d has %d endpoints", i, n)
		}
	}
	s.feed(remove(sliceOf("7", "f7", 0, 0)))
	s.feed(put(sliceOf("7", "g7", 1000, 1005)))
	s.want("replaced", "7", 10, 1)
	s.feed(remove(sliceOf("7", "e7", 0, 0)))
	s.wait(quiet)
	s.want("scaled", "7", 5, 1)
	s.wait(time.Minute)
	if len(s.force) != 1 || s.ready("7") != 5 || s.holds != 1 {
		t.Errorf("%d objects, %d endpoints, %d holds", len(s.force), s.ready("7"), s.holds)
	}
}

// A namespace that is removed is held if it has most of a class. New pods in another namespace do not replace its pods.
func TestRemovedNamespace(t *testing.T) {
	var all, mine []model.Object
	for i := range 60 {
		p := pod(i)
		if p.ID.Namespace = "b"; i < 40 {
			p.ID.Namespace = "a"
			mine = append(mine, p)
		}
		all = append(all, p)
	}
	s := startStory(t, all...)
	s.feed(each(remove, mine)...)
	var others []model.Object
	for i := 100; i < 140; i++ {
		p := pod(i)
		p.ID.Namespace = "b"
		others = append(others, p)
	}
	s.wait(quiet)
	s.feed(each(put, others)...)
	s.wait(time.Second)
	if len(s.force) != 100 || s.holds != 1 {
		t.Errorf("%d pods, %d holds", len(s.force), s.holds)
	}
	s = startStory(t, all...)
	s.feed(each(remove, all[40:])...)
	if s.wait(quiet); len(s.force) != 40 || s.holds != 0 {
		t.Errorf("a smaller namespace: %d pods, %d holds", len(s.force), s.holds)
	}
}

func TestReplacedAndFinishedPodsAreNotHeld(t *testing.T) {
	s := startStory(t, pods(0, 40)...)
	s.feed(each(put, pods(100, 140))...)
	s.wait(time.Minute) // long before the former pods end
	s.feed(each(remove, pods(0, 40))...)
	if s.wait(quiet); len(s.force) != 40 || s.holds != 0 {
		t.Errorf("%d pods, %d holds", len(s.force), s.holds)
	}
	jobs := pods(0, 40)
	for _, p := range jobs {
		p.(*model.Pod).Finished = true
	}
	s = startStory(t, jobs...)
	if s.feed(each(remove, jobs)...); len(s.force) != 0 {
		t.Errorf("%d finished pods stay", len(s.force))
	}
}

// Policies that others replace in their namespace are not held. A part of the rules is not enough, as it is of endpoints.
func TestReplacedPoliciesAreNotHeld(t *testing.T) {
	policies := func(namespace, name string, n int) (out []model.Object) {
		for i := range n {
			rules := slices.Repeat([]model.Rule{{Action: model.ActionAllow}}, 2)
			out = append(out, &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: fmt.Sprint(name, i)}, InboundRules: rules})
		}
		return out
	}
	for name, c := range map[string]struct {
		next        []model.Object
		left, holds int
	}{
		"by as many":           {policies("a", "new", 60), 60, 0},
		"by some":              {policies("a", "new", 25), 85, 1},
		"in another namespace": {policies("b", "new", 60), 120, 1},
	} {
		s := startStory(t, policies("a", "old", 60)...)
		s.feed(each(remove, policies("a", "old", 60))...)
		s.feed(each(put, c.next)...)
		if s.wait(time.Second); len(s.force) != c.left || s.holds != c.holds {
			t.Errorf("%s: %d policies, %d holds, held %q", name, len(s.force), s.holds, s.measure())
		}
	}
}

// A change of a policy is a gain only as far as it adds rules.
func TestAChangedPolicyReplacesRules(t *testing.T) {
	rules := func(name string, n int) *model.Policy {
		return &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "a", Name: name}, InboundRules: slices.Repeat([]model.Rule{{Action: model.ActionAllow}}, n)}
	}
	for _, c := range []struct{ was, now, holds int }{{10, 40, 0}, {10, 10, 1}, {40, 10, 1}} {
		s := startStory(t, rules("big", 60), rules("one", c.was))
		s.feed(put(rules("one", c.now)))
		s.feed(remove(rules("big", 60)))
		if s.wait(quiet); s.holds != c.holds {
			t.Errorf("%+v: %d holds, %q", c, s.holds, s.measure())
		}
	}
}

// A policy that passes and returns within the window leaves no loss behind.
func TestWhatReturnsIsNoLoss(t *testing.T) {
	s := startStory(t, pods(0, 100)...)
	for range 30 {
		s.feed(each(remove, pods(0, 8))...)
		s.feed(each(put, pods(0, 8))...)
	}
	if s.holds != 0 || len(s.force) != 100 || len(s.lost.classes) != 0 {
		t.Errorf("%d holds, %d pods, %v", s.holds, len(s.force), s.lost.classes)
	}
	e, p := sliceOf("web", "e", 0, 40), &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "a", Name: "p"}, InboundRules: make([]model.Rule, 30)}
	s = startStory(t, e, p)
	less := *p
	less.InboundRules = nil
	if s.feed(put(e), put(&less)); len(s.lost.groups) != 0 {
		t.Errorf("the same slice, and a policy that was changed: %v", s.lost.groups)
	}
	s.wait(time.Minute)
	s.feed()
	if len(s.recent) != 0 || len(s.lost.groups) != 0 || len(s.passed.groups) != 0 {
		t.Errorf("%v %v", s.recent, s.lost)
	}
}

// The first sync after a restart compares classes alone: a tenth of the endpoints and pods is enough.
func TestRecordLacks(t *testing.T) {
	r := record{known: map[string]tally{"kube": {"Pod": 100, endpoints: 100, "Service": 100}}}
	l := limits()
	for _, c := range []struct {
		have tally
		want string
	}{
		{tally{"Pod": 10, endpoints: 10, "Service": 50}, ""},
		{tally{"Pod": 9, endpoints: 10, "Service": 50}, "91 of 100 objects of kind Pod"},
		{tally{"Pod": 10, endpoints: 10, "Service": 49}, "51 of 100 objects of kind Service"},
	} {
		if got := r.lacks("kube", c.have, l); got != c.want {
			t.Errorf("%v: %q, want %q", c.have, got, c.want)
		}
	}
}
