package service

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// balanced returns a Service of some age with a load-balancer IP for that many clients.
func balanced(name string, age, ranges int) *model.Service {
	s := &model.Service{
		ID: model.ServiceID{Namespace: "prod", Name: name}, Created: time.Unix(int64(age), 0), Type: model.LoadBalancer,
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, 1, byte(age)})}, Ports: []model.ServicePort{{Name: "p", Protocol: model.TCP, Port: 80}},
		LoadBalancerIPs: []model.LoadBalancerIP{{Addr: netip.AddrFrom4([4]byte{198, 18, 1, byte(age)})}},
	}
	for i := range ranges {
		s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(64 * i), 0, 1}), 32))
	}
	return s
}

// Among Services that ask for too much, the younger ones lose that part alone, and get it back.
func TestServicesThatAskForTooMuch(t *testing.T) {
	p := New(Config{NodeName: "node-1", Limits: budget.Limits{
		budget.RangeRules: {Object: 80, Namespace: 100}, budget.Backends: {Object: 20, Namespace: 30},
	}})
	put := func(list ...model.Object) {
		for _, o := range list {
			p.Apply(event.Change{Ref: o.Ref(), Object: o})
		}
	}
	slice := func(of string, n int) *model.EndpointSlice {
		e := &model.EndpointSlice{
			ID: model.SliceID{Namespace: "prod", Name: of}, Service: model.ServiceID{Namespace: "prod", Name: of},
			Ports: []model.EndpointPort{{Name: "p", Protocol: model.TCP, Port: 80}},
		}
		for i := range n {
			e.Endpoints = append(e.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 1, byte(i + 1)}), Ready: true, Serving: true})
		}
		return e
	}
	step := func(when, want string) {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range p.Services() {
			if s.Rendered.SourceRangesRefused != "" {
				got = append(got, s.ID.Name+" ranges")
			}
			if n := len(s.Rendered.Backends["p"]); n == 0 && len(s.Notes) == 1 && s.Notes[0].Refused {
				got = append(got, s.ID.Name+" backends")
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: refused %q, want %q", when, text, want)
		}
	}
	put(balanced("a", 2, 2), balanced("b", 3, 1), slice("a", 5), slice("b", 5))
	step("all fits", "")
	put(balanced("c", 4, 1))
	step("one more", "c ranges")
	put(balanced("old", 1, 1))
	step("an older one", "b ranges, c ranges")
	put(balanced("a", 2, 4))
	step("too much for one", "a ranges")
	put(balanced("a", 2, 0))
	step("without ranges", "")
	put(slice("a", 11))
	step("too many endpoints for one", "a backends")
	put(slice("a", 10), slice("old", 5))
	step("too many of the namespace", "b backends, c backends")
	p.Apply(event.Change{Ref: balanced("old", 0, 0).Ref()})
	step("one is gone", "c backends")
}

// A Service with more endpoints than one object may have is refused with its fields, and an older or younger Service continues.
func TestHugeServiceIsRefusedAlone(t *testing.T) {
	p := New(Config{NodeName: "node-1", Limits: budget.Defaults()})
	put := func(o model.Object) { p.Apply(event.Change{Ref: o.Ref(), Object: o}) }
	endpoints := func(of string, n int) *model.EndpointSlice {
		e := &model.EndpointSlice{
			ID: model.SliceID{Namespace: "prod", Name: of}, Service: model.ServiceID{Namespace: "prod", Name: of},
			Ports: []model.EndpointPort{{Name: "p", Protocol: model.TCP, Port: 80}},
		}
		for i := range n {
			e.Endpoints = append(e.Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Ready: true, Serving: true})
		}
		return e
	}
	for age, name := range []string{"old", "huge", "new"} {
		put(balanced(name, age, 0))
		put(endpoints(name, 3))
	}
	most := budget.Defaults()[budget.Backends].Object
	put(endpoints("huge", most/2+1)) // at two addresses
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("its endpoints are not served, and its addresses reject: it asks for %d backends of Services, and an object may have %d "+
		"(--max-service-backends); spec.ports: 1, for 2 addresses and %d endpoints", most+2, most, most/2+1)
	for _, s := range p.Services() {
		switch n := len(s.Rendered.Backends["p"]); {
		case s.ID.Name == "huge":
			if n != 0 || len(s.Notes) != 1 || s.Notes[0].Reason != want || s.Notes[0].Ref != serviceRef(s.ID) {
				t.Errorf("huge: %d backends, %v, want %q", n, s.Notes, want)
			}
		case n != 3 || len(s.Notes) != 0:
			t.Errorf("%s: %d backends, %v", s.ID.Name, n, s.Notes)
		}
	}
}
