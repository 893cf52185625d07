package flows

import (
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// A session waits for a read of NAT44's table if the table may have its endpoint, and as long as there is room.
func TestSessionsWait(t *testing.T) {
	session := observation{source: netip.MustParseAddrPort("10.1.1.3:1005"), destination: netip.MustParseAddrPort("10.96.0.10:80"), input: true, seenBy: BySessions}
	at := func(kind string) *flows.Flow { return &flows.Flow{Destination: flows.Peer{Kind: kind}} }
	w, l := New(Config{}), &Loop{Policies: &policy.Processor{}}
	for _, kind := range []string{flows.Service, flows.Node} {
		if !w.holds(l, &session, at(kind)) {
			t.Errorf("to a %s: it does not wait", kind)
		}
	}
	translated, output := session, session
	translated.seenBy, output.input = ByNAT, false
	if w.holds(l, &session, at(flows.Pod)) || w.holds(l, &translated, at(flows.Service)) || w.holds(l, &output, at(flows.Service)) || w.holds(&Loop{}, &session, at(flows.Service)) {
		t.Error("what has no endpoint in the table waits")
	}
	if held := w.known.release(); len(held) != 2 || len(w.known.release()) != 0 {
		t.Errorf("released %v", held)
	}
	if w.known.current = true; w.holds(l, &session, at(flows.Service)) {
		t.Error("it waits although the table was read")
	}
	w.known.current, w.known.held = false, make([]observation, mostSessions)
	if w.holds(l, &session, at(flows.Service)) {
		t.Error("it waits although there is no room")
	}
}
