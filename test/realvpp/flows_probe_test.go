package realvpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/vpp/flowprobe"
)

// theCollector is an address behind the uplink, and theExporter is the node's.
var (
	theCollector = netip.MustParseAddrPort("10.2.250.250:4739")
	theExporter  = netip.MustParseAddr("192.168.16.1")
)

// pass passes on to a socket what VPP sends to the collector, and drops all else that VPP sent, until ctx ends.
func (l *lab) pass(ctx context.Context, to net.Addr) (<-chan struct{}, error) {
	out, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer out.Close()
		for ctx.Err() == nil {
			l.frames.mu.Lock()
			got := l.frames.got
			l.frames.got = nil
			l.frames.mu.Unlock()
			for _, c := range got {
				if len(c.raw) > 28 && c.raw[9] == uint8(model.UDP) && binary.BigEndian.Uint16(c.raw[22:]) == theCollector.Port() {
					_, _ = out.WriteTo(c.raw[28:binary.BigEndian.Uint16(c.raw[2:])], to) // what is lost is missed below
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return done, nil
}

// manyFlow is a connection, or a packet that is denied, and the reason that flows must have for it.
type manyFlow struct {
	in     string
	packet packet.Packet
	answer bool // the other end answers, later
	want   string
}

// manyFlows are n connections of five kinds, all different.
func manyFlows(n uint64, door string) (out []manyFlow) {
	const addrs = 40
	web := netip.MustParseAddr("10.1.1.2")
	for i := range int(n) {
		port := uint16(1024 + i/(5*addrs))
		at := func(network string) netip.AddrPort { // one of few addresses, so that an answer has all flows
			return netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf("%s.%d", network, 1+i/5%addrs)), port)
		}
		f := manyFlow{in: cni.Uplink, want: "allowed by NetworkPolicy default/web ingress rule 1"}
		switch i % 5 {
		case 0:
			f.packet = packet.NewTCP(at("10.2.0"), netip.AddrPortFrom(web, 80)).Opening()
		case 1:
			f.packet, f.answer = packet.NewTCP(at("10.2.1"), netip.AddrPortFrom(web, 80)).Opening(), true
		case 2:
			f.packet, f.want = packet.NewUDP(at("10.4.0"), netip.AddrPortFrom(web, 53)), "allowed by NetworkPolicy default/web ingress rule 2"
		case 3:
			f.packet, f.want = packet.NewTCP(at("10.2.9"), netip.AddrPortFrom(web, 80)).Opening(), "denied: NetworkPolicy default/web isolates default/web for ingress and no rule allows it"
		case 4:
			f.in, f.want = door, "denied by AdminNetworkPolicy guard egress rule 2"
			f.packet = packet.NewUDP(netip.AddrPortFrom(web, port), netip.AddrPortFrom(at("10.3.7").Addr(), 53))
		}
		out = append(out, f)
	}
	return out
}

// answerOf is the packet by which the other end of TCP answers the first one.
func answerOf(p packet.Packet) packet.Packet {
	return packet.NewTCP(netip.AddrPortFrom(p.Dst, p.DstPort), netip.AddrPortFrom(p.Src, p.SrcPort)).Phase(packet.SYN|packet.ACK, packet.Init)
}

// TestVPPFlowsProbed: of many connections and denied packets, flowprobe and the capture show nearly all, each with the rule that decided.
func TestVPPFlowsProbed(t *testing.T) {
	path := theVPP(t)
	needFlowprobe(t, path)
	l, web, dir := labWithWeb(t, path, flowObjects, "flowprobe_plugin.so")
	watcher := newWatcher(250*time.Millisecond, l.probed(t))
	l.runWatched(t, dir, watcher)
	door := cni.PodInterface(web.ID)
	l.awaitSource(t, watcher, agentflows.ByProbe, web)
	want := l.sendMany(t, manyFlows(oracle.Setting(t, "CONTIV_VPP_CONNECTIONS", 4000), door), door, agentflows.ByProbe)
	checkMany(t, watcher, want, agentflows.ByProbe)
	l.measureDenials(t, watcher)
}

// needFlowprobe skips a test if VPP is built without flowprobe.
func needFlowprobe(t testing.TB, path string) {
	t.Helper()
	if isSimulated(path) {
		return
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(path), "../lib/x86_64-linux-gnu/vpp_plugins/flowprobe_plugin.so")); err != nil {
		t.Skipf("this VPP is built without flowprobe: %v", err)
	}
}

const twoPods = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: next, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}], phase: Running}
`

// TestVPPFlowsProbedAgain: flowprobe counts the packets to a pod whose interface has the index of one that was deleted. VPP keeps the former one's setting, and counts nothing.
func TestVPPFlowsProbedAgain(t *testing.T) {
	path := theVPP(t)
	needFlowprobe(t, path)
	l, err := openLab(path, "flowprobe_plugin.so")
	t.Cleanup(l.close)
	web, next := podAt("web", "node-1", "10.1.1.2"), podAt("next", "node-1", "10.1.1.3")
	network := cni.New(l, "node-1")
	dir := t.TempDir()
	if err == nil {
		err = errors.Join(network.Apply(puts([]model.Object{nodeAt(1), web})), l.err, os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(twoPods), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	watcher := newWatcher(250*time.Millisecond, l.probed(t))
	l.runWatched(t, dir, watcher)
	l.awaitSource(t, watcher, agentflows.ByProbe, web)
	was := l.index[cni.PodInterface(web.ID)]
	err = network.Apply([]event.Change{{Ref: web.Ref()}, {Ref: next.Ref(), Object: next}})
	if is := l.index[cni.PodInterface(next.ID)]; err != nil || l.err != nil || is != was {
		t.Fatalf("%v, %v, index %d instead of %d", err, l.err, is, was)
	}
	l.awaitSource(t, watcher, agentflows.ByProbe, next)
}

const bothFamilies = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24, "2001:db8:1::/64"]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}, {ip: "2001:db8:1::2"}], phase: Running}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  ingress:
  - {from: [{ipBlock: {cidr: "2001:db8:2::/48"}}]}
  - {from: [{ipBlock: {cidr: 10.2.0.0/16}}]}
`

// TestVPPFlowsProbedIPv6: flowprobe counts each packet of both families once, and what a list denies is no connection.
func TestVPPFlowsProbedIPv6(t *testing.T) {
	path := theVPP(t)
	needFlowprobe(t, path)
	l, err := openLab(path, "flowprobe_plugin.so")
	t.Cleanup(l.close)
	web := podAt("web", "node-1", "10.1.1.2")
	web.IPs = append(web.IPs, netip.MustParseAddr("2001:db8:1::2"))
	if err == nil {
		err = errors.Join(cni.New(l, "node-1").Apply(puts([]model.Object{nodeAt(1), web})), l.err)
	}
	dir := t.TempDir()
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(bothFamilies), 0o600)); err != nil {
		t.Fatal(err)
	}
	watcher := newWatcher(250*time.Millisecond, l.probed(t))
	l.runWatched(t, dir, watcher)
	want := map[string]string{
		"10.2.0.7":      "allowed by NetworkPolicy default/web ingress rule 2",
		"2001:db8:2::7": "allowed by NetworkPolicy default/web ingress rule 1",
	}
	got := map[string]flows.Flow{}
	for port := uint16(1000); len(got) < len(want); port++ {
		for from, to := range map[string]string{"10.2.0.7": "10.1.1.2", "2001:db8:2::7": "2001:db8:1::2", "2001:db8:9::7": "2001:db8:1::2"} {
			p := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr(from), port), netip.AddrPortFrom(netip.MustParseAddr(to), 80)).Opening()
			if err := l.frames.put(l.pairs[cni.Uplink], p); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		answer, err := watcher.Ask(t.Context(), 0, &flows.Filter{Verdict: flows.Allowed, To: "default/web"})
		if err != nil || port > 1000+uint16(patience/time.Second) {
			t.Fatalf("flowprobe shows %v, %v, %v", got, answer, err)
		}
		for _, f := range answer.Flows {
			if f.SeenBy == agentflows.ByProbe && f.Connections > 0 {
				got[f.Source.Address.String()] = f
			}
		}
	}
	for from, f := range got {
		if f.Decision.Text != want[from] || f.Packets != f.Connections {
			t.Errorf("%s; want %q, and as many packets as connections", &f, want[from])
		}
	}
}

// measureDenials logs how long after a denied packet flows show it.
func (l *lab) measureDenials(t *testing.T, watcher *agentflows.Watcher) {
	t.Helper()
	var delays []time.Duration
	answer, err := watcher.Ask(t.Context(), 0, nil)
	for i := range uint16(40) {
		p := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr("10.2.9.1"), 900+i), netip.MustParseAddrPort("10.1.1.2:80")).Opening()
		if err = errors.Join(err, l.frames.put(l.pairs[cni.Uplink], p)); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for shown := false; !shown; time.Sleep(2 * time.Millisecond) {
			if answer, err = watcher.Ask(t.Context(), answer.Next, &flows.Filter{Verdict: flows.Dropped, From: "10.2.9.1"}); err != nil || time.Since(begin) > patience {
				t.Fatalf("a denial is not shown: %v", err)
			}
			shown = len(answer.Flows) > 0
		}
		delays = append(delays, time.Since(begin).Round(time.Millisecond))
	}
	slices.Sort(delays)
	t.Logf("a denial is shown after %s (median), %s (90 %%), %s (longest)", delays[len(delays)/2], delays[len(delays)*9/10], delays[len(delays)-1])
}

// probed returns flowprobe's collector.
func (l *lab) probed(t *testing.T) *agentflows.Probe {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	passed, err := l.pass(ctx, conn.LocalAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); <-passed })
	return &agentflows.Probe{
		Target:    flowprobe.Target{Collector: theCollector, Exporter: theExporter},
		Collector: flowprobe.NewCollector(func() (net.PacketConn, error) { return conn, nil }, netip.MustParseAddr("127.0.0.1")),
	}
}

// awaitSource sends connections to a pod, one after the other, until a source of flows shows one: the agent has finished its first sync then.
func (l *lab) awaitSource(t *testing.T, watcher *agentflows.Watcher, by string, to *model.Pod) {
	t.Helper()
	for i := range uint16(patience / time.Second) {
		p := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr("10.2.3.1"), 1000+i), netip.AddrPortFrom(to.IPs[0], 80)).Opening()
		if err := l.frames.put(l.pairs[cni.Uplink], p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		answer, err := watcher.Ask(t.Context(), 0, &flows.Filter{Verdict: flows.Allowed, From: "10.2.3.1", To: to.ID.String()})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range answer.Flows {
			if f.SeenBy == by && f.Connections > 0 {
				return
			}
		}
	}
	t.Fatalf("%s shows nothing", by)
}

// sightings are connections, or denied packets, with one reason, and the packets of both directions.
type sightings struct{ connections, packets uint64 }

// sendMany sends the connections at a rate, and returns what flows by a source must show for each reason. NAT44 counts a packet that a pod sends to another node twice.
func (l *lab) sendMany(t *testing.T, all []manyFlow, door, by string) map[string]sightings {
	t.Helper()
	perAnswer := uint64(1)
	if by == agentflows.BySessions {
		perAnswer = 2
	}
	pause := time.Second / time.Duration(oracle.Setting(t, "CONTIV_VPP_RATE", 1000))
	want := map[string]sightings{}
	begin := time.Now()
	for i := range all {
		f, m := &all[i], want[all[i].want]
		m.connections, m.packets = m.connections+1, m.packets+1
		if err := l.frames.put(l.pairs[f.in], f.packet); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(begin.Add(time.Duration(i) * pause)))
		if f.answer {
			m.packets += perAnswer
		}
		want[f.want] = m
		l.answerMany(t, all, i-answersLater, door)
	}
	time.Sleep(time.Second)
	for i := range answersLater {
		l.answerMany(t, all, len(all)-answersLater+i, door)
	}
	t.Logf("%d connections in %s", len(all), time.Since(begin))
	return want
}

// answersLater is how many connections later the other end answers: VPP has to make the session first.
const answersLater = 1000

// answerMany sends the answer of a connection, if there is one.
func (l *lab) answerMany(t *testing.T, all []manyFlow, i int, door string) {
	t.Helper()
	if i < 0 || !all[i].answer {
		return
	}
	if err := l.frames.put(l.pairs[door], answerOf(all[i].packet)); err != nil {
		t.Fatal(err)
	}
}

// checkMany checks that a source shows at least 99.9 %, and that nothing is shown with another reason or by another source.
func checkMany(t *testing.T, watcher *agentflows.Watcher, want map[string]sightings, by string) {
	t.Helper()
	var got map[string]sightings
	var answer *agentflows.Answer
	for end := time.Now().Add(patience); ; time.Sleep(time.Second) {
		got, answer = sightingsOf(t, watcher, by)
		enough := true
		for why, w := range want {
			enough = enough && got[why].connections*1000 >= w.connections*999 && got[why].packets*1000 >= w.packets*999
		}
		if enough || time.Now().After(end) {
			break
		}
	}
	for why, w := range want {
		g := got[why]
		t.Logf("%d of %d connections, %d of %d packets: %s", g.connections, w.connections, g.packets, w.packets, why)
		if g.connections > w.connections || g.connections*1000 < w.connections*999 || g.packets > w.packets || g.packets*1000 < w.packets*999 {
			t.Errorf("%s: %+v, want %+v", why, g, w)
		}
		delete(got, why)
	}
	if len(got) > 0 || answer.Forgotten > 0 {
		t.Errorf("other reasons: %+v; forgotten %d", got, answer.Forgotten)
	}
	t.Logf("%+v", answer.Sources)
}

// sightingsOf returns what flows of the pod web show for each reason, connections of another source with its name. Those that NAT44 translates are not among them: sessions or
// flowprobe have the same.
func sightingsOf(t *testing.T, watcher *agentflows.Watcher, by string) (map[string]sightings, *agentflows.Answer) {
	t.Helper()
	answer, err := watcher.Ask(t.Context(), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]sightings{}
	for i := range answer.Flows {
		f := &answer.Flows[i]
		if f.Destination.String() != "default/web" && f.Source.String() != "default/web" || f.SeenBy == agentflows.ByNAT || f.Source.Address.String() == "10.2.3.1" {
			continue
		}
		why := f.Decision.Text
		if f.Verdict != flows.Dropped && f.SeenBy != by {
			why = f.SeenBy + ": " + why
		}
		m := got[why]
		m.packets += f.Packets
		if m.connections += f.Connections; f.Verdict == flows.Dropped {
			m.connections += f.Packets
		}
		got[why] = m
	}
	return got, answer
}
