package service

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// here builds a service as seen from node-1 in zone a; 192.168.16.x are nodes.
func here(spec *model.Service, parts ...*model.EndpointSlice) (*renderer.ContivService, []model.Note) {
	return build(spec, parts, surroundings{
		node: "node-1", zone: "a",
		isNode: func(a netip.Addr) bool { return netip.MustParsePrefix("192.168.16.0/24").Contains(a) },
	}, nil)
}

func text(list []*renderer.ServiceBackend) string {
	out := make([]string, len(list))
	for i, b := range list {
		out[i] = b.String()
	}
	return strings.Join(out, ", ")
}

// An endpoint is written "10.1.1.2" (10.1.1.x is on node-1), followed by marks: - not ready, s serving, t terminating, @a for zone
// a, #node-1 for a node.
func marked(words ...string) []model.Endpoint {
	var out []model.Endpoint
	for _, w := range words {
		ip, marks, _ := strings.Cut(w, " ")
		e := ep(ip)
		for _, m := range strings.Fields(marks) {
			switch {
			case m == "-":
				e.Ready, e.Serving = false, false
			case m == "s":
				e.Serving = true
			case m == "t":
				e.Terminating = true
			case m[0] == '@':
				e.ForZones = append(e.ForZones, m[1:])
			case m[0] == '#':
				e.ForNodes = append(e.ForNodes, m[1:])
			}
		}
		out = append(out, e)
	}
	return out
}

func TestEndpointSets(t *testing.T) {
	const p = ":8080"
	for _, tc := range []struct {
		name        string
		eps         []string
		wide, local string
	}{
		{"ready ones", []string{"10.1.2.2", "10.1.1.2"}, "10.1.1.2:8080 local, 10.1.2.2:8080", "10.1.1.2:8080 local"},
		{"not ready", []string{"10.1.1.2 -", "10.1.2.2"}, "10.1.2.2" + p, ""},
		{"serving, not ready and not terminating", []string{"10.1.1.2 - s"}, "", ""},
		{"terminating ones wait behind a ready one", []string{"10.1.1.2 - s t", "10.1.2.2"}, "10.1.2.2" + p, "10.1.1.2:8080 local"},
		{
			"terminating ones when none is ready",
			[]string{"10.1.1.2 - s t", "10.1.2.2 - s t"},
			"10.1.1.2:8080 local, 10.1.2.2:8080", "10.1.1.2:8080 local",
		},
		{"terminating and not serving", []string{"10.1.1.2 - t"}, "", ""},
		{"ready is trusted even when terminating", []string{"10.1.1.2 t"}, "10.1.1.2:8080 local", "10.1.1.2:8080 local"},
		{"host network", []string{"192.168.16.2"}, "192.168.16.2:8080 host-network", ""},
		{"outside the cluster", []string{"8.8.8.8"}, "8.8.8.8" + p, ""},
		{"zone hints", []string{"10.1.1.2 @b", "10.1.2.2 @a"}, "10.1.2.2" + p, "10.1.1.2:8080 local"},
		{"zone hints, one without", []string{"10.1.1.2", "10.1.2.2 @a"}, "10.1.1.2:8080 local, 10.1.2.2:8080", "10.1.1.2:8080 local"},
		{"zone hints, none for this zone", []string{"10.1.1.2 @b", "10.1.2.2 @c"}, "10.1.1.2:8080 local, 10.1.2.2:8080", "10.1.1.2:8080 local"},
		{"node hints win over zone hints", []string{"10.1.1.2 @b #node-1", "10.1.2.2 @a #node-2"}, "10.1.1.2:8080 local", "10.1.1.2:8080 local"},
		{"node hints, none for this node", []string{"10.1.1.2 @a #node-3", "10.1.2.2 @b #node-2"}, "10.1.1.2:8080 local", "10.1.1.2:8080 local"},
		{"hints of one that is not ready do not count", []string{"10.1.1.2 - ", "10.1.2.2 @a", "10.1.2.3 @b"}, "10.1.2.2" + p, ""},
		{
			"hints do not narrow the terminating",
			[]string{"10.1.1.2 - s t @b", "10.1.2.2 - s t @a"},
			"10.1.1.2:8080 local, 10.1.2.2:8080", "10.1.1.2:8080 local",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			svc, _ := here(cluster("a", "10.96.0.1"), slice("a", marked(tc.eps...)...))
			if got := text(svc.Backends["http"]); got != tc.wide {
				t.Errorf("policy Cluster: %s\nwant %s", got, tc.wide)
			}
			if got := text(svc.Local("http")); got != tc.local {
				t.Errorf("policy Local: %s\nwant %s", got, tc.local)
			}
		})
	}
}

// Other.Local is nil exactly when it adds nothing to Backends, so that equal services are equal values.
func TestLocalBackendsOnlyWhenNeeded(t *testing.T) {
	plain, _ := here(cluster("a", "10.96.0.1"), slice("a", marked("10.1.1.2", "10.1.2.2")...))
	if plain.Other.Local != nil {
		t.Errorf("Other.Local = %v", plain.Other.Local)
	}
	two := cluster("a", "10.96.0.1", func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Name: "metrics", Protocol: model.TCP, Port: 90})
	})
	hinted := slice("a", marked("10.1.1.2 @b", "10.1.2.2 @a")...)
	hinted.Ports = []model.EndpointPort{{Name: "metrics", Protocol: model.TCP, Port: 9090}}
	svc, _ := here(two, slice("a", marked("10.1.1.2", "10.1.2.2")...), hinted)
	if text(svc.Other.Local["http"]) != "10.1.1.2:8080 local" || text(svc.Other.Local["metrics"]) != "10.1.1.2:9090 local" {
		t.Errorf("Other.Local = %v", svc.Other.Local)
	}
}

func TestSlicesAreMerged(t *testing.T) {
	second := slice("a", marked("10.1.1.3", "10.1.1.2 - s t", "fd00:1::2")...)
	second.ID.Name = "a-2"
	number := slice("a", marked("10.1.1.4")...)
	number.ID.Name = "a-3"
	number.Ports[0].Port = 9000 // the same name may mean another number
	other := slice("a", marked("10.1.1.9")...)
	other.Ports = []model.EndpointPort{{Name: "http", Protocol: model.UDP, Port: 8080}, {Name: "x", Protocol: model.TCP, Port: 80}, {Name: "http", Protocol: model.TCP}}
	v6 := slice("a", marked("fd00:1::2", "10.1.1.8")...)
	v6.IPv6 = true
	svc, _ := here(cluster("a", "10.96.0.1"), slice("a", marked("10.1.1.2")...), second, number, other, v6)
	want := "10.1.1.2:8080 local, 10.1.1.3:8080 local, 10.1.1.4:9000 local"
	if got := text(svc.Backends["http"]); got != want {
		t.Errorf("backends %s\nwant     %s", got, want)
	}
}

// A renderer receives the nodes of the used endpoints that have one, and no others.
func TestNodesOfEndpoints(t *testing.T) {
	eps := marked("10.1.1.3", "10.1.1.2", "10.1.2.2", "10.1.1.9 -")
	eps[2].NodeName = ""
	svc, _ := here(cluster("a", "10.96.0.1"), slice("a", eps...), slice("a", eps[0]))
	want := []renderer.BackendNode{{Addr: netip.MustParseAddr("10.1.1.2"), Node: "node-1"}, {Addr: netip.MustParseAddr("10.1.1.3"), Node: "node-1"}}
	if !slices.Equal(svc.BackendNodes, want) {
		t.Errorf("nodes %v, want %v", svc.BackendNodes, want)
	}
	var got []string
	for _, b := range svc.Backends["http"] {
		got = append(got, svc.NodeOf(b))
	}
	if !slices.Equal(got, []string{"node-1", "node-1", ""}) {
		t.Errorf("NodeOf = %q", got)
	}
	moved := *svc
	moved.BackendNodes = []renderer.BackendNode{want[0], {Addr: want[1].Addr, Node: "node-2"}}
	if svc.Equal(&moved) {
		t.Error("an endpoint that moved to another node is no difference")
	}
}

func TestFamiliesAreEvaluatedSeparately(t *testing.T) {
	spec := cluster("a", "10.96.0.1", func(s *model.Service) { s.ClusterIPs = addrs("10.96.0.1", "fd00::1") })
	v6 := slice("a", marked("fd00:1::2 - s t")...)
	v6.IPv6, v6.ID.Name = true, "a-6"
	svc, _ := here(spec, slice("a", marked("10.1.1.2", "10.1.1.3 - s t")...), v6)
	if got := text(svc.Backends["http"]); got != "10.1.1.2:8080 local, [fd00:1::2]:8080" {
		t.Errorf("a ready IPv4 endpoint decided about IPv6: %s", got)
	}
}

func TestAddresses(t *testing.T) {
	spec := cluster("a", "10.96.0.1", func(s *model.Service) {
		s.Type = model.LoadBalancer
		s.ExternalIPs = addrs("203.0.113.7", "fd00::7")
		s.LoadBalancerIPs = []model.LoadBalancerIP{{Addr: addr("203.0.113.8")}, {Addr: addr("203.0.113.9"), Proxy: true}}
		s.LoadBalancerSourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		s.SessionAffinityTimeout = 1500 * time.Millisecond
		s.ExternalTrafficPolicy = model.PolicyLocal
		s.InternalTrafficPolicy = model.PolicyLocal
		s.Ports[0].NodePort = 30080
	})
	svc, notes := here(spec)
	want := "default/a cluster=[10.96.0.1] external=[203.0.113.7 203.0.113.8] policy=node-local internal-policy=node-local " +
		`affinity=2s port "http" TCP 80 node-port 30080 -> [] load-balancer=[203.0.113.8] sources=[10.0.0.0/8]`
	if got := svc.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if len(notes) != 1 || notes[0].Reason != "external IP fd00::7 is not served: there is no cluster IP of its family" || !notes[0].Refused {
		t.Errorf("notes = %v", notes)
	}
	spec.Type = model.NodePort
	if svc, _ := here(spec); svc.ExternalIPs.String() != "[203.0.113.7]" || svc.LoadBalancerIPs != nil || svc.LoadBalancerSourceRanges != nil {
		t.Errorf("load-balancer addresses of a service that is none: %s", svc)
	}
	closed, notes := build(spec, nil, surroundings{closed: New(Config{NoExternalIPs: true}).closed}, nil)
	if closed.ExternalIPs.Len() != 0 || !slices.ContainsFunc(notes, func(n model.Note) bool { return strings.Contains(n.Reason, "switched off") }) {
		t.Errorf("external IPs are switched off: %s %v", closed, notes)
	}
}

func TestPortNameTwice(t *testing.T) {
	svc, notes := here(cluster("a", "10.96.0.1", func(s *model.Service) {
		s.Ports = append(s.Ports, model.ServicePort{Name: "http", Protocol: model.TCP, Port: 81})
	}))
	if svc.Ports["http"].Port != 80 || len(notes) != 1 {
		t.Errorf("%s %v", svc, notes)
	}
}

func TestMostUsefulDuplicateEndpointCounts(t *testing.T) {
	for _, order := range [][]string{{"10.1.1.2 - s t", "10.1.1.2"}, {"10.1.1.2", "10.1.1.2 - s t"}, {"10.1.1.2 -", "10.1.1.2"}} {
		svc, _ := here(cluster("a", "10.96.0.1"), slice("a", marked(order...)...))
		if diff := cmp.Diff("10.1.1.2:8080 local", text(svc.Backends["http"])); diff != "" {
			t.Errorf("%v: %s", order, diff)
		}
	}
}
