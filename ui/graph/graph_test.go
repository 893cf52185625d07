package graph_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/ui/graph"
	"github.com/contiv-agent/contiv-agent/ui/sample"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

func listOf(t testing.TB, c *sample.Cluster) (list []watch.Flow) {
	t.Helper()
	names, _ := c.Nodes(t.Context())
	for _, name := range names {
		a, err := c.Flows(context.Background(), name, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Flows {
			list = append(list, watch.Flow{Flow: f, Changed: f.Last})
		}
	}
	return list
}

func edgesOf(m *graph.Map) (out []string) {
	for _, e := range m.Edges {
		verdict := "allowed"
		if e.Denied {
			verdict = "dropped"
		}
		out = append(out, fmt.Sprintf("%s -> %s %s %d %s", e.From, e.To, verdict, e.Connections, strings.Join(e.Ports, ",")))
	}
	return out
}

// A connection through a Service is one path: client, Service, endpoint. The views of both ends and of NAT44 do not add up.
func TestMapShowsEachConnectionOnce(t *testing.T) {
	m := graph.Of(listOf(t, sample.New(sample.Small)), graph.Options{Now: sample.Begin})
	want := []string{
		"outside -> workload shop/web allowed 6 8080/TCP",
		"service shop/api -> workload shop/api allowed 3 9000/TCP",
		"service shop/db -> workload shop/db allowed 3 5432/TCP",
		"service shop/web -> workload shop/web allowed 6 8080/TCP",
		"workload shop/api -> service shop/db allowed 3 5432/TCP",
		"workload shop/client -> service shop/web allowed 6 8080/TCP",
		"workload shop/web -> service shop/api allowed 3 9000/TCP",
		"workload shop/worker -> workload shop/db dropped 3 5432/TCP",
	}
	if diff := cmp.Diff(want, edgesOf(m)); diff != "" {
		t.Error(diff)
	}
	for _, e := range m.Edges {
		if !e.Active {
			t.Errorf("%s -> %s is not active at the time of its change", e.From, e.To)
		}
	}
	later := graph.Of(listOf(t, sample.New(sample.Small)), graph.Options{Now: sample.Begin.Add(time.Minute)})
	if later.Edges[0].Active {
		t.Error("an edge is active a minute after its change")
	}
}

// The order of flows does not matter, and neither does that of maps in memory.
func TestEqualFlowsMakeEqualMaps(t *testing.T) {
	list := listOf(t, sample.New(sample.Large))
	want := graph.Of(list, graph.Options{})
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 0))
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if diff := cmp.Diff(want, graph.Of(list, graph.Options{}), cmpopts.IgnoreUnexported(graph.Vertex{})); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// checkPlane checks that boxes are on the plane and do not overlap, and that edges begin and end at boxes.
func checkPlane(t *testing.T, m *graph.Map) {
	t.Helper()
	at := map[string]*graph.Vertex{}
	for i, v := range m.Vertices {
		at[v.ID] = v
		if v.X < 0 || v.Y < 0 || v.X+graph.BoxW > m.W || v.Y+graph.BoxH > m.H {
			t.Errorf("%s at %.0f, %.0f is not on the plane of %.0f x %.0f", v.ID, v.X, v.Y, m.W, m.H)
		}
		for _, w := range m.Vertices[:i] {
			if v.X < w.X+graph.BoxW && w.X < v.X+graph.BoxW && v.Y < w.Y+graph.BoxH && w.Y < v.Y+graph.BoxH {
				t.Errorf("%s and %s overlap", v.ID, w.ID)
			}
		}
	}
	for _, e := range m.Edges {
		for id, p := range map[string]graph.Point{e.From: e.Curve[0], e.To: e.Curve[3]} {
			if v := at[id]; v == nil || p.X != v.X && p.X != v.X+graph.BoxW || p.Y < v.Y || p.Y > v.Y+graph.BoxH {
				t.Errorf("edge %s -> %s does not touch %s", e.From, e.To, id)
			}
		}
	}
}

// 1,000 pods are one vertex for each namespace; a namespace that is chosen is open.
func TestLargeMapsAreClosed(t *testing.T) {
	list := listOf(t, sample.New(sample.Large))
	m := graph.Of(list, graph.Options{})
	checkPlane(t, m)
	if !m.Closed || len(m.Vertices) != 41 { // 40 namespaces and the outside
		t.Errorf("closed %v, %d vertices", m.Closed, len(m.Vertices))
	}
	for _, v := range m.Vertices {
		if v.Kind == graph.Namespace && (v.Members != 25 || v.Inside != graph.Traffic{Connections: 15, Denied: 5}) {
			t.Errorf("%s: %d members, %+v inside", v.ID, v.Members, v.Inside)
		}
	}
	open := graph.Of(list, graph.Options{Toggled: []string{"team-07"}})
	checkPlane(t, open)
	if n := len(open.Vertices); n != 41-1+8 { // five workloads, of which three have a Service that was dialled
		var ids []string
		for _, v := range open.Vertices {
			ids = append(ids, v.ID)
		}
		t.Errorf("%d vertices with an open namespace: %s", n, strings.Join(ids, ", "))
	}
	small := listOf(t, sample.New(sample.Small))
	if m := graph.Of(small, graph.Options{Toggled: []string{"shop"}}); m.Closed || len(m.Vertices) != 2 {
		t.Errorf("a namespace that is chosen in a small map stays open: %v", edgesOf(m))
	}
}

// A map is bounded, with any flows: the ends with the least traffic share a vertex, and no traffic is lost.
func TestMapsAreBounded(t *testing.T) {
	var list []watch.Flow
	total := uint64(0)
	for i := range 300 {
		f := flows.Flow{
			Source:      flows.Peer{Kind: flows.Node, Name: fmt.Sprintf("node-%03d", i), Address: netip.AddrFrom4([4]byte{10, 0, byte(i / 256), byte(i)})},
			Destination: flows.Peer{Kind: flows.Pod, Namespace: fmt.Sprintf("ns-%03d", i%97), Name: "web", Address: netip.AddrFrom4([4]byte{10, 1, 0, byte(i % 97)})},
			Port:        uint16(80 + i), Protocol: "TCP", Verdict: flows.Allowed, Counts: flows.Counts{Connections: uint64(i + 1)}, Direction: "ingress", SeenBy: "test",
		}
		total += f.Connections
		list = append(list, watch.Flow{Flow: f})
	}
	m := graph.Of(list, graph.Options{})
	checkPlane(t, m)
	sum := uint64(0)
	for _, e := range m.Edges {
		sum += e.Connections
	}
	for _, v := range m.Vertices {
		sum += v.Inside.Connections
	}
	if len(m.Vertices) != graph.Most || m.Merged == 0 || sum != total {
		t.Errorf("%d vertices, %d merged, %d of %d connections", len(m.Vertices), m.Merged, sum, total)
	}
}

// Each edge of a map leads to flows with its verdict, as many as it counts.
func TestBetweenHasTheFlowsOfEachEdge(t *testing.T) {
	for name, size := range map[string]sample.Size{"small": sample.Small, "closed": {Nodes: 2, Namespaces: 12, Replicas: 1}} {
		list := listOf(t, sample.New(size))
		for _, e := range graph.Of(list, graph.Options{}).Edges {
			behind := graph.Between(list, e.From, e.To, e.Denied)
			seen := map[string]uint64{}
			most := uint64(0)
			for _, f := range behind {
				if (f.Verdict == flows.Dropped) != e.Denied {
					t.Errorf("%s: %s -> %s has %s", name, e.From, e.To, f.Verdict)
				}
				seen[f.SeenBy+f.Direction] += max(f.Connections, f.Packets*uint64(map[bool]int{true: 1}[e.Denied]))
				most = max(most, seen[f.SeenBy+f.Direction])
			}
			if most < e.Connections {
				t.Errorf("%s: %s -> %s has %d flows that count %d, want %d", name, e.From, e.To, len(behind), most, e.Connections)
			}
		}
	}
}

// Two ends may have both verdicts: each edge leads to its flows alone.
func TestBetweenSeparatesVerdicts(t *testing.T) {
	f := flows.Flow{
		Source: flows.Peer{Kind: flows.Node, Name: "a"}, Destination: flows.Peer{Kind: flows.Node, Name: "b"}, Port: 80, Protocol: "TCP", Verdict: flows.Allowed,
		Counts: flows.Counts{Connections: 1},
	}
	g := f
	g.Verdict, g.Port, g.Counts = flows.Dropped, 22, flows.Counts{Packets: 1}
	list := []watch.Flow{{Flow: f}, {Flow: g}}
	if got := edgesOf(graph.Of(list, graph.Options{})); len(got) != 2 {
		t.Error(got)
	}
	for denied, port := range map[bool]uint16{false: 80, true: 22} {
		if got := graph.Between(list, "node a", "node b", denied); len(got) != 1 || got[0].Port != port {
			t.Errorf("denied %v: %+v", denied, got)
		}
	}
}

func TestByNamespace(t *testing.T) {
	got := graph.ByNamespace(listOf(t, sample.New(sample.Size{Nodes: 2, Namespaces: 2, Replicas: 1})))
	want := map[[2]string]graph.Traffic{
		{"outside", "shop"}: {Connections: 2}, {"outside", "team-01"}: {Connections: 2}, {"shop", "shop"}: {Connections: 3, Denied: 1},
		{"shop", "team-01"}: {Connections: 1}, {"team-01", "shop"}: {Connections: 1}, {"team-01", "team-01"}: {Connections: 3, Denied: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkOf draws the map of 1,000 pods behind 200 Services.
func BenchmarkOf(b *testing.B) {
	list := listOf(b, sample.New(sample.Large))
	b.ReportAllocs()
	for b.Loop() {
		graph.Of(list, graph.Options{})
	}
}
