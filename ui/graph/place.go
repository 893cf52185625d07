package graph

import (
	"cmp"
	"maps"
	"slices"
)

// Sizes of the plane.
const (
	BoxW = 160 // of a vertex
	BoxH = 38

	columnGap  = 84
	rowGap     = 12
	areaHead   = 22 // above the vertices of a namespace
	areaMargin = 8
	margin     = 16
	mostLayers = 7
	mostRows   = 12 // of a layer by paths
	sweeps     = 4
)

// place puts the vertices of a map into layers such that most edges lead to the right, and the vertices of a namespace are together in each layer.
func place(m *Map) {
	p := &placement{of: map[string]*Vertex{}, next: map[string][]string{}, before: map[string][]string{}, state: map[string]int{}}
	for _, v := range m.Vertices {
		p.of[v.ID] = v
	}
	for _, e := range m.Edges {
		if !slices.Contains(p.next[e.From], e.To) {
			p.next[e.From], p.before[e.To] = append(p.next[e.From], e.To), append(p.before[e.To], e.From)
		}
	}
	p.assignLayers(m)
	p.orderLayers()
	p.setPositions(m)
	p.setCurves(m)
}

type placement struct {
	of           map[string]*Vertex
	next, before map[string][]string // by edges, and then by those that lead to the right
	state        map[string]int      // 1: on the current path, 2: done
	layers       [][]*Vertex
	sorted       []string // so that edges lead from earlier to later ones, but for those of cycles
}

// assignLayers gives each vertex the length of the longest path to it, without the edges that close cycles. If that makes a layer too high, all layers
// have equal sizes.
func (p *placement) assignLayers(m *Map) {
	roots := slices.Clone(m.Vertices)
	rank := func(v *Vertex) int {
		switch {
		case v.Kind == Outside:
			return 0
		case len(p.before[v.ID]) == 0:
			return 1
		}
		return 2
	}
	slices.SortFunc(roots, func(a, b *Vertex) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID)) })
	forward := map[string][]string{}
	for _, v := range roots {
		p.visitFrom(v.ID, forward)
	}
	slices.Reverse(p.sorted)
	for _, id := range p.sorted {
		for _, to := range forward[id] {
			p.of[to].layer = min(max(p.of[to].layer, p.of[id].layer+1), mostLayers-1)
		}
	}
	p.fillLayers(m.Vertices)
	for _, layer := range p.layers {
		if len(layer) > mostRows {
			p.foldLayers(m.Vertices)
			return
		}
	}
}

func (p *placement) fillLayers(list []*Vertex) {
	p.layers = nil
	for _, v := range list {
		for len(p.layers) <= v.layer {
			p.layers = append(p.layers, nil)
		}
		p.layers[v.layer] = append(p.layers[v.layer], v)
	}
}

// foldLayers fills layers of equal size with the vertices, in an order in which most edges lead forward. The vertices of a namespace follow each other.
func (p *placement) foldLayers(list []*Vertex) {
	first := map[string]int{}
	for i, id := range p.sorted {
		if _, known := first[p.of[id].Namespace]; !known {
			first[p.of[id].Namespace] = i
		}
	}
	rank := map[string]int{}
	for i, id := range p.sorted {
		if v := p.of[id]; v.Namespace != "" {
			rank[id] = first[v.Namespace]*len(p.sorted) + i
		} else {
			rank[id] = i * len(p.sorted)
		}
	}
	order := slices.SortedFunc(slices.Values(list), func(a, b *Vertex) int { return cmp.Or(cmp.Compare(rank[a.ID], rank[b.ID]), cmp.Compare(a.ID, b.ID)) })
	rows := max(mostRows/2, (len(order)+mostLayers-1)/mostLayers)
	for i, v := range order {
		v.layer = i / rows
	}
	p.fillLayers(list)
}

// visitFrom visits what a vertex leads to, depth first, and keeps the edges that close no cycle. A map is small: the depth is at most Most.
func (p *placement) visitFrom(id string, forward map[string][]string) {
	if p.state[id] != 0 {
		return
	}
	p.state[id] = 1
	for _, to := range p.next[id] {
		if p.state[to] != 1 {
			forward[id] = append(forward[id], to)
			p.visitFrom(to, forward)
		}
	}
	p.state[id] = 2
	p.sorted = append(p.sorted, id)
}

// orderLayers orders each layer by the positions of its neighbours, and keeps namespaces together.
func (p *placement) orderLayers() {
	at := map[string]float64{}
	number := func() {
		for _, layer := range p.layers {
			for i, v := range layer {
				at[v.ID] = (float64(i) + 0.5) / float64(len(layer))
			}
		}
	}
	for _, layer := range p.layers {
		slices.SortFunc(layer, func(a, b *Vertex) int { return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID)) })
	}
	number()
	for sweep := range sweeps {
		neighbours := p.before
		if sweep%2 == 1 {
			neighbours = p.next
		}
		for _, layer := range p.layers {
			sortLayer(layer, at, neighbours)
		}
		number()
	}
}

func sortLayer(layer []*Vertex, at map[string]float64, neighbours map[string][]string) {
	mean, total, count := map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, v := range layer {
		mean[v.ID] = at[v.ID]
		if list := neighbours[v.ID]; len(list) > 0 {
			sum := 0.0
			for _, id := range list {
				sum += at[id]
			}
			mean[v.ID] = sum / float64(len(list))
		}
		total[v.Namespace] += mean[v.ID]
		count[v.Namespace]++
	}
	slices.SortFunc(layer, func(a, b *Vertex) int {
		return cmp.Or(
			cmp.Compare(total[a.Namespace]/count[a.Namespace], total[b.Namespace]/count[b.Namespace]), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(mean[a.ID], mean[b.ID]), cmp.Compare(a.ID, b.ID),
		)
	})
}

// setPositions puts layers beside each other, each in the middle of the height.
func (p *placement) setPositions(m *Map) {
	heights := make([]float64, len(p.layers))
	for i, layer := range p.layers {
		y := 0.0
		for j, v := range layer {
			if v.Namespace != "" && v.Kind != Namespace && (j == 0 || layer[j-1].Namespace != v.Namespace) {
				y += areaHead + areaMargin
			}
			v.Y = y
			y += BoxH + rowGap
		}
		heights[i] = y - rowGap
	}
	m.H = 0
	for _, h := range heights {
		m.H = max(m.H, h)
	}
	for i, layer := range p.layers {
		for _, v := range layer {
			v.X, v.Y = margin+float64(i)*(BoxW+columnGap), v.Y+margin+(m.H-heights[i])/2
		}
		p.addAreas(m, layer)
	}
	m.H += 2*margin + areaMargin
	m.W = 2*margin + float64(len(p.layers))*BoxW + float64(max(len(p.layers)-1, 0))*columnGap
}

// addAreas adds the areas of the open namespaces of a layer.
func (p *placement) addAreas(m *Map, layer []*Vertex) {
	for i, v := range layer {
		switch {
		case v.Namespace == "" || v.Kind == Namespace:
		case i > 0 && layer[i-1].Namespace == v.Namespace:
			a := &m.Areas[len(m.Areas)-1]
			a.H = v.Y + BoxH + areaMargin/2 - a.Y
		default:
			m.Areas = append(m.Areas, Area{Namespace: v.Namespace, X: v.X - areaMargin, Y: v.Y - areaHead, W: BoxW + 2*areaMargin, H: BoxH + areaHead + areaMargin/2})
		}
	}
}

// side is one side of a vertex, at which edges begin and end.
type side struct {
	id    string
	right bool
}

// setCurves draws each edge from the right side of its sender to the left side of its receiver; within a layer, and to an earlier one, to the
// right side. Edges at one side are spread, in the order of their other ends.
func (p *placement) setCurves(m *Map) {
	type end struct {
		edge  int
		first bool
	}
	ends := map[side][]end{}
	sidesOf := func(e *Edge) (from, to side) {
		a, b := p.of[e.From], p.of[e.To]
		return side{e.From, b.layer >= a.layer}, side{e.To, b.layer <= a.layer}
	}
	for i, e := range m.Edges {
		from, to := sidesOf(e)
		ends[from], ends[to] = append(ends[from], end{i, true}), append(ends[to], end{i, false})
	}
	other := func(x end) *Vertex {
		if x.first {
			return p.of[m.Edges[x.edge].To]
		}
		return p.of[m.Edges[x.edge].From]
	}
	for _, at := range slices.SortedFunc(maps.Keys(ends), func(a, b side) int { return cmp.Or(cmp.Compare(a.id, b.id), compareBool(a.right, b.right)) }) {
		list, v := ends[at], p.of[at.id]
		slices.SortStableFunc(list, func(a, b end) int { return cmp.Compare(other(a).Y, other(b).Y) })
		for i, x := range list {
			point := Point{v.X, v.Y + BoxH*(float64(i)+1)/(float64(len(list))+1)}
			out := -1.0
			if at.right {
				point.X, out = v.X+BoxW, 1
			}
			reach := out * columnGap * 0.6
			if e := m.Edges[x.edge]; x.first {
				e.Curve[0], e.Curve[1] = point, Point{point.X + reach, point.Y}
			} else {
				e.Curve[3], e.Curve[2] = point, Point{point.X + reach, point.Y}
			}
		}
	}
}

// Middle is the point in the middle of the edge.
func (e *Edge) Middle() Point {
	c := &e.Curve
	return Point{(c[0].X + 3*c[1].X + 3*c[2].X + c[3].X) / 8, (c[0].Y + 3*c[1].Y + 3*c[2].Y + c[3].Y) / 8}
}
