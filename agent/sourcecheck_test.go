package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/counters"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/poll"
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
	d, err := control.FetchPolicy(t.Context(), w.agent.cfg.Listen.Status, web)
	if err != nil || d.Spoofed == nil || d.Spoofed.Packets != 7 {
		t.Fatalf("policy shows %+v, %v", d, err)
	}
	for range 2 { // a packet is counted once
		if err := w.agent.counters.Count(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	st, err := w.agent.Status(t.Context())
	if want := []counters.SourceDrops{{Pod: "default/web", Packets: 7}, {Packets: 3}}; err != nil || !slices.Equal(st.Spoofed, want) {
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

// The status shows the drops of pods that exist. It finds these pods in the loop: readers of a status run beside it.
func TestDropsOfPodsThatChange(t *testing.T) {
	w, _ := startCounting(t)
	w.vpp.Send("pod-default/web", packet.NewTCP(netip.MustParseAddrPort("10.1.1.99:1"), netip.MustParseAddrPort("10.3.0.1:53")))
	if err := w.agent.counters.Count(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if _, err := w.agent.Status(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	for i := range 20 {
		w.write("more.yaml", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: more-%d, namespace: default}, spec: {nodeName: node-1}, status: {podIP: 10.1.1.%d, podIPs: [{ip: 10.1.1.%[2]d}]}}`, i, 20+i))
		poll.Until(t, "the pod", func() bool {
			st, err := w.agent.Status(t.Context())
			return err == nil && st.Ifs != nil && st.Ifs.Pods[fmt.Sprintf("10.1.1.%d", 20+i)] != ""
		})
	}
	cancel()
	<-ended
	w.settled()
	if st, err := w.agent.Status(t.Context()); err != nil || !slices.Equal(st.Spoofed, []counters.SourceDrops{{Pod: "default/web", Packets: 1}}) {
		t.Errorf("status shows %v, %v", st.Spoofed, err)
	}
}
