package flows

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

func measured(t *testing.T) (*Watcher, *prometheus.Registry) {
	t.Helper()
	w, m, r := New(Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}), NewMeter(), prometheus.NewRegistry()
	if err := m.Register(r); err != nil {
		t.Fatal(err)
	}
	w.CountIn(m)
	return w, r
}

// Each observation counts once, with its verdict, and with the Service that it dialled.
func TestMeter(t *testing.T) {
	w, r := measured(t)
	s := &model.Service{ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
	s.ID.Namespace, s.ID.Name = "shop", "db"
	w.Changed(nil, s)
	at := netip.MustParseAddrPort
	dialled := func(a string) *flows.Translation { return &flows.Translation{Dialled: at(a), Source: at(client)} }
	w.explain(&Loop{}, []observation{
		{source: at(client), destination: at(server), dropped: "node: error", counts: flows.Counts{Packets: 1, Bytes: 40}, seenBy: ByCapture},
		{source: at(client), destination: at(server), dropped: "node: error", counts: flows.Counts{Packets: 1, Bytes: 60}, seenBy: ByCapture},
		{source: at(client), destination: at(server), translation: dialled("10.96.0.1:80"), counts: flows.Counts{Connections: 1, Packets: 7, Bytes: 700}, seenBy: ByNAT},
		{source: at(client), destination: at(server), translation: dialled("10.3.0.1:80"), counts: flows.Counts{Connections: 1}, seenBy: ByNAT}, // no Service
		{source: at(client), destination: at(server), twoWay: true, counts: flows.Counts{Connections: 1, Packets: 3, Bytes: 120}, seenBy: ByProbe},
		{source: at(client), destination: at(server), counts: flows.Counts{Connections: 1}, seenBy: BySessions}, // repeats another interface's
	})
	w.noteResult(&w.sources[0], 0, errFull)
	w.noteResult(&w.sources[0], 0, nil)
	labels := func(source, verdict string) string {
		return fmt.Sprintf(`_total{direction="none",policy="none",source="%s",verdict="%s"}`, source, verdict)
	}
	want := map[string]float64{
		"contiv_flows_packets" + labels("capture", "dropped"):       2,
		"contiv_flows_bytes" + labels("capture", "dropped"):         100,
		"contiv_flows_connections" + labels("nat44", "allowed"):     2,
		"contiv_flows_packets" + labels("nat44", "allowed"):         7,
		"contiv_flows_bytes" + labels("nat44", "allowed"):           700,
		"contiv_flows_connections" + labels("flowprobe", "allowed"): 1,
		"contiv_flows_packets" + labels("flowprobe", "allowed"):     3,
		"contiv_flows_bytes" + labels("flowprobe", "allowed"):       120,
		`contiv_flows_service_connections_total{service="shop/db"}`: 1,
		`contiv_flows_service_packets_total{service="shop/db"}`:     7,
		`contiv_flows_service_bytes_total{service="shop/db"}`:       700,
		`contiv_flows_incomplete_reads_total{source="capture"}`:     1,
	}
	if diff := cmp.Diff(want, samples.Read(t, r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Policies and Services beyond the bounds are added up; those that have series keep them.
func TestMeterIsBounded(t *testing.T) {
	w, r := measured(t)
	const more = 1000
	for range 2 {
		for i := range more {
			f := flows.Flow{SeenBy: ByCapture, Verdict: flows.Dropped, Direction: "ingress", Counts: flows.Counts{Packets: 1}}
			f.Decision.Policy = fmt.Sprintf("NetworkPolicy a/p%d", i)
			f.Translation = &flows.Translation{Service: fmt.Sprintf("a/s%d", i)}
			w.meter.countFlow(&f)
		}
	}
	got := samples.Read(t, r)
	series, sum, others := 0, 0.0, 0.0
	for name, v := range got {
		if series++; strings.HasPrefix(name, "contiv_flows_packets") {
			if sum += v; strings.Contains(name, `policy="other"`) {
				others += v
			}
		}
	}
	if series != mostPolicies+mostServices+2 || sum != 2*more || others != 2*(more-mostPolicies) || got[`contiv_flows_service_packets_total{service="other"}`] != 2*(more-mostServices) {
		t.Errorf("%d series, %v packets, %v of others: %v", series, sum, others, got)
	}
}
