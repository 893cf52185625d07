package realvpp

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

// forwardedTraffic are packets of 1,000 connections: by the uplink to a pod that 100 policies select, and of the pod to a Service.
var forwardedTraffic = []struct{ name, in, data string }{
	{"pod", cni.Uplink, "UDP: 10.4.0.1 -> 10.1.1.200 UDP: 1024 - 2023 -> 53"},
	{"service", cni.PodInterface(model.PodID{Namespace: "default", Name: "web"}), "UDP: 10.1.1.200 -> 10.96.0.200 UDP: 1024 - 2023 -> 53"},
}

// BenchmarkVPPFlowsForwarding measures VPP's clocks for a packet with the agent's configuration: without flows, with the agent's reads and capture,
// and with flowprobe. One VPP, the modes by turns, in each round in the other order; medians. bench/flows.sh makes a table of it.
func BenchmarkVPPFlowsForwarding(b *testing.B) {
	path := theVPP(b)
	if _, err := buildAgent(); err != nil {
		b.Fatal(err)
	}
	needFlowprobe(b, path)
	for _, renderer := range []string{"nat44", string(agent.RendererCNAT)} {
		b.Run(renderer, func(b *testing.B) {
			for b.Loop() {
				measureForwarding(b, path, renderer)
			}
		})
	}
}

var forwardingModes = []struct {
	name  string
	flags []string
}{
	{"off", nil},
	{"flows", []string{"--flows", "1s"}},
	{"flowprobe", []string{"--flows", "1s", "--flows-collector", theCollector.String(), "--flows-exporter", theExporter.String()}},
}

func measureForwarding(b *testing.B, path, renderer string) {
	b.Helper()
	w := openWatched(b, path, []string{"flowprobe_plugin.so"})
	clocks, ratios := map[string][]float64{}, map[string][]float64{}
	for round := range int(oracle.Setting(b, "CONTIV_FLOWS_ROUNDS", 5)) {
		modes := slices.Clone(forwardingModes)
		if round%2 == 1 {
			slices.Reverse(modes)
		}
		got := map[string]float64{}
		for _, m := range modes {
			w.startAgent(slices.Concat(m.flags, []string{"--service-renderer", renderer}))
			time.Sleep(3 * time.Second) // the first reads
			if round == 0 {
				w.frames.close() // it would take a core to read what VPP sends
			}
			for _, t := range forwardedTraffic {
				w.forward(t.in, t.data) // makes the sessions
				got[t.name+"-"+m.name] = min(w.forward(t.in, t.data), w.forward(t.in, t.data), w.forward(t.in, t.data))
			}
			w.stopAgent()
			w.endFlows()
		}
		for name, n := range got {
			clocks[name] = append(clocks[name], n)
			traffic, _, _ := strings.Cut(name, "-")
			ratios[name] = append(ratios[name], n/got[traffic+"-off"])
		}
	}
	for name, all := range clocks {
		slices.Sort(all)
		slices.Sort(ratios[name])
		b.ReportMetric(all[len(all)/2], name+"-clocks")
		b.ReportMetric(w.clocksPerSecond()/all[len(all)/2]/1e6, name+"-Mpps")
		b.ReportMetric(100*ratios[name][len(all)/2], name+"-%")
		b.Logf("%s: %.0f clocks, %.2f of those without flows", name, all, ratios[name])
	}
	b.ReportMetric(0, "ns/op")
}

var runtimeLine = regexp.MustCompile(`(?m)^(\S+)\s+(?:active|polling|any wait|interrupt wa|event wait|time wait|done|interrupt wait)\s+(\d+)\s+(\d+)\s+\d+\s+(\S+)\s+\S+\s*$`)

// forward sends packets by VPP's packet generator, and returns the clocks of a packet in all nodes behind it, without those that give the packet to the
// kernel.
func (w *watchedProcess) forward(in, data string) float64 {
	w.b.Helper()
	const packets, name = 200_000, "forward"
	w.cli("packet-generator delete " + name)
	if said := w.cli(fmt.Sprintf("packet-generator new { name %s limit %d size 64-64 node ip4-input interface %s data { %s incrementing 20 } }", name, packets, in, data)); said != "" {
		w.b.Fatal(said)
	}
	w.cli("clear runtime")
	w.cli("packet-generator enable-stream " + name)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		said := w.cli("show packet-generator")
		if line := said[max(0, strings.Index(said, name)):]; strings.Contains(strings.SplitN(line, "\n", 2)[0], "No") {
			break
		}
		if time.Now().After(end) {
			w.b.Fatalf("the packet generator does not end:\n%s", said)
		}
	}
	text := w.cli("show runtime")
	total, entered, left := 0.0, 0.0, 0.0
	for _, m := range runtimeLine.FindAllStringSubmatch(text, -1) {
		vectors, _ := strconv.ParseFloat(m[3], 64)
		each, _ := strconv.ParseFloat(m[4], 64)
		switch {
		case m[1] == "ip4-input":
			entered = vectors
		case strings.HasSuffix(m[1], "-tx"):
			left += vectors
			continue
		case m[1] == "pg-input" || vectors < packets/2:
			continue
		}
		total += each * vectors / packets
	}
	if entered < packets || left < packets*9/10 {
		w.b.Fatalf("%v packets entered and %v left VPP:\n%s", entered, left, text)
	}
	return total
}

// endFlows removes what an agent with flows leaves in VPP.
func (w *watchedProcess) endFlows() {
	w.cli("pcap trace off")
	for name := range w.index {
		w.cli("flowprobe feature add-del " + name + " l2 tx disable")
	}
}

var clockRate = regexp.MustCompile(`clocks per second: (\d+)`)

func (w *watchedProcess) clocksPerSecond() float64 {
	m := clockRate.FindStringSubmatch(w.cli("show acl-plugin sessions"))
	if m == nil {
		w.b.Fatal("VPP does not print its clock rate")
	}
	rate, _ := strconv.ParseFloat(m[1], 64)
	return rate
}
