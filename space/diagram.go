package space

import "net/netip"

// field is a level of the diagram, from the root to the leaves.
type field uint8

const (
	source field = iota
	destination
	protocol
	sourcePort
	destinationPort
	flags
	fields // their number
)

// number is a value of a field. Addresses of IPv4, and all other fields, use low alone.
type number struct{ high, low uint64 }

func (n number) less(o number) bool { return n.high < o.high || n.high == o.high && n.low < o.low }

func (n number) next() number {
	if n.low++; n.low == 0 {
		n.high++
	}
	return n
}

func (n number) previous() number {
	if n.low == 0 {
		n.high--
	}
	n.low--
	return n
}

// ref is a verdict if it is below firstNode, and a node otherwise.
type ref uint32

const firstNode ref = 256

// node divides one field into intervals: the edges from first on, count of them. Every node has at least two edges, and neighbours lead to
// different refs. A field that does not matter has no node.
type node struct {
	field field
	first uint32
	count uint32
}

// edge is an interval from the end of the edge before it to last, and what follows. The last edge of a node ends at the field's last value.
type edge struct {
	last number
	to   ref
}

// diagrams are all nodes of a Space.
type diagrams struct {
	nodes []node
	edges []edge
	slots []ref // hash table of nodes; 0 is free
	done  []result
	stack []edge // edges of nodes that are being made
}

// result is a calculation that was made before. Another one may take its place.
type result struct {
	a, b ref
	op   op
	to   ref
}

func newDiagrams() diagrams {
	return diagrams{slots: make([]ref, 1<<10), done: make([]result, 1<<12)}
}

func (d *diagrams) edgesOf(r ref) []edge {
	n := &d.nodes[r-firstNode]
	return d.edges[n.first : n.first+n.count]
}

// level is the field of a ref; verdicts are below all fields.
func (d *diagrams) level(r ref) field {
	if r < firstNode {
		return fields
	}
	return d.nodes[r-firstNode].field
}

// push adds an edge to the node that begins at from on the stack. It extends the edge before if that leads to the same ref.
func (d *diagrams) push(from int, last number, to ref) {
	if top := len(d.stack) - 1; top >= from && d.stack[top].to == to {
		d.stack[top].last = last
		return
	}
	d.stack = append(d.stack, edge{last, to})
}

// pop makes the node of the edges from from on, or finds the equal one.
func (d *diagrams) pop(f field, from int) ref {
	es := d.stack[from:]
	d.stack = d.stack[:from]
	if len(es) == 1 {
		return es[0].to
	}
	h := uint64(f)
	for _, e := range es {
		h = mix(h ^ e.last.low ^ mix(e.last.high^uint64(e.to)<<32))
	}
	mask := uint64(len(d.slots) - 1)
	at := h & mask
	for ; d.slots[at] != 0; at = (at + 1) & mask {
		if r := d.slots[at]; d.nodes[r-firstNode].field == f && equalEdges(d.edgesOf(r), es) {
			return r
		}
	}
	r := firstNode + ref(len(d.nodes))
	d.nodes = append(d.nodes, node{f, uint32(len(d.edges)), uint32(len(es))})
	d.edges = append(d.edges, es...)
	d.slots[at] = r
	if 2*len(d.nodes) > len(d.slots) {
		d.grow()
	}
	return r
}

func equalEdges(a, b []edge) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// mix spreads the bits of a number (the finalizer of MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// grow doubles the tables.
func (d *diagrams) grow() {
	d.slots = make([]ref, 2*len(d.slots))
	mask := uint64(len(d.slots) - 1)
	for i := range d.nodes {
		r := firstNode + ref(i)
		h := uint64(d.nodes[i].field)
		for _, e := range d.edgesOf(r) {
			h = mix(h ^ e.last.low ^ mix(e.last.high^uint64(e.to)<<32))
		}
		at := h & mask
		for d.slots[at] != 0 {
			at = (at + 1) & mask
		}
		d.slots[at] = r
	}
	old := d.done
	d.done = make([]result, 2*len(old))
	for _, e := range old {
		if e.op != 0 {
			*d.slotOf(e.op, e.a, e.b) = e
		}
	}
}

func (d *diagrams) slotOf(o op, a, b ref) *result {
	return &d.done[mix(uint64(a)<<32^uint64(b)^uint64(o)<<29)&uint64(len(d.done)-1)]
}

// op is a calculation with two verdicts, and so with two diagrams.
type op uint8

const (
	union op = iota + 1
	intersection
	difference
	override // the first verdict, or the second if the first is none
)

// trivial returns the result if it needs no look into nodes.
func (o op) trivial(a, b ref) (ref, bool) {
	switch {
	case o == union && (a == 0 || b == 1 || a == b), o == override && a == 0:
		return b, true
	case o == union && (b == 0 || a == 1), o == override && (b == 0 || a == b || a < firstNode):
		return a, true
	case o == intersection && (a == 0 || b == 0), o == difference && (a == 0 || b == 1 || a == b):
		return 0, true
	case o == intersection && (a == 1 || a == b):
		return b, true
	case o == intersection && b == 1, o == difference && b == 0:
		return a, true
	}
	return 0, false
}

// combine calculates a diagram from two.
func (d *diagrams) combine(o op, a, b ref) ref {
	if r, ok := o.trivial(a, b); ok {
		return r
	}
	if (o == union || o == intersection) && a > b {
		a, b = b, a
	}
	if e := d.slotOf(o, a, b); e.op == o && e.a == a && e.b == b {
		return e.to
	}
	la, lb := d.level(a), d.level(b)
	from := len(d.stack)
	switch {
	case la < lb:
		for i := range d.edgeCount(a) {
			e := d.edge(a, i)
			d.push(from, e.last, d.combine(o, e.to, b))
		}
	case lb < la:
		for i := range d.edgeCount(b) {
			e := d.edge(b, i)
			d.push(from, e.last, d.combine(o, a, e.to))
		}
	default:
		d.both(o, a, b, from)
	}
	r := d.pop(min(la, lb), from)
	*d.slotOf(o, a, b) = result{a, b, o, r}
	return r
}

// both goes through the edges of two nodes of one field together.
func (d *diagrams) both(o op, a, b ref, from int) {
	for i, j, na, nb := uint32(0), uint32(0), d.edgeCount(a), d.edgeCount(b); i < na && j < nb; {
		ea, eb := d.edge(a, i), d.edge(b, j)
		last := ea.last
		switch {
		case ea.last == eb.last:
			i, j = i+1, j+1
		case ea.last.less(eb.last):
			i++
		default:
			last, j = eb.last, j+1
		}
		d.push(from, last, d.combine(o, ea.to, eb.to))
	}
}

func (d *diagrams) edgeCount(r ref) uint32    { return d.nodes[r-firstNode].count }
func (d *diagrams) edge(r ref, i uint32) edge { return d.edges[d.nodes[r-firstNode].first+i] }

// between is a diagram that leads to a ref where the field is from first to last, and to none elsewhere.
func (d *diagrams) between(f field, first, last, most number, to ref) ref {
	from := len(d.stack)
	if first != (number{}) {
		d.push(from, first.previous(), 0)
	}
	d.push(from, last, to)
	if last != most {
		d.push(from, most, 0)
	}
	return d.pop(f, from)
}

// mostOf is the last value of a field.
func mostOf(f field, six bool) number {
	switch f {
	case source, destination:
		if six {
			return number{^uint64(0), ^uint64(0)}
		}
		return number{0, 1<<32 - 1}
	case protocol, flags:
		return number{0, 255}
	}
	return number{0, 65535}
}

func numberOf(a netip.Addr) (n number) {
	if a.Is4() {
		b := a.As4()
		return number{0, uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3])}
	}
	for i, b := range a.As16() {
		if i < 8 {
			n.high = n.high<<8 | uint64(b)
		} else {
			n.low = n.low<<8 | uint64(b)
		}
	}
	return n
}

func addrOf(n number, six bool) netip.Addr {
	if !six {
		return netip.AddrFrom4([4]byte{byte(n.low >> 24), byte(n.low >> 16), byte(n.low >> 8), byte(n.low)})
	}
	var b [16]byte
	for i := range 8 {
		b[i], b[8+i] = byte(n.high>>(56-8*i)), byte(n.low>>(56-8*i))
	}
	return netip.AddrFrom16(b)
}

// rangeOf is the first and the last address of a prefix.
func rangeOf(p netip.Prefix) (first, last number) {
	first = numberOf(p.Masked().Addr())
	last = first
	host := p.Addr().BitLen() - p.Bits()
	if host > 64 {
		last.high |= 1<<(host-64) - 1
	}
	last.low |= 1<<min(host, 64) - 1
	return first, last
}

// flagOrder lists the bits of TCP flags as the diagram has them, the highest first: a SYN without ACK is one interval of values.
var flagOrder = [...]uint8{SYN, ACK, RST, FIN, PSH, URG, 64, 128} // read only

// fromFlags returns the diagram's value of TCP flags; toFlags is its inverse.
func fromFlags(f uint8) (v uint64) {
	for _, bit := range flagOrder {
		v <<= 1
		if f&bit != 0 {
			v |= 1
		}
	}
	return v
}

func toFlags(v uint64) (f uint8) {
	for i, bit := range flagOrder {
		if v>>(7-i)&1 == 1 {
			f |= bit
		}
	}
	return f
}
