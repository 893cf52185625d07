package serving

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// objects is a cluster of two nodes with the Service web, which change adapts. Endpoints: local 10.1.1.2 and remote 10.1.2.2, both families.
func objects(change func(*model.Service, []*model.EndpointSlice)) []model.Object {
	id := model.ServiceID{Namespace: "default", Name: "web"}
	s := &model.Service{ID: id, ClusterIPs: addrs("10.96.0.10", "fd00:96::10"), Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: 80}}}
	slice := func(name string, local, remote string) *model.EndpointSlice {
		return &model.EndpointSlice{
			ID: model.SliceID{Namespace: "default", Name: name}, Service: id, IPv6: strings.Contains(local, ":"),
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: 8080}},
			Endpoints: []model.Endpoint{
				{Addr: netip.MustParseAddr(local), Ready: true, Serving: true, NodeName: "node-1", Zone: "a"},
				{Addr: netip.MustParseAddr(remote), Ready: true, Serving: true, NodeName: "node-2", Zone: "b"},
			},
		}
	}
	list := []*model.EndpointSlice{slice("web-4", "10.1.1.2", "10.1.2.2"), slice("web-6", "fd00:1:1::2", "fd00:1:2::2")}
	if change != nil {
		change(s, list)
	}
	return []model.Object{
		s, list[0], list[1],
		&model.Node{Name: "node-1", Zone: "a", InternalIPs: addrs("192.168.16.1", "fd00:16::1"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
		&model.Node{Name: "node-2", Zone: "b", InternalIPs: addrs("192.168.16.2")},
		&model.Pod{ID: model.PodID{Namespace: "default", Name: "prey"}, NodeName: "node-2", IPs: addrs("10.1.2.9")},
		&model.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}},
		&model.Service{ID: model.ServiceID{Namespace: "default", Name: "other"}, ClusterIPs: addrs("10.96.0.20"), ProxyName: "else", Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80}}},
	}
}

// text is a frontend in one line, without what is at its usual value.
func text(f *Frontend) string {
	out := fmt.Sprintf("%s %s", f.At, f.Fate)
	for _, b := range f.Backends {
		out += " " + b.At.String()
		if b.Weight != 1 {
			out += fmt.Sprintf("*%d", b.Weight)
		}
	}
	for name, is := range map[string]bool{"hides": f.Hides, "sticky": f.Sticky} {
		if is {
			out += " " + name
		}
	}
	if f.Most > 0 {
		out += fmt.Sprintf(" most %d", f.Most)
	}
	if len(f.Leaving) > 0 {
		out += fmt.Sprintf(" leaving %v", f.Leaving)
	}
	if len(f.Clients) > 0 {
		out += fmt.Sprintf(" for %v", f.Clients)
	}
	if f.Refused != "" {
		out += " refused"
	}
	return out
}

func TestFrontends(t *testing.T) {
	const all, all6 = "tcp 10.96.0.10:80 balanced 10.1.1.2:8080 10.1.2.2:8080", "tcp [fd00:96::10]:80 balanced [fd00:1:1::2]:8080 [fd00:1:2::2]:8080"
	const here, here6 = "tcp 10.96.0.10:80 balanced 10.1.1.2:8080", "tcp [fd00:96::10]:80 balanced [fd00:1:1::2]:8080"
	each := func(slices []*model.EndpointSlice, f func(*model.Endpoint)) {
		for _, s := range slices {
			for i := range s.Endpoints {
				f(&s.Endpoints[i])
			}
		}
	}
	external := func(ip string) func(*model.Service, []*model.EndpointSlice) {
		return func(s *model.Service, _ []*model.EndpointSlice) { s.ExternalIPs = addrs(ip) }
	}
	for name, tc := range map[string]struct {
		change func(*model.Service, []*model.EndpointSlice)
		cfg    Config
		want   []string
	}{
		"cluster IPs":    {nil, Config{}, []string{all, all6}},
		"nat44 alone":    {nil, Config{Renderer: "nat44"}, []string{all, all6 + " refused"}},
		"weight":         {nil, Config{LocalWeight: 3}, []string{"tcp 10.96.0.10:80 balanced 10.1.1.2:8080*3 10.1.2.2:8080", "tcp [fd00:96::10]:80 balanced [fd00:1:1::2]:8080*3 [fd00:1:2::2]:8080"}},
		"another proxy":  {func(s *model.Service, _ []*model.EndpointSlice) { s.ProxyName = "else" }, Config{}, nil},
		"headless":       {func(s *model.Service, _ []*model.EndpointSlice) { s.Headless = true }, Config{}, nil},
		"affinity":       {func(s *model.Service, _ []*model.EndpointSlice) { s.SessionAffinityTimeout = time.Hour }, Config{}, []string{all + " sticky", all6 + " sticky"}},
		"internal Local": {func(s *model.Service, _ []*model.EndpointSlice) { s.InternalTrafficPolicy = model.PolicyLocal }, Config{}, []string{here, here6}},
		"no endpoint":    {func(_ *model.Service, l []*model.EndpointSlice) { l[0].Endpoints, l[1].Endpoints = nil, nil }, Config{}, []string{"tcp 10.96.0.10:80 rejected", "tcp [fd00:96::10]:80 rejected"}},
		"another port": {func(_ *model.Service, l []*model.EndpointSlice) {
			l[0].Ports[0].Name, l[1].Ports[0].Protocol = "other", model.UDP
		}, Config{}, []string{"tcp 10.96.0.10:80 rejected", "tcp [fd00:96::10]:80 rejected"}},
		"SCTP": {func(s *model.Service, _ []*model.EndpointSlice) { s.Ports[0].Protocol = model.SCTP }, Config{}, []string{"sctp 10.96.0.10:80 rejected refused", "sctp [fd00:96::10]:80 rejected refused"}},
		"annotation": {func(s *model.Service, _ []*model.EndpointSlice) {
			s.Annotations = map[string]string{"contiv-agent.io/service-renderer": "cnat"}
		}, Config{}, []string{all + " refused", all6}},
		"external IP":     {external("203.0.113.1"), Config{}, []string{all, "tcp 203.0.113.1:80 balanced 10.1.1.2:8080 10.1.2.2:8080 hides", all6}},
		"switched off":    {external("203.0.113.1"), Config{NoExternalIPs: true}, []string{all, all6}},
		"outside ranges":  {external("203.0.113.1"), Config{ExternalIPCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}, []string{all, all6}},
		"a node's":        {external("192.168.16.2"), Config{}, []string{all, all6}},
		"a pod's":         {external("10.1.2.9"), Config{}, []string{all, all6}},
		"of the uplink":   {external("172.16.0.9"), Config{Uplink: []netip.Prefix{netip.MustParsePrefix("172.16.0.1/24")}}, []string{all, all6}},
		"another Service": {external("10.96.0.20"), Config{ExternalIPCIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, []string{all, all6}},
		"API server":      {external("203.0.113.1"), Config{APIServers: addrs("203.0.113.1")}, []string{all, all6}},
		"node ports of one address": {
			func(s *model.Service, _ []*model.EndpointSlice) {
				s.Ports[0].NodePort, s.ExternalTrafficPolicy = 30080, model.PolicyLocal
			},
			Config{NodePorts: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}},
			[]string{all, "tcp 192.168.16.1:30080 balanced 10.1.1.2:8080 leaving [10.1.2.2:8080]", all6},
		},
		"balancer with ranges": {
			func(s *model.Service, _ []*model.EndpointSlice) {
				s.Type, s.LoadBalancerIPs = model.LoadBalancer, []model.LoadBalancerIP{{Addr: netip.MustParseAddr("203.0.113.1")}, {Addr: netip.MustParseAddr("203.0.113.2"), Proxy: true}}
				s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("192.168.16.0/24")}
			},
			Config{},
			[]string{all, "tcp 203.0.113.1:80 balanced 10.1.1.2:8080 10.1.2.2:8080 hides for [192.168.16.0/24 203.0.113.1/32]", all6},
		},
		"terminating beside ready": {
			func(_ *model.Service, l []*model.EndpointSlice) {
				l[0].Endpoints[1].Ready, l[0].Endpoints[1].Terminating = false, true
			}, Config{}, []string{here + " leaving [10.1.2.2:8080]", all6},
		},
		"terminating is kept": {
			func(_ *model.Service, l []*model.EndpointSlice) {
				l[0].Endpoints[1].Ready, l[0].Endpoints[1].Terminating = false, true
			}, Config{KeepTerminating: true}, []string{all + " leaving [10.1.2.2:8080]", all6},
		},
		"not ready": {
			func(_ *model.Service, l []*model.EndpointSlice) { l[0].Endpoints[1].Ready = false },
			Config{},
			[]string{here + " leaving [10.1.2.2:8080]", all6},
		},
		"UDP, not ready": {
			func(s *model.Service, l []*model.EndpointSlice) {
				s.Ports[0].Protocol, l[0].Ports[0].Protocol, l[0].Endpoints[1].Ready = model.UDP, model.UDP, false
			}, Config{Renderer: "nat44"}, []string{"udp 10.96.0.10:80 balanced 10.1.1.2:8080", "udp [fd00:96::10]:80 rejected refused"},
		},
		"all terminate": {
			func(_ *model.Service, l []*model.EndpointSlice) {
				each(l, func(e *model.Endpoint) { e.Ready, e.Terminating = false, true })
			}, Config{}, []string{all + " leaving [10.1.1.2:8080 10.1.2.2:8080]", all6 + " leaving [[fd00:1:1::2]:8080 [fd00:1:2::2]:8080]"},
		},
		"internal Local, none here": {
			func(s *model.Service, l []*model.EndpointSlice) {
				s.InternalTrafficPolicy = model.PolicyLocal
				each(l, func(e *model.Endpoint) { e.NodeName = "node-2" })
			}, Config{}, []string{"tcp 10.96.0.10:80 dropped", "tcp [fd00:96::10]:80 dropped"},
		},
		"hints for zones": {
			func(_ *model.Service, l []*model.EndpointSlice) {
				each(l, func(e *model.Endpoint) { e.ForZones = []string{e.Zone} })
			}, Config{}, []string{here, here6},
		},
		"hints that one lacks": {
			func(_ *model.Service, l []*model.EndpointSlice) {
				l[0].Endpoints[0].ForNodes, l[1].Endpoints[0].ForZones = []string{"node-1"}, []string{"a"}
			}, Config{}, []string{all, all6},
		},
	} {
		var got []string
		for _, f := range Read("node-1", tc.cfg, objects(tc.change)).Frontends {
			got = append(got, text(f))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, tc.want)
		}
	}
}

// TestManyEndpoints: nat44 has room for 253 endpoints, and for a sum of weights of 255.
func TestManyEndpoints(t *testing.T) {
	many := func(n int) func(*model.Service, []*model.EndpointSlice) {
		return func(s *model.Service, l []*model.EndpointSlice) {
			s.ClusterIPs, l[0].Endpoints[0].NodeName = s.ClusterIPs[:1], "node-1"
			for i := len(l[0].Endpoints); i < n; i++ {
				l[0].Endpoints = append(l[0].Endpoints, model.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(3 + i/200), byte(i % 200)}), Ready: true, Serving: true, NodeName: "node-2"})
			}
		}
	}
	f := Read("node-1", Config{LocalWeight: 9}, objects(many(300))).Frontends[0]
	if f.Most != 253 || len(f.Backends) != 300 {
		t.Errorf("%d of %d endpoints", f.Most, len(f.Backends))
	}
	f = Read("node-1", Config{LocalWeight: 9}, objects(many(250))).Frontends[0]
	if f.Most != 0 || f.Backends[0].Weight != 6 { // 249 others
		t.Errorf("most %d, weight %d", f.Most, f.Backends[0].Weight)
	}
}

// TestOlderServiceHasFrontend: of two Services with one external IP, or one node port, the older one has it; a cluster IP precedes both.
func TestOlderServiceHasFrontend(t *testing.T) {
	service := func(name, ip string, age int64) *model.Service {
		return &model.Service{
			ID: model.ServiceID{Namespace: "default", Name: name}, Created: time.Unix(age, 0), Type: model.NodePort, ClusterIPs: addrs(ip),
			ExternalIPs: addrs("203.0.113.1"), Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30080}},
		}
	}
	node := &model.Node{Name: "node-1", InternalIPs: addrs("192.168.16.1")}
	n := Read("node-1", Config{}, []model.Object{service("a", "10.96.0.1", 2), service("b", "10.96.0.2", 1), node})
	var got []string
	for _, f := range n.Frontends {
		got = append(got, f.At.String()+" "+f.Service.Name)
	}
	if want := []string{"tcp 10.96.0.1:80 a", "tcp 10.96.0.2:80 b", "tcp 192.168.16.1:30080 b", "tcp 203.0.113.1:80 b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(n.Rejecting) != 3 {
		t.Errorf("rejecting %v", n.Rejecting)
	}
}
