// Package graph turns flows into a map of a bounded number of vertices, and the map into positions on a plane.
//
//	flows ─▶ vertices: workloads, Services, nodes, the outside ─▶ large namespaces become one vertex ─▶ layers from left to right ─▶ positions
//
// Invariant: equal flows make equal maps, whatever their order; a map has at most Most vertices.
package graph

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

const (
	// Most bounds the vertices of a map.
	Most = 72
	// mostOpen is the number of vertices above which namespaces are closed: each is one vertex.
	mostOpen = 40
	// activeFor is how long an edge is active after its last change.
	activeFor = 10 * time.Second
	// mostPorts bounds the ports that an edge names.
	mostPorts = 4
)

// The kinds of vertices.
const (
	Workload  = "workload"
	Service   = "service"
	Node      = "node"
	Outside   = "outside"
	Namespace = "namespace"
	Others    = "others"
)

// Vertex is a sender or a receiver.
type Vertex struct {
	// ID is the kind, and the name in its namespace: "workload prod/web".
	ID, Kind, Namespace, Name string
	// Members are the pods or addresses that were seen.
	Members int
	// Inside is the traffic between members of one vertex.
	Inside Traffic
	X, Y   float64 // of the left upper corner

	layer   int
	members map[string]bool
}

// Traffic is what was seen between two ends.
type Traffic struct {
	Connections, Denied uint64 // denied packets
}

// Edge is the traffic with one verdict from a vertex to another one.
type Edge struct {
	From, To string // IDs
	Denied   bool
	// Connections were allowed, as one end of them sees them, or packets were denied.
	Connections, Bytes uint64
	// Ports are the most used, such as "80/TCP"; MorePorts counts the others.
	Ports     []string
	MorePorts int
	Latest    time.Time
	// Active says that it changed just now.
	Active bool
	// Curve is the Bézier curve from From to To: four points.
	Curve [4]Point
}

// Point is a position on the plane.
type Point struct{ X, Y float64 }

// Area is a part of a column that belongs to a namespace.
type Area struct {
	Namespace  string
	X, Y, W, H float64
}

// Map is vertices with positions, sorted by ID, and edges.
type Map struct {
	Vertices []*Vertex
	Edges    []*Edge
	Areas    []Area
	W, H     float64
	// Closed says that namespaces are closed unless they are chosen, because the map would have too many vertices.
	Closed bool
	// Merged counts the vertices that had no room.
	Merged int
}

// Options choose a part of the flows.
type Options struct {
	// Toggled are the namespaces that are open although others are closed, or the other way round.
	Toggled []string
	// Now is the time for Active.
	Now time.Time
}

// Of returns the map of flows.
func Of(list []watch.Flow, o Options) *Map {
	b := &builder{options: o, vertices: map[string]*Vertex{}, edges: map[pair]*sum{}, translated: map[triple]bool{}}
	b.readTranslated(list)
	for i := range list {
		b.addFlow(&list[i])
	}
	m := &Map{Closed: len(b.vertices) > mostOpen}
	b.closeNamespaces(m)
	b.mergeSmall(m)
	m.Vertices = slices.SortedFunc(maps.Values(b.vertices), func(a, b *Vertex) int { return cmp.Compare(a.ID, b.ID) })
	for at, s := range b.edges {
		if at.from != at.to {
			m.Edges = append(m.Edges, s.edge(at, o.Now))
		}
	}
	slices.SortFunc(m.Edges, compareEdges)
	place(m)
	return m
}

func compareEdges(a, b *Edge) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), compareBool(a.Denied, b.Denied))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// VertexOf returns the vertex of an end of a flow, without Members and a position.
func VertexOf(p *flows.Peer) Vertex {
	v := Vertex{Namespace: p.Namespace, Name: p.Name}
	switch p.Kind {
	case flows.Pod:
		v.Kind, v.Name = Workload, cmp.Or(p.Workload, p.Name)
	case flows.Service:
		v.Kind = Service
	case flows.Node:
		v.Kind = Node
	default:
		v.Kind, v.Name = Outside, ""
	}
	v.ID = idOf(v.Kind, v.Namespace, v.Name)
	return v
}

func idOf(kind, namespace, name string) string {
	switch {
	case namespace != "":
		return kind + " " + namespace + "/" + name
	case name != "":
		return kind + " " + name
	}
	return kind
}

type builder struct {
	options    Options
	vertices   map[string]*Vertex
	edges      map[pair]*sum
	translated map[triple]bool
}

// pair is the ends of an edge.
type pair struct {
	from, to string
	denied   bool
}

// triple is connections that NAT44 translates: the record of NAT44 names the Service between their ends.
type triple struct {
	from, to string
	port     uint16
}

// sum is the traffic of a pair.
type sum struct {
	// counts are those of one view: NAT44 and the access lists of both ends count the same connections.
	counts map[view]*flows.Counts
	ports  map[string]uint64
	latest time.Time
	change time.Time
}

type view struct{ direction, seenBy string }

// readTranslated learns which connections go through a Service.
func (b *builder) readTranslated(list []watch.Flow) {
	for i := range list {
		f := &list[i]
		if _, known := serviceOf(f); known {
			from, to := VertexOf(&f.Source), VertexOf(&f.Destination)
			b.translated[triple{from.ID, to.ID, f.Port}] = true
		}
	}
}

// serviceOf returns the Service that the clients of a translated flow dialled.
func serviceOf(f *watch.Flow) (flows.Peer, bool) {
	if f.Translation == nil {
		return flows.Peer{}, false
	}
	namespace, name, named := strings.Cut(f.Translation.Service, "/")
	return flows.Peer{Kind: flows.Service, Namespace: namespace, Name: name, Address: f.Translation.Dialled.Addr()}, named
}

// addFlow adds a flow. A translated one leads to its Service, and from there to the endpoint.
func (b *builder) addFlow(f *watch.Flow) {
	from, to := b.vertex(&f.Source), b.vertex(&f.Destination)
	service, known := serviceOf(f)
	switch {
	case known:
		middle := b.vertex(&service)
		b.addTraffic(from, middle, f, strconv.Itoa(int(f.Translation.Dialled.Port()))+"/"+f.Protocol)
		b.addTraffic(middle, to, f, portOf(f))
	case f.Verdict == flows.Allowed && b.translated[triple{from, to, f.Port}]:
		// the same connections, behind NAT44
	default:
		b.addTraffic(from, to, f, portOf(f))
	}
}

func portOf(f *watch.Flow) string {
	if f.Port == 0 {
		return f.Protocol
	}
	return strconv.Itoa(int(f.Port)) + "/" + f.Protocol
}

// vertex returns the ID of a peer's vertex, which it makes if it is new.
func (b *builder) vertex(p *flows.Peer) string {
	v := VertexOf(p)
	known := b.vertices[v.ID]
	if known == nil {
		v.members = map[string]bool{}
		known = &v
		b.vertices[v.ID] = known
	}
	member := p.Name
	if p.Kind == flows.Outside {
		member = p.Address.String()
	}
	known.members[member] = true
	known.Members = len(known.members)
	return v.ID
}

func (b *builder) addTraffic(from, to string, f *watch.Flow, port string) {
	at := pair{from, to, f.Verdict == flows.Dropped}
	s := b.edges[at]
	if s == nil {
		s = &sum{counts: map[view]*flows.Counts{}, ports: map[string]uint64{}}
		b.edges[at] = s
	}
	seen := view{f.Direction, f.SeenBy}
	if s.counts[seen] == nil {
		s.counts[seen] = &flows.Counts{}
	}
	c := s.counts[seen]
	c.Connections, c.Packets, c.Bytes = c.Connections+f.Connections, c.Packets+f.Packets, c.Bytes+f.Bytes
	s.ports[port] += max(f.Connections, f.Packets)
	s.latest, s.change = laterOf(s.latest, f.Last), laterOf(s.change, f.Changed)
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// traffic is the largest count of the views: connections, or packets that were denied.
func (s *sum) traffic(denied bool) (n, bytes uint64) {
	for _, c := range s.counts {
		if denied {
			n = max(n, c.Packets)
		} else {
			n = max(n, c.Connections)
		}
		bytes = max(bytes, c.Bytes)
	}
	return n, bytes
}

func (s *sum) edge(at pair, now time.Time) *Edge {
	e := &Edge{From: at.from, To: at.to, Denied: at.denied, Latest: s.latest, Active: now.Sub(s.change) < activeFor}
	e.Connections, e.Bytes = s.traffic(at.denied)
	e.Ports = slices.SortedFunc(maps.Keys(s.ports), func(a, b string) int { return cmp.Or(cmp.Compare(s.ports[b], s.ports[a]), cmp.Compare(a, b)) })
	if len(e.Ports) > mostPorts {
		e.Ports, e.MorePorts = e.Ports[:mostPorts], len(e.Ports)-mostPorts
	}
	return e
}
