package vpp

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/api"
)

// The connection notices within 3 s that VPP stops, whether a request is outstanding or not. When VPP continues, the
// connection does, too.
func TestSilence(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  bool
		rare time.Duration // between pings; 0: the default
		owes string
		text string
	}{
		{"idle", false, 0, "control_ping", "VPP has not answered for 3s: it does not answer a control_ping, and has nothing else to do"},
		{"at work", true, 0, "cli_inband", "VPP has not answered for 3s: it works on cli_inband, or hangs"},
		{"at work after a long rest", true, time.Hour, "cli_inband", "VPP has not answered for 3s: it works on cli_inband, or hangs"},
	} {
		for phase := range 10 { // of the connection's own looks
			synctest.Test(t, func(t *testing.T) {
				f := newFake(nil)
				defer f.close()
				var stopped atomic.Pointer[chan struct{}]
				f.handle = func(fc *fakeConn, req api.Message) []api.Message {
					if on := stopped.Load(); on != nil {
						<-*on
					}
					return handler(fc, req)
				}
				var states atomic.Int64
				conn := up(t, f, Config{Probe: c.rare, OnState: func(State) { states.Add(1) }})
				time.Sleep(time.Minute + time.Duration(phase)*1130*time.Millisecond)
				if n := states.Load(); n != 1 {
					t.Fatalf("%d states of a VPP that answers", n)
				}
				on := make(chan struct{})
				stopped.Store(&on)
				began, answered := time.Now(), make(chan Reply, 1)
				if c.ask {
					go func() { answered <- conn.Do(context.Background(), cli("x"))[0] }()
				}
				time.Sleep(3*time.Second - time.Millisecond)
				st := conn.State()
				if st.Silent.Owes != c.owes || !st.Connected || st.Generation != 1 || st.Silent.Since.Before(began) {
					t.Errorf("%s, after 3 s: %+v", c.name, st)
				}
				if got := st.Silent.Text(st.Silent.Since.Add(3 * time.Second)); !strings.HasPrefix(got, c.text) {
					t.Errorf("%q, want %q", got, c.text)
				}
				time.Sleep(20 * time.Second)
				stopped.Store(nil)
				close(on)
				time.Sleep(time.Second)
				if st = conn.State(); st.Silent != (Silence{}) || !st.Connected || st.Generation != 1 || st.Silent.Text(time.Now()) != "" || states.Load() != 3 {
					t.Errorf("when it goes on: %+v, %d states", st, states.Load())
				}
				if c.ask {
					if r := <-answered; r.Err != nil {
						t.Error(r.Err)
					}
				}
			})
		}
	}
}

// A long dump that sends something is no silence, and a negative limit means no limit.
func TestSlowDumpIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		defer f.close()
		f.handle = func(fc *fakeConn, req api.Message) []api.Message {
			if req.GetMessageName() == "cli_inband" {
				time.Sleep(30 * time.Second)
			}
			return handler(fc, req)
		}
		var said atomic.Int64
		conn := up(t, f, Config{Late: -1, OnState: func(State) { said.Add(1) }})
		if r := conn.Do(context.Background(), cli("x"))[0]; r.Err != nil || said.Load() != 1 {
			t.Errorf("%v, %d states", r.Err, said.Load())
		}
	})
}

// The time of the last byte has a reading of the monotonic clock. Otherwise a wall clock that is set forward would end a connection that owes an
// answer, and one that is set back would hide a silent VPP.
func TestLastByteIsIndependentOfTheWallClock(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() {
		defer theirs.Close()
		_, _ = theirs.Write(make([]byte, headerLen)) // the reader's check fails if it does not arrive
	}()
	w := newWire(ours)
	if _, err := w.r.Peek(headerLen); err != nil {
		t.Fatal(err)
	}
	if at := w.lastByte(); !strings.Contains(at.String(), " m=") || time.Since(at) > time.Hour {
		t.Errorf("%s has no reading of the monotonic clock", at)
	}
}
