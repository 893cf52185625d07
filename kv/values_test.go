package kv_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

func TestValues(t *testing.T) {
	v := kv.Values{}
	v.Put(&nat.Nat44Global{})
	v.Put(&nat.DNat44{Label: "b"})
	v.Put(&nat.DNat44{Label: "a"})
	last := &nat.Nat44Global{Forwarding: true}
	v.Put(last)
	want := []string{"config/vpp/nat/v2/dnat44/a", "config/vpp/nat/v2/dnat44/b", "config/vpp/nat/v2/nat44-global"}
	if got := v.Keys(); !slices.Equal(got, want) {
		t.Errorf("Keys = %q, want %q", got, want)
	}
	if v[kv.Nat44GlobalKey] != proto.Message(last) {
		t.Error("Put did not replace the value of the same key")
	}
	if got := kv.Values(nil).Keys(); len(got) != 0 {
		t.Errorf("Keys of no values = %q", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("Put of a message without model did not panic")
		}
	}()
	v.Put(&kvscheduler.ValueStatus{})
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		key  string
		m    proto.Message
		want error
	}{
		{"config/vpp/nat/v2/dnat44/a", &nat.DNat44{Label: "a"}, nil},
		{"config/vpp/nat/v2/dnat44/a", &nat.DNat44{Label: "b"}, kv.ErrKeyMismatch},
		{"config/vpp/nat/v2/nat44-global", &nat.DNat44{Label: "../nat44-global"}, kv.ErrKeyMismatch},
		{"config/vpp/nat/v2/dnat44/a", nil, kv.ErrNoModel},
		{"config/vpp/nat/v2/dnat44/a", &kvscheduler.ValueStatus{}, kv.ErrNoModel},
		{"config/vpp/nat/v2/dnat44", &nat.DNat44{}, kv.ErrNoModel},
		{"config/x", &nat.DNat44{Label: "../../../../x"}, kv.ErrNoModel},
	} {
		if err := kv.Check(tc.key, tc.m); !errors.Is(err, tc.want) {
			t.Errorf("Check(%q, %T) = %v, want %v", tc.key, tc.m, err, tc.want)
		}
	}
}

func TestEqual(t *testing.T) {
	a, b := &nat.DNat44{Label: "a"}, &nat.DNat44{Label: "b"}
	for _, tc := range []struct {
		x, y proto.Message
		want bool
	}{
		{a, a, true},
		{a, &nat.DNat44{Label: "a"}, true},
		{a, b, false},
		{a, nil, false},
		{nil, a, false},
		{nil, nil, true},
		{&nat.Nat44VrfTable{SrcVrfId: 1}, &nat.Nat44VrfRoute{SrcVrfId: 1}, false},
	} {
		if got := kv.Equal(tc.x, tc.y); got != tc.want {
			t.Errorf("Equal(%v, %v) = %v", tc.x, tc.y, got)
		}
	}
}

// Equal and Format agree, and a copy is equal, for random routes.
func TestEqualFormatAgree(t *testing.T) {
	route := rapid.Custom(func(t *rapid.T) *l3.Route {
		return &l3.Route{
			VrfId:       rapid.Uint32Range(0, 1).Draw(t, "vrf"),
			DstNetwork:  rapid.SampledFrom([]string{"", "10.0.0.0/8", "10.0.0.1/8"}).Draw(t, "dst"),
			NextHopAddr: rapid.SampledFrom([]string{"", "10.0.0.1"}).Draw(t, "gw"),
			Weight:      rapid.Uint32Range(0, 1).Draw(t, "weight"),
			Type:        l3.Route_RouteType(rapid.Int32Range(0, 2).Draw(t, "type")),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := route.Draw(t, "a"), route.Draw(t, "b")
		if kv.Equal(a, b) != (kv.Format("k", a) == kv.Format("k", b)) {
			t.Fatalf("Equal and Format differ about %v and %v", a, b)
		}
		if c := proto.Clone(a); !kv.Equal(a, c) || kv.Format("k", a) != kv.Format("k", c) {
			t.Fatalf("copy of %v differs", a)
		}
	})
}

func service(backends int) *nat.DNat44 {
	m := mapping()
	for i := range backends - 1 {
		m.StMappings[0].LocalIps = append(m.StMappings[0].LocalIps,
			&nat.DNat44_StaticMapping_LocalIP{LocalIp: fmt.Sprintf("10.1.0.%d", i), LocalPort: 8080, Probability: 1})
	}
	return m
}

func BenchmarkEqual(b *testing.B) {
	b.ReportAllocs()
	x, y := service(10), service(10)
	for b.Loop() {
		if !kv.Equal(x, y) {
			b.Fatal("not equal")
		}
	}
}
