package vpp

import (
	"fmt"
	"time"
)

// pingRequest is the request that the connection sends to learn whether VPP answers.
const pingRequest = "control_ping"

// Silence describes a VPP that owes an answer and sends nothing. Its main thread may work on a large request, hang, or be
// stopped: from outside these look the same, apart from the request. The zero value: VPP answers.
type Silence struct {
	// Since is when the request was sent or VPP sent its last byte, whichever is later.
	Since time.Time
	// Owes is the name of the oldest request without an answer.
	Owes string
}

// Text returns "VPP has not answered for 3.1s: …" at the time now; "": it answers.
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

// For returns how long the silence has lasted; 0: VPP answers.
func (s Silence) For(now time.Time) time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return now.Sub(s.Since)
}

// listen updates the silence and reports whether it has changed. quiet is how long VPP has owed an answer without sending a
// byte; 0: it owes none.
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

// oldest returns the name of the oldest request without an answer. s.mu is held.
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

// silence returns the current silence.
func (s *session) silence() Silence {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silent
}
