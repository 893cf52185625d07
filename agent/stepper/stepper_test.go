package stepper

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		s := New(Parts{})
		ended := false
		go func() {
			if err := s.WaitConnected(t.Context(), 2); err != nil {
				t.Error(err)
			}
			ended = true
		}()
		for _, c := range []struct {
			state vpp.State
			want  bool
		}{
			{vpp.State{Connected: true, Generation: 1}, false},
			{vpp.State{Generation: 2}, false},
			{vpp.State{Connected: true, Generation: 2}, true},
		} {
			s.Announce(c.state)
			if synctest.Wait(); ended != c.want {
				t.Errorf("%+v: ended %t", c.state, ended)
			}
		}
	})
}
