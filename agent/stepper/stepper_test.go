package stepper

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// A Stepper whose VPP does not answer says why, and leaves no goroutine of the connection.
func TestConnectNamesWhatIsWrong(t *testing.T) {
	var s *Stepper
	refused := errors.New("nobody listens")
	conn := vpp.New(vpp.Config{
		Dial:    func(context.Context) (net.Conn, error) { return nil, refused },
		OnState: func(st vpp.State) { s.Announce(st) },
	})
	s = New(Parts{Conn: conn})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := s.Connect(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, refused) || !strings.Contains(err.Error(), "vpp is not connected") {
		t.Errorf("%v", err)
	}
	select {
	case <-s.ended:
	default:
		t.Error("the connection still runs")
	}
}

// A wait for a connection of a generation ends with that connection: not with an earlier one, nor with its loss.
func TestWaitConnectedWaitsForTheGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, s, states := unannounced(t)
		ended := waiting(t, s, 2)
		for _, want := range []struct{ connected, ended bool }{{true, false}, {false, false}, {true, true}} {
			st := <-states
			if st.Connected != want.connected {
				t.Fatalf("%+v", st)
			}
			s.Announce(st)
			if synctest.Wait(); ended.Load() != want.ended {
				t.Errorf("%+v: ended %t", st, ended.Load())
			}
			if st.Generation == 1 && st.Connected {
				v.Restart()
			}
		}
	})
}

// A connection that failed is not up, even before its loss is announced: a story whose next step is at once would meet a VPP that is away.
func TestWaitConnectedSeesALossBeforeItsAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, s, states := unannounced(t)
		s.Announce(<-states)
		if err := s.WaitConnected(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		v.Restart()
		synctest.Wait()
		ended := waiting(t, s, 1)
		if synctest.Wait(); ended.Load() {
			t.Error("a lost connection is up")
		}
		s.Announce(<-states)
		s.Announce(<-states)
		if synctest.Wait(); !ended.Load() {
			t.Error("the next connection is not up")
		}
	})
}

// unannounced is a Stepper whose connection runs; the test announces its states.
func unannounced(t *testing.T) (*sim.VPP, *Stepper, <-chan vpp.State) {
	t.Helper()
	v, states := sim.New(sim.Config{}), make(chan vpp.State)
	conn := vpp.New(vpp.Config{Dial: v.Dial, OnState: func(st vpp.State) {
		select {
		case states <- st:
		case <-t.Context().Done():
		}
	}})
	var runs sync.WaitGroup
	runs.Go(func() { _ = conn.Run(t.Context()) })
	t.Cleanup(runs.Wait)
	return v, New(Parts{Conn: conn}), states
}

// waiting begins to wait for a connection; true: the wait has ended.
func waiting(t *testing.T, s *Stepper, generation uint64) *atomic.Bool {
	t.Helper()
	var ended atomic.Bool
	go func() {
		if err := s.WaitConnected(t.Context(), generation); err != nil {
			t.Error(err)
		}
		ended.Store(true)
	}()
	return &ended
}
