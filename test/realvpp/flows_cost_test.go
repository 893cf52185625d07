package realvpp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

// costObjects are a pod, a Service that it dials, and policies that select it; beside the objects of the guestbook.
func costObjects() string {
	out := `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.200, podIPs: [{ip: 10.1.1.200}], phase: Running}
---
apiVersion: v1
kind: Service
metadata: {name: out, namespace: default}
spec: {clusterIP: 10.96.0.200, clusterIPs: [10.96.0.200], ports: [{name: web, port: 80, targetPort: 80}, {name: dns, protocol: UDP, port: 53}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: out, namespace: default, labels: {kubernetes.io/service-name: out}}
addressType: IPv4
ports: [{name: web, port: 80, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
endpoints: [{addresses: [10.3.0.1], conditions: {ready: true}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{ipBlock: {cidr: 10.2.0.0/16, except: [10.2.9.0/24]}}], ports: [{port: 80}]}, {from: [{ipBlock: {cidr: 10.4.0.0/16}}]}]
  egress: [{to: [{ipBlock: {cidr: 10.3.0.0/16}}]}]
`
	for i := range costPolicies {
		out += fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: more-%d, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{ipBlock: {cidr: 10.%d.0.0/16}}], ports: [{port: %d}]}]
  egress: [{to: [{ipBlock: {cidr: 10.%[2]d.0.0/16}}], ports: [{port: %[3]d}]}]
`, i, 100+i, 1000+i)
	}
	return out
}

const (
	costPolicies = 99
	costDenials  = 200
	costAddrs    = 40 // of clients, for each kind
)

// BenchmarkVPPFlows measures processor time of an agent's process at 1,000 new connections a second with flows and without, and how long after
// a denied packet flows -f prints it. bench/flows.sh makes a table of it.
func BenchmarkVPPFlows(b *testing.B) {
	path := theVPP(b)
	if _, err := buildAgent(); err != nil {
		b.Fatal(err)
	}
	watch := []string{"--flows", "1s"}
	for _, k := range []struct {
		name  string
		flags []string
	}{
		{"nat44/off", nil},
		{"nat44/sessions", watch},
		{"nat44/flowprobe", slices.Concat(watch, []string{"--flows-collector", theCollector.String(), "--flows-exporter", theExporter.String()})},
		{"cnat/off", []string{"--service-renderer", string(agent.RendererCNAT)}},
		{"cnat/sessions", slices.Concat(watch, []string{"--service-renderer", string(agent.RendererCNAT)})},
	} {
		b.Run(k.name, func(b *testing.B) {
			var plugins []string
			if strings.HasSuffix(k.name, "flowprobe") {
				needFlowprobe(b, path)
				plugins = []string{"flowprobe_plugin.so"}
			}
			for b.Loop() {
				measureCost(b, path, plugins, k.flags)
			}
		})
	}
}

// watchedProcess is an agent's process beside a VPP.
type watchedProcess struct {
	*lab
	b      *testing.B
	cmd    *exec.Cmd
	socket string
	folder string // of manifests
}

func measureCost(b *testing.B, path string, plugins, flags []string) {
	b.Helper()
	w := openWatched(b, path, plugins)
	w.startAgent(flags)
	length := time.Duration(oracle.Setting(b, "CONTIV_FLOWS_SECONDS", 60)) * time.Second
	sent := w.sendFor(0, length/4) // lists, maps and VPP's tables grow
	before, begin := w.processorTime(), time.Now()
	n := w.sendFor(sent, length)
	took := time.Since(begin)
	b.ReportMetric(100*(w.processorTime()-before).Seconds()/took.Seconds(), "cpu-%")
	b.ReportMetric(float64(n)/took.Seconds(), "connections/s")
	b.ReportMetric(w.memory(), "MB")
	b.ReportMetric(0, "ns/op")
	if !slices.Contains(flags, "--flows") {
		return
	}
	time.Sleep(15 * time.Second) // flowprobe's last reports
	answer, err := control.FetchFlows(b.Context(), w.socket, 0, &flows.Filter{})
	if err != nil {
		b.Fatal(err)
	}
	shown, translates := uint64(0), !slices.Contains(flags, string(agent.RendererCNAT)) && len(plugins) == 0
	for i := range answer.Flows {
		switch f := &answer.Flows[i]; {
		case f.Decision.Text == "" || f.SeenBy == agentflows.ByNAT && !translates:
		case f.Verdict == flows.Dropped:
			shown += f.Packets
		case f.SeenBy != agentflows.BySessions || !translates || f.Direction == "ingress": // all egress is in NAT44's table, and the sessions have some of it
			shown += f.Connections
		}
	}
	b.ReportMetric(100*float64(shown)/float64(sent+n), "shown-%")
	for _, s := range answer.Sources {
		b.Logf("%+v", s)
	}
	if len(plugins) > 0 {
		b.Log(w.cli("show runtime flowprobe-output-l2"))
	}
	delays := w.denials()
	b.ReportMetric(float64(delays[len(delays)/2].Milliseconds()), "denial-p50-ms")
	b.ReportMetric(float64(delays[len(delays)*99/100].Milliseconds()), "denial-p99-ms")
	b.ReportMetric(float64(delays[len(delays)-1].Milliseconds()), "denial-max-ms")
}

// openWatched starts a VPP.
func openWatched(b *testing.B, path string, plugins []string) *watchedProcess {
	b.Helper()
	l, err := openLab(path, plugins...)
	b.Cleanup(l.close)
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	must(err)
	web := podAt("web", "node-1", "10.1.1.200")
	must(errors.Join(cni.New(l, "node-1").Apply(puts([]model.Object{nodeAt(1), web})), l.err))
	peer, mac := peerName(l.pairs[cni.Uplink]), hostMAC(l.pairs[cni.Uplink]) // so that the kernel receives what VPP sends to the collector
	must(l.ns.ip(fmt.Sprintf("link set lo up\nlink set %s address %s\naddr add %s/32 dev %[1]s\n", peer, net.HardwareAddr(mac[:]), theCollector.Addr())))
	must(errors.Join(l.ns.set("ipv4/conf/all/rp_filter", "0"), l.ns.set("ipv4/conf/"+peer+"/rp_filter", "0"), l.ns.set("ipv4/conf/all/arp_ignore", "8")))
	dir := b.TempDir()
	must(os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(costObjects()), 0o600))
	w := &watchedProcess{lab: l, b: b, socket: filepath.Join(l.dir, "agent.sock"), folder: dir}
	b.Cleanup(w.stopAgent)
	return w
}

// startAgent starts an agent, and waits until it is in sync.
func (w *watchedProcess) startAgent(flags []string) {
	w.b.Helper()
	program, _ := buildAgent()
	w.cmd = exec.Command(program, append([]string{
		"run", "--manifests", "../../examples/guestbook", "--manifests", w.folder, "--node", "node-1", "--vpp-socket", w.lab.socket(), "--status-socket", w.socket,
		"--journal", filepath.Join(w.dir, "journal"), "--listen", "", "--host-interface", cni.Host,
	}, flags...)...)
	var said bytes.Buffer
	w.cmd.Stdout, w.cmd.Stderr = &said, &said
	var err error
	w.ns.do(func() { err = w.cmd.Start() })
	if err != nil {
		w.cmd = nil
		w.b.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		st, err := control.FetchStatus(w.b.Context(), w.socket, false)
		if err == nil && st.InSync {
			return
		}
		if time.Now().After(end) {
			w.b.Fatalf("the agent is not in sync: %v\n%s", err, said.String())
		}
	}
}

func (w *watchedProcess) stopAgent() {
	if w.cmd == nil {
		return
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	_ = w.cmd.Wait()
	w.cmd = nil
}

// sendFor sends 1,000 new connections a second, of which the first has a number, and returns how many it sent.
func (w *watchedProcess) sendFor(first int, length time.Duration) (n int) {
	w.b.Helper()
	rate := int(oracle.Setting(w.b, "CONTIV_VPP_RATE", 1000))
	for begin := time.Now(); time.Since(begin) < length; time.Sleep(5 * time.Millisecond) {
		for due := int(time.Since(begin).Seconds() * float64(rate)); n < due; n++ {
			if err := w.sendConnection(first + n); err != nil {
				w.b.Fatal(err)
			}
		}
	}
	return n
}

// sendConnection sends the first packet of connection i, and the answer to an earlier one.
func (w *watchedProcess) sendConnection(i int) error {
	web, door := netip.MustParseAddr("10.1.1.200"), cni.PodInterface(model.PodID{Namespace: "default", Name: "web"})
	port := uint16(1024 + i/(10*costAddrs)%60000)
	at := func(third, kind int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(kind), byte(third), byte(1 + i/10%costAddrs)}), port)
	}
	opening := func(client netip.AddrPort) packet.Packet {
		return packet.NewTCP(client, netip.AddrPortFrom(web, 80)).Opening()
	}
	own := netip.AddrPortFrom(web, uint16(1024+i/10%60000))
	switch kind := i % 10; kind {
	case 0, 1, 2:
		return w.frames.put(w.pairs[cni.Uplink], opening(at(kind, 2)))
	case 3:
		p := opening(at(kind, 2))
		return errors.Join(w.frames.put(w.pairs[cni.Uplink], p), w.frames.put(w.pairs[door], answerOf(p)))
	case 4, 5:
		return w.frames.put(w.pairs[cni.Uplink], packet.NewUDP(at(kind, 4), netip.AddrPortFrom(web, 53)))
	case 6, 7:
		return w.frames.put(w.pairs[door], packet.NewTCP(netip.AddrPortFrom(web, own.Port()), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, 200}), 80)).Opening())
	case 8:
		return w.frames.put(w.pairs[door], packet.NewUDP(own, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 3, 0, byte(2 + i/10%costAddrs)}), 53)))
	default:
		return w.frames.put(w.pairs[cni.Uplink], opening(at(9, 2))) // denied
	}
}

// processorTime is that of the agent's process so far, in steps of 10 ms (proc_pid_stat(5)).
func (w *watchedProcess) processorTime() time.Duration {
	w.b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid))
	if err != nil {
		w.b.Fatal(err)
	}
	const user, system, step = 11, 12, 10 * time.Millisecond // behind the name
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	u, errUser := strconv.Atoi(fields[user])
	s, errSystem := strconv.Atoi(fields[system])
	if err := cmp.Or(errUser, errSystem); err != nil {
		w.b.Fatal(err)
	}
	return time.Duration(u+s) * step
}

// memory is that of the agent's process, in MB.
func (w *watchedProcess) memory() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", w.cmd.Process.Pid))
	var all, resident float64
	if _, err := fmt.Sscan(string(text), &all, &resident); err != nil {
		w.b.Fatal(err)
	}
	return resident * float64(os.Getpagesize()) / 1e6
}

// denials are the times, in order, from denied packets until flows -f prints them.
func (w *watchedProcess) denials() (delays []time.Duration) {
	w.b.Helper()
	ctx, stop := context.WithTimeout(w.b.Context(), 5*time.Minute)
	defer stop()
	program, _ := buildAgent()
	cmd := exec.CommandContext(ctx, program, "flows", "-f", "--verdict", "dropped", "--from", "10.2.9.200", "--status-socket", w.socket)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.b.Fatal(err)
	}
	defer func() { stop(); _ = cmd.Wait() }()
	lines := bufio.NewScanner(out)
	for i := range uint16(costDenials + 1) {
		client := netip.AddrPortFrom(netip.MustParseAddr("10.2.9.200"), 1024+i)
		time.Sleep(time.Duration(i) * 7 * time.Millisecond % (300 * time.Millisecond)) // at all phases of the periods
		begin := time.Now()
		if err := w.frames.put(w.pairs[cni.Uplink], packet.NewTCP(client, netip.MustParseAddrPort("10.1.1.200:80")).Opening()); err != nil {
			w.b.Fatal(err)
		}
		for !strings.Contains(lines.Text(), client.String()+" ") {
			if !lines.Scan() {
				w.b.Fatal("flows -f ended")
			}
		}
		if i > 0 { // until the first one, the command starts
			delays = append(delays, time.Since(begin))
		}
	}
	slices.Sort(delays)
	return delays
}
