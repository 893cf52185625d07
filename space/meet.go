package space

// mostSets is the largest number of sets of Common.
const mostSets = 4

// Common returns a header that up to four sets have in common, the first one in the order of fields, as Witness does; false: they have none. It
// makes no node: the intersection of sets with thousands of addresses may be much larger than the sets.
func Common(s *Space, sets ...Set) (Header, bool) {
	if len(sets) > mostSets {
		panic("space: too many sets")
	}
	for _, six := range []bool{false, true} {
		w := walker{diagrams: &s.diagrams, apart: map[group]bool{}}
		var g group
		for i := range g {
			g[i] = 1
			switch {
			case i >= len(sets):
			case six:
				g[i] = sets[i].v6
			default:
				g[i] = sets[i].v4
			}
		}
		if w.meet(g) {
			return headerOf(w.values, six), true
		}
	}
	return Header{}, false
}

// group is diagrams. A set that is not given is that of all headers.
type group [mostSets]ref

// walker looks for the first header that diagrams have in common.
type walker struct {
	*diagrams
	apart  map[group]bool // diagrams that have none
	values [fields]number
}

// meet reports whether diagrams have a common header. Values then has the fields from that of the diagrams on.
func (w *walker) meet(g group) bool {
	f := fields
	for _, r := range g {
		if r == 0 {
			return false
		}
		f = min(f, w.level(r))
	}
	if f == fields {
		return true
	}
	if w.apart[g] {
		return false
	}
	var at [mostSets]uint32 // edges
	for first := (number{}); ; {
		to, last, ends := w.interval(g, f, &at)
		if w.meet(to) {
			w.values[f] = first
			return true
		}
		if ends {
			w.apart[g] = true
			return false
		}
		first = last.next()
	}
}

// interval returns what the edges at a position lead to, and the last value of the field that all of them cover. It moves on to the next value, unless
// the field ends.
func (w *walker) interval(g group, f field, at *[mostSets]uint32) (to group, last number, ends bool) {
	to, ends = g, true
	for i, r := range g {
		if w.level(r) != f {
			continue // one edge for all values
		}
		e := w.edge(r, at[i])
		to[i] = e.to
		if at[i]+1 < w.edgeCount(r) && (ends || e.last.less(last)) {
			last, ends = e.last, false
		}
	}
	if ends {
		return to, last, true
	}
	for i, r := range g {
		if w.level(r) == f && w.edge(r, at[i]).last == last {
			at[i]++
		}
	}
	return to, last, false
}
