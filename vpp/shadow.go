package vpp

// shadow is the known state of some objects of VPP, with outstanding messages: for each key the state that VPP acknowledged
// and, on top, the operations sent but not answered. VPP answers one connection strictly in order, so an answer concerns
// the oldest operation of its key. settle removes a refused operation and applies the others again.
type shadow[K comparable, V state, C change[V]] struct {
	cells map[K]*cell[V, C]
}

// state is a state that can report whether it is empty.
type state interface {
	nothing() bool
}

// change is the effect of a message on a state.
type change[V any] interface {
	applyTo(V) V
}

type cell[V any, C change[V]] struct {
	acked V
	sent  V // acked with all ops applied
	ops   []C
}

// expectedState returns the state after all outstanding operations succeed.
func (s *shadow[K, V, C]) expectedState(k K) (v V) {
	if c := s.cells[k]; c != nil {
		v = c.sent
	}
	return v
}

// flying returns the acknowledged state and the outstanding operations.
func (s *shadow[K, V, C]) flying(k K) (acked V, ops []C) {
	if c := s.cells[k]; c != nil {
		return c.acked, c.ops
	}
	return acked, nil
}

// sendOp applies an outstanding operation.
func (s *shadow[K, V, C]) sendOp(k K, op C) {
	c := s.cell(k)
	c.ops = append(c.ops, op)
	c.sent = op.applyTo(c.sent)
}

// settleOp records the answer to the oldest operation on k.
func (s *shadow[K, V, C]) settleOp(k K, ok bool) {
	c := s.cells[k]
	if c == nil || len(c.ops) == 0 {
		return
	}
	if ok {
		c.acked = c.ops[0].applyTo(c.acked)
	}
	if c.ops = c.ops[1:]; len(c.ops) == 0 {
		c.ops = nil
	}
	if !ok {
		c.again()
	}
	s.dropCell(k, c)
}

// setState overrides the acknowledged state of k.
func (s *shadow[K, V, C]) setState(k K, v V) {
	c := s.cell(k)
	c.acked = v
	c.again()
	s.dropCell(k, c)
}

// replace records a dump: the acknowledged states that mine selects become exactly those of dumped.
func (s *shadow[K, V, C]) replace(mine func(V) bool, dumped map[K]V) {
	var none V
	for k, c := range s.cells {
		if _, ok := dumped[k]; !ok && mine(c.acked) {
			s.setState(k, none)
		}
	}
	for k, v := range dumped {
		s.setState(k, v)
	}
}

func (s *shadow[K, V, C]) cell(k K) *cell[V, C] {
	c := s.cells[k]
	if c == nil {
		if s.cells == nil {
			s.cells = map[K]*cell[V, C]{}
		}
		c = &cell[V, C]{}
		s.cells[k] = c
	}
	return c
}

// dropCell deletes an empty cell.
func (s *shadow[K, V, C]) dropCell(k K, c *cell[V, C]) {
	if len(c.ops) == 0 && c.acked.nothing() {
		delete(s.cells, k)
	}
}

func (c *cell[V, C]) again() {
	c.sent = c.acked
	for _, op := range c.ops {
		c.sent = op.applyTo(c.sent)
	}
}
