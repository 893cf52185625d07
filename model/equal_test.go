package model

import (
	"net/netip"
	"testing"
	"time"
)

func TestEqual(t *testing.T) {
	slice := func(edit func(*EndpointSlice)) Object {
		s := &EndpointSlice{
			ID:          SliceID{Namespace: "default", Name: "s"},
			Ports:       []EndpointPort{{Name: "http", Protocol: TCP, Port: 80}},
			Endpoints:   []Endpoint{{Addr: netip.MustParseAddr("10.1.1.2"), Ready: true}},
			TriggerTime: time.Unix(1, 0),
		}
		if edit != nil {
			edit(s)
		}
		return s
	}
	for _, c := range []struct {
		name string
		a, b Object
		want bool
	}{
		{"nil and nil", nil, nil, true},
		{"an object and nil", slice(nil), nil, false},
		{"nil and an object", nil, slice(nil), false},
		{"alike", slice(nil), slice(nil), true},
		{"another trigger time", slice(nil), slice(func(s *EndpointSlice) { s.TriggerTime = time.Unix(2, 0) }), true},
		{"another trigger time, and changed", slice(nil), slice(func(s *EndpointSlice) {
			s.TriggerTime = time.Unix(2, 0)
			s.Endpoints[0].Ready = false
		}), false},
		{"another port", slice(nil), slice(func(s *EndpointSlice) { s.Ports[0].Port = 81 }), false},
		{"another kind", &Node{Name: "a"}, &Namespace{Name: "a"}, false},
		{"labels", &Node{Labels: map[string]string{"a": "b"}}, &Node{Labels: map[string]string{"a": "c"}}, false},
	} {
		if got := Equal(c.a, c.b); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	a, b := slice(nil).(*EndpointSlice), slice(func(s *EndpointSlice) { s.TriggerTime = time.Unix(2, 0) }).(*EndpointSlice)
	if Equal(a, b); !a.TriggerTime.Equal(time.Unix(1, 0)) || !b.TriggerTime.Equal(time.Unix(2, 0)) {
		t.Error("comparing changes the values")
	}
}

func TestRef(t *testing.T) {
	a := Ref{KindNode, "", "b"}
	for _, c := range []struct {
		b    Ref
		want int
	}{
		{Ref{KindNode, "", "b"}, 0},
		{Ref{KindNode, "", "c"}, -1},
		{Ref{KindNode, "z", "a"}, -1},
		{Ref{KindEndpointSlice, "z", "z"}, 1},
	} {
		if got := a.Compare(c.b); got != c.want {
			t.Errorf("%v against %v: %d", a, c.b, got)
		}
		if got := c.b.Compare(a); got != -c.want {
			t.Errorf("%v against %v: %d", c.b, a, got)
		}
	}
	if got := a.String() + ", " + (Ref{KindPod, "n", "p"}).String(); got != "Node b, Pod n/p" {
		t.Error(got)
	}
}
