package classify

import (
	"errors"
	"testing"
)

func mask(n int, at ...int) []byte {
	b := make([]byte, n)
	for _, i := range at {
		b[i] = 0xff
	}
	return b
}

func add(t *testing.T, e *Engine, tb Table) uint32 {
	t.Helper()
	if tb.Memory == 0 {
		tb.Memory = 1 << 20
	}
	i, rv := e.Add(tb)
	if rv != 0 {
		t.Fatalf("Add: %d", rv)
	}
	return i
}

func crashes(t *testing.T, trap string, f func()) {
	t.Helper()
	defer func() {
		var c *Crash
		if err, _ := recover().(error); !errors.As(err, &c) || c.Trap != trap {
			t.Errorf("got %v, want %s", err, trap)
		}
	}()
	f()
}

// frame has a link header of two bytes and then 0, 1, 2, …
func frame() ([]byte, int) {
	b := []byte{0xaa, 0xbb}
	for i := range 64 {
		b = append(b, byte(i))
	}
	return b, 2
}

func TestCheck(t *testing.T) {
	e := New()
	last := add(t, e, Table{Buckets: 3, Match: 1, Skip: 1, CurrentData: true, Next: None, Miss: 0, Mask: mask(16, 1)})
	first := add(t, e, Table{Buckets: 1, Match: 1, CurrentData: true, Next: last, Miss: 7, Mask: mask(16, 9)})
	if got, _ := e.Table(last); got.Buckets != 4 {
		t.Errorf("%d buckets of 3", got.Buckets)
	}
	set := func(i uint32, at int, b byte, s Session, add bool) int32 {
		s.Match = make([]byte, 32)
		s.Match[at] = b
		s.Match[0] = 99 // not under the mask
		tb, _ := e.Table(i)
		s.Match = s.Match[:16*(tb.Skip+tb.Match)]
		return e.SetSession(i, s, add)
	}
	check := func() Verdict {
		f, ip := frame()
		return e.Check(Input, IP4, 3, f, ip)
	}
	if rv := e.Set(Input, 3, [Kinds]uint32{first, None, None}, true); rv != 0 || !e.On(Input, IP4, 3) || e.On(Input, IP6, 3) || e.On(Output, IP4, 3) {
		t.Fatal(rv)
	}
	if v := check(); v.Pass || v.Hit || v.Table != last || v.Place != 1 {
		t.Errorf("the last table's miss index decides: %+v", v)
	}
	if rv := set(last, 17, 17, Session{Hit: 0xffff, Opaque: 5}, true); rv != 0 {
		t.Fatal(rv)
	}
	if v := check(); !v.Pass || !v.Hit || v.Session.Opaque != 5 || v.Session.Hits != 1 || len(v.Session.Match) != 16 || v.Session.Match[1] != 17 || v.Session.Match[0] != 0 {
		t.Errorf("a session behind the skipped vector: %+v", v)
	}
	if rv := set(first, 9, 9, Session{Hit: 0}, true); rv != 0 {
		t.Fatal(rv)
	}
	if v := check(); v.Pass || !v.Hit || v.Place != 0 {
		t.Errorf("the first table decides: %+v", v)
	}
	if rv := set(first, 9, 9, Session{Hit: 1}, true); rv != 0 || !check().Pass {
		t.Errorf("another session of the same bytes takes the place: %d", rv)
	}
	if rv := set(first, 9, 9, Session{}, false); rv != 0 {
		t.Fatal(rv)
	}
	if rv := set(first, 9, 9, Session{}, false); rv != rvNoSuchEntry {
		t.Errorf("deleted twice: %d", rv)
	}
	e.SetNext(first, None)
	if v := check(); !v.Pass || v.Hit || v.Table != first {
		t.Errorf("a next of ~0 ends the chain: %+v", v)
	}
}

// The start of the mask: at the IP header or an offset from there, at the frame, and on output at the IP header.
func TestBase(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    Direction
		t    Table
		want byte // the byte of the frame under the mask's first byte
	}{
		{"packet", Input, Table{CurrentData: true}, 0},
		{"packet+4", Input, Table{CurrentData: true, Offset: 4}, 4},
		{"packet-2", Input, Table{CurrentData: true, Offset: -2}, 0xaa},
		{"before the frame", Input, Table{CurrentData: true, Offset: -3}, 0},
		{"frame", Input, Table{}, 0xaa},
		{"frame, offset is not asked", Input, Table{Offset: 4}, 0xaa},
		{"output", Output, Table{}, 0},
		{"output packet+4", Output, Table{CurrentData: true, Offset: 4}, 4},
		{"skip", Input, Table{CurrentData: true, Skip: 2}, 32},
		{"behind the frame", Input, Table{CurrentData: true, Offset: 200}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := New()
			tc.t.Buckets, tc.t.Match, tc.t.Next, tc.t.Mask = 1, 1, None, mask(16, 0)
			i := add(t, e, tc.t)
			m := make([]byte, 16*(1+tc.t.Skip))
			m[16*tc.t.Skip] = tc.want
			if rv := e.SetSession(i, Session{Hit: 1, Match: m}, true); rv != 0 {
				t.Fatal(rv)
			}
			if rv := e.Set(tc.d, 1, [Kinds]uint32{None, i, None}, true); rv != 0 {
				t.Fatal(rv)
			}
			f, ip := frame()
			if v := e.Check(tc.d, IP6, 1, f, ip); !v.Hit {
				t.Errorf("byte %#x is not at the mask", tc.want)
			}
		})
	}
}

func TestRetvals(t *testing.T) {
	e := New()
	for _, tc := range []struct {
		t    Table
		want int32
	}{
		{Table{Buckets: 1, Match: 1}, rvInvalidMemorySize},
		{Table{Memory: 1, Match: 1}, rvInvalidValue},
		{Table{Memory: 1, Buckets: 1}, rvInvalidValue},
		{Table{Memory: 1, Buckets: 1, Match: 6}, rvInvalidValue},
	} {
		if i, rv := e.Add(tc.t); rv != tc.want || i != None {
			t.Errorf("%+v: %d, %d", tc.t, i, rv)
		}
	}
	one := Table{Buckets: 1, Match: 1, Next: None, Mask: mask(16)}
	a, b := add(t, e, one), add(t, e, one)
	if rv := e.SetSession(a, Session{Match: make([]byte, 32)}, true); rv != rvInvalidValue {
		t.Errorf("a match too long: %d", rv)
	}
	if rv := e.SetSession(9, Session{}, true); rv != rvNoSuchTable {
		t.Errorf("a session of no table: %d", rv)
	}
	if rv := e.Del(9, false); rv != rvNoSuchTable {
		t.Errorf("no table: %d", rv)
	}
	set := func(i4, i6 uint32, add bool, want int32) {
		t.Helper()
		if rv := e.Set(Output, 1, [Kinds]uint32{i4, i6, None}, add); rv != want {
			t.Errorf("%d %d %v: %d, want %d", i4, i6, add, rv, want)
		}
	}
	set(9, a, true, rvNoSuchTable)
	set(a, None, false, rvNoSuchTable)
	set(a, None, true, 0)
	set(b, a, true, 0) // the trap: IPv4 already has one, so the request changes nothing for either family
	if e.Attached(Output, IP4, 1) != a || e.Attached(Output, IP6, 1) != None {
		t.Errorf("%d %d", e.Attached(Output, IP4, 1), e.Attached(Output, IP6, 1))
	}
	set(b, None, false, rvNoSuchTable)
	set(a, None, false, 0)
	if e.On(Output, IP4, 1) || e.Attached(Output, IP4, 1) != None {
		t.Error("detached, but on")
	}
}

// An attachment outlives its interface, and leaves the next one of that index without a filter.
func TestStaleAttachment(t *testing.T) {
	e := New()
	i := add(t, e, Table{Buckets: 1, Match: 1, Next: None, Mask: mask(16)})
	all := [Kinds]uint32{i, None, None}
	e.Set(Input, 1, all, true)
	e.InterfaceDeleted(1)
	if e.On(Input, IP4, 1) || e.Attached(Input, IP4, 1) != i {
		t.Error("the node is there, or the table forgotten")
	}
	if rv := e.Set(Input, 1, all, true); rv != 0 || e.On(Input, IP4, 1) {
		t.Errorf("add on a stale attachment: %d, node %v", rv, e.On(Input, IP4, 1))
	}
	e.Set(Input, 1, all, false)
	if e.Set(Input, 1, all, true); !e.On(Input, IP4, 1) {
		t.Error("after delete and add there is no node")
	}
}

func TestTraps(t *testing.T) {
	one := Table{Buckets: 1, Match: 1, Next: None, Miss: 1, Mask: mask(16, 0)}
	f, ip := frame()
	t.Run("deleted", func(t *testing.T) {
		e := New()
		i := add(t, e, one)
		e.Set(Input, 1, [Kinds]uint32{i, None, None}, true)
		if rv := e.Del(i, false); rv != 0 {
			t.Fatal(rv)
		}
		crashes(t, trapTableGone, func() { e.Check(Input, IP4, 1, f, ip) })
		if again := add(t, e, one); again != i || !e.Check(Input, IP4, 1, f, ip).Pass {
			t.Errorf("table %d takes the place of %d", again, i)
		}
	})
	t.Run("round", func(t *testing.T) {
		e := New()
		a := add(t, e, one)
		e.SetNext(a, a)
		e.Set(Input, 1, [Kinds]uint32{a, None, None}, true)
		crashes(t, trapRound, func() { e.Check(Input, IP4, 1, f, ip) })
		crashes(t, trapDelRound, func() { e.Del(a, true) })
	})
	t.Run("memory", func(t *testing.T) {
		e := New()
		small := one
		small.Memory = 4096
		i := add(t, e, small)
		crashes(t, trapMemory, func() {
			for n := range 256 {
				e.SetSession(i, Session{Match: append([]byte{byte(n)}, make([]byte, 15)...)}, true)
			}
		})
	})
}

func TestDelChain(t *testing.T) {
	e := New()
	one := Table{Buckets: 1, Match: 1, Next: None, Mask: mask(16)}
	a := add(t, e, one)
	one.Next = a
	b := add(t, e, one)
	one.Next = 77
	c := add(t, e, one)
	if rv := e.Del(b, true); rv != 0 || e.Has(a) || e.Has(b) || !e.Has(c) {
		t.Errorf("%d: %v", rv, e.Tables())
	}
	// The end of the chain is freed first, so its head's index is used first.
	if got := add(t, e, one); got != b {
		t.Errorf("the next table is %d, want %d", got, b)
	}
	if rv := e.Del(c, true); rv != 0 {
		t.Errorf("a chain whose next table is not there: %d", rv)
	}
}
