package space

import (
	"net/netip"
	"slices"
)

// Move gives an address another one of the same family.
type Move struct{ From, To netip.Addr }

// Moved is a set in which hosts have other addresses, as sources and as destinations: a header with a To is in the result if the set has it
// with the From. No header with a From that is no To is. All Tos are different; of equal Froms each To gets a copy.
func Moved(s *Space, a Set, moves []Move) Set {
	four, six := mover{diagrams: &s.diagrams, known: map[[2]ref]ref{}}, mover{diagrams: &s.diagrams, known: map[[2]ref]ref{}, six: true}
	for _, m := range moves {
		to := &four
		if m.From.Is6() {
			to = &six
		}
		from := numberOf(m.From)
		to.points = append(to.points, point{numberOf(m.To), &from})
	}
	for _, m := range []*mover{&four, &six} {
		m.vacate()
	}
	return Set{four.move(a.v4, source), six.move(a.v6, source)}
}

// mover replaces the addresses of one family.
type mover struct {
	*diagrams
	points []point // sorted
	six    bool
	known  map[[2]ref]ref // by node and field
}

// point is a value of which the result has what the set has for another value; nil: nothing.
type point struct {
	at   number
	from *number
}

// vacate adds points for the values that hosts leave.
func (m *mover) vacate() {
	taken := map[number]bool{}
	for _, p := range m.points {
		taken[p.at] = true
	}
	for _, p := range slices.Clone(m.points) {
		if !taken[*p.from] {
			m.points = append(m.points, point{at: *p.from})
			taken[*p.from] = true
		}
	}
	slices.SortFunc(m.points, func(a, b point) int {
		switch {
		case a.at.less(b.at):
			return -1
		case b.at.less(a.at):
			return 1
		}
		return 0
	})
}

func (m *mover) move(r ref, f field) ref {
	if r == 0 || f == protocol || len(m.points) == 0 {
		return r
	}
	key := [2]ref{r, ref(f)}
	if to, ok := m.known[key]; ok {
		return to
	}
	var es []edge // of the node, or one for all values, with what follows moved
	if m.level(r) == f {
		for i := range m.edgeCount(r) {
			e := m.edge(r, i)
			es = append(es, edge{e.last, m.move(e.to, f+1)})
		}
	} else {
		es = []edge{{mostOf(f, m.six), m.move(r, f+1)}}
	}
	from := len(m.stack)
	next := 0 // point
	for _, e := range es {
		first := number{}
		if len(m.stack) > from {
			first = m.stack[len(m.stack)-1].last.next()
		}
		for ; next < len(m.points) && !e.last.less(m.points[next].at); next++ {
			p := m.points[next]
			if first.less(p.at) {
				m.push(from, p.at.previous(), e.to)
			}
			to := ref(0)
			if p.from != nil {
				to = valueOf(es, *p.from)
			}
			m.push(from, p.at, to)
			first = p.at.next()
		}
		if len(m.stack) == from || m.stack[len(m.stack)-1].last.less(e.last) {
			m.push(from, e.last, e.to)
		}
	}
	to := m.pop(f, from)
	m.known[key] = to
	return to
}

// valueOf is what edges lead to for a value.
func valueOf(es []edge, v number) ref {
	at, _ := slices.BinarySearchFunc(es, v, func(e edge, v number) int {
		if e.last.less(v) {
			return -1
		}
		return 1
	})
	return es[at].to
}
