package graph

import (
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

// Between returns the flows behind the edge between two vertices of a map.
func Between(list []watch.Flow, from, to string, denied bool) (out []watch.Flow) {
	for i := range list {
		f := &list[i]
		if (f.Verdict == flows.Dropped) != denied {
			continue
		}
		ends := [][2]*flows.Peer{{&f.Source, &f.Destination}}
		if service, known := serviceOf(f); known {
			ends = append(ends, [2]*flows.Peer{&f.Source, &service}, [2]*flows.Peer{&service, &f.Destination})
		}
		for _, e := range ends {
			if stands(from, e[0]) && stands(to, e[1]) {
				out = append(out, *f)
				break
			}
		}
	}
	return out
}

// stands reports whether a vertex stands for a peer: itself, or its closed namespace.
func stands(id string, p *flows.Peer) bool {
	return VertexOf(p).ID == id || p.Namespace != "" && idOf(Namespace, "", p.Namespace) == id
}

// ByNamespace adds flows up by the namespaces of their ends; "outside": none. It takes the largest count of the access lists of both ends and of NAT44,
// which count the same connections.
func ByNamespace(list []watch.Flow) map[[2]string]Traffic {
	b := &builder{vertices: map[string]*Vertex{}, edges: map[pair]*sum{}, translated: map[triple]bool{}}
	for i := range list {
		f := &list[i]
		b.addTraffic(namespaceOf(&f.Source), namespaceOf(&f.Destination), f, "")
	}
	out := map[[2]string]Traffic{}
	for at, s := range b.edges {
		t := out[[2]string{at.from, at.to}]
		if n, _ := s.traffic(at.denied); at.denied {
			t.Denied = n
		} else {
			t.Connections = n
		}
		out[[2]string{at.from, at.to}] = t
	}
	return out
}

func namespaceOf(p *flows.Peer) string {
	if p.Namespace == "" {
		return Outside
	}
	return p.Namespace
}
