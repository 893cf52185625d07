package adapter

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

func TestNotes(t *testing.T) {
	n := Notes{Of: newService("web").ID}
	n.Add(true, "port %d", 80)
	n.Add(false, "port 80")
	n.Add(false, "port 81")
	ref := model.Ref{Kind: model.KindService, Namespace: "default", Name: "web"}
	if want := []model.Note{{Ref: ref, Reason: "port 80", Refused: true}, {Ref: ref, Reason: "port 81"}}; !slices.Equal(n.List, want) {
		t.Errorf("%v, want %v", n.List, want)
	}
}

// A refusal is a neighbour in the family of the address.
func TestRefuseByNeighbour(t *testing.T) {
	svc := newService("web", func(svc *renderer.ContivService) {
		svc.ClusterIPs.Add(net.ParseIP("10.96.0.10"))
		svc.ClusterIPs.Add(net.ParseIP("fd00:96::10"))
	})
	values := kv.Values{}
	Refuse(values, svc, renderer.Refusal{Interface: "underlay", IPv4: netip.MustParseAddr("169.254.1.5")}, renderer.NewIPAddresses(), func(netip.Addr) bool { return true })
	var got []string
	for _, key := range values.Keys() {
		got = append(got, kv.Format(key, values[key]))
	}
	want := []string{
		`config/contiv/vpp/v1/reject-route/vrf/0/dst/10.96.0.10/32 {"dstNetwork":"10.96.0.10/32","outgoingInterface":"underlay","nextHopAddr":"169.254.1.5"}`,
		`config/contiv/vpp/v1/reject-route/vrf/0/dst/fd00:96::10/128 {"dstNetwork":"fd00:96::10/128"}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestRefuse(t *testing.T) {
	svc := newService("web", func(svc *renderer.ContivService) {
		for _, s := range []string{"10.96.0.10", "fd00:96::10"} {
			svc.ClusterIPs.Add(net.ParseIP(s))
		}
		for _, s := range []string{"192.168.16.1", "10.1.1.2", "203.0.113.7", "2001:db8::7"} {
			svc.ExternalIPs.Add(net.ParseIP(s))
		}
		svc.PodIPs = renderer.NewIPAddresses(net.ParseIP("10.1.1.2"))
	})
	for _, tc := range []struct {
		served func(netip.Addr) bool
		want   []string
	}{
		{netip.Addr.Is4, []string{"10.96.0.10/32", "203.0.113.7/32"}},
		{netip.Addr.Is6, []string{"2001:db8::7/128", "fd00:96::10/128"}},
	} {
		values := kv.Values{}
		Refuse(values, svc, renderer.Refusal{}, renderer.NewIPAddresses(net.ParseIP("192.168.16.1")), tc.served)
		var got []string
		for _, key := range values.Keys() {
			got = append(got, key[len("config/contiv/vpp/v1/reject-route/vrf/0/dst/"):])
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%v, want %v", got, tc.want)
		}
	}
}

func TestRestricted(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ranges []string
		addr   string
		want   bool
	}{
		{"everyone", nil, "203.0.113.7", false},
		{"some", []string{"10.0.0.0/8"}, "203.0.113.7", true},
		{"some of the other family", []string{"2001:db8::/32"}, "203.0.113.7", false},
		{"some and all", []string{"0.0.0.0/0", "10.0.0.0/8"}, "203.0.113.7", false},
		{"all of the other family", []string{"10.0.0.0/8", "::/0"}, "203.0.113.7", true},
		{"no load balancer's", []string{"10.0.0.0/8"}, "203.0.113.8", false},
	} {
		svc := newService("web", func(svc *renderer.ContivService) {
			svc.LoadBalancerIPs = renderer.NewIPAddresses(net.ParseIP("203.0.113.7"))
			for _, r := range tc.ranges {
				svc.LoadBalancerSourceRanges = append(svc.LoadBalancerSourceRanges, netip.MustParsePrefix(r))
			}
		})
		if got := Restricted(svc, netip.MustParseAddr(tc.addr)); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
}

func TestEndpoints(t *testing.T) {
	var list []*renderer.ServiceBackend
	for _, e := range []struct {
		ip    string
		port  uint16
		local bool
	}{{"10.1.2.2", 80, false}, {"fd00::1", 80, true}, {"10.1.1.2", 81, true}, {"10.1.1.2", 80, false}, {"10.1.1.2", 80, true}, {"", 80, true}} {
		list = append(list, &renderer.ServiceBackend{IP: net.ParseIP(e.ip), Port: e.port, Local: e.local})
	}
	want := []Endpoint{{netip.MustParseAddrPort("10.1.1.2:80"), true}, {netip.MustParseAddrPort("10.1.1.2:81"), true}, {netip.MustParseAddrPort("10.1.2.2:80"), false}}
	for _, room := range []int{0, 1, 9} {
		for _, list := range [][]*renderer.ServiceBackend{list, {list[4], list[3], list[2], list[0]}, {list[4], list[2], list[0]}} {
			if got := Endpoints(make([]Endpoint, room), list, netip.Addr.Is4); !slices.Equal(got, want) {
				t.Errorf("%v in room for %d: %v, want %v", list, room, got, want)
			}
		}
	}
}
