package vpp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
)

// handler answers the messages that this file's tests use; all others get their plain reply.
//
//	nat44_set_session_limit       retval = the limit asked for
//	nat44_lb_static_mapping_dump  three details
//	cli_inband                    echoes the command
func handler(c *fakeConn, req api.Message) []api.Message {
	switch m := req.(type) {
	case *memclnt.ControlPing:
		return []api.Message{&memclnt.ControlPingReply{VpePID: 42}}
	case *vpe.ShowVersion:
		return []api.Message{&vpe.ShowVersionReply{Version: "v24.06-release"}}
	case *nat44_ed.Nat44SetSessionLimit:
		return []api.Message{&nat44_ed.Nat44SetSessionLimitReply{Retval: int32(m.SessionLimit)}}
	case *nat44_ed.Nat44LbStaticMappingDump:
		var out []api.Message
		for i := range 3 {
			out = append(out, &nat44_ed.Nat44LbStaticMappingDetails{Tag: fmt.Sprint(i), ExternalPort: uint16(i)})
		}
		return out
	case *vlib.CliInband:
		return []api.Message{&vlib.CliInbandReply{Reply: m.Cmd}}
	}
	return c.plain(req)
}

func limit(n int) Call { return Call{Msg: &nat44_ed.Nat44SetSessionLimit{SessionLimit: uint32(n)}} }
func cli(s string) Call {
	return Call{Msg: &vlib.CliInband{Cmd: s}}
}

var dump = Call{Msg: &nat44_ed.Nat44LbStaticMappingDump{}, Dump: true}

func TestRepliesAreInOrderAndTyped(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	c := up(t, f, Config{})
	replies := c.Do(t.Context(), limit(0), dump, cli("a"), limit(1), Call{Msg: &memclnt.ControlPing{}}, limit(-81), dump)
	for i, want := range []string{"ok", "3", "a", "1", "ok", "-81", "3"} {
		if got := describe(replies[i]); got != want {
			t.Errorf("reply %d: %s, want %s", i, got, want)
		}
	}
	if err := replies[5].Err; !errors.Is(err, api.VALUE_EXIST) || !strings.Contains(err.Error(), "nat44_set_session_limit") {
		t.Errorf("%v is not VALUE_EXIST by name", err)
	}
	if replies[5].Msg == nil {
		t.Error("the refusing reply itself is missing")
	}
	if got := c.Do(t.Context()); len(got) != 0 {
		t.Errorf("no calls: %v", got)
	}
	st := c.State()
	if !st.Connected || st.Generation != 1 || st.Version != "v24.06-release" || st.PID != 42 || st.Err != nil {
		t.Errorf("state %+v", st)
	}
}

func describe(r Reply) string {
	var rv *Retval
	switch {
	case errors.As(r.Err, &rv):
		return fmt.Sprint(rv.Code)
	case r.Err != nil:
		return r.Err.Error()
	case r.Msg == nil:
		return fmt.Sprint(len(r.Details))
	}
	if m, ok := r.Msg.(*vlib.CliInbandReply); ok {
		return m.Reply
	}
	return "ok"
}

// TestTenThousandCalls: many senders at once mix calls and dumps; nothing is lost, and VPP sees each sender's order.
func TestTenThousandCalls(t *testing.T) {
	f := newFake(t)
	var mu sync.Mutex
	arrived := map[byte][]string{}
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		if m, ok := req.(*vlib.CliInband); ok {
			mu.Lock()
			arrived[m.Cmd[0]] = append(arrived[m.Cmd[0]], m.Cmd)
			mu.Unlock()
		}
		return handler(c, req)
	}
	c := up(t, f, Config{Window: 64})
	const senders, each = 4, 2500
	var wg sync.WaitGroup
	want := map[byte][]string{}
	for s := range byte(senders) {
		var calls []Call
		for i := range each {
			if i%50 == 49 {
				calls = append(calls, dump)
				continue
			}
			text := fmt.Sprintf("%c%d", 'a'+s, i)
			want['a'+s] = append(want['a'+s], text)
			calls = append(calls, cli(text))
		}
		wg.Go(func() {
			for i, r := range c.Do(t.Context(), calls...) {
				want := "3"
				if !calls[i].Dump {
					want = calls[i].Msg.(*vlib.CliInband).Cmd
				}
				if got := describe(r); got != want {
					t.Errorf("sender %c, call %d: %s, want %s", 'a'+s, i, got, want)
				}
			}
		})
	}
	wg.Wait()
	for s := range want {
		if !slices.Equal(arrived[s], want[s]) {
			t.Errorf("sender %c: VPP saw another order", s)
		}
	}
}

// TestWindow: the number of unanswered calls never exceeds the window, and reaches it when there are enough calls.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		hold := make(chan struct{})
		f.handle = func(c *fakeConn, req api.Message) []api.Message {
			if _, ok := req.(*vlib.CliInband); ok {
				<-hold // VPP is busy with the first; the others wait in the socket
			}
			return handler(c, req)
		}
		c := up(t, f, Config{Window: 8, Silence: -1})
		done := make(chan []Reply)
		go func() { done <- c.Do(context.Background(), slices.Repeat([]Call{cli("x")}, 20)...) }()
		synctest.Wait()
		s := c.session.Load()
		s.mu.Lock()
		busy := s.busy
		s.mu.Unlock()
		if busy != 8 {
			t.Errorf("%d calls on their way, want 8", busy)
		}
		close(hold)
		for i, r := range <-done {
			if r.Err != nil {
				t.Errorf("call %d: %v", i, r.Err)
			}
		}
	})
}

// writes is a connection that records each write.
type writes struct {
	netConn
	mu  sync.Mutex
	all []string
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	w.all = append(w.all, string(b))
	w.mu.Unlock()
	return w.netConn.Write(b)
}

// TestJoinedCallsLeaveInOneWrite: both calls of a pair are in one write, one after the other, whatever other callers send
// and however small the window is.
func TestJoinedCallsLeaveInOneWrite(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	w := &writes{}
	c := up(t, f, Config{Window: 3, Dial: func(ctx context.Context) (netConn, error) {
		nc, err := f.dial(ctx)
		w.netConn = nc
		return w, err
	}})
	const senders, pairs = 4, 50
	var wg sync.WaitGroup
	for n := range senders {
		wg.Go(func() {
			for i := range pairs {
				first := cli(fmt.Sprintf("<first %d %d>", n, i))
				first.Joined = true
				for _, r := range c.Do(context.Background(), cli("alone"), first, cli(fmt.Sprintf("<second %d %d>", n, i)), cli("alone")) {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	for n := range senders {
		for i := range pairs {
			first, second := fmt.Sprintf("<first %d %d>", n, i), fmt.Sprintf("<second %d %d>", n, i)
			if !slices.ContainsFunc(w.all, func(b string) bool {
				_, rest, ok := strings.Cut(b, first)
				at := strings.Index(rest, second)
				return ok && at >= 0 && !strings.Contains(rest[:at], "alone") && !strings.Contains(rest[:at], "<")
			}) {
				t.Fatalf("pair %d of sender %d is in no write", i, n)
			}
		}
	}
}

// TestCallsAtOnceWaitForAnswers: such a pair is written when VPP has answered everything before, so that no read of VPP ends between the two.
func TestCallsAtOnceWaitForAnswers(t *testing.T) {
	f := newFake(t)
	var handled, written atomic.Int64
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		handled.Add(1)
		return handler(c, req)
	}
	c := up(t, f, Config{Window: 8, Dial: func(ctx context.Context) (netConn, error) {
		nc, err := f.dial(ctx)
		return &observed{nc, func(b string) {
			if before, _, pair := strings.Cut(b, "<first"); pair && (strings.Contains(before, "alone") || written.Load() != handled.Load()) {
				t.Errorf("a pair follows %d requests of which %d are answered", written.Load(), handled.Load())
			}
			written.Add(int64(strings.Count(b, "alone") + strings.Count(b, "<")))
		}}, err
	}})
	handled.Store(0) // of the handshake
	written.Store(0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				first := cli("<first>")
				first.Joined, first.AtOnce = true, true
				for _, r := range c.Do(context.Background(), cli("alone"), first, cli("<second>"), cli("alone"), cli("alone")) {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := written.Load(); n != 4*50*5 {
		t.Errorf("%d requests were written", n)
	}
}

// TestCallsAtOnceShareAWrite: consecutive pairs that VPP reads at once are sent together, up to what VPP reads at once and the window; others are not.
func TestCallsAtOnceShareAWrite(t *testing.T) {
	pair := func(text string, atOnce bool) []Call {
		first := cli(text)
		first.Joined, first.AtOnce = true, atOnce
		return []Call{first, cli(text)}
	}
	small, big := "x", strings.Repeat("x", 900)
	for _, c := range []struct {
		calls []Call
		want  int
	}{
		{slices.Concat(pair(small, true), pair(small, true), pair(small, false)), 4},
		{slices.Concat(pair(small, false), pair(small, true)), 2},
		{slices.Concat(pair(small, true), []Call{cli(small)}, pair(small, true)), 2},
		{slices.Concat(pair(big, true), pair(big, true), pair(big, true)), 4},
		{slices.Concat(pair(small, true), pair(small, true), pair(small, true), pair(small, true), pair(small, true)), 8},
		{[]Call{cli(small), cli(small)}, 1},
	} {
		s := &session{slots: make(chan uint32, 8)}
		if n := s.joined(c.calls); n != c.want {
			t.Errorf("%d of %d are sent together, want %d", n, len(c.calls), c.want)
		}
	}
}

// observed calls a function before each write.
type observed struct {
	netConn
	before func(string)
}

func (c *observed) Write(b []byte) (int, error) {
	c.before(string(b))
	return c.netConn.Write(b)
}

// TestJoinedBeyondTheWindow: more joined calls than the window holds are still sent; a refused one fails alone.
func TestJoinedBeyondTheWindow(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	c := up(t, f, Config{Window: 2})
	calls := []Call{limit(-7), cli("b"), cli("c"), {}, cli("e")}
	for i := range calls {
		calls[i].Joined = true // the last one, too
	}
	for _, calls := range [][]Call{calls, {calls[0], cli("b")}, {calls[3], cli("b")}} {
		replies := c.Do(context.Background(), calls...)
		for i, r := range replies {
			if refused := calls[i].Msg == nil || calls[i].Msg.GetMessageName() != "cli_inband"; refused == (r.Err == nil) {
				t.Errorf("call %d of %d: %v", i, len(calls), r.Err)
			}
		}
	}
}

// TestDisconnectFailsAllAtOnce: when VPP disconnects, sent calls, calls waiting for the window, a half-received dump and a
// guarded call fail at once, not at a timeout. None of them is sent to the next VPP.
func TestDisconnectFailsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		f.handle = func(c *fakeConn, req api.Message) []api.Message {
			if _, ok := req.(*nat44_ed.Nat44LbStaticMappingDump); !ok {
				return handler(c, req)
			}
			_ = c.send(&nat44_ed.Nat44LbStaticMappingDetails{Tag: "half"}, c.context)
			_ = c.w.Flush()
			for b := make([]byte, 1); ; { // until the connection is cut
				if _, err := c.nc.Read(b); err != nil {
					return nil
				}
			}
		}
		c := up(t, f, Config{Window: 4})
		done := make(chan []Reply, 2)
		calls := append([]Call{limit(0), dump}, slices.Repeat([]Call{cli("x")}, 10)...)
		go func() { done <- c.Do(context.Background(), calls...) }()
		synctest.Wait() // the window is full
		go func() { done <- c.Do(context.Background(), slices.Repeat([]Call{cli("y")}, 10)...) }()
		synctest.Wait()
		began := time.Now()
		f.cut()
		answered := 0
		for range 2 {
			for i, r := range <-done {
				if i == 0 && r.Err == nil {
					answered++ // the first of the first batch, before the cut
					continue
				}
				if !errors.Is(r.Err, ErrDisconnected) || r.Details != nil {
					t.Errorf("call %d: %+v, want ErrDisconnected", i, r)
				}
			}
		}
		if took := time.Since(began); took != 0 || answered != 1 {
			t.Errorf("took %s, %d answered before", took, answered)
		}
		waitFor(t, c, func(s State) bool { return s.Connected && s.Generation == 2 })
		for _, name := range f.requests() {
			if name != "control_ping" && name != "show_version" {
				t.Errorf("%s was sent to the next VPP", name)
			}
		}
		if r := c.Do(context.Background(), limit(0)); r[0].Err != nil {
			t.Error(r[0].Err)
		}
	})
}

func waitFor(t *testing.T, c *Conn, ok func(State) bool) State {
	t.Helper()
	for range 1000 {
		if s := c.State(); ok(s) {
			return s
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("state stays %+v", c.State())
	return State{}
}

// TestReconnect: the client reconnects with other message ids and a back-off that grows to its limit; Do fails meanwhile
// and works after.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		f.handle = handler
		var mu sync.Mutex
		var states []State
		var dials []time.Time
		cfg := Config{MaxBackoff: time.Second, OnState: func(s State) {
			mu.Lock()
			defer mu.Unlock()
			states = append(states, s)
		}}
		cfg.Dial = func(ctx context.Context) (nc netConn, err error) {
			mu.Lock()
			defer mu.Unlock()
			dials = append(dials, time.Now())
			return f.dial(ctx)
		}
		c := up(t, f, cfg)
		f.mu.Lock()
		f.firstID, f.refuse = 1000, errors.New("no such socket")
		f.mu.Unlock()
		f.cut()
		time.Sleep(time.Minute)
		if r := c.Do(context.Background(), limit(0))[0]; !errors.Is(r.Err, ErrDisconnected) || !strings.Contains(r.Err.Error(), "no such socket") {
			t.Errorf("while away: %v", r.Err)
		}
		mu.Lock()
		for i := range dials[1:] { // however long nothing listens
			if pause := dials[i+1].Sub(dials[i]); i > 0 && pause > 20*time.Millisecond {
				t.Errorf("attempt %d after a pause of %s", i+1, pause)
				break
			}
		}
		if n := len(dials); n < 2900 {
			t.Errorf("%d attempts in a minute without a listener", n)
		}
		mu.Unlock()
		f.mu.Lock()
		f.refuse = nil
		f.mu.Unlock()
		waitFor(t, c, func(s State) bool { return s.Connected })
		if r := c.Do(context.Background(), cli("again"))[0]; describe(r) != "again" {
			t.Errorf("after: %v", r)
		}
		mu.Lock()
		defer mu.Unlock()
		var story []string
		for _, s := range states {
			story = append(story, fmt.Sprint(s.Connected, s.Generation))
		}
		// lost; then refused once (the repeated refusal is not announced); then connected
		if want := []string{"true 1", "false 1", "false 1", "true 2"}; !slices.Equal(story, want) {
			t.Errorf("states %v, want %v", story, want)
		}
	})
}

// TestBackoffAgainstCrashes: a VPP that accepts and dies gets one connection per pause, not one per 20 ms.
func TestBackoffAgainstCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c := New(Config{MaxBackoff: time.Second, Dial: func(context.Context) (netConn, error) {
			dials++
			client, server := pipe()
			return client, server.Close()
		}})
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = c.Run(ctx)
		if dials < 60 || dials > 75 {
			t.Errorf("%d attempts in a minute of back-off up to 1 s", dials)
		}
	})
}

// TestReplacedSocketEndsThePause: the next VPP is dialled at once, whatever the back-off; the same socket is not.
func TestReplacedSocketEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "api.sock")
		create := func(name string) {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c := New(Config{Socket: path})
		create(path)
		if !c.rest(t.Context(), time.Hour, nil) {
			t.Error("a socket that appeared did not end the pause")
		}
		done := make(chan bool, 1)
		go func() { done <- c.rest(t.Context(), time.Hour, c.endpoint()) }()
		time.Sleep(time.Minute)
		select {
		case <-done:
			t.Fatal("the same socket ended the pause")
		default:
		}
		create(path + ".new")
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(minBackoff)
		synctest.Wait()
		select {
		case replaced := <-done:
			if !replaced {
				t.Error("rest did not see the new socket")
			}
		default:
			t.Error("a replaced socket did not end the pause")
			<-done
		}
		start := time.Now()
		if c.rest(t.Context(), time.Second, c.endpoint()) || time.Since(start) != time.Second {
			t.Errorf("a pause of 1 s took %s", time.Since(start))
		}
	})
}

// TestCancel: a call whose ctx ends returns at once; its late reply does no harm, and its slot is freed.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		f.handle = func(c *fakeConn, req api.Message) []api.Message {
			if m, ok := req.(*vlib.CliInband); ok && m.Cmd == "slow" {
				_ = c.w.Flush() // earlier answers are sent
				time.Sleep(5 * time.Second)
			}
			return handler(c, req)
		}
		c := up(t, f, Config{Window: 2})
		for range 3 { // more than the window: no slot leaks
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			began := time.Now()
			replies := c.Do(ctx, cli("quick"), cli("slow"), dump, cli("never sent"))
			if took := time.Since(began); took != time.Second {
				t.Errorf("returned after %s", took)
			}
			cancel()
			time.Sleep(10 * time.Second) // late replies arrive; returned results do not change
			if describe(replies[0]) != "quick" {
				t.Errorf("the answered one: %v", replies[0])
			}
			for _, r := range replies[1:] {
				if !errors.Is(r.Err, context.DeadlineExceeded) || r.Msg != nil || r.Details != nil {
					t.Errorf("%+v, want deadline exceeded", r)
				}
			}
		}
		if replies := c.Do(context.Background(), cli("b"), dump); describe(replies[0]) != "b" || describe(replies[1]) != "3" {
			t.Errorf("after late replies: %v", replies)
		}
		if st := c.State(); st.Generation != 1 || !st.Connected {
			t.Errorf("state %+v", st)
		}
	})
}

// TestWhatEndsAConnection lists what ends a connection and what does not.
func TestWhatEndsAConnection(t *testing.T) {
	for _, c := range []struct {
		name    string
		stall   time.Duration // before the answer to the call
		trickle bool          // a detail arrives every 10 s meanwhile
		call    Call
		dead    bool
	}{
		{"short stall", 30 * time.Second, false, cli("x"), false},
		{"long stall", 2 * time.Minute, false, cli("x"), true},
		{"slow dump", 10 * time.Minute, false, dump, false},
		{"trickling dump", 10 * time.Minute, true, dump, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(nil)
				defer f.close()
				f.handle = func(fc *fakeConn, req api.Message) []api.Message {
					if req.GetMessageName() != c.call.Msg.GetMessageName() {
						return handler(fc, req)
					}
					for end := time.Now().Add(c.stall); time.Now().Before(end); time.Sleep(10 * time.Second) {
						if c.trickle {
							_ = fc.send(&nat44_ed.Nat44LbStaticMappingDetails{}, fc.context)
							_ = fc.w.Flush()
						}
					}
					return handler(fc, req)
				}
				conn := up(t, f, Config{Probe: 10 * time.Second, Silence: time.Minute})
				began := time.Now()
				r := conn.Do(context.Background(), c.call)[0]
				if dead := errors.Is(r.Err, ErrDisconnected); dead != c.dead || !dead && r.Err != nil {
					t.Errorf("after %s: %v, want dead %t", time.Since(began), r.Err, c.dead)
				}
				if c.dead && time.Since(began) > 80*time.Second {
					t.Errorf("noticed after %s", time.Since(began))
				}
				synctest.Wait()
				if c.dead {
					time.Sleep(3 * time.Minute) // the fake's handler ends its stall
				}
			})
		})
	}
}

// TestAbandonedDumpDoesNotDelayClose: the client closes the connection to a VPP that hangs once no caller waits for its dump.
func TestAbandonedDumpDoesNotDelayClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		f.handle = func(c *fakeConn, req api.Message) []api.Message {
			if _, ok := req.(*nat44_ed.Nat44LbStaticMappingDump); ok {
				time.Sleep(10 * time.Minute)
			}
			return handler(c, req)
		}
		c := up(t, f, Config{Silence: time.Minute})
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		c.Do(ctx, dump)
		if st := c.State(); !st.Connected || st.Generation != 1 {
			t.Errorf("while waiting: %+v", st)
		}
		time.Sleep(time.Minute)
		if st := c.State(); st.Generation != 2 && st.Connected {
			t.Errorf("after giving up: %+v", st)
		}
		time.Sleep(10 * time.Minute)
	})
}

// TestRepeatedReply: a repeated answer does not answer the next call in its slot.
func TestRepeatedReply(t *testing.T) {
	f := newFake(t)
	var before api.Message
	var context uint32
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		out := handler(c, req)
		if _, ok := req.(*vlib.CliInband); ok {
			if before != nil {
				_ = c.send(before, context)
			}
			before, context = out[0], c.context
		}
		return out
	}
	c := up(t, f, Config{Window: 1})
	for i, r := range c.Do(t.Context(), cli("0"), cli("1"), cli("2"), cli("3")) {
		if describe(r) != fmt.Sprint(i) {
			t.Errorf("call %d: %s", i, describe(r))
		}
	}
}

// TestNoStaleBytes: reused buffers never show an earlier message's bytes in a later one.
func TestNoStaleBytes(t *testing.T) {
	f := newFake(t)
	var tags []string
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		if m, ok := req.(*nat44_ed.Nat44AddDelLbStaticMapping); ok {
			tags = append(tags, m.Tag)
		}
		return handler(c, req)
	}
	c := up(t, f, Config{})
	want := []string{longestTag, "a", longestTag, "b", "", "c"}
	for _, tag := range want {
		m := lb(1, 1)
		m.Tag = tag
		if r := c.Do(t.Context(), Call{Msg: m})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if !slices.Equal(tags, want) {
		t.Errorf("VPP saw tags %q", tags)
	}
}

// TestIdleConnectionIsProbed: an idle connection is probed; it stays if VPP answers, and is closed if VPP hangs.
func TestIdleConnectionIsProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		var hang atomic.Bool
		f.handle = func(c *fakeConn, req api.Message) []api.Message {
			if hang.Load() {
				return nil
			}
			return handler(c, req)
		}
		c := up(t, f, Config{Probe: 10 * time.Second, Silence: time.Minute})
		time.Sleep(10 * time.Minute)
		pings := 0
		for _, name := range f.requests() {
			if name == "control_ping" {
				pings++
			}
		}
		if st := c.State(); st.Generation != 1 || pings < 40 || pings > 62 {
			t.Errorf("after ten idle minutes: %d pings, state %+v", pings, st)
		}
		hang.Store(true)
		time.Sleep(90 * time.Second)
		if st := c.State(); st.Connected {
			t.Errorf("a VPP that hangs for 90 s: %+v", st)
		}
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		f.handle = func(c *fakeConn, req api.Message) []api.Message {
			if _, ok := req.(*interfaces.WantInterfaceEvents); ok {
				out := c.plain(req)
				for i := range 3 {
					out = append(out, &interfaces.SwInterfaceEvent{SwIfIndex: interfaceIndex(i)})
				}
				return out
			}
			return handler(c, req)
		}
		want := &interfaces.WantInterfaceEvents{EnableDisable: 1}
		got := make(chan string, 10)
		c := New(Config{Dial: f.dial, OnConnect: []Call{{Msg: want}}})
		c.Events(&interfaces.SwInterfaceEvent{}, func(m api.Message) {
			c.Do(context.Background(), limit(0)) // a callback may call
			got <- fmt.Sprint(c.State().Generation, m.(*interfaces.SwInterfaceEvent).SwIfIndex)
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		for range 2 { // also after a reconnect
			for i := range 3 {
				if s := <-got; s[len(s)-1:] != fmt.Sprint(i) {
					t.Errorf("event %s, want %d", s, i)
				}
			}
			f.cut()
		}
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if st := c.State(); st.Connected {
			t.Errorf("after Run: %+v", st)
		}
	})
}

func TestMissingMessages(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	f.lacks = []string{"nat44_set_session_limit", "nat44_lb_static_mapping_details", "acl_add_replace_reply"}
	c := up(t, f, Config{Needs: []api.Message{
		&vlib.CliInband{}, &nat44_ed.Nat44SetSessionLimit{}, dump.Msg, &acl.ACLAddReplace{}, &nat44_ed.Nat44SetSessionLimit{},
	}})
	want := []string{
		key(&acl.ACLAddReplaceReply{}), key(&nat44_ed.Nat44LbStaticMappingDetails{}), key(&nat44_ed.Nat44SetSessionLimit{}),
	}
	if got := c.State().Missing; !slices.Equal(got, want) {
		t.Errorf("missing %v, want %v", got, want)
	}
	replies := c.Do(t.Context(), limit(0), dump, cli("still works"), Call{Msg: &acl.ACLAddReplace{}})
	for i, lacks := range []string{want[2], want[1], "", want[0]} {
		var me *MissingError
		if got := errors.As(replies[i].Err, &me); got != (lacks != "") || got && me.Lacks != lacks {
			t.Errorf("call %d: %v, want lack of %q", i, replies[i].Err, lacks)
		}
	}
	if describe(replies[2]) != "still works" {
		t.Error(replies[2])
	}
}

func TestMisuse(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	c := up(t, f, Config{})
	for i, r := range c.Do(t.Context(), Call{Msg: limit(0).Msg, Dump: true}, Call{Msg: dump.Msg}, Call{}, cli(strings.Repeat("x", 10)), Call{Msg: lb(1)}) {
		if (r.Err == nil) != (i == 3) {
			t.Errorf("call %d: %v", i, r.Err)
		}
	}
}

// TestBigMessages: messages longer than any buffer pass in both directions, among small ones.
func TestBigMessages(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	c := up(t, f, Config{})
	var calls []Call
	for _, n := range []int{1, readBuffer - headerLen - 14, readBuffer - headerLen - 13, readBuffer, 5 * readBuffer, 1 << 20, 2} {
		calls = append(calls, cli(strings.Repeat("x", n)), limit(0))
	}
	for i, r := range c.Do(t.Context(), calls...) {
		if m, ok := calls[i].Msg.(*vlib.CliInband); ok && describe(r) != m.Cmd {
			t.Errorf("call %d of %d bytes: %.40s", i, len(m.Cmd), describe(r))
		}
	}
}

// TestTooLongMessage: a message that is too long fails alone and costs no memory; those before and after it are answered.
func TestTooLongMessage(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	c := up(t, f, Config{})
	fits, long := cli(strings.Repeat("x", MaxRequest-requestHeader-4)), cli(strings.Repeat("x", MaxRequest-requestHeader-3))
	replies := c.Do(t.Context(), limit(0), fits, long, limit(0))
	for i, r := range replies {
		if (r.Err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i, r.Err)
		}
	}
	refused, ok := errors.AsType[*GuardError](replies[2].Err)
	if !ok || refused.Rule != "message-size" || refused.Stateful || !strings.Contains(refused.Error(), "16777217 bytes, at most 16777216") {
		t.Errorf("%v", replies[2].Err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.Do(t.Context(), long)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes allocated for a message that is not sent", got)
	}
}

// TestReplyUnderWrongID: VPP answers acl_stats_intf_counters_enable under the id of acl_del_reply, and the call works; any other
// wrong id fails that call alone.
func TestReplyUnderWrongID(t *testing.T) {
	f := newFake(t)
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		switch m := req.(type) {
		case *acl.ACLStatsIntfCountersEnable:
			c.alien = c.ids[key(&acl.ACLDelReply{})]
		case *vlib.CliInband:
			if m.Cmd == "odd" {
				c.alien = c.ids[key(&acl.ACLDelReply{})]
			}
			if m.Cmd == "unannounced" {
				c.alien = 9999
			}
		case *nat44_ed.Nat44LbStaticMappingDump:
			c.alien = c.ids[key(&acl.ACLDelReply{})] // the first of the three details
		}
		return handler(c, req)
	}
	c := up(t, f, Config{})
	replies := c.Do(t.Context(), Call{Msg: &acl.ACLStatsIntfCountersEnable{Enable: true}}, cli("odd"), cli("fine"), cli("unannounced"), dump, cli("fine"))
	if _, ok := replies[0].Msg.(*acl.ACLStatsIntfCountersEnableReply); !ok || replies[0].Err != nil {
		t.Errorf("counters: %+v", replies[0])
	}
	for i, got := range map[int]string{1: key(&acl.ACLDelReply{}), 3: "message 9999", 4: key(&acl.ACLDelReply{})} {
		var ue *UnexpectedError
		if !errors.As(replies[i].Err, &ue) || ue.Got != got {
			t.Errorf("call %d: %v, want answer by %s", i, replies[i].Err, got)
		}
	}
	for _, i := range []int{2, 5} {
		if describe(replies[i]) != "fine" {
			t.Errorf("call %d: %v", i, replies[i])
		}
	}
}

// TestCursorStream: details, then a reply with a cursor; the request continues if VPP stopped in the middle.
func TestCursorStream(t *testing.T) {
	f := newFake(t)
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		m, ok := req.(*nat44_ed.Nat44EdOutputInterfaceGet)
		if !ok {
			return handler(c, req)
		}
		out := []api.Message{&nat44_ed.Nat44EdOutputInterfaceDetails{SwIfIndex: interfaceIndex(m.Cursor)}}
		reply := &nat44_ed.Nat44EdOutputInterfaceGetReply{Cursor: ^uint32(0)}
		switch {
		case m.Cursor == 100:
			reply.Retval = int32(api.INVALID_VALUE)
		case m.Cursor < 2:
			reply.Retval, reply.Cursor = int32(api.EAGAIN), m.Cursor+1
		}
		return append(out, reply)
	}
	c := up(t, f, Config{})
	get := &nat44_ed.Nat44EdOutputInterfaceGet{}
	replies := c.Do(t.Context(), Call{Msg: get}, cli("x"), Call{Msg: get, Dump: true})
	for _, i := range []int{0, 2} {
		if r := replies[i]; r.Err != nil || len(r.Details) != 3 || r.Msg == nil {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	if r := c.Do(t.Context(), Call{Msg: &nat44_ed.Nat44EdOutputInterfaceGet{Cursor: 100}})[0]; !errors.Is(r.Err, api.INVALID_VALUE) || r.Details != nil {
		t.Errorf("refused half way: %+v", r)
	}
	if get.Cursor != 0 {
		t.Error("the caller's message was changed")
	}
}

// TestGuardRefusalKeepsOrder: a message that the guard refuses is not sent; a message whose verdict depends on an answer waits for
// it, and the order is kept.
func TestGuardRefusalKeepsOrder(t *testing.T) {
	for _, fail := range []bool{false, true} {
		f := newFake(t)
		var seen []string
		f.handle = func(c *fakeConn, req api.Message) []api.Message {
			if m, ok := req.(*nat44_ed.Nat44LbStaticMappingAddDelLocal); ok {
				seen = append(seen, map[bool]string{true: "add", false: "del"}[m.IsAdd])
				if fail && m.IsAdd {
					return []api.Message{&nat44_ed.Nat44LbStaticMappingAddDelLocalReply{Retval: -1}}
				}
			}
			return handler(c, req)
		}
		c := up(t, f, Config{})
		replies := c.Do(t.Context(), Call{Msg: lb(0, 0, 1)}, Call{Msg: addLocal(9, 1)}, Call{Msg: delLocal(2)}, Call{Msg: lb(0, 0)}, cli("after"))
		var ge *GuardError
		if refused := errors.As(replies[2].Err, &ge); refused != fail {
			t.Errorf("add fails: %t, del: %v", fail, replies[2].Err)
		}
		if !errors.As(replies[3].Err, &ge) || ge.Rule != "lb-weight-zero" {
			t.Errorf("mapping without weight: %v", replies[3].Err)
		}
		if describe(replies[4]) != "after" {
			t.Error(replies[4])
		}
		if want := []string{"add", "del"}[:map[bool]int{false: 2, true: 1}[fail]]; !slices.Equal(seen, want) {
			t.Errorf("VPP saw %v, want %v", seen, want)
		}
	}
}

// TestGuardForgetsAtReconnect: the guard forgets VPP's state, since another VPP may answer.
func TestGuardForgetsAtReconnect(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	c := up(t, f, Config{})
	if r := c.Do(t.Context(), Call{Msg: feature(true, 3, 0)})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	f.cut()
	waitFor(t, c, func(s State) bool { return s.Connected && s.Generation == 2 })
	var ge *GuardError
	if r := c.Do(t.Context(), Call{Msg: feature(false, 3, 0)})[0]; !errors.As(r.Err, &ge) {
		t.Errorf("%v: the guard remembers the VPP before", r.Err)
	}
}

func TestObserve(t *testing.T) {
	f := newFake(t)
	f.handle = handler
	var mu sync.Mutex
	seen := map[string]int{}
	c := up(t, f, Config{Observe: func(name string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen[fmt.Sprint(name, " ", err != nil)]++
		if took <= 0 || took > time.Minute {
			t.Errorf("%s took %s", name, took)
		}
	}})
	c.Do(t.Context(), limit(0), limit(1), dump)
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"nat44_set_session_limit false", "nat44_set_session_limit true", "nat44_lb_static_mapping_dump false"} {
		if seen[want] != 1 {
			t.Errorf("%s: %d times", want, seen[want])
		}
	}
}

// TestBrokenPeers: whatever the peer sends, the client neither hangs nor panics.
func TestBrokenPeers(t *testing.T) {
	long := make([]byte, headerLen)
	long[8] = 0xff
	for name, answer := range map[string][]byte{
		"closes":      nil,
		"long length": long,
		"no header":   make([]byte, headerLen+2),
		"other id":    append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0}, 0, 9, 0, 0, 0, 0),
		"truncated":   append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0}, 0, 16, 0, 0, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := New(Config{Dial: func(context.Context) (netConn, error) {
					client, server := pipe()
					go func() {
						defer func() { _ = server.Close() }()
						_, _ = server.Read(make([]byte, 1024))
						_, _ = server.Write(answer)
					}()
					return client, nil
				}})
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := c.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if st := c.State(); st.Connected || st.Generation != 0 {
					t.Errorf("state %+v", st)
				}
			})
		})
	}
}

func TestConfigValidate(t *testing.T) {
	for want, cfg := range map[string]Config{
		"":         {Window: 512, ClientName: strings.Repeat("x", 63)},
		"window":   {Window: 5000},
		"name":     {ClientName: strings.Repeat("x", 64)},
		"back-off": {MaxBackoff: -1},
	} {
		if err := cfg.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
