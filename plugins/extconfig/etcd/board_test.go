package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

func (f *fake) state(raw string) string {
	st := f.status(raw)
	if st == nil {
		return "none"
	}
	return strings.Join(strings.Fields(st.State.String()+" "+st.Error+" "+strings.Join(st.Details, ",")), " ")
}

func wantState(t *testing.T, f *fake, raw, want string) {
	t.Helper()
	if got := f.state(raw); got != want {
		t.Errorf("%s: %s, want %s", raw, got, want)
	}
}

// A status follows VPP's state, first from the answer and then at every change; only changes are written.
func TestStatusFollowsVPP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		n := start(t, f, config(), nil)
		settle()
		n.mu.Lock()
		n.states[loopKey(1)] = event.ValueStatus{Key: loopKey(1), State: event.Pending, Details: []string{"config/x"}}
		n.states[loopKey(2)] = event.ValueStatus{Key: loopKey(2), State: event.Retrying, Err: "no memory"}
		n.mu.Unlock()
		f.put(map[string]string{loopKey(1): loopJSON(1, 1), loopKey(2): loopJSON(2, 1), loopKey(3): loopJSON(3, 1)})
		settle()
		wantState(t, f, loopKey(1), "PENDING config/x")
		wantState(t, f, loopKey(2), "RETRYING no memory")
		wantState(t, f, loopKey(3), "CONFIGURED")
		f.mu.Lock()
		writes := f.writes
		f.mu.Unlock()
		n.say(t.Context(), &event.Committed{Statuses: []event.ValueStatus{ // VPP's own retry
			{Key: loopKey(1), State: event.Configured},
			{Key: loopKey(2), State: event.Failed, Err: "no memory"},
			{Key: loopKey(3), State: event.Configured},
			{Key: "config/vpp/v2/interfaces/other", State: event.Failed},
		}})
		settle()
		wantState(t, f, loopKey(1), "CONFIGURED")
		wantState(t, f, loopKey(2), "FAILED no memory")
		wantState(t, f, "config/vpp/v2/interfaces/other", "none")
		n.say(t.Context(), &event.Committed{Statuses: []event.ValueStatus{{Key: loopKey(1), State: event.Configured}}})
		settle()
		f.put(map[string]string{loopKey(1): "", loopKey(2): ""})
		settle()
		wantState(t, f, loopKey(1), "none")
		wantState(t, f, loopKey(2), "none")
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.writes != writes+2 {
			t.Errorf("%d writes more, want one for each change", f.writes-writes)
		}
		if b := n.source.board; len(b.states) > 1 || len(b.owner) != 1 || len(b.said) != 1 || len(b.due) != 0 {
			t.Errorf("it remembers what is gone: %v %v %v %v", b.states, b.owner, b.said, b.due)
		}
	})
}

// A value that equals the agent's value needs no transaction, and has a status nevertheless.
func TestStatusWithoutATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, msg, err := decode(loopKey(1), []byte(loopJSON(1, 1500)))
		if err != nil {
			t.Fatal(err)
		}
		f := newFake()
		n := start(t, f, config(), kv.Values{loopKey(1): msg})
		settle()
		n.transactions()
		f.put(map[string]string{loopKey(1): loopJSON(1, 1500)})
		settle()
		if txns := n.transactions(); len(txns) != 0 {
			t.Errorf("%+v", txns)
		}
		wantState(t, f, loopKey(1), "CONFIGURED")
		f.put(map[string]string{loopKey(1): ""})
		settle()
		wantState(t, f, loopKey(1), "none")
		want(t, n, map[string]uint32{"1": 1500})
	})
}

// After the lease is lost all statuses are written again, in portions, within the rate limit.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		values := map[string]string{}
		for i := range 950 {
			values[loopKey(i)] = loopJSON(i, 1500)
		}
		f.put(values)
		n := start(t, f, config(), nil)
		time.Sleep(5 * time.Second)
		n.transactions()
		f.mu.Lock()
		writes := f.writes
		f.mu.Unlock()
		f.expire(0)
		wantState(t, f, loopKey(949), "none")
		began := time.Now()
		for f.written() < 950 {
			time.Sleep(writePause / 2)
		}
		if took := time.Since(began); took < 9*writePause || f.writes != writes+10 {
			t.Errorf("%d writes in %s", f.writes-writes, took)
		}
		if txns := n.transactions(); len(txns) != 0 {
			t.Errorf("a lease is lost and %d transactions follow", len(txns))
		}
		n.stop()
		if left := f.written(); left != 0 {
			t.Errorf("%d statuses outlive the agent", left)
		}
	})
}

func (f *fake) written() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.values {
		if strings.HasPrefix(key, statusPrefix) {
			n++
		}
	}
	return n
}

// When etcd refuses statuses, reading continues. Writes are retried with pauses and succeed in the end.
func TestStatusesRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(map[string]string{loopKey(1): loopJSON(1, 1)})
		f.refuse = errors.New("permission denied")
		n := start(t, f, config(), nil)
		time.Sleep(10 * time.Minute)
		want(t, n, map[string]uint32{"1": 1})
		f.mu.Lock()
		if f.refuse = nil; f.writes > 80 || f.writes < 40 {
			t.Errorf("%d writes in 10 minutes", f.writes)
		}
		f.mu.Unlock()
		time.Sleep(time.Minute)
		wantState(t, f, loopKey(1), "CONFIGURED")
	})
}

// The board receives states in any order: the newest counts.
func TestNewestStateCounts(t *testing.T) {
	b := newBoard(minTTL, nil, newMetrics())
	at := func(step, want string) {
		t.Helper()
		text, known := b.statusText(loopKey(1))
		if got := fmt.Sprint(known, " ", text != "" && strings.Contains(text, kvscheduler.ValueState_CONFIGURED.String())); got != want {
			t.Errorf("%s: %s, want %s: %s", step, got, want, text)
		}
	}
	say := func(state event.State) []event.ValueStatus {
		return []event.ValueStatus{{Key: loopKey(1), State: state}}
	}
	b.rows(map[string]row{loopKey(1): {key: loopKey(1)}})
	at("stored", "false false")
	b.asked(kv.Values{loopKey(1): nil})
	b.committed(say(event.Pending))
	b.answered(say(event.Configured)) // of the earlier value
	at("the transaction is newer than the answer", "true false")
	b.committed(say(event.Configured))
	at("configured", "true true")
	b.rows(map[string]row{loopKey(1): {key: loopKey(1)}})
	at("another value is stored", "false false")
	b.committed(say(event.Configured)) // of the earlier value
	b.asked(kv.Values{loopKey(1): nil})
	at("it is on its way", "false false")
	b.answered(say(event.Invalid))
	at("it is answered", "true false")
	b.rows(map[string]row{loopKey(1): {key: loopKey(1), err: errTooLong}})
	at("a refused one", "true false")
	b.rows(map[string]row{loopKey(1): {gone: true}})
	if text, known := b.statusText(loopKey(1)); text != "" || !known {
		t.Errorf("gone: %q, %v", text, known)
	}
}

func TestNoStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		cfg := config()
		cfg.NoStatus = true
		f.put(map[string]string{loopKey(1): loopJSON(1, 1), loopKey(2): "?"})
		n := start(t, f, cfg, nil)
		time.Sleep(time.Minute)
		want(t, n, map[string]uint32{"1": 1})
		if f.writes != 0 || f.lastLease != 0 {
			t.Errorf("%d writes, %d leases", f.writes, f.lastLease)
		}
	})
}
