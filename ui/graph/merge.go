package graph

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/flows"
)

// closeNamespaces replaces the vertices of each closed namespace by one.
func (b *builder) closeNamespaces(m *Map) {
	into := map[string]*Vertex{}
	for _, v := range b.vertices {
		open := slices.Contains(b.options.Toggled, v.Namespace) == m.Closed
		if v.Namespace == "" || open {
			continue
		}
		into[v.ID] = &Vertex{ID: idOf(Namespace, "", v.Namespace), Kind: Namespace, Namespace: v.Namespace, Name: v.Namespace}
	}
	b.replaceVertices(into)
}

// mergeSmall replaces the vertices with the least traffic by one, if they are too many.
func (b *builder) mergeSmall(m *Map) {
	if len(b.vertices) <= Most {
		return
	}
	busy := map[string]uint64{}
	for at, s := range b.edges {
		n, _ := s.traffic(at.denied)
		busy[at.from] += n
		busy[at.to] += n
	}
	order := slices.SortedFunc(maps.Keys(b.vertices), func(x, y string) int { return cmp.Or(cmp.Compare(busy[y], busy[x]), cmp.Compare(x, y)) })
	into := map[string]*Vertex{}
	m.Merged = len(order) - Most + 1
	for _, id := range order[Most-1:] {
		into[id] = &Vertex{ID: Others, Kind: Others, Name: fmt.Sprintf("%d others", m.Merged)}
	}
	b.replaceVertices(into)
}

// replaceVertices replaces vertices by those of a map, and adds their edges up.
func (b *builder) replaceVertices(into map[string]*Vertex) {
	if len(into) == 0 {
		return
	}
	for id, to := range into {
		was := b.vertices[id]
		delete(b.vertices, id)
		if b.vertices[to.ID] == nil {
			to.members = map[string]bool{}
			b.vertices[to.ID] = to
		}
		for member := range was.members {
			if was.Kind != Service { // a Service is no further member beside its pods
				b.vertices[to.ID].members[was.ID+" "+member] = true
			}
		}
		b.vertices[to.ID].Members = len(b.vertices[to.ID].members)
	}
	moved := func(id string) string {
		if to := into[id]; to != nil {
			return to.ID
		}
		return id
	}
	edges := map[pair]*sum{}
	for at, s := range b.edges {
		second := strings.HasPrefix(at.from, Service+" ")
		at.from, at.to = moved(at.from), moved(at.to)
		if second && at.from == at.to {
			continue // the edge to the Service counts these connections
		}
		if edges[at] == nil {
			edges[at] = &sum{counts: map[view]*flows.Counts{}, ports: map[string]uint64{}}
		}
		edges[at].addSum(s)
	}
	b.edges = edges
	for at, s := range b.edges {
		if v := b.vertices[at.from]; at.from == at.to {
			n, _ := s.traffic(at.denied)
			if at.denied {
				v.Inside.Denied = n
			} else {
				v.Inside.Connections = n
			}
		}
	}
}

func (s *sum) addSum(t *sum) {
	for at, c := range t.counts {
		if s.counts[at] == nil {
			s.counts[at] = &flows.Counts{}
		}
		to := s.counts[at]
		to.Connections, to.Packets, to.Bytes = to.Connections+c.Connections, to.Packets+c.Packets, to.Bytes+c.Bytes
	}
	for port, n := range t.ports {
		s.ports[port] += n
	}
	s.latest, s.change = laterOf(s.latest, t.latest), laterOf(s.change, t.change)
}
