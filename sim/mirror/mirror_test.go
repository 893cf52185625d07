package mirror

import (
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/span"
)

func TestMirrors(t *testing.T) {
	m := Mirrors{}
	for _, tc := range []struct {
		req  span.SwInterfaceSpanEnableDisable
		want int32
	}{
		{span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 1, State: 1}, -71},
		{span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 2, State: 4}, -9},
		{span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: 2, State: 3}, 0},
		{span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 3, SwIfIndexTo: 2, State: 1}, 0},
		{span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 3, SwIfIndexTo: 2}, 0},
	} {
		if got := m.Set(&tc.req); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc.req, got, tc.want)
		}
	}
	if len(m) != 1 || m[Key{1, 2, false}] != span.SPAN_STATE_API_RX_TX {
		t.Errorf("%v", m)
	}
}

func TestProxies(t *testing.T) {
	p := Proxies{On: map[uint32]bool{}}
	r := arp.ProxyArp{Low: ip_types.IP4Address{10, 0, 0, 1}, Hi: ip_types.IP4Address{10, 0, 0, 9}}
	for _, tc := range []struct {
		add, table bool
		want       int32
	}{{true, false, -3}, {false, true, -6}, {true, true, 0}, {true, true, 0}} {
		if got := p.Set(&arp.ProxyArpAddDel{IsAdd: tc.add, Proxy: r}, tc.table); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
	p.Enable(1, true)
	p.Enable(2, true)
	p.Deleted(2)
	p.Enable(2, true) // VPP believes that it is on
	name := func(i uint32) string { return []string{"local0", "eth0", "eth1"}[i] }
	if got := Lines(Mirrors{}, &p, name); !slices.Equal(got, []string{"proxy-arp 0:10.0.0.1-10.0.0.9\n", "proxy-arp on eth0\n"}) {
		t.Errorf("%q", got)
	}
	if p.Set(&arp.ProxyArpAddDel{Proxy: r}, true); len(p.Ranges) > 0 {
		t.Errorf("%v", p.Ranges)
	}
}
