package policer

import (
	"testing"
	"time"

	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"
)

func add(name string) *policer.PolicerAddDel {
	return &policer.PolicerAddDel{IsAdd: true, Name: name, Cir: 8, Cb: 3000} // 1,000 bytes per second
}

// TestBucket: the burst passes at once, and then the rate; idle time is not saved beyond the burst.
func TestBucket(t *testing.T) {
	e, at, now := New(), Place{1, true}, time.Unix(0, 0)
	if r := e.AddDel(add("web")); r.Retval != 0 || r.PolicerIndex != 0 {
		t.Fatalf("%+v", r)
	}
	if rv := e.Apply("web", at, true); rv != 0 || !e.On(at) || e.On(Place{1, false}) {
		t.Fatal(rv)
	}
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{
		{0, true},
		{0, true},
		{0, true},
		{0, false},
		{time.Second / 2, false},
		{time.Second / 2, true},
		{0, false},
		{time.Hour, true},
		{0, true},
		{0, true},
		{0, false},
	} {
		now = now.Add(step.after)
		if got := e.Passes(at, 1000, now); got != step.want {
			t.Errorf("packet %d: passes %t", i, got)
		}
	}
	e.Deleted(1)
	if e.On(at) {
		t.Error("a deleted interface has the policer")
	}
}

func TestRefusals(t *testing.T) {
	e := New()
	e.AddDel(add("web"))
	two := add("two")
	two.Type, two.Eir = policer_types.SSE2_QOS_POLICER_TYPE_API_2R3C_RFC_2698, 9
	zero := add("zero")
	zero.Cir = 0
	for want, m := range map[int32][]*policer.PolicerAddDel{
		valueExists: {add("web")}, noSuchEntry: {{Name: "other"}}, invalidValue: {two, zero},
	} {
		for _, r := range m {
			if got := e.AddDel(r); got.Retval != want || got.PolicerIndex != noIndex {
				t.Errorf("%+v: %+v, want %d", r, got, want)
			}
		}
	}
	if rv := e.Apply("other", Place{}, true); rv != noSuchEntry {
		t.Error(rv)
	}
}

// TestTraps: what VPP does not survive.
func TestTraps(t *testing.T) {
	at := Place{1, false}
	for want, f := range map[Trap]func(e *Engine){
		TrapNone: func(e *Engine) { e.Apply("web", at, false) },
		TrapFreed: func(e *Engine) {
			e.Apply("web", at, true)
			e.AddDel(&policer.PolicerAddDel{Name: "web"})
			e.Passes(at, 1, time.Now())
		},
		TrapRemoved: func(e *Engine) {
			e.Apply("web", at, true)
			e.Apply("web", at, true)
			e.Apply("web", at, false)
			e.Passes(at, 1, time.Now())
		},
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("%v, want %v", got, want)
				}
			}()
			e := New()
			e.AddDel(add("web"))
			f(e)
		}()
	}
}
