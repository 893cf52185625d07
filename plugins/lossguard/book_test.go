package lossguard

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

func limits() *Limits { return &Limits{Share: 50, Least: 20, For: time.Minute} }

var epoch = time.Unix(1_000_000, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func put(o model.Object) event.Change { return event.Change{Ref: o.Ref(), Object: o} }

func remove(o model.Object) event.Change { return event.Change{Ref: o.Ref()} }

func pod(i int) *model.Pod {
	return &model.Pod{ID: model.PodID{Namespace: "a", Name: fmt.Sprintf("p%03d", i)}, NodeName: "n", IPs: []netip.Addr{addr(i)}}
}

func addr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}) }

func pods(from, to int) (out []model.Object) {
	for i := from; i < to; i++ {
		out = append(out, pod(i))
	}
	return out
}

func service(i int) *model.Service {
	return &model.Service{
		ID: model.ServiceID{Namespace: "a", Name: fmt.Sprintf("s%03d", i)}, ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
		Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}},
	}
}

func services(from, to int) (out []model.Object) {
	for i := from; i < to; i++ {
		out = append(out, service(i))
	}
	return out
}

// slice has endpoints of the pods from to to.
func slice(from, to int) *model.EndpointSlice {
	s := &model.EndpointSlice{ID: model.SliceID{Namespace: "a", Name: "e"}, Service: model.ServiceID{Namespace: "a", Name: "s"}}
	for i := from; i < to; i++ {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Addr: addr(i), Ready: true, Serving: true, NodeName: "n", Pod: pod(i).ID})
	}
	return s
}

func each(of func(model.Object) event.Change, list []model.Object) (out []event.Change) {
	for _, o := range list {
		out = append(out, of(o))
	}
	return out
}

// with returns a book with objects in force.
func with(gone func(model.PodID, string) bool, list ...model.Object) *book {
	b := newBook(limits(), gone)
	b.recordAll(each(put, list))
	return b
}

func TestFewRemovalsPassAtOnce(t *testing.T) {
	b := with(nil, pods(0, 100)...)
	changes := each(remove, pods(0, 10))
	if pass := b.takeChanges(changes, at(0)); len(pass) != 10 || &pass[0] != &changes[0] {
		t.Errorf("%v", pass)
	}
}

func TestManyRemovalsAreHeldUntilTheirTime(t *testing.T) {
	b := with(nil, services(0, 100)...)
	if pass := b.takeChanges(append(each(remove, services(0, 60)), put(service(200))), at(0)); len(pass) != 1 || pass[0].Object == nil {
		t.Errorf("only the addition passes, not %v", pass)
	}
	if pass := b.decideHold(false, at(quiet-1)); len(pass) != 0 || !b.since.IsZero() {
		t.Errorf("%v before the end of the burst, since %v", pass, b.since)
	}
	if pass := b.decideHold(false, at(quiet)); len(pass) != 0 || b.measure() != "60 of 101 objects of kind Service, 60 of 101 frontends" {
		t.Error(pass, b.measure())
	}
	if pass := b.takeChanges(each(remove, services(60, 61)), at(time.Second)); len(pass) != 0 {
		t.Errorf("held: %v", pass)
	}
	end := quiet + time.Minute
	if pass := b.decideHold(false, at(end-1)); len(pass) != 0 || b.next() != at(end) {
		t.Errorf("%v, next %v", pass, b.next())
	}
	if pass := b.decideHold(false, at(end)); len(pass) != 61 || !b.next().IsZero() {
		t.Errorf("%d removals", len(pass))
	}
	if n := b.have.classes["Service"]; n != 40 {
		t.Errorf("%d in force", n)
	}
}

func TestRemovalsInManyUpdatesCountTogether(t *testing.T) {
	b, passed := with(nil, services(0, 100)...), 0
	for i := range 100 {
		passed += len(b.takeChanges(each(remove, services(i, i+1)), at(time.Duration(i)*20*time.Millisecond)))
	}
	b.decideHold(false, at(3*time.Second))
	if passed > 10 || b.since.IsZero() || len(b.waiting) != 100-passed {
		t.Errorf("%d passed, %d wait, since %v", passed, len(b.waiting), b.since)
	}
}

func TestRemovalsThatAreNotTooManySettle(t *testing.T) {
	b := with(nil, services(0, 100)...)
	if pass := b.takeChanges(each(remove, services(0, 30)), at(0)); len(pass) != 0 || b.next() != at(quiet) {
		t.Fatalf("%d, next %v", len(pass), b.next())
	}
	if pass := b.decideHold(false, at(quiet)); len(pass) != 30 || !b.since.IsZero() {
		t.Errorf("%d passed, since %v", len(pass), b.since)
	}
	if pass := b.takeChanges(each(remove, services(30, 55)), at(time.Second)); len(pass) != 0 {
		t.Errorf("%d", len(pass))
	}
	if pass := b.decideHold(false, at(time.Second+quiet)); len(pass) != 0 || b.since.IsZero() {
		t.Errorf("with those before, they are too many: %d, since %v", len(pass), b.since)
	}
	c := with(nil, services(0, 100)...)
	c.takeChanges(each(remove, services(0, 30)), at(0))
	c.decideHold(false, at(quiet))
	if pass := c.takeChanges(each(remove, services(30, 37)), at(window+quiet)); len(pass) != 7 {
		t.Errorf("after the window only new removals count: %d", len(pass))
	}
}

func TestTheEndOfAStreamOfRemovalsIsNotAwaitedForEver(t *testing.T) {
	b, passed := with(nil, services(0, 200)...), 0
	for i := range 30 {
		passed += len(b.takeChanges(each(remove, services(3*i, 3*i+3)), at(time.Duration(i)*100*time.Millisecond)))
		passed += len(b.decideHold(false, at(time.Duration(i)*100*time.Millisecond)))
	}
	if passed < 60 {
		t.Errorf("%d passed within 3 s", passed)
	}
}

func TestObjectsThatReturnEndTheHold(t *testing.T) {
	b := with(nil, services(0, 100)...)
	b.takeChanges(each(remove, services(0, 100)), at(0))
	if b.decideHold(false, at(quiet)); b.since.IsZero() {
		t.Error("not held")
	}
	if pass := b.takeChanges(each(put, services(0, 100)), at(time.Second)); len(pass) != 100 || !b.since.IsZero() || len(b.lost.groups) != 0 || !b.next().IsZero() {
		t.Errorf("%d, since %v, lost %v", len(pass), b.since, b.lost)
	}
}

func TestASliceKeepsItsEndpoints(t *testing.T) {
	b := with(nil, slice(0, 40))
	next := slice(35, 45)
	next.Endpoints[0].Ready = false // still one of the slice, and not ready
	pass := b.takeChanges([]event.Change{put(next)}, at(0))
	if len(pass) != 1 {
		t.Fatalf("%v", pass)
	}
	got, ready := pass[0].Object.(*model.EndpointSlice), 0
	for _, e := range got.Endpoints {
		if e.Ready {
			ready++
		}
	}
	if ready != 45 || len(got.Endpoints) != 45 || len(next.Endpoints) != 10 {
		t.Errorf("%d ready of %d; the new version has %d", ready, len(got.Endpoints), len(next.Endpoints))
	}
	if pass := b.release(at(time.Second)); len(pass) != 1 || pass[0].Object != model.Object(next) {
		t.Errorf("%v", pass)
	}
}

func TestOnlyLossesCount(t *testing.T) {
	unready := slice(0, 40)
	for i := range unready.Endpoints {
		unready.Endpoints[i].Ready = false
	}
	if pass := with(nil, unready).takeChanges([]event.Change{put(slice(0, 0))}, at(0)); len(pass) != 1 || len(pass[0].Object.(*model.EndpointSlice).Endpoints) != 0 {
		t.Errorf("endpoints that were not ready are held: %v", pass)
	}
	moved := slice(0, 0)
	moved.Service.Name = "other"
	if pass := with(nil, slice(0, 40)).takeChanges([]event.Change{put(moved)}, at(0)); len(pass[0].Object.(*model.EndpointSlice).Endpoints) != 0 {
		t.Errorf("another Service gets the endpoints: %v", pass)
	}
	b := with(nil, services(0, 100)...)
	b.takeChanges(each(remove, services(0, 10)), at(0))
	b.takeChanges(each(remove, services(10, 70)), at(1))
	b.decideHold(false, at(quiet+1))
	if pass := b.release(at(time.Second)); len(pass) != 60 {
		t.Errorf("%d are released", len(pass))
	}
	if pass := b.takeChanges(each(remove, services(70, 73)), at(time.Second)); len(pass) != 3 {
		t.Errorf("what was decided counts again: %d", len(pass))
	}
}

func TestFrontendsAndRulesCount(t *testing.T) {
	b := with(nil, services(0, 30)...)
	if b.takeChanges(each(remove, services(0, 25)), at(0)); !strings.Contains(b.measure(), "25 of 30 frontends") {
		t.Error(b.measure())
	}
	big := &model.Policy{ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "a", Name: "p"}, InboundRules: make([]model.Rule, 30)}
	big.InboundRules[0].Action = model.ActionDeny
	b = with(nil, big)
	if pass := b.takeChanges([]event.Change{remove(big)}, at(0)); len(pass) != 0 || b.measure() != "29 of 29 allow rules" {
		t.Error(pass, b.measure())
	}
	staged := *big
	staged.Staged = model.StagedSet
	if pass := with(nil, &staged).takeChanges([]event.Change{remove(&staged)}, at(0)); len(pass) != 1 {
		t.Error("the removal of a policy that is not enforced is held")
	}
	changed := *big
	changed.InboundRules = nil
	if pass := with(nil, big).takeChanges([]event.Change{put(&changed)}, at(0)); len(pass) != 1 {
		t.Error("a policy that denies more now is not held")
	}
}

func TestDisconnectedPodsAreNotHeld(t *testing.T) {
	gone := map[string]bool{}
	b := with(func(p model.PodID, node string) bool { return node == "n" && gone[p.Name] }, append(pods(0, 40), slice(0, 40))...)
	for i := range 38 {
		gone[pod(i).ID.Name] = true
	}
	if pass := b.takeChanges(append(each(remove, pods(0, 38)), put(slice(38, 40))), at(0)); len(pass) != 39 || !b.since.IsZero() {
		t.Errorf("%d passed, held since %v", len(pass), b.since)
	}
	b = with(func(p model.PodID, _ string) bool { return gone[p.Name] }, append(pods(0, 40), slice(0, 40))...)
	clear(gone)
	b.takeChanges(append(each(remove, pods(0, 40)), put(slice(40, 40))), at(0))
	gone["p007"] = true
	pass := b.review(at(1))
	if len(pass) != 2 || pass[0].Object != nil || pass[0].Ref != pod(7).Ref() || len(pass[1].Object.(*model.EndpointSlice).Endpoints) != 39 {
		t.Errorf("%v", pass)
	}
}

func TestAnAddressWithANewOwnerIsNotHeld(t *testing.T) {
	b := with(nil, append(pods(0, 40), slice(0, 40))...)
	b.takeChanges(append(each(remove, pods(0, 40)), put(slice(40, 40))), at(0))
	heir := pod(100)
	heir.IPs = []netip.Addr{addr(3)}
	pass := b.takeChanges([]event.Change{put(heir)}, at(1))
	if len(pass) != 3 || pass[0].Ref != heir.Ref() || pass[1].Ref != pod(3).Ref() || pass[1].Object != nil || len(pass[2].Object.(*model.EndpointSlice).Endpoints) != 39 {
		t.Errorf("%v", pass)
	}
	b = with(nil, service(1), service(2))
	b.limits.Least = 1
	b.takeChanges([]event.Change{remove(service(1)), remove(service(2))}, at(0))
	other := service(3)
	other.ClusterIPs = service(1).ClusterIPs
	if pass := b.takeChanges([]event.Change{put(other)}, at(1)); len(pass) != 2 || pass[1].Ref != service(1).Ref() || pass[0].Ref != other.Ref() {
		t.Errorf("%v", pass)
	}
}

func TestRefusedObjectsAreNoRemovals(t *testing.T) {
	b := with(nil, pods(0, 100)...)
	var refused []event.Change
	for _, o := range pods(0, 100) {
		refused = append(refused, event.Change{Ref: o.Ref(), Err: errors.New("no")})
	}
	if pass := b.takeChanges(refused, at(0)); len(pass) != 100 {
		t.Errorf("%d", len(pass))
	}
}

// checkSums checks that the sums of a book are those of its objects, of what passed and of what waits.
func checkSums(t *rapid.T, b *book) {
	have, passed := newSums(), newSums()
	for ref, o := range b.objects {
		have.addDelta(o.counts(ref), 1)
	}
	for _, l := range b.recent {
		passed.addDelta(l.of, 1)
	}
	lost := newSums()
	lost.addDelta(passed.groups, 1)
	for _, r := range b.waiting {
		lost.addDelta(r.lost, 1)
	}
	for _, c := range []struct {
		name      string
		got, want sums
	}{{"have", b.have, have}, {"passed", b.passed, passed}, {"lost", b.lost, lost}} {
		if !maps.Equal(c.got.groups, c.want.groups) || !maps.Equal(c.got.classes, c.want.classes) || !maps.Equal(c.got.net, c.want.net) {
			t.Fatalf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
}

// In any order of events, the state that has passed equals the source's state when everything is released; and removals are the only difference before.
func TestEverythingPassesInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &Limits{Share: rapid.SampledFrom([]uint8{1, 50, 100}).Draw(t, "share"), Least: rapid.IntRange(1, 5).Draw(t, "least"), For: time.Second}
		gone := map[model.PodID]bool{}
		b := newBook(l, func(p model.PodID, _ string) bool { return gone[p] })
		want, have := map[model.Ref]model.Object{}, map[model.Ref]model.Object{}
		apply := func(into map[model.Ref]model.Object, changes []event.Change) {
			for _, ch := range changes {
				if delete(into, ch.Ref); ch.Object != nil {
					into[ch.Ref] = ch.Object
				}
			}
		}
		now := at(0)
		for range rapid.IntRange(1, 12).Draw(t, "updates") {
			var changes []event.Change
			for range rapid.IntRange(0, 8).Draw(t, "changes") {
				var o model.Object
				i := rapid.IntRange(0, 6).Draw(t, "object")
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					p := pod(i)
					p.IPs = []netip.Addr{addr(rapid.IntRange(0, 6).Draw(t, "address"))}
					o = p
				case 1:
					o = service(i)
				default:
					o = slice(rapid.IntRange(0, i).Draw(t, "from"), i)
				}
				if rapid.Bool().Draw(t, "remove") {
					changes = append(changes, remove(o))
				} else {
					changes = append(changes, put(o))
				}
			}
			if rapid.IntRange(0, 4).Draw(t, "gone") == 0 {
				gone[pod(rapid.IntRange(0, 6).Draw(t, "which")).ID] = true
			}
			apply(want, changes)
			apply(have, b.takeChanges(slices.Clone(changes), now))
			now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond)
			apply(have, append(b.review(now), b.decideHold(false, now)...))
			for ref, o := range want {
				if _, is := o.(*model.EndpointSlice); !is && !cmp.Equal(have[ref], o, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
					t.Fatalf("%s waits, and is no removal", ref)
				}
			}
			checkSums(t, b)
			if len(have) != len(b.objects) {
				t.Fatalf("%d objects, want %d", len(b.objects), len(have))
			}
		}
		apply(have, b.release(now))
		if diff := cmp.Diff(want, have, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Fatalf("lost %v, (-want +have):\n%s", b.lost, diff)
		}
	})
}
