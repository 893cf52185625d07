package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// sightings are connections that access lists passed and packets that they dropped, by the reason.
type sightings struct{ Passed, Dropped map[string]uint64 }

// expect adds what flows must show for the fate of a connection's first packet.
func (s *sightings) expect(w *watched, f sim.Fate) {
	if m := denialOf(f); m != nil {
		s.Dropped[w.reason(m)]++
		return
	}
	for _, h := range f.Hops {
		if m := h.ACL; m != nil && !m.Session && (m.Interface == webDoor || m.Interface == clientDoor) {
			s.Passed[w.reason(m)]++
		}
	}
}

// manyPackets returns the first packet of connection n, and the interface where it arrives. All are different.
func manyPackets(n int) (in string, p packet.Packet) {
	ends := []struct{ in, from, to string }{
		{"uplink", "10.2.0.7", "10.1.1.2:80"},
		{"uplink", "10.2.9.7", "10.1.1.2:80"},
		{webDoor, "10.1.1.2", "10.3.0.1:53"},
		{webDoor, "10.1.1.2", "10.3.7.1:53"},
		{clientDoor, "10.1.1.3", "10.4.0.1:53"},
		{clientDoor, "10.1.1.3", "10.1.1.2:8080"},
		{"uplink", "10.2.0.9", "10.1.1.3:8080"},
		{"uplink", "10.2.0.8", "10.1.1.3:443"},
	}
	e := ends[n%len(ends)]
	from, to := netip.AddrPortFrom(netip.MustParseAddr(e.from), uint16(1024+n/len(ends)/2)), netip.MustParseAddrPort(e.to)
	if n/len(ends)%2 == 0 {
		return e.in, packet.NewUDP(from, to)
	}
	return e.in, packet.NewTCP(from, to).Opening()
}

// Of 100,000 connections with at most 10,000 sessions at a time flows show each one, with the rule that the simulated VPP applied.
func TestFlowsOfManyConnections(t *testing.T) {
	w := watchFlows(t, "many")
	want := sightings{map[string]uint64{}, map[string]uint64{}}
	for n := range pace.Fewer(100_000, 20) {
		in, p := manyPackets(n)
		want.expect(w, w.send(in, p))
		if n%4000 == 3999 {
			w.look()
			w.vpp.Advance(time.Hour) // ends the sessions
			w.look()
		}
	}
	w.look()
	answer, err := w.watcher.Ask(t.Context(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := sightings{map[string]uint64{}, map[string]uint64{}}
	for i := range answer.Flows {
		switch f := &answer.Flows[i]; {
		case f.SeenBy == agentflows.BySessions:
			got.Passed[f.Decision.Text] += f.Connections
		case f.SeenBy == agentflows.ByCapture && f.Verdict == flows.Dropped && f.Protocol != model.ICMP.String():
			got.Dropped[f.Decision.Text] += f.Packets
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want.Passed) < 4 || len(want.Dropped) < 3 {
		t.Errorf("(-want +got):\n%s\n%+v", diff, answer.Sources)
	}
}
