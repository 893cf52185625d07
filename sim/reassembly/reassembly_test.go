package reassembly

import (
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

func parse(t *testing.T, line string) *packet.Packet {
	t.Helper()
	p, err := packet.Parse(line)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestHeaderIsTheFirstOnes: later fragments, and a second first one, have the ports of the first one that came.
func TestHeaderIsTheFirstOnes(t *testing.T) {
	table, at := New[string](), time.Unix(0, 0)
	later, first := parse(t, "udp 10.1.1.2:0 -> 10.1.1.3:0 fragment 7 offset 24 length 24"), parse(t, "udp 10.1.1.2:4000 -> 10.1.1.3:53 fragment 7 offset 0 length 24 more")
	second := parse(t, "udp 10.1.1.2:4001 -> 10.1.1.3:54 fragment 7 offset 0 length 24 more")
	if v := table.Arrive(0, later, at, "later"); !v.Waits || v.First != nil {
		t.Errorf("a later fragment alone: %+v", v)
	}
	if v := table.Arrive(1, first, at, "first"); len(v.Waited) > 0 {
		t.Errorf("a first fragment from an interface of another table: %+v", v)
	}
	if v := table.Arrive(0, first, at, "first"); len(v.Waited) != 1 || v.Waited[0] != "later" || !v.First.Equal(*first) {
		t.Errorf("the first fragment: %+v", v)
	}
	for _, p := range []*packet.Packet{later, second} {
		if v := table.Arrive(0, p, at, "again"); v.First == nil || !v.First.Equal(*first) || len(v.Waited) > 0 {
			t.Errorf("%s: %+v", p, v)
		}
	}
}

// TestClone: what arrives at a copy changes the copy alone.
func TestClone(t *testing.T) {
	a, at := New[int](), time.Unix(0, 0)
	a.Arrive(0, parse(t, "udp 10.1.1.2:0 -> 10.1.1.3:0 fragment 7 offset 24 length 24 more"), at, 1)
	b := a.Clone()
	b.Arrive(0, parse(t, "udp 10.1.1.2:0 -> 10.1.1.3:0 fragment 7 offset 48 length 24"), at, 2)
	first := parse(t, "udp 10.1.1.2:4000 -> 10.1.1.3:53 fragment 7 offset 0 length 24 more")
	if n, m := len(a.Arrive(0, first, at, 3).Waited), len(b.Arrive(0, first, at, 3).Waited); n != 1 || m != 2 {
		t.Errorf("%d waited, and %d in the copy", n, m)
	}
}

// TestTogether: each packet runs to its next pause, in order, and so on. One that panics ends the vector.
func TestTogether(t *testing.T) {
	var got string
	Together([]string{"a", "b", "c"}, func(p string, pause func()) {
		got += p
		pause()
		if got += p; p == "b" {
			return
		}
		pause()
		got += p
	})
	if want := "abcabcac"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	defer func() {
		if r := recover(); r != "the crash" {
			t.Errorf("recovered %v", r)
		}
	}()
	Together([]int{0, 1, 2}, func(p int, pause func()) {
		pause()
		if p == 1 {
			panic("the crash")
		}
		pause()
	})
}

// TestHostCollects: a datagram for VPP is whole with its last fragment, in any order, with duplicates, within VPP's limits.
func TestHostCollects(t *testing.T) {
	whole := parse(t, "icmp 10.1.1.2 -> 169.254.1.1 echo-request id 7")
	for _, c := range []struct {
		name  string
		n     int
		order []int
		gap   time.Duration
		done  bool
	}{
		{"in order", 3, []int{0, 1, 2}, 0, true},
		{"reversed", 2, []int{1, 0}, 0, true},
		{"one twice", 3, []int{0, 0, 1, 2}, 0, true},
		{"one missing", 3, []int{0, 2}, 0, false},
		{"too many before the last", 5, []int{0, 1, 2, 3, 4}, 0, false},
		{"four, of which the last makes it whole", 4, []int{0, 1, 2, 3}, 0, true},
		{"late", 2, []int{0, 1}, 201 * time.Millisecond, false},
	} {
		h, at, parts := newHost(), time.Unix(0, 0), packet.Split(whole, c.n, 9)
		done := false
		for _, i := range c.order {
			at = at.Add(c.gap)
			p, why := h.Collect(0, &parts[i], at)
			if done = why == ""; done && (p.Fragment.Any() || p.Src != whole.Src || p.ICMPID != 7) {
				t.Errorf("%s: %s", c.name, &p)
			}
			h = h.clone()
		}
		if done != c.done {
			t.Errorf("%s: whole %v, want %v", c.name, done, c.done)
		}
	}
}
