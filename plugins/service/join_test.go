package service

import (
	"cmp"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// gatherAlone lists the endpoints of one port without regard to others: all that its slices have, sorted, and of the same address and
// number the most useful one.
func gatherAlone(port model.ServicePort, parts []*model.EndpointSlice, fam families, env surroundings) (all []endpoint, found []candidate) {
	for _, part := range parts {
		number, has := portOf(part, port)
		for i := range part.Endpoints {
			ep := &part.Endpoints[i]
			if has && ep.Addr.Is6() == part.IPv6 && fam.hasFamily(ep.Addr) {
				found = append(found, candidate{at: len(all), port: number})
				all = append(all, endpoint{Endpoint: ep, ip: ep.Addr.AsSlice(), local: env.node != "" && ep.NodeName == env.node, host: env.isNode(ep.Addr)})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		x, y := &all[a.at], &all[b.at]
		return cmp.Or(x.Addr.Compare(y.Addr), int(a.port)-int(b.port), falseFirst(x.Terminating, y.Terminating), falseFirst(y.Ready, x.Ready),
			falseFirst(y.Serving, x.Serving), falseFirst(y.local, x.local))
	})
	return all, slices.CompactFunc(found, func(a, b candidate) bool { return a.port == b.port && all[a.at].Addr == all[b.at].Addr })
}

// randomSlices returns slices with duplicate addresses, and numbers that differ between slices.
func randomSlices(r *rand.Rand) (ports []model.ServicePort, parts []*model.EndpointSlice) {
	names := []string{"a", "b", "c"}
	for _, n := range names {
		ports = append(ports, model.ServicePort{Name: n, Protocol: model.TCP, Port: 80})
	}
	for i := range r.IntN(5) {
		part := &model.EndpointSlice{ID: model.SliceID{Name: string(rune('a' + i))}, IPv6: r.IntN(3) == 0}
		for _, n := range names {
			if r.IntN(4) > 0 {
				part.Ports = append(part.Ports, model.EndpointPort{Name: n, Protocol: model.TCP, Port: uint16(r.IntN(4))})
			}
		}
		for range r.IntN(12) {
			a := netip.AddrFrom4([4]byte{10, 1, 1, byte(r.IntN(8))})
			if part.IPv6 != (r.IntN(9) == 0) {
				a = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(r.IntN(8))})
			}
			part.Endpoints = append(part.Endpoints, model.Endpoint{
				Addr: a, Ready: r.IntN(2) == 0, Serving: r.IntN(2) == 0, Terminating: r.IntN(2) == 0, NodeName: []string{"", "node-1", "node-2"}[r.IntN(3)],
			})
		}
		parts = append(parts, part)
	}
	return ports, parts
}

// A list that all ports share gives each port the endpoints that the port has by itself, and the Service their nodes.
func TestJoinedPortsAreThoseOfEachPort(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	env := surroundings{node: "node-1", isNode: func(a netip.Addr) bool { return a.AsSlice()[len(a.AsSlice())-1] < 2 }}
	filled := 0
	for range 3000 {
		ports, parts := randomSlices(r)
		fam := families{v4: r.IntN(4) > 0, v6: r.IntN(2) > 0}
		all := join(nil, parts, fam, env)
		var nodes []renderer.BackendNode
		for _, p := range ports {
			own, alone := gatherAlone(p, parts, fam, env)
			backends, local, derived := endpointsOf(all, gather(nil, p, parts, all), env)
			wantBackends, wantLocal, wantDerived := endpointsOf(own, alone, env)
			if diff := gocmp.Diff(wantBackends, backends) + gocmp.Diff(wantLocal, local); diff != "" || derived != wantDerived {
				t.Fatalf("port %s of %+v (- alone, + joined; %t, %t):\n%s", p.Name, parts, wantDerived, derived, diff)
			}
			for _, e := range own {
				if e.used && e.NodeName != "" {
					nodes = append(nodes, renderer.BackendNode{Addr: e.Addr, Node: e.NodeName})
				}
			}
			filled += len(backends)
		}
		slices.SortFunc(nodes, renderer.BackendNode.Compare)
		nodes = slices.CompactFunc(nodes, func(a, b renderer.BackendNode) bool { return a.Addr == b.Addr })
		if got := nodesOf(all); !slices.Equal(got, nodes) {
			t.Fatalf("nodes %v, want %v", got, nodes)
		}
	}
	for _, tc := range []struct {
		is   model.Endpoint
		want bool
	}{{model.Endpoint{Ready: true, Serving: true}, false}, {model.Endpoint{Serving: true, Terminating: true}, true}, {model.Endpoint{}, true}} {
		tc.is.Addr = netip.MustParseAddr("10.1.1.2")
		if got := draining([]endpoint{{Endpoint: &tc.is}}, []candidate{{port: 8080}}); len(got) > 0 != tc.want {
			t.Errorf("%+v keeps its connections alone: %v", tc.is, got)
		}
	}
	if filled < 3000 {
		t.Errorf("only %d backends", filled)
	}
}
