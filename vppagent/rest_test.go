package vppagent_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// step commits a transaction (nil: proceeds) and returns the results.
func (r *recorder) step(t *testing.T, a *vppagent.Agent, txn *event.Txn) (out []*event.Committed) {
	t.Helper()
	for _, e := range a.Step(t.Context(), txn) {
		c := e.(*event.Committed)
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		out = append(out, c)
	}
	return out
}

const switches = "acl_interface_set_acl_list"

// largeChange is an agent at the beginning of a change that switches 100 interfaces, and the result of the transaction.
func largeChange(t *testing.T, awaited bool) (*recorder, *vppagent.Agent, *event.Committed) {
	t.Helper()
	r := &recorder{slow: time.Microsecond}
	a := vppagent.New(r.config())
	r.step(t, a, &event.Txn{Seq: 1, Resync: event.Full, Values: bigSet(100, 8, 4300, 0)})
	r.story = nil
	got := r.step(t, a, &event.Txn{Seq: 2, Values: bigSet(100, 8, 4300, 1), Awaited: awaited, Triggered: []time.Time{time.Unix(1, 0)}})
	if len(got) != 1 {
		t.Fatalf("%d results", len(got))
	}
	return r, a, got[0]
}

// TestOthersDoNotWait: a transaction of 100 interfaces ends after the first ones; another one is executed at once, and then the rest.
func TestOthersDoNotWait(t *testing.T) {
	r, a, c := largeChange(t, false)
	done := r.count()[switches]
	if done == 0 || done > 5 || len(c.Left) < 100-done || c.Triggered != nil {
		t.Fatalf("%d interfaces, %d keys left, triggered %v", done, len(c.Left), c.Triggered)
	}
	for _, st := range c.Statuses {
		if slices.Contains(c.Left, st.Key) && st.State != event.Pending && st.State != event.Configured {
			t.Errorf("%s is %s", st.Key, st.State)
		}
	}
	small := kv.Values{}
	small.Put(accessList("other", rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80)))
	small.Put(lists("tap150", nil, []string{"other"}))
	r.story = nil
	other := r.step(t, a, &event.Txn{Seq: 3, Values: small})
	if len(other) != 1 || other[0].Seq != 3 || len(other[0].Statuses) < 2 || len(other[0].Left) == 0 {
		t.Fatalf("the other change: %+v", other)
	}
	if got := r.count(); got[switches] != 2 || got["acl_interface_set_etype_whitelist"] != 1 || got["pause"] > 0 { // the sessions of tap150 end first
		t.Errorf("the other change: %v", r.story)
	}
	r.story = nil
	var last []*event.Committed
	for range 200 {
		if last = r.step(t, a, nil); len(last) > 0 {
			break
		}
	}
	if got := r.count(); got[switches] != 100-done || got["acl_del"] != 1 {
		t.Errorf("the rest: %v, %d interfaces were done", got, done)
	}
	if len(last) != 1 || last[0].Left != nil || last[0].Mod < 100-done || len(last[0].Triggered) != 1 {
		t.Fatalf("the end: %+v", last)
	}
	if configured := count(last[0].Statuses, event.Configured); configured < 100-done {
		t.Errorf("%d values are configured in the end", configured)
	}
}

func count(list []event.ValueStatus, state event.State) (n int) {
	for _, st := range list {
		if st.State == state {
			n++
		}
	}
	return n
}

// TestRunPutsOthersBetween: Run commits a waiting transaction before the rest of the one before, and then the rest.
func TestRunPutsOthersBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := vppagent.Config{Caller: &granter{}, Pause: func(_ context.Context, d time.Duration) { time.Sleep(d) }}
		a, txns, results := vppagent.New(cfg), make(chan *event.Txn, 1), make(chan *event.Committed, 10)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx, txns, func(e event.Event) { results <- e.(*event.Committed) }) }()
		small := kv.Values{}
		small.Put(accessList("other", rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80)))
		var got []string
		for i, txn := range []*event.Txn{{Resync: event.Full, Values: bigSet(100, 8, 4300, 0)}, {Values: bigSet(100, 8, 1500, 1)}, {Values: small}} {
			txn.Seq = uint64(1 + i)
			txns <- txn
			c := <-results
			got = append(got, fmt.Sprint(c.Seq, len(c.Left) > 0, c.Err))
		}
		c := <-results
		got = append(got, fmt.Sprint(c.Seq, len(c.Left) > 0, c.Err))
		stop()
		<-ended
		if want := []string{"1 false <nil>", "2 true <nil>", "3 true <nil>", "0 false <nil>"}; !slices.Equal(got, want) {
			t.Errorf("results %q, want %q", got, want)
		}
	})
}

// TestAwaitedIsNotDivided: a transaction whose result a program waits for ends when every step is done.
func TestAwaitedIsNotDivided(t *testing.T) {
	r, _, c := largeChange(t, true)
	if r.count()[switches] != 100 || c.Left != nil || len(c.Triggered) != 1 {
		t.Errorf("%d interfaces, %d keys left, triggered %v", r.count()[switches], len(c.Left), c.Triggered)
	}
}

// TestRestIsOfTheLastWish: the rest uses the values that are wanted when it is put, and a resync ends it.
func TestRestIsOfTheLastWish(t *testing.T) {
	for _, resync := range []event.ResyncKind{event.NoResync, event.Upstream} {
		r, a, _ := largeChange(t, false)
		r.story = nil
		got := r.step(t, a, &event.Txn{Seq: 3, Resync: resync, Values: bigSet(100, 8, 4300, 2)})
		if resync == event.Upstream && (got[0].Left != nil || a.Unfinished() || len(got[0].Triggered) != 1) {
			t.Errorf("%d keys left after a resync, triggered %v", len(got[0].Left), got[0].Triggered)
		}
		for a.Unfinished() {
			r.step(t, a, nil)
		}
		if n := r.count(); n[switches] < 100 || n["acl_del"] != 2 {
			t.Errorf("%s: %v", resync, n)
		}
	}
}
