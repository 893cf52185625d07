package classify

import (
	"bytes"
	"cmp"
	"hash/crc32"
	"maps"
	"math/bits"
	"slices"
)

// maxMatch is how many vectors a table can match.
const maxMatch = 5

// Engine is the classifier. The zero value is not ready; New makes one. It is not safe for concurrent use.
type Engine struct {
	tables   []*table // by index; nil: free
	free     []uint32 // the one freed last is used first
	attached [directions][Kinds]map[uint32]uint32
	on       [directions][Kinds]map[uint32]bool
	ever     [directions][Kinds]bool
}

type table struct {
	Table
	sessions map[key]*Session
	list     []Session // the same, as Sessions returns them; nil: not made since the last change
}

// New returns a classifier without tables.
func New() *Engine {
	e := &Engine{}
	for d := range directions {
		for k := range Kinds {
			e.attached[d][k], e.on[d][k] = map[uint32]uint32{}, map[uint32]bool{}
		}
	}
	return e
}

func (e *Engine) table(i uint32) *table {
	if uint64(i) < uint64(len(e.tables)) {
		return e.tables[i]
	}
	return nil
}

// Add makes a table and returns its index.
func (e *Engine) Add(t Table) (uint32, int32) {
	switch {
	case t.Memory == 0:
		return None, rvInvalidMemorySize
	case t.Buckets == 0 || t.Match < 1 || t.Match > maxMatch:
		return None, rvInvalidValue
	}
	t.Buckets = 1 << bits.Len32(t.Buckets-1)
	t.Mask = slices.Clone(t.Mask)
	n := &table{Table: t, sessions: map[key]*Session{}}
	if last := len(e.free) - 1; last >= 0 {
		i := e.free[last]
		e.free, e.tables[i] = e.free[:last], n
		return i, 0
	}
	e.tables = append(e.tables, n)
	return uint32(len(e.tables) - 1), 0
}

// SetNext sets the next table of a table, and changes nothing else.
func (e *Engine) SetNext(i, next uint32) {
	e.table(i).Next = next
}

// Del deletes a table, and with chain all that follow it. It does not check whether the table is attached, or in another chain.
func (e *Engine) Del(i uint32, chain bool) int32 {
	if e.table(i) == nil {
		return rvNoSuchTable
	}
	list := []uint32{i}
	for t := e.table(i); chain && e.table(t.Next) != nil; t = e.table(t.Next) {
		if slices.Contains(list, t.Next) {
			panic(&Crash{trapDelRound})
		}
		list = append(list, t.Next)
	}
	for _, i := range slices.Backward(list) {
		e.tables[i] = nil
		e.free = append(e.free, i)
	}
	return 0
}

// Has reports whether a table exists.
func (e *Engine) Has(i uint32) bool { return e.table(i) != nil }

// Tables returns the indices of the tables.
func (e *Engine) Tables() []uint32 {
	var out []uint32
	for i, t := range e.tables {
		if t != nil {
			out = append(out, uint32(i))
		}
	}
	return out
}

// Table returns an existing table, and the number of its sessions.
func (e *Engine) Table(i uint32) (Table, int) {
	t := e.table(i)
	return t.Table, len(t.sessions)
}

// Sessions returns the sessions of a table, in an unspecified order. The caller must not change them.
func (e *Engine) Sessions(i uint32) []Session {
	t := e.table(i)
	if t == nil {
		return nil
	}
	if t.list == nil {
		keys := slices.SortedFunc(maps.Keys(t.sessions), func(a, b key) int {
			return cmp.Or(cmp.Compare(crc32.ChecksumIEEE(a[:]), crc32.ChecksumIEEE(b[:])), bytes.Compare(a[:], b[:]))
		})
		for _, k := range keys {
			t.list = append(t.list, *t.sessions[k])
		}
	}
	return t.list
}

// SetSession adds a session to a table, replaces one with the same bytes under the mask, or deletes it. s.Match includes the skipped
// vectors.
func (e *Engine) SetSession(i uint32, s Session, add bool) int32 {
	t := e.table(i)
	switch {
	case t == nil:
		return rvNoSuchTable
	case uint64(len(s.Match)) != uint64(t.Skip+t.Match)*vector:
		return rvInvalidValue
	}
	under := t.under(s.Match[t.Skip*vector:])
	s.Match = slices.Clone(under[:len(t.Mask)])
	t.list = nil
	switch have := t.sessions[under]; {
	case !add && have == nil:
		return rvNoSuchEntry
	case !add:
		delete(t.sessions, under)
	default:
		if have == nil && uint32(len(t.sessions)) >= t.sessionRoom() {
			panic(&Crash{trapMemory})
		}
		t.sessions[under] = &s
	}
	return 0
}

// sessionRoom returns how many sessions the memory certainly holds.
func (t *table) sessionRoom() uint32 { return t.Memory / 1024 }

// key returns the bytes under a table's mask, then zeros.
type key [maxMatch * vector]byte

// under returns the bytes of data at that place; missing bytes are zero.
func (t *table) under(data []byte) (k key) {
	for i := range min(len(data), len(t.Mask)) {
		k[i] = data[i] & t.Mask[i]
	}
	return k
}
