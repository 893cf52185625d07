package sessions

import (
	"context"
	"errors"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// table is a VPP with sessions of inside addresses 10.0.0.n.
type table struct {
	sessions []uint32 // by n
	steps    [][]int  // sessions that were listed, by address, for each call
}

func (v *table) do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	var out []vpp.Reply
	var step []int
	for _, c := range calls {
		var r vpp.Reply
		switch m := c.Msg.(type) {
		case *nat44_ed.Nat44UserDump:
			for n, sessions := range v.sessions {
				r.Details = append(r.Details, &nat44_ed.Nat44UserDetails{IPAddress: [4]byte{10, 0, 0, byte(n)}, Nsessions: sessions})
			}
		case *nat44_ed.Nat44UserSessionV3Dump:
			n := int(v.sessions[m.IPAddress[3]])
			step = append(step, n)
			r.Details = make([]api.Message, n)
			for i := range r.Details {
				r.Details[i] = &nat44_ed.Nat44UserSessionV3Details{InsideIPAddress: m.IPAddress, TotalPkts: 1}
			}
		}
		out = append(out, r)
	}
	if step != nil {
		v.steps = append(v.steps, step)
	}
	return out
}

// All sessions are listed once, in steps between which VPP forwards; an address with too many is left out, and of a table with too many a part is listed.
func TestReadTranslated(t *testing.T) {
	for _, c := range []struct {
		name     string
		sessions []uint32
		steps    int
		listed   int
		many     bool
	}{
		{"none", nil, 0, 0, false},
		{"few", []uint32{10, 20, 30}, 1, 60, false},
		{"one step each", []uint32{4000, 3000, 3000}, 3, 10000, false},
		{"one with many", []uint32{9000, 10, 10}, 2, 9020, false},
		{"one with too many", []uint32{9001, 10, 10}, 1, 20, true},
		{"too many", []uint32{8000, 8000, 8000}, 2, 16000, true},
		{"walks", []uint32{4000, 4000, 4000, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 5, 12020, false}, // a walk is as much as 300 sessions
	} {
		v := &table{sessions: c.sessions}
		r, err := ReadTranslated(t.Context(), v.do, Bounds{All: 20000, One: 9000}, Reading{})
		got := r.Sessions
		if len(got) != c.listed || (r.Listed != nil) != c.many || len(v.steps) != c.steps || errors.Is(err, ErrMany) != c.many || err != nil && !c.many {
			t.Errorf("%s: %d sessions in %d steps %v, %v", c.name, len(got), len(v.steps), v.steps, err)
		}
	}
}

// With too many sessions each address has its turn, as often as any other one, and the reading says how many sessions are present.
func TestAddressesTakeTurns(t *testing.T) {
	v := &table{sessions: []uint32{8000, 7000, 9001, 8000, 100, 6000, 5000}}
	turns, r := map[byte]int{}, Reading{}
	for range 30 {
		var err error
		if r, err = ReadTranslated(t.Context(), v.do, Bounds{All: 20000, One: 9000}, r); !errors.Is(err, ErrMany) || r.Present != 43101 {
			t.Fatalf("%d sessions, %v", r.Present, err)
		}
		if len(r.Sessions) == 0 || len(r.Sessions) > 20000 {
			t.Fatalf("%d sessions are listed at a time", len(r.Sessions))
		}
		n := 0
		for a := range r.Listed {
			turns[a.As4()[3]]++
			n += int(v.sessions[a.As4()[3]])
		}
		if n != len(r.Sessions) {
			t.Fatalf("%d sessions of addresses with %d", len(r.Sessions), n)
		}
	}
	least, most := 30, 0
	for n := range v.sessions {
		if n != 2 {
			least, most = min(least, turns[byte(n)]), max(most, turns[byte(n)])
		}
	}
	if least < 1 || most-least > 1 || turns[2] > 0 {
		t.Errorf("turns by address: %v", turns)
	}
}
