package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// VPP drops packets of a pod with a foreign source address, and packets from outside with an address of the node's. The agent counts them;
// policy, status and the metric show the counts.
func TestSourceDropsAreCounted(t *testing.T) {
	w, _ := startCounting(t)
	for range 7 {
		w.vpp.Send("pod-default/web", packet.NewTCP(netip.MustParseAddrPort("10.1.1.99:1"), netip.MustParseAddrPort("10.3.0.1:53")))
	}
	w.vpp.Send("pod-default/web", packet.NewTCP(netip.MustParseAddrPort("10.1.1.2:1"), netip.MustParseAddrPort("10.3.0.1:53")))
	for range 3 { // from outside, as a pod of the node
		w.vpp.Send("uplink", packet.NewTCP(netip.MustParseAddrPort("10.1.1.2:1"), netip.MustParseAddrPort("10.1.1.2:53")))
	}
	d, err := FetchPolicy(t.Context(), w.agent.cfg.StatusSocket, web)
	if err != nil || d.Spoofed == nil || d.Spoofed.Packets != 7 {
		t.Fatalf("policy shows %+v, %v", d, err)
	}
	counts := &sourceCounts{last: map[uint32]uint64{}, pods: map[string]uint64{}}
	for range 2 { // a packet is counted once
		if err := w.agent.readSourceDrops(t.Context(), counts); err != nil {
			t.Fatal(err)
		}
	}
	st, err := w.agent.Status(t.Context())
	if want := []SourceDrops{{"default/web", 7}, {"", 3}}; err != nil || !slices.Equal(st.Spoofed, want) {
		t.Errorf("status shows %v, not %v, %v", st.Spoofed, want, err)
	}
	families, err := w.agent.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if got := f.GetMetric()[0].GetCounter().GetValue(); f.GetName() == "contiv_source_check_dropped_packets_total" && got != 10 {
			t.Errorf("metric %v", got)
		}
	}
}

// A count that VPP reset does not reduce the sum.
func TestSourceCountsSurviveReset(t *testing.T) {
	s := &sourceCounts{last: map[uint32]uint64{}, pods: map[string]uint64{}}
	for _, c := range []struct{ now, more uint64 }{{5, 5}, {9, 4}, {2, 2}, {2, 0}} {
		if got := s.addCount("a/b", 1, c.now); got != c.more {
			t.Errorf("%d: %d more, not %d", c.now, got, c.more)
		}
	}
	s.addCount("a/c", 2, 40)
	if got := s.drops(); !slices.Equal(got, []SourceDrops{{"a/c", 40}, {"a/b", 11}}) {
		t.Errorf("drops %v", got)
	}
}
