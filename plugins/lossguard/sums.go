package lossguard

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// group has things of one class that can take each other's place: the ready endpoints of a Service in one address family, the pods of a namespace, the
// policies of a namespace with their allow rules. All things of another class are one group, and nothing takes their place.
type group struct {
	class           string
	namespace, name string
	six             bool
}

// groupOf returns the group of an object of that kind, and the group of its parts.
func groupOf(ref model.Ref) (object, parts group) {
	object, parts = group{class: string(ref.Kind)}, group{class: classOf(ref.Kind)}
	if ref.Kind == model.KindPod || parts.class == allowRules {
		object.namespace, parts.namespace = ref.Namespace, ref.Namespace
	}
	return object, parts
}

// endpointsOf returns the group of a slice's endpoints.
func endpointsOf(s *model.EndpointSlice) group {
	return group{class: endpoints, namespace: s.Service.Namespace, name: s.Service.Name, six: s.IPv6}
}

// enough is the part of a group, in percent, that does the work of the whole: endpoints and pods are copies of each other, rules are not.
func (g group) enough() int {
	if isCopies(g.class) {
		return copiesEnough
	}
	return 100
}

// copiesEnough is small: while some endpoints of a Service are left, endpoints that are held take connections away from them.
const copiesEnough = 10

// isCopies reports that the things of a class are copies of each other.
func isCopies(class string) bool { return class == endpoints || class == string(model.KindPod) }

// delta counts by group. As the loss of a change, positive numbers are lost things, negative ones are gained.
type delta map[group]int

// addDelta adds another delta.
func (d delta) addDelta(o delta) {
	for g, n := range o {
		if d[g] += n; d[g] == 0 {
			delete(d, g)
		}
	}
}

// sums is a sum of deltas, by group and by class. Groups below 0 are nothing in their class: the gain of one Service is no gain of another.
type sums struct {
	groups  delta
	classes tally
	net     tally // of all groups, those below 0 too
}

func newSums() sums { return sums{groups: delta{}, classes: tally{}, net: tally{}} }

// addDelta adds a delta, sign times.
func (s *sums) addDelta(d delta, sign int) {
	for g, n := range d {
		was := s.groups[g]
		now := was + sign*n
		if s.groups[g] = now; now == 0 {
			delete(s.groups, g)
		}
		s.classes.addCount(g.class, max(0, now)-max(0, was))
		s.net.addCount(g.class, now-was)
	}
}

// counts is what an object counts for.
func (o object) counts(ref model.Ref) delta {
	switch form := o.form.(type) {
	case *model.EndpointSlice: // the number of slices means nothing
		if o.parts == 0 {
			return nil
		}
		return delta{endpointsOf(form): o.parts}
	case *model.Pod:
		if form.Finished {
			return nil
		}
	}
	whole, parts := groupOf(ref)
	d := delta{whole: 1}
	if o.parts > 0 {
		d[parts] = o.parts
	}
	return d
}

// gained returns what a change adds to groups whose things take each other's place, as negative numbers.
func (b *book) gained(ch *event.Change) delta {
	if slice, is := ch.Object.(*model.EndpointSlice); is {
		return b.gainedEndpoints(slice)
	}
	if ch.Object == nil || ch.Ref.Kind != model.KindPod && classOf(ch.Ref.Kind) != allowRules {
		return nil
	}
	d := delta{}
	for g, n := range newObject(ch.Object).counts(ch.Ref) {
		d[g] = -n
	}
	if was, known := b.objects[ch.Ref]; known {
		for g, n := range was.counts(ch.Ref) {
			if d[g] += n; d[g] >= 0 { // a changed object loses nothing
				delete(d, g)
			}
		}
	}
	return d
}

// gainedEndpoints returns the ready endpoints of a slice that were not ready in the slice in force.
func (b *book) gainedEndpoints(now *model.EndpointSlice) delta {
	before := map[netip.Addr]bool{}
	if was, is := b.objects[now.Ref()].form.(*model.EndpointSlice); is && was.Service == now.Service {
		for i := range was.Endpoints {
			before[was.Endpoints[i].Addr] = was.Endpoints[i].Ready
		}
	}
	n := 0
	for i := range now.Endpoints {
		if e := &now.Endpoints[i]; e.Ready && !before[e.Addr] {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return delta{endpointsOf(now): -n}
}
