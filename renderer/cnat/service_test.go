package cnat

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/renderer"
)

var (
	thisNode = netip.MustParseAddr("fd00:16::1")
	nodeIPs  = renderer.IPAddressesOf(thisNode, netip.MustParseAddr("fd00:16::2"), netip.MustParseAddr("192.168.16.1"), netip.MustParseAddr("192.168.16.2"))
	both     = Config{Families: renderer.Families{IPv4: true, IPv6: true}}
	v6       = Config{Families: renderer.Families{IPv6: true}}
)

func node() renderer.NodeState {
	return renderer.NodeState{
		Name: "node-1", IPs: []netip.Addr{netip.MustParseAddr("192.168.16.1"), thisNode},
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24"), netip.MustParsePrefix("fd00:1:1::/64")},
		Remote:       []renderer.RemoteNode{{Name: "node-2", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00:1:2::/64")}}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
		Uplink:       "eth0", UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24"), netip.MustParsePrefix("fd00:16::1/64")},
		Overlay: "vxlan0", Host: "tap0",
	}
}

// web is default/web with cluster IP fd00:96::10 and port http, TCP 80.
func web(change ...func(*renderer.ContivService)) *renderer.ContivService {
	svc := renderer.NewContivService()
	svc.ID = model.ServiceID{Namespace: "default", Name: "web"}
	svc.ClusterIPs.Add(net.ParseIP("fd00:96::10"))
	svc.Ports["http"] = &renderer.ServicePort{Protocol: renderer.TCP, Port: 80}
	for _, f := range change {
		f(svc)
	}
	return svc
}

// endpoints gives port http endpoints: those of fd00:1:1::/64 and 10.1.1.0/24 run on this node.
func endpoints(ips ...string) func(*renderer.ContivService) {
	return func(svc *renderer.ContivService) {
		for _, ip := range ips {
			svc.Backends["http"] = append(svc.Backends["http"], &renderer.ServiceBackend{
				IP: net.ParseIP(ip), Port: 8080, Local: strings.HasPrefix(ip, "10.1.1.") || strings.HasPrefix(ip, "fd00:1:1:"),
			})
		}
	}
}

func externalIP(ip string) func(*renderer.ContivService) {
	return func(svc *renderer.ContivService) { svc.ExternalIPs.Add(net.ParseIP(ip)) }
}

func clusterIP(ip string) func(*renderer.ContivService) {
	return func(svc *renderer.ContivService) { svc.ClusterIPs.Add(net.ParseIP(ip)) }
}

func protocolOf(p renderer.ProtocolType) func(*renderer.ContivService) {
	return func(svc *renderer.ContivService) { svc.Ports["http"].Protocol = p }
}

func nodePort(svc *renderer.ContivService)      { svc.Ports["http"].NodePort = 30080 }
func externalLocal(svc *renderer.ContivService) { svc.TrafficPolicy = renderer.NodeLocal }
func internalLocal(svc *renderer.ContivService) { svc.InternalTrafficPolicy = renderer.NodeLocal }
func affinity(svc *renderer.ContivService)      { svc.SessionAffinityTimeout = 600 }

// lines returns a readable form: one line per value, then the notes.
func lines(values kv.Values, notes []model.Note) []string {
	var out, rest []string
	for _, key := range values.Keys() {
		t, is := values[key].(*cnat.Translation)
		if !is {
			rest = append(rest, strings.TrimPrefix(kv.Format(key, values[key]), "config/contiv/vpp/v1/"))
			continue
		}
		line := fmt.Sprintf("%s/%s", netip.AddrPortFrom(netip.MustParseAddr(t.Vip.Address), uint16(t.Vip.Port)), t.Protocol)
		if !t.RealAddress {
			line += " not real"
		}
		if t.LoadBalancing != 0 || len(t.FlowHash) > 0 {
			line += fmt.Sprintf(" %s%v", t.LoadBalancing, t.FlowHash)
		}
		for _, p := range t.Paths {
			line += " " + netip.AddrPortFrom(netip.MustParseAddr(p.Destination.Address), uint16(p.Destination.Port)).String()
		}
		out = append(out, line)
	}
	out = append(out, rest...)
	for _, n := range notes {
		out = append(out, fmt.Sprintf("%s: %s (refused %t)", n.Ref, n.Reason, n.Refused))
	}
	return out
}

const (
	vip      = `reject-route/vrf/0/dst/fd00:96::10/128 {"dstNetwork":"fd00:96::10/128"}`
	ext      = `reject-route/vrf/0/dst/2001:db8::7/128 {"dstNetwork":"2001:db8::7/128"}`
	sticky   = "Service default/web: session affinity goes by a hash of the client's address: there is no timeout, and when endpoints come or go, some clients change theirs (refused false)"
	silent   = "Service default/web: cluster IPs are silent on this node: internalTrafficPolicy is Local and no endpoint is here (refused false)"
	noLocal  = "Service default/web: externalTrafficPolicy is Local and no endpoint is on this node: pods of this node reach endpoints of others, and so do clients from outside, with this node's address (refused false)"
	oneHere  = "fd00:1:1::2"
	oneThere = "fd00:1:2::2"
)

func TestFrontendRules(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		svc  *renderer.ContivService
		want []string
	}{
		{"cluster IP: all endpoints", v6, web(endpoints(oneHere, oneThere)), []string{
			"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080 [fd00:1:2::2]:8080", vip,
		}},
		{"no endpoints: the reject route answers", v6, web(nodePort, externalIP("2001:db8::7")), []string{ext, vip}},
		{"internal Local", v6, web(endpoints(oneHere, oneThere), internalLocal), []string{"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip}},
		{"internal Local, none here: silence", v6, web(endpoints(oneThere), internalLocal), []string{"[fd00:96::10]:80/TCP [100::4]:1", vip, silent}},
		{"internal Local, none anywhere: rejected", v6, web(internalLocal), []string{vip}},
		{"external IP, Cluster", v6, web(endpoints(oneHere, oneThere), externalIP("2001:db8::7")), []string{
			"[2001:db8::7]:80/TCP [fd00:1:1::2]:8080 [fd00:1:2::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:1::2]:8080 [fd00:1:2::2]:8080", ext, vip,
		}},
		{"external IP, Local", v6, web(endpoints(oneHere, oneThere), externalIP("2001:db8::7"), externalLocal), []string{
			"[2001:db8::7]:80/TCP [fd00:1:1::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:1::2]:8080 [fd00:1:2::2]:8080", ext, vip,
		}},
		{"external IP, Local, none here", v6, web(endpoints(oneThere), externalIP("2001:db8::7"), externalLocal), []string{
			"[2001:db8::7]:80/TCP [fd00:1:2::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:2::2]:8080", ext, vip, noLocal,
		}},
		{"node port, Cluster: this node's address", v6, web(endpoints(oneThere), nodePort), []string{
			"[fd00:16::1]:30080/TCP [fd00:1:2::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:2::2]:8080", vip,
		}},
		{"node port, Local: other nodes serve their own addresses", v6, web(endpoints(oneHere, oneThere), nodePort, externalLocal), []string{
			"[fd00:16::1]:30080/TCP [fd00:1:1::2]:8080",
			"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080 [fd00:1:2::2]:8080", vip,
		}},
		{"external IP that is this node's", v6, web(endpoints(oneHere), externalIP("fd00:16::1")), []string{
			"[fd00:16::1]:80/TCP [fd00:1:1::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip,
		}},
		{"external IP that is another node's", v6, web(endpoints(oneHere), externalIP("fd00:16::2")), []string{
			"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip,
		}},
		{"affinity", v6, web(endpoints(oneHere), affinity), []string{"[fd00:96::10]:80/TCP MAGLEV[SRC_ADDRESS] [fd00:1:1::2]:8080", vip, sticky}},
		{"Maglev", Config{Families: renderer.Families{IPv6: true}, Maglev: true}, web(endpoints(oneHere)), []string{"[fd00:96::10]:80/TCP MAGLEV[] [fd00:1:1::2]:8080", vip}},
		{"weights", Config{Families: renderer.Families{IPv6: true}, LocalEndpointWeight: 3}, web(endpoints(oneThere, oneHere)), []string{
			"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080 [fd00:1:1::2]:8080 [fd00:1:1::2]:8080 [fd00:1:2::2]:8080", vip,
		}},
		{"weights: local ones only", Config{Families: renderer.Families{IPv6: true}, LocalEndpointWeight: 3}, web(endpoints(oneHere)), []string{"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip}},
		{"each endpoint once", v6, web(endpoints(oneHere, oneHere)), []string{"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip}},
		{"the given local set wins", v6, web(endpoints(oneThere), internalLocal, func(s *renderer.ContivService) {
			s.Other.Local = map[string][]*renderer.ServiceBackend{"http": {{IP: net.ParseIP("fd00:1:1::9"), Port: 8080, Local: true}}}
		}), []string{"[fd00:96::10]:80/TCP [fd00:1:1::9]:8080", vip}},
		{"dual stack: each family its own", both, web(clusterIP("10.96.0.10"), endpoints(oneHere, "10.1.1.2"), nodePort), []string{
			"10.96.0.10:80/TCP 10.1.1.2:8080", "192.168.16.1:30080/TCP 10.1.1.2:8080", "[fd00:16::1]:30080/TCP [fd00:1:1::2]:8080",
			"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", `reject-route/vrf/0/dst/10.96.0.10/32 {"dstNetwork":"10.96.0.10/32"}`, vip,
		}},
		{"dual stack: the other family is another's", v6, web(clusterIP("10.96.0.10"), endpoints(oneHere, "10.1.1.2"), nodePort), []string{
			"[fd00:16::1]:30080/TCP [fd00:1:1::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip,
		}},
		{"UDP", v6, web(endpoints(oneHere), protocolOf(renderer.UDP)), []string{"[fd00:96::10]:80/UDP [fd00:1:1::2]:8080", vip}},
		{"SCTP: IPv4 only", both, web(clusterIP("10.96.0.10"), endpoints(oneHere, "10.1.1.2"), protocolOf(renderer.SCTP)), []string{
			"10.96.0.10:80/SCTP 10.1.1.2:8080", `reject-route/vrf/0/dst/10.96.0.10/32 {"dstNetwork":"10.96.0.10/32"}`, vip,
			`Service default/web: port "http" (SCTP 80) is not served in IPv6: cnat translates SCTP in IPv4 only (refused true)`,
		}},
		{"an address some pod has: its route stays", v6, web(endpoints(oneHere), externalIP("2001:db8::7"), func(s *renderer.ContivService) {
			s.PodIPs = renderer.NewIPAddresses(net.ParseIP("2001:db8::7"))
		}), []string{"[2001:db8::7]:80/TCP [fd00:1:1::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip}},
		{"a frontend of another service", v6, web(endpoints(oneHere), nodePort, func(s *renderer.ContivService) {
			s.Conflicts = map[renderer.Frontend]model.ServiceID{{Port: 30080, Protocol: renderer.TCP}: {Name: "a", Namespace: "default"}}
		}), []string{"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip}},
		{"load-balancer IP for some clients", v6, web(endpoints(oneHere), externalIP("2001:db8::7"), func(s *renderer.ContivService) {
			s.LoadBalancerIPs = s.ExternalIPs.Copy()
			s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/48")}
		}), []string{
			"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", ext, vip,
			"Service default/web: load-balancer IP 2001:db8::7 is not served: cnat cannot check loadBalancerSourceRanges (refused true)",
		}},
		{"ranges of the other family do not count", v6, web(endpoints(oneHere), externalIP("2001:db8::7"), func(s *renderer.ContivService) {
			s.LoadBalancerIPs = s.ExternalIPs.Copy()
			s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}), []string{"[2001:db8::7]:80/TCP [fd00:1:1::2]:8080", "[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", ext, vip}},
		{"meant for the other renderer", both, web(clusterIP("10.96.0.10"), endpoints(oneHere), func(s *renderer.ContivService) { s.Renderer = "nat44" }), []string{
			`reject-route/vrf/0/dst/10.96.0.10/32 {"dstNetwork":"10.96.0.10/32"}`, vip,
			"Service default/web: address 10.96.0.10 is not served: the service asks for nat44, and this family is cnat's on this node (refused true)",
			"Service default/web: address fd00:96::10 is not served: the service asks for nat44, and this family is cnat's on this node (refused true)",
		}},
		{"meant for the other renderer, whose family it is", v6, web(clusterIP("10.96.0.10"), endpoints(oneHere), func(s *renderer.ContivService) { s.Renderer = Name }), []string{
			"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip,
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, lines(Service(tc.svc, node(), nodeIPs, tc.cfg))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestServiceOfANodeWithoutAddress(t *testing.T) {
	n := node()
	n.IPs, n.UplinkIPs = n.IPs[:1], n.UplinkIPs[:1]
	want := []string{
		"[fd00:96::10]:80/TCP [fd00:1:1::2]:8080", vip,
		"Service default/web: this node has no IPv6 address: its endpoints cannot reach themselves through the service, and answers of endpoints " +
			"on other nodes to clients from outside may miss this node (refused false)",
	}
	if diff := cmp.Diff(want, lines(Service(web(endpoints(oneHere)), n, nodeIPs, v6))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Weights never make more than maxPaths of fewer endpoints.
func TestWeightsAreBounded(t *testing.T) {
	var all []string
	for i := range 200 {
		all = append(all, fmt.Sprintf("fd00:1:%d::%x", 1+i%2, 16+i))
	}
	values, _ := Service(web(endpoints(all...)), node(), nodeIPs, Config{Families: renderer.Families{IPv6: true}, LocalEndpointWeight: 9})
	if n := len(values["config/contiv/vpp/v1/cnat-translation/fd00:96::10/80/TCP"].(*cnat.Translation).Paths); n != 200 {
		t.Errorf("%d paths of 100 endpoints here and 100 elsewhere", n)
	}
}

// A load balance of VPP has 8,192 buckets. A port with one more endpoint is served with the maximum, which differs from node to node.
func TestMostEndpoints(t *testing.T) {
	render := func(n int, name string) (map[string]bool, []model.Note) {
		var ips []string
		for i := range n {
			ips = append(ips, fmt.Sprintf("fd00:1:2::%x", i+1))
		}
		at := node()
		at.Name = name
		values, notes := Service(web(endpoints(ips...)), at, nodeIPs, v6)
		used := map[string]bool{}
		for _, v := range values {
			if tr, is := v.(*cnat.Translation); is {
				for _, p := range tr.GetPaths() {
					used[p.GetDestination().GetAddress()] = true
				}
			}
		}
		return used, notes
	}
	if used, notes := render(MaxEndpoints, "node-1"); len(used) != MaxEndpoints || len(notes) > 0 {
		t.Errorf("%d of %d endpoints, notes %v", len(used), MaxEndpoints, notes)
	}
	one, notes := render(MaxEndpoints+1, "node-1")
	if len(one) != MaxEndpoints || len(notes) != 1 || !strings.Contains(notes[0].Reason, "has 8193 endpoints: this node uses 8192 of them") || notes[0].Refused {
		t.Errorf("%d of %d endpoints, notes %v", len(one), MaxEndpoints+1, notes)
	}
	union := map[string]bool{}
	for i := range 20 {
		used, _ := render(MaxEndpoints+1, fmt.Sprintf("node-%d", i))
		for ip := range used {
			union[ip] = true
		}
	}
	if len(union) != MaxEndpoints+1 {
		t.Errorf("20 nodes use %d endpoints, want all of %d", len(union), MaxEndpoints+1)
	}
}
