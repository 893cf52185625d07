package vpp

import (
	"fmt"
	"time"
)

// pingRequest is the request that the connection sends to learn whether VPP answers.
const pingRequest = "control_ping"

// Silence is a VPP that owes an answer and sends nothing. Its main thread works on a large request, or hangs, or the process is stopped:
// from outside these look the same, apart from what VPP was asked. The zero value: VPP answers.
type Silence struct {
	// Since is when VPP was asked, or sent its last byte, whichever is later.
	Since time.Time
	// Owes is the name of the oldest request without an answer.
	Owes string
}

// Text is "VPP has not answered for 3.1s: …" at a moment; "": it answers.
func (s Silence) Text(now time.Time) string {
	if s.Since.IsZero() {
		return ""
	}
	text := fmt.Sprintf("VPP has not answered for %s: ", now.Sub(s.Since).Round(100*time.Millisecond))
	if s.Owes == pingRequest {
		return text + "it does not answer a " + pingRequest + ", and has nothing else to do for the agent: it hangs, is stopped, or works for another program"
	}
	return text + "it works on " + s.Owes + ", or hangs"
}

// For is how long the silence has lasted; 0: there is none.
func (s Silence) For(now time.Time) time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return now.Sub(s.Since)
}

// listen notes whether VPP has been silent for too long, and reports whether that has changed. quiet is for how long it owes an answer
// without a byte; 0: it owes none.
func (s *session) listen(quiet time.Duration) (changed bool) {
	if s.cfg.Late <= 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.silent
	if quiet < s.cfg.Late {
		s.silent = Silence{}
	} else if was.Since.IsZero() {
		s.silent = Silence{Since: time.Now().Add(-quiet), Owes: s.oldest()}
	}
	return was != s.silent
}

// oldest is the name of the oldest request without an answer. s.mu is held.
func (s *session) oldest() string {
	var first *pending
	for i := range s.pending {
		if p := &s.pending[i]; p.batch != nil && (first == nil || p.sent.Before(first.sent)) {
			first = p
		}
	}
	if first == nil {
		return pingRequest
	}
	return first.route.name
}

// silence is the present one.
func (s *session) silence() Silence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}
