package flows

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
)

func addrAt(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

// randomObject returns an object with a few of few addresses, so that many objects share one.
func randomObject(rnd *rand.Rand) model.Object {
	some := func() (out []netip.Addr) {
		for range rnd.IntN(3) {
			out = append(out, addrAt(rnd.IntN(12)))
		}
		return out
	}
	name := fmt.Sprint(rnd.IntN(5))
	switch rnd.IntN(4) {
	case 0:
		return &model.Pod{ID: model.PodID{Namespace: "a", Name: name}, IPs: some(), Finished: rnd.IntN(5) == 0, HostNetwork: rnd.IntN(5) == 0}
	case 1:
		s := &model.Service{ClusterIPs: some(), ExternalIPs: some()}
		s.ID.Namespace, s.ID.Name = "a", name
		for _, a := range some() {
			s.LoadBalancerIPs = append(s.LoadBalancerIPs, model.LoadBalancerIP{Addr: a})
		}
		return s
	case 2:
		return &model.Node{Name: name, InternalIPs: some(), ExternalIPs: some()}
	}
	return &model.Namespace{Name: name}
}

// After any changes an address has the name that the remaining objects give it: a pod's first.
func TestIndexFollowsChanges(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	w := New(Config{})
	objects := map[model.Ref]model.Object{}
	kinds := map[string]int{}
	for step := range 5000 {
		now := randomObject(rnd)
		ref, was := now.Ref(), objects[now.Ref()]
		if objects[ref] = now; rnd.IntN(3) == 0 {
			now = nil
			delete(objects, ref)
		}
		w.Changed(was, now)
		fresh := New(Config{})
		for _, o := range objects {
			fresh.Changed(nil, o)
		}
		if !maps.Equal(w.nodes, fresh.nodes) || len(w.Nodes()) != len(fresh.nodes) {
			t.Fatalf("step %d: %d nodes, want %d", step, len(w.Nodes()), len(fresh.nodes))
		}
		if len(w.index) != len(fresh.index) {
			t.Fatalf("step %d: %d addresses, want %d", step, len(w.index), len(fresh.index))
		}
		for n := range 12 {
			a := addrAt(n)
			want := fresh.index.ownerAt(a)
			for _, o := range objects {
				if p, ok := o.(*model.Pod); ok && want.Kind != flows.Pod && !p.Finished && !p.HostNetwork && len(p.IPs) > 0 && p.IPs[0] == a {
					t.Fatalf("step %d: %s is %s, and not %s", step, a, want, p.ID)
				}
			}
			if diff := cmp.Diff(want, w.index.ownerAt(a), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Fatalf("step %d: %s (-want +got):\n%s", step, a, diff)
			}
			kinds[want.Kind]++
		}
	}
	for _, kind := range []string{flows.Pod, flows.Service, flows.Node, flows.Outside} {
		if kinds[kind] < 1000 {
			t.Errorf("%s only %d times", kind, kinds[kind])
		}
	}
	var off *Watcher
	off.Changed(nil, &model.Node{})
}

// BenchmarkNames finds the names of both ends of one connection in a cluster of 100,000 objects, and follows one change.
func BenchmarkNames(b *testing.B) {
	w := New(Config{})
	for i := range 90_000 {
		w.Changed(nil, &model.Pod{ID: model.PodID{Namespace: "a", Name: fmt.Sprint(i)}, IPs: []netip.Addr{addrAt(i)}})
	}
	for i := range 10_000 {
		s := &model.Service{ClusterIPs: []netip.Addr{addrAt(1<<20 + i)}}
		s.ID.Name = fmt.Sprint(i)
		w.Changed(nil, s)
	}
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		seen := []observation{{source: netip.AddrPortFrom(addrAt(77), 1), destination: netip.AddrPortFrom(addrAt(1<<20+7), 2)}}
		for b.Loop() {
			w.explain(&Loop{}, seen)
		}
	})
	b.Run("change", func(b *testing.B) {
		b.ReportAllocs()
		pod := &model.Pod{ID: model.PodID{Namespace: "a", Name: "7"}, IPs: []netip.Addr{addrAt(7)}}
		for b.Loop() {
			w.Changed(pod, pod)
		}
	})
}
