package kube

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkKubeProxy changes one EndpointSlice after the other at a real API server, and sees when kube-proxy has the change in the kernel
// and when the agent has it in VPP. One runs at a time, all against the same API server in the same network namespace, and the next
// change comes up to gap after the last one is programmed.
func BenchmarkKubeProxy(b *testing.B) {
	c := newCluster(b)
	l := newLoad(b, c, 2)
	for _, services := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			l.grow(b, services)
			changes := 20
			if services >= 10000 {
				changes = 10
			}
			b.Run("agent=sim", func(b *testing.B) { startAgent(b, c, "sim", startSim(b, c)).measure(b, l, 100) })
			if vpp := os.Getenv("CONTIV_VPP"); vpp != "" {
				b.Run("agent=vpp", func(b *testing.B) { startAgent(b, c, "vpp", startVPP(b, vpp)).measure(b, l, 100) })
			}
			b.Run("kube-proxy=1s", func(b *testing.B) { startProxy(b, c, nftables(b), "1s").measure(b, l, changes) })
			b.Run("kube-proxy=1ns", func(b *testing.B) { startProxy(b, c, nftables(b), "1ns").measure(b, l, changes) })
			b.Run("kube-proxy-iptables=1s", func(b *testing.B) { startProxy(b, c, iptables(b), "1s").measure(b, l, changes) })
			b.Run("kube-proxy-iptables=1ns", func(b *testing.B) { startProxy(b, c, iptables(b), "1ns").measure(b, l, changes) })
		})
	}
}

const (
	gap    = 500 * time.Millisecond // at most, between a change that is programmed and the next one
	settle = 3 * time.Second        // after the last change: what a program tidies up later is work for changes, too
)

// subject is what is measured.
type subject struct {
	witness witness
	all     []*process // itself, and its VPP if that is one of ours
	ready   time.Duration
}

// measure reports the latency, the processor time of a change, that of the same time without changes, and memory.
func (s *subject) measure(b *testing.B, l *load, changes int) {
	random := rand.New(rand.NewPCG(1, 2))
	var late []time.Duration
	var before []time.Duration
	var began time.Time
	for n := -3; n < changes; n++ { // the first ones warm caches and connections
		if n == 0 {
			time.Sleep(settle)
			began, before = time.Now(), s.cpu(b)
		}
		took, err := l.replace(s.witness, random.IntN(len(l.slices)))
		if err != nil {
			b.Fatal(err)
		}
		if n >= 0 {
			late = append(late, took)
		}
		time.Sleep(time.Duration(random.Int64N(int64(gap))))
	}
	time.Sleep(settle)
	after := s.cpu(b)
	time.Sleep(time.Since(began)) // the work of the same time without changes: what is checked or renewed periodically
	idle := s.cpu(b)[0] - after[0]
	slices.Sort(late)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(late[len(late)/2]), "p50-ms")
	b.ReportMetric(ms(late[len(late)-1]), "max-ms")
	b.ReportMetric(ms(after[0]-before[0])/float64(changes), "cpu-ms/change")
	b.ReportMetric(ms(idle)/float64(changes), "idle-cpu-ms/change")
	if len(s.all) > 1 {
		b.ReportMetric(ms(after[1]-before[1])/float64(changes), "vpp-cpu-ms/change")
	}
	now, most := resident(b, s.all[0].pid())
	b.ReportMetric(now, "MB")
	b.ReportMetric(most, "peak-MB")
	b.ReportMetric(s.ready.Seconds(), "ready-s")
	b.ReportMetric(0, "ns/op")
}

func (s *subject) cpu(t testing.TB) (out []time.Duration) {
	for _, p := range s.all {
		out = append(out, cpu(t, p.pid()))
	}
	return out
}

// startProxy starts a kube-proxy in a mode that waits that long between two syncs, and waits until it has programmed everything. In its
// configuration 0 stands for the default of 1s: the shortest there is is 1ns.
func startProxy(t testing.TB, c *cluster, m mode, minSyncPeriod string) *subject {
	t.Helper()
	m.flush()
	metrics, health := freePort(t), freePort(t)
	c.write("proxy.yaml", fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
mode: %s
hostnameOverride: %s
clusterCIDR: %s
%[2]s: {minSyncPeriod: %[5]s}
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}
metricsBindAddress: 127.0.0.1:%[6]d
healthzBindAddress: 127.0.0.1:%[7]d
`, c.path("admin.kubeconfig"), m.name, loadNode, podRange, minSyncPeriod, metrics, health))
	began := time.Now()
	cmd := exec.Command(built.proxy, "--config", c.path("proxy.yaml"))
	cmd.Env = append(os.Environ(), m.env...)
	p := start(t, "kube-proxy", cmd)
	eventually(t, "first sync of kube-proxy", func() error {
		text, err := get(fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics))
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, `kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"}`) && !strings.HasSuffix(line, " 0\n") {
				return nil
			}
		}
		return fmt.Errorf("no full sync yet:\n%s", p.tail())
	}, p)
	ready := time.Since(began)
	t.Cleanup(func() { p.kill(); m.flush() })
	return &subject{witness: m.witness, all: []*process{p}, ready: ready}
}

// target is a VPP for an agent.
type target struct {
	socket                string
	process               *process // nil: its processor time says nothing
	uplink, overlay, host string   // interfaces
}

// startSim starts the VPP in Go in a separate process.
func startSim(t testing.TB, c *cluster) target {
	t.Helper()
	dir := shortDir(t)
	c.write("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: "+loadNode+"}\nspec: {podCIDR: 10.240.1.0/24}\n"+
		"status: {addresses: [{type: InternalIP, address: 192.168.77.1}]}\n")
	socket := filepath.Join(dir, "sim.sock")
	p := start(t, "sim", exec.Command(built.agent, "sim", "--socket", socket, "--node", loadNode, "--manifests", c.path("node.yaml")))
	eventually(t, "sim", func() error { _, err := os.Stat(socket); return err }, p)
	return target{socket: socket, process: p, uplink: "uplink", overlay: "overlay", host: "host"}
}

// startVPP starts a real VPP with loopbacks as interfaces: no packet is sent here. It polls, so that its processor time says nothing.
func startVPP(t testing.TB, binary string) target {
	t.Helper()
	dir := shortDir(t)
	setup := "create loopback interface instance 0\nset interface state loop0 up\nset interface ip address loop0 169.254.1.1/32\n"
	for n := 1; n <= 3; n++ {
		setup += fmt.Sprintf("create loopback interface instance %d\nset interface state loop%[1]d up\nset interface unnumbered loop%[1]d use loop0\n", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "setup"), []byte(setup), 0o600); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "api.sock")
	p := start(t, "vpp", exec.Command(binary,
		"unix", "{", "nodaemon", "startup-config", dir+"/setup", "cli-listen", dir+"/cli.sock", "runtime-dir", dir, "log", dir+"/vpp.log", "poll-sleep-usec", "50", "}",
		"api-segment", "{", "prefix", filepath.Base(dir), "global-size", "64M", "api-size", "16M", "}",
		"socksvr", "{", "socket-name", socket, "}", "statseg", "{", "socket-name", dir+"/stats.sock", "size", "64M", "page-size", "4k", "}",
		"memory", "{", "main-heap-size", "1G", "main-heap-page-size", "4k", "}", "buffers", "{", "buffers-per-numa", "16384", "page-size", "4k", "}",
		"plugins", "{", "plugin", "default", "{", "disable", "}", "plugin", "nat_plugin.so", "{", "enable", "}", "plugin", "acl_plugin.so", "{", "enable", "}", "}"))
	eventually(t, "API socket of VPP", func() error { _, err := os.Stat(socket); return err }, p)
	return target{socket: socket, uplink: "loop1", overlay: "loop2", host: "loop3"}
}

// startAgent starts the agent under a relay in front of a VPP, and waits until it is in sync.
func startAgent(t testing.TB, c *cluster, name string, v target) *subject {
	t.Helper()
	r := newRelay(t, v.socket)
	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	began := time.Now()
	p := start(t, "contiv-agent", exec.Command(built.agent, "run", "--kubeconfig", c.path("admin.kubeconfig"), "--node", loadNode,
		"--vpp-socket", r.socket, "--stats-socket", "", "--journal", filepath.Join(filepath.Dir(r.socket), "journal"), "--status-socket", "",
		"--service-cidr", serviceRange, "--uplink", v.uplink, "--overlay", v.overlay, "--host-interface", v.host, "--listen", listen))
	eventually(t, "agent in sync", func() error { _, err := get("http://" + listen + "/readyz"); return err }, p)
	s := &subject{witness: r, all: []*process{p}, ready: time.Since(began)}
	if v.process != nil {
		s.all = append(s.all, v.process)
	}
	t.Logf("%s: in sync after %s", name, s.ready.Round(time.Millisecond))
	return s
}
