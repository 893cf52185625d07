package attachment

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
)

// An agent without a Felix calls a nil Session.
func TestNoSession(t *testing.T) {
	var s *Session
	s.Idle()
	s.Committed(&event.Committed{})
	s.VPP(&event.VPPStatus{})
	if st := s.Status(); st != nil {
		t.Errorf("status %+v", st)
	}
}

func TestFelixWaits(t *testing.T) {
	for state, waits := range map[string]bool{"waiting for in_sync": true, "in-sync": false, "messages are fed by hand": false} {
		if f := (&FelixStatus{State: state}); f.Waits() != waits {
			t.Errorf("%s: waits %t", state, f.Waits())
		}
	}
}
