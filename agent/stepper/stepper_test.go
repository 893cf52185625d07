package stepper

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
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

// Announced states end the wait for a connection of their generation, and no earlier one does.
func TestWaitConnectedWaitsForTheGeneration(t *testing.T) {
	s := New(Parts{})
	done := make(chan error, 1)
	go func() { done <- s.WaitConnected(t.Context(), 2) }()
	s.Announce(vpp.State{Connected: true, Generation: 1})
	s.Announce(vpp.State{Generation: 2})
	select {
	case err := <-done:
		t.Fatalf("ended before the connection: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	s.Announce(vpp.State{Connected: true, Generation: 2})
	if err := <-done; err != nil || s.Generation() != 2 {
		t.Errorf("%v, generation %d", err, s.Generation())
	}
}
