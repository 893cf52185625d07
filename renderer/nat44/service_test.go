package nat44

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer"
)

var (
	thisNode = netip.MustParseAddr("192.168.16.1")
	nodeIPs  = renderer.IPAddressesOf(thisNode, netip.MustParseAddr("192.168.16.2"))
)

func node() renderer.NodeState {
	return renderer.NodeState{
		Name: "node-1", IPs: []netip.Addr{thisNode},
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00::/108")},
		Uplink:       "eth0", UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24")}, Overlay: "vxlan0", Host: "tap0",
		Loopback: netip.MustParseAddr("10.1.1.254"),
	}
}

// web is default/web with cluster IP 10.96.0.10 and port http, TCP 80.
func web(change ...func(*renderer.ContivService)) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID = model.ServiceID{Namespace: "default", Name: "web"}
	svc.ClusterIPs.Add(net.ParseIP("10.96.0.10"))
	svc.Ports["http"] = &renderer.ServicePort{Protocol: renderer.TCP, Port: 80}
	for _, f := range change {
		f(svc)
	}
	return svc
}

// endpoints gives port http endpoints: "10.1.1.2" runs on this node, "10.1.2.2" on another.
func endpoints(ips ...string) func(*renderer.ContivService) {
	return func(svc *renderer.ContivService) {
		for _, ip := range ips {
			svc.Backends["http"] = append(svc.Backends["http"], &renderer.ServiceBackend{
				IP: net.ParseIP(ip), Port: 8080, Local: strings.HasPrefix(ip, "10.1.1."),
			})
		}
	}
}

func externalIP(ip string) func(*renderer.ContivService) {
	return func(svc *renderer.ContivService) { svc.ExternalIPs.Add(net.ParseIP(ip)) }
}

func nodePort(svc *renderer.ContivService)      { svc.Ports["http"].NodePort = 30080 }
func externalLocal(svc *renderer.ContivService) { svc.TrafficPolicy = renderer.NodeLocal }
func internalLocal(svc *renderer.ContivService) { svc.InternalTrafficPolicy = renderer.NodeLocal }

// lines returns a readable form: one line per mapping "10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", then the keys of other values,
// then the notes.
func lines(values kv.Values, notes []model.Note) []string {
	var out, rest []string
	for _, key := range values.Keys() {
		dnat, is := values[key].(*nat.DNat44)
		if !is {
			rest = append(rest, strings.TrimPrefix(strings.TrimPrefix(key, "config/contiv/vpp/v1/"), "config/vpp/nat/v2/"))
			continue
		}
		for _, m := range dnat.StMappings {
			line := fmt.Sprintf("%s:%d/%s %s", m.ExternalIp, m.ExternalPort, m.Protocol, m.TwiceNat)
			if m.SessionAffinity != 0 {
				line += fmt.Sprintf(" affinity=%d", m.SessionAffinity)
			}
			for _, l := range m.LocalIps {
				line += fmt.Sprintf(" %s:%d*%d", l.LocalIp, l.LocalPort, l.Probability)
			}
			out = append(out, line)
		}
	}
	out = append(out, rest...)
	for _, n := range notes {
		out = append(out, fmt.Sprintf("%s: %s (refused %t)", n.Ref, n.Reason, n.Refused))
	}
	return out
}

func render(svc *renderer.ContivService) []string {
	return lines(Service(svc, node(), nodeIPs, Config{}))
}

const (
	vipReject = "reject-route/vrf/0/dst/10.96.0.10/32"
	extReject = "reject-route/vrf/0/dst/203.0.113.7/32"
	noLocal   = "Service default/web: externalTrafficPolicy is Local and no endpoint is on this node: pods of this node reach " +
		"endpoints of others, clients from outside are not answered (refused false)"
)

func TestFrontendRules(t *testing.T) {
	for _, tc := range []struct {
		name string
		svc  *renderer.ContivService
		want []string
	}{
		{"cluster IP: all endpoints, client kept", web(endpoints("10.1.1.2", "10.1.2.2")), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*2", vipReject,
		}},
		{"cluster IP ignores externalTrafficPolicy", web(endpoints("10.1.1.2", "10.1.2.2"), externalLocal), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*2", vipReject,
		}},
		{"cluster IP, internal Local: local endpoints", web(endpoints("10.1.1.2", "10.1.2.2"), internalLocal), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", vipReject,
		}},
		{"cluster IP, internal Local, none here: silence", web(endpoints("10.1.2.2"), internalLocal), []string{
			"10.96.0.10:80/TCP DISABLED", vipReject,
			"Service default/web: cluster IPs are silent on this node: internalTrafficPolicy is Local and no endpoint is here (refused false)",
		}},
		{"no endpoints: the reject route answers", web(nodePort, externalIP("203.0.113.7")), []string{vipReject, extReject}},
		{"no endpoints and internal Local: rejected, too", web(internalLocal), []string{vipReject}},
		{"external IP, Cluster: client hidden", web(endpoints("10.1.1.2", "10.1.2.2"), externalIP("203.0.113.7")), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*2",
			"203.0.113.7:80/TCP ENABLED 10.1.1.2:8080*2 10.1.2.2:8080*2", vipReject, extReject,
		}},
		{"external IP, Local: local endpoints, client kept", web(endpoints("10.1.1.2", "10.1.2.2"), externalIP("203.0.113.7"), externalLocal), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*2",
			"203.0.113.7:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*0", vipReject, extReject,
		}},
		{"external IP, Local, none here: for pods only", web(endpoints("10.1.2.2"), externalIP("203.0.113.7"), externalLocal), []string{
			"10.96.0.10:80/TCP SELF 10.1.2.2:8080*2",
			"203.0.113.7:80/TCP SELF 10.1.2.2:8080*2", vipReject, extReject, noLocal,
		}},
		{"node port, Cluster: on this node's address", web(endpoints("10.1.1.2", "10.1.2.2"), nodePort), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*2",
			"192.168.16.1:30080/TCP ENABLED 10.1.1.2:8080*2 10.1.2.2:8080*2", vipReject,
		}},
		{"node port, Local: other nodes serve their own addresses", web(endpoints("10.1.1.2", "10.1.2.2"), nodePort, externalLocal), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*2",
			"192.168.16.1:30080/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*0", vipReject,
		}},
		{"node port, Local, none here", web(endpoints("10.1.2.2"), nodePort, externalLocal), []string{
			"10.96.0.10:80/TCP SELF 10.1.2.2:8080*2",
			"192.168.16.1:30080/TCP SELF 10.1.2.2:8080*2", vipReject, noLocal,
		}},
		{"external IP that is another node's, Local", web(endpoints("10.1.1.2", "10.1.2.2"), externalIP("192.168.16.2"), externalLocal), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2 10.1.2.2:8080*2", vipReject,
		}},
		{"external IP that is another node's, Cluster", web(endpoints("10.1.1.2"), externalIP("192.168.16.2")), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", vipReject,
		}},
		{"external IP that is this node's is never rejected as a whole", web(externalIP("192.168.16.1")), []string{vipReject}},
		{"affinity", web(endpoints("10.1.1.2"), func(s *renderer.ContivService) { s.SessionAffinityTimeout = 600 }), []string{
			"10.96.0.10:80/TCP SELF affinity=600 10.1.1.2:8080*2", vipReject,
		}},
		{"affinity at this node's address", web(endpoints("10.1.1.2"), nodePort, externalLocal, func(s *renderer.ContivService) { s.SessionAffinityTimeout = 600 }), []string{
			"10.96.0.10:80/TCP SELF affinity=600 10.1.1.2:8080*2",
			"192.168.16.1:30080/TCP SELF affinity=600 10.1.1.2:8080*2", vipReject,
		}},
		{"affinity not at external addresses, and not at cluster IPs of unknown ranges", web(endpoints("10.1.1.2"), externalIP("198.51.100.7"), externalLocal, func(s *renderer.ContivService) {
			s.SessionAffinityTimeout, s.ClusterIPs = 600, renderer.IPAddressesOf(netip.MustParseAddr("10.97.0.10"))
		}), []string{
			"10.97.0.10:80/TCP SELF 10.1.1.2:8080*2",
			"198.51.100.7:80/TCP SELF 10.1.1.2:8080*2",
			"reject-route/vrf/0/dst/10.97.0.10/32", "reject-route/vrf/0/dst/198.51.100.7/32",
			"Service default/web: session affinity does not hold at 10.97.0.10: only a range of cluster IPs and this node's addresses are safe from sessions that kill VPP (refused false)",
			"Service default/web: session affinity does not hold at 198.51.100.7: only a range of cluster IPs and this node's addresses are safe from sessions that kill VPP (refused false)",
		}},
		{"the given local set wins", web(endpoints("10.1.2.2"), internalLocal, func(s *renderer.ContivService) {
			s.Other.Local = map[string][]*renderer.ServiceBackend{"http": {{IP: net.ParseIP("10.1.1.9"), Port: 8080, Local: true}}}
		}), []string{"10.96.0.10:80/TCP SELF 10.1.1.9:8080*2", vipReject}},
		{"one mapping for a frontend asked for twice", web(endpoints("10.1.1.2"), externalIP("10.96.0.10")), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", vipReject,
		}},
		{"a frontend of another service", web(endpoints("10.1.1.2"), nodePort, externalLocal, func(s *renderer.ContivService) {
			s.Conflicts = map[renderer.Frontend]model.ServiceID{{IP: thisNode, Port: 30080, Protocol: renderer.TCP}: {Name: "a", Namespace: "default"}}
		}), []string{
			"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", vipReject,
		}},
		{"a node port of another service", web(endpoints("10.1.1.2"), nodePort, func(s *renderer.ContivService) {
			s.Conflicts = map[renderer.Frontend]model.ServiceID{{Port: 30080, Protocol: renderer.TCP}: {Name: "a", Namespace: "default"}}
		}), []string{"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", vipReject}},
		{"UDP", web(endpoints("10.1.1.2"), func(s *renderer.ContivService) { s.Ports["http"].Protocol = renderer.UDP }), []string{
			"10.96.0.10:80/UDP SELF 10.1.1.2:8080*2", vipReject,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, render(tc.svc)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// The first endpoint on a node takes all new connections of policy Local. Those to endpoints elsewhere continue, as long as pads have room; VPP would end
// those by cluster IP, too. Affinity has no drain, and nothing to say about endpoints that stay.
func TestFirstLocalEndpoint(t *testing.T) {
	leaving := func(ips ...string) func(*renderer.ContivService) {
		return func(s *renderer.ContivService) {
			s.Other.Draining = map[string][]*renderer.ServiceBackend{"http": web(endpoints(ips...)).Backends["http"]}
		}
	}
	for _, tc := range []struct {
		name          string
		svc           *renderer.ContivService
		drained, note int
	}{
		{"one elsewhere", web(endpoints("10.1.1.2", "10.1.2.2")), 1, 0},
		{"one leaves here, one elsewhere", web(endpoints("10.1.1.2", "10.1.2.2"), leaving("10.1.1.3", "10.1.2.3")), 3, 0},
		{"84", many(2, 82), 82, 0},
		{"85", many(2, 83), 0, 0},
		{"85 with one that leaves here", web(func(s *renderer.ContivService) { s.Backends = many(2, 82).Backends }, leaving("10.1.1.3")), 1, 1},
		{"affinity", web(endpoints("10.1.1.2", "10.1.2.2"), func(s *renderer.ContivService) { s.SessionAffinityTimeout = 600 }), 0, 0},
		{"affinity, one leaves", web(endpoints("10.1.1.2", "10.1.2.2"), func(s *renderer.ContivService) { s.SessionAffinityTimeout = 600 }, leaving("10.1.1.3")), 0, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodePort(tc.svc)
			externalLocal(tc.svc)
			values, notes := Service(tc.svc, node(), nodeIPs, Config{})
			m := values[kv.DNat44Key("default/web")].(*nat.DNat44).StMappings[1]
			taking := len(slices.DeleteFunc(slices.Clone(m.LocalIps), func(l *nat.DNat44_StaticMapping_LocalIP) bool { return l.Probability == 0 }))
			if want := len(tc.svc.Local("http")); taking != want || len(m.LocalIps)-taking != tc.drained || len(notes) != tc.note {
				t.Errorf("%d endpoints get new connections, want %d; %d keep theirs, want %d; %v", taking, want, len(m.LocalIps)-taking, tc.drained, notes)
			}
		})
	}
}

// Rule A9: VPP accepts a mapping of another protocol and never matches it.
func TestA9SCTPIsRefused(t *testing.T) {
	svc := web(endpoints("10.1.1.2"), nodePort, func(s *renderer.ContivService) { s.Ports["http"].Protocol = renderer.SCTP })
	want := []string{
		vipReject,
		`Service default/web: port "http" (SCTP 80) is not served: nat44 translates the ports of TCP and UDP only (refused true)`,
	}
	if diff := cmp.Diff(want, render(svc)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Rule A10: IPv6 is not served; the IPv4 part of a dual-stack Service is.
func TestA10IPv6IsRefused(t *testing.T) {
	svc := web(endpoints("10.1.1.2", "fd00:1::2"), func(s *renderer.ContivService) { s.ClusterIPs.Add(net.ParseIP("fd00::10")) })
	want := []string{
		"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", vipReject,
		"Service default/web: address fd00::10 is not served: nat44 has no IPv6 (refused true)",
	}
	if diff := cmp.Diff(want, render(svc)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func many(local, remote int) *renderer.ContivService {
	return web(func(s *renderer.ContivService) {
		for i := range local + remote {
			s.Backends["http"] = append(s.Backends["http"], &renderer.ServiceBackend{
				IP: net.IPv4(10, 1, byte(i/250), byte(1+i%250)), Port: 8080, Local: i < local,
			})
		}
	})
}

func mapped(svc *renderer.ContivService, name string, cfg Config) (*nat.DNat44_StaticMapping, []model.Note) {
	n := node()
	n.Name = name
	values, notes := Service(svc, n, nodeIPs, cfg)
	return values[kv.DNat44Key("default/web")].(*nat.DNat44).StMappings[0], notes
}

// Rule A6: VPP counts locals in 8 bits and crashes on the 256th; two places are for pads.
func TestA6AtMost253Backends(t *testing.T) {
	exact, notes := mapped(many(0, 253), "node-1", Config{})
	if len(exact.LocalIps) != 253 || len(notes) != 0 {
		t.Fatalf("253 endpoints: %d used, notes %v", len(exact.LocalIps), notes)
	}
	one, notes := mapped(many(0, 300), "node-1", Config{})
	want := `port "http" has 300 endpoints: this node uses 253 of them, the most nat44 can`
	if len(one.LocalIps) != 253 || len(notes) != 1 || notes[0].Reason != want || notes[0].Refused {
		t.Fatalf("300 endpoints: %d used, notes %v", len(one.LocalIps), notes)
	}
	// One endpoint fewer changes at most one of the others.
	less := many(0, 300)
	gone := less.Backends["http"][0].Addr().String()
	less.Backends["http"] = less.Backends["http"][1:]
	two, _ := mapped(less, "node-1", Config{})
	if n := missing(one, two); n > 1 || n == 1 && !uses(one, gone) {
		t.Errorf("%d endpoints were exchanged because of one", n)
	}
	// Nodes choose independently, so that together they use all.
	other, _ := mapped(many(0, 300), "node-2", Config{})
	if missing(one, other) == 0 {
		t.Error("two nodes chose the same endpoints")
	}
}

func uses(m *nat.DNat44_StaticMapping, ip string) bool {
	return slices.ContainsFunc(m.LocalIps, func(l *nat.DNat44_StaticMapping_LocalIP) bool { return l.LocalIp == ip })
}

// missing counts the locals of a that b lacks.
func missing(a, b *nat.DNat44_StaticMapping) int {
	n := 0
	for _, l := range a.LocalIps {
		if !uses(b, l.LocalIp) {
			n++
		}
	}
	return n
}

// Rule A5: VPP adds weights up in 8 bits; a sum of 256 crashes it, a larger one starves endpoints.
func TestA5WeightsFitIn255(t *testing.T) {
	for _, tc := range []struct {
		local, remote int
		weight        uint8
		near, far     uint32 // weights of local and of remote endpoints
	}{
		{1, 1, 0, 2, 2},
		{1, 1, 1, 2, 2},
		{1, 1, 3, 6, 2},
		{1, 0, 3, 6, 0},
		{1, 1, 50, 100, 2},
		{1, 1, 255, 254, 1},
		{2, 10, 200, 122, 1},
		{253, 0, 255, 1, 0},
		{252, 1, 255, 1, 1},
		{1, 252, 255, 3, 1},
		{0, 5, 255, 0, 2},
		{0, 127, 1, 0, 2},
		{0, 128, 1, 0, 1},
		{42, 1, 3, 6, 2},
		{100, 100, 2, 1, 1},
	} {
		t.Run(fmt.Sprint(tc.local, tc.remote, tc.weight), func(t *testing.T) {
			m, _ := mapped(many(tc.local, tc.remote), "node-1", Config{LocalEndpointWeight: tc.weight})
			sum := uint32(0)
			for i, l := range m.LocalIps {
				want := tc.far
				if i < tc.local {
					want = tc.near
				}
				if l.Probability != want {
					t.Fatalf("weight of %s is %d, want %d", l.LocalIp, l.Probability, want)
				}
				sum += l.Probability
			}
			if sum == 0 || sum > 255 {
				t.Errorf("weights add up to %d", sum)
			}
		})
	}
}

// Rule A11: VPP draws with a linear congruential generator (vppinfra/random.h, random_u32), modulo the sum of weights. Clients whose
// connections take so many draws each get all endpoints, in shares near equal ones.
func TestA11EndpointsGetTheirShare(t *testing.T) {
	for _, draws := range []int{1, 2, 3, 6} {
		for n := 2; n <= 127; n++ {
			m, _ := mapped(many(0, n), "node-1", Config{})
			var ends []uint32 // one for each endpoint: its draws are those below its entry and not below the entry before
			sum := uint32(0)
			for _, l := range m.LocalIps {
				sum += l.Probability
				ends = append(ends, sum)
			}
			const each = 400
			got, seed := make([]int, n), uint32(1)
			for range n * each {
				for range draws {
					seed = seed*1664525 + 1013904223
				}
				i, _ := slices.BinarySearch(ends, seed%sum+1)
				got[i]++
			}
			if least, most := slices.Min(got), slices.Max(got); least < each*3/4 || most > each*5/4 {
				t.Errorf("%d endpoints, %d draws for each connection: between %d and %d connections, %d are their share", n, draws, least, most, each)
			}
		}
	}
}

// Rule A8: twice-NAT without a pool address drops packets as "out of ports".
func TestA8NoLoopbackKeepsClients(t *testing.T) {
	n := node()
	n.Loopback = netip.Addr{}
	got := lines(Service(web(endpoints("10.1.2.2"), externalIP("203.0.113.7")), n, nodeIPs, Config{}))
	want := []string{
		"10.96.0.10:80/TCP DISABLED 10.1.2.2:8080*2", "203.0.113.7:80/TCP DISABLED 10.1.2.2:8080*2", vipReject, extReject,
		"Service default/web: this node has no NAT loopback: its endpoints cannot reach themselves through the service (refused false)",
		"Service default/web: this node has no NAT loopback: clients from outside keep their address, and answers of endpoints on " +
			"other nodes may miss this node (refused false)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A reject route at the prefix of a pod's route would replace that route (ip_route_add_del: all its callers are one source to VPP's FIB).
func TestAddressOfAPodHasNoReject(t *testing.T) {
	svc := web(endpoints("10.1.2.2"), externalIP("203.0.113.7"))
	svc.PodIPs = renderer.NewIPAddresses(net.ParseIP("203.0.113.7"))
	got := lines(Service(svc, node(), nodeIPs, Config{}))
	want := []string{"10.96.0.10:80/TCP SELF 10.1.2.2:8080*2", "203.0.113.7:80/TCP ENABLED 10.1.2.2:8080*2", vipReject}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Rule A2: mappings with one and with two endpoints differ only in the second, so that VPP can change the mapping in place.
func TestA2OneEndpointIsNoSpecialCase(t *testing.T) {
	one, _ := mapped(web(endpoints("10.1.1.2")), "node-1", Config{LocalEndpointWeight: 5})
	two, _ := mapped(web(endpoints("10.1.1.2", "10.1.2.2")), "node-1", Config{LocalEndpointWeight: 5})
	two.LocalIps = two.LocalIps[:1]
	if !kv.Equal(one, two) {
		t.Errorf("a second endpoint changes more than it adds:\n%v\n%v", one, two)
	}
}

// TestInterim: between two values only those clients are permitted that both permit.
func TestInterim(t *testing.T) {
	of := func(ranges string) *contivnat.SourceRanges {
		return &contivnat.SourceRanges{Label: "default/web@203.0.113.7", Ranges: strings.Fields(ranges)}
	}
	for _, tc := range []struct{ was, now, want string }{
		{"10.0.0.0/8", "10.0.0.0/8", "nothing opens"},
		{"10.0.0.0/8", "10.1.0.0/16", "nothing opens"},
		{"10.0.0.0/8", "", "nothing opens"},
		{"10.1.0.0/16", "10.0.0.0/8", "10.1.0.0/16"},
		{"10.0.0.0/8", "198.18.0.0/15", ""},
		{"10.0.0.0/8 198.18.0.0/16", "10.1.0.0/16 10.2.0.0/16 198.18.0.0/15", "10.1.0.0/16 10.2.0.0/16 198.18.0.0/16"},
		{"10.0.0.0/8 10.1.0.0/16", "10.1.0.0/16 11.0.0.0/8", "10.1.0.0/16"},
	} {
		got := "nothing opens"
		if m := Interim(of(tc.was), of(tc.now)); m != nil {
			got = strings.Join(m.(*contivnat.SourceRanges).GetRanges(), " ")
		}
		if got != tc.want {
			t.Errorf("from %q to %q: %q, want %q", tc.was, tc.now, got, tc.want)
		}
	}
	if Interim(of("10.0.0.0/8"), &nat.DNat44{}) != nil {
		t.Error("a mapping has an interim state")
	}
}

func TestSourceRanges(t *testing.T) {
	ranges := func(prefixes ...string) func(*renderer.ContivService) {
		return func(s *renderer.ContivService) {
			s.LoadBalancerIPs = renderer.NewIPAddresses(net.ParseIP("203.0.113.7"))
			for _, p := range prefixes {
				s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, netip.MustParsePrefix(p))
			}
		}
	}
	for name, tc := range map[string]struct {
		ranges []string
		want   string // "": all may
	}{
		"none":                 {nil, ""},
		"some":                 {[]string{"10.0.0.0/8", "198.18.0.0/15"}, "10.0.0.0/8 198.18.0.0/15"},
		"everyone":             {[]string{"10.0.0.0/8", "0.0.0.0/0"}, ""},
		"other family alone":   {[]string{"fd00::/8"}, ""},
		"both families":        {[]string{"10.0.0.0/8", "fd00::/8", "::/0"}, "10.0.0.0/8"},
		"this node among them": {[]string{"192.168.16.0/24"}, "192.168.16.0/24 203.0.113.7/32"},
	} {
		t.Run(name, func(t *testing.T) {
			svc := web(endpoints("10.1.1.2"), externalIP("203.0.113.7"), externalIP("203.0.113.8"), ranges(tc.ranges...))
			values, notes := Service(svc, node(), nodeIPs, Config{})
			got := ""
			if m, ok := values[kv.SourceRangesKey("default/web@203.0.113.7")].(*contivnat.SourceRanges); ok {
				got = strings.Join(m.GetRanges(), " ")
			}
			_, apart := values[kv.DNat44Key("restricted/default/web@203.0.113.7/tcp:80")]
			if got != tc.want || apart != (tc.want != "") || len(notes) > 0 {
				t.Errorf("clients %q, want %q; a mapping of its own: %t; %v", got, tc.want, apart, notes)
			}
			rest := len(values[kv.DNat44Key("default/web")].(*nat.DNat44).GetStMappings())
			if want := 3; apart && rest != want-1 || !apart && rest != want {
				t.Errorf("%d mappings are everybody's", rest)
			}
			if tc.want == "" {
				return
			}
			values, notes = Service(svc, node(), nodeIPs, Config{NoSourceRanges: PoliciesOff})
			if len(values) != 4 || len(notes) != 1 || !notes[0].Refused {
				t.Errorf("without access lists: %v, %v", values, notes)
			}
		})
	}
	// Without endpoints nothing is translated; a client that may not dial still gets no answer.
	values, _ := Service(web(externalIP("203.0.113.7"), ranges("10.0.0.0/8")), node(), nodeIPs, Config{})
	if values[kv.SourceRangesKey("default/web@203.0.113.7")] == nil || len(values) != 3 {
		t.Errorf("without endpoints: %v", values)
	}
}

// Rule C20: the removal of a mapping ends the sessions of every other mapping to the same endpoints. A node that leaves must not
// cause that.
func TestC20NodesComeAndGoWithoutChange(t *testing.T) {
	svc := web(endpoints("10.1.1.2", "10.1.2.2"), nodePort, externalIP("203.0.113.7"))
	few, _ := Service(svc, node(), renderer.IPAddressesOf(thisNode), Config{})
	many, _ := Service(svc, node(), nodeIPs, Config{})
	if diff := cmp.Diff(lines(few, nil), lines(many, nil)); diff != "" {
		t.Errorf("another node changes mappings\n%s", diff)
	}
}

// If another renderer has IPv6, a dual-stack Service has its IPv4 part here, and one of IPv6 alone nothing.
func TestIPv6IsLeftToAnother(t *testing.T) {
	dual := web(endpoints("10.1.1.2", "fd00:1::2"), func(s *renderer.ContivService) { s.ClusterIPs.Add(net.ParseIP("fd00::10")) })
	want := []string{"10.96.0.10:80/TCP SELF 10.1.1.2:8080*2", vipReject}
	if diff := cmp.Diff(want, lines(Service(dual, node(), nodeIPs, Config{Families: renderer.Families{IPv4: true}}))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	v6 := web(endpoints("fd00:1::2"), nodePort, func(s *renderer.ContivService) {
		s.ClusterIPs = renderer.NewIPAddresses(net.ParseIP("fd00::10"))
		s.Ports["http"].Protocol = renderer.SCTP
	})
	if got := lines(Service(v6, node(), nodeIPs, Config{Families: renderer.Families{IPv4: true}})); len(got) != 0 {
		t.Errorf("of a service of IPv6 alone: %v", got)
	}
}

func TestServiceThatAsksForAnotherRenderer(t *testing.T) {
	svc := web(endpoints("10.1.1.2"), func(s *renderer.ContivService) { s.Renderer = "cnat" })
	want := []string{vipReject, "Service default/web: address 10.96.0.10 is not served: the service asks for cnat, and IPv4 is nat44's on this node (refused true)"}
	if diff := cmp.Diff(want, render(svc)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	svc.Renderer = Name
	if got := render(svc); len(got) != 2 {
		t.Errorf("it asks for this one: %v", got)
	}
}
