package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/core"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
	"github.com/contiv-agent/contiv-agent/test/startup"
)

// testSpace is the namespace of kubectl contiv connectivity test.
const testSpace = "contiv-connectivity-test"

// fault is something that operators break, and what the test has to say of it.
type fault struct {
	name  string
	flags []string // of the test
	plant func(t *testing.T, s *site) (remove func())
	check string   // that fails
	cause []string // texts of one of its causes
}

// faults, in an order in which the last ones may leave something on node-2 that only a new agent repairs.
var faults = []fault{
	{"the link of node-2 has a small MTU", []string{"--checks", "pods"}, smallMTU, "other node, full-size packets, IPv4", []string{
		"large packets are lost between node-1 and node-2, small ones arrive", "MTU of 1450 bytes, and packets of up to 1354 pass", "set --link-mtu 1404", // a bridge lets four bytes more pass, for a VLAN
	}},
	{"VPP of node-1 lost the route to pods of node-2", []string{"--checks", "pods,hosts"}, missingRoute, "other node, TCP, IPv4", []string{
		"pods of node-1 and node-2 do not reach each other", "VPP or the kernel of node-1 is not as its agent wants it", "10.1.2.0/24",
	}},
	{"a firewall drops VXLAN between node-1 and node-2", []string{"--checks", "pods,hosts"}, blockedTunnel, "other node, UDP, IPv4", []string{
		"the nodes themselves do", "something drops VXLAN (UDP port 4789) between 192.168.16.1 and 192.168.16.2",
	}},
	{"node-1 and node-3 do not reach each other", []string{"--checks", "pods,hosts"}, blockedNodes, "node to node, TCP, IPv4", []string{
		"node-1 and node-3 do not reach each other at 192.168.16.1 and 192.168.16.3",
	}},
	{"a policy denies DNS", []string{"--checks", "dns"}, deniedDNS, "kubernetes.default", []string{
		"the packet does not pass", "NetworkPolicy kube-system/deny-all",
	}},
	{"an endpoint of a Service is gone", []string{"--checks", "services"}, goneEndpoint, "ClusterIP, TCP, from pods, IPv4", []string{
		"Service cluster-ip has an endpoint that does not exist", "EndpointSlice contiv-connectivity-test/stale has the endpoint 10.1.3.250",
	}},
	{"a firewall of node-2 drops a node port", []string{"--checks", "services"}, blockedNodePort, "NodePort, TCP, from nodes, IPv4", []string{
		"the node port is not answered at 192.168.16.2:", "a firewall drops the port before VPP gets the packets",
	}},
	{"VPP of node-3 hangs", []string{"--checks", "agents,pods"}, stoppedVPP, "in sync, VPP connected", []string{
		"VPP of node-3 does not run, or hangs",
	}},
	{"the interface of a pod is down", []string{"--checks", "pods,hosts"}, downInterface, "other node, TCP, IPv4", []string{
		"pod-node-3 has no network: its link eth0 is down",
	}},
	{"the host link of node-2 is down", []string{"--checks", "pods,hosts"}, downHostLink, "node to pods, TCP, IPv4", []string{
		"processes of node-2 reach no pod, and pods reach each other: the host link is down",
	}},
	{"the agent of node-2 does not start", []string{"--checks", "agents"}, crashingAgent, "in sync, VPP connected", []string{
		"the agent of node-2 is down",
	}},
}

// TestConnectivity is kubectl contiv connectivity test on real nodes with both families: it passes, and names each of the faults that are planted.
func TestConnectivity(t *testing.T) {
	if !aloneAsRoot(t) {
		return
	}
	s := newSite(t, "testdata/dual.yaml", nodes, dualStack, agentsWith("--recheck", "0"))
	t.Run("without DNS", s.withoutDNS)
	s.kubectl(nil, "apply", "-f", "testdata/dns.yaml")
	eventually(t, "Pods ready", func() error { return s.podsReady(t, "kube-system") }, s.kubelets()...)
	t.Run("passes", s.passes)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { s.names(t, &f) })
	}
	t.Run("interrupted", s.interrupted)
}

// connectivity runs the test in the namespace that an earlier run has left.
func (s *site) connectivity(args ...string) (stdout, stderr string, code int) {
	return s.kubectlAs(append([]string{"contiv", "connectivity", "test", "--keep"}, args...)...)
}

func (s *site) withoutDNS(t *testing.T) {
	stdout, stderr, code := s.connectivity("--checks", "dns")
	if code != 0 || !strings.Contains(stdout, "skipped  dns") || !strings.Contains(stdout, "no cluster DNS found: pods ask 10.96.0.10, and no Service has this address") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
}

// passes has no failure, and a check of each group in each family.
func (s *site) passes(t *testing.T) {
	began := time.Now()
	stdout, stderr, code := s.connectivity()
	t.Logf("%s: exit code %d\n%s%s", time.Since(began).Round(time.Second/10), code, stdout, stderr)
	if code != 0 || !strings.Contains(stdout, " 0 failed, 0 skipped") {
		t.Error("not all checks are ok")
	}
	for _, want := range []string{
		"agents    in sync, VPP connected", "pods      other node, full-size packets, IPv4", "pods      other node, ICMP, IPv6", "hosts     node to pods, UDP, IPv6",
		"services  externalTrafficPolicy Local, IPv4", "services  session affinity, IPv6", "services  without endpoints: refused, IPv6", "services  API server, from pods",
		"dns       headless Service", "policies  default deny, IPv6", "policies  a revoked connection ends, IPv4",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no check %q", want)
		}
	}
}

// names plants a fault: the test fails at the check, with the cause.
func (s *site) names(t *testing.T, f *fault) {
	defer f.plant(t, s)()
	began := time.Now()
	stdout, stderr, code := s.connectivity(append(f.flags, "--limit", "1s", "-o", "json")...)
	if code != 3 {
		t.Errorf("exit code %d, want 3\n%s", code, stderr)
	}
	var report struct {
		Passed bool
		Checks []struct {
			Check, State string
			Causes       []string
		}
	}
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || report.Passed {
		t.Fatalf("passed: %t, %v\n%s%s", report.Passed, err, stdout, stderr)
	}
	for _, c := range report.Checks {
		if c.Check != f.check {
			continue
		}
		for _, cause := range c.Causes {
			if containsAll(cause, f.cause) {
				t.Logf("%s: %s", time.Since(began).Round(time.Second/10), cause)
				return
			}
		}
		t.Fatalf("%s is %s, and no cause has %q\n%s", c.Check, c.State, f.cause, stdout)
	}
	t.Fatalf("no check %q\n%s", f.check, stdout)
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// interrupted removes the namespace, and does not claim success.
func (s *site) interrupted(t *testing.T) {
	cmd := exec.Command(filepath.Join(s.bin, "kubectl-contiv"), "connectivity", "test", "--kubeconfig", s.path("admin.kubeconfig"), "--checks", "pods")
	cmd.Env = append(os.Environ(), "KUBECTL="+filepath.Join(s.bin, "kubectl"))
	p := start(t, "connectivity test", cmd)
	eventually(t, "its pods run", func() error {
		if !p.wrote("pods      start") {
			return errors.New("they do not")
		}
		return nil
	}, p)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code := cmd.ProcessState.ExitCode(); code != 1 || !p.wrote("interrupted") {
		t.Errorf("exit code %d\n%s", code, p.all())
	}
	if _, err := s.client.CoreV1().Namespaces().Get(t.Context(), testSpace, metav1.GetOptions{}); err == nil {
		t.Error("the namespace is left")
	}
}

// nft changes rules of a node. Without the program nft the fault is skipped.
func nft(t *testing.T, n *siteNode, rules string) (remove func()) {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skipf("a firewall as a fault needs Debian's package nftables: %v", err)
	}
	run := func(text string) {
		t.Helper()
		err := netns.Do(n.netns, func() error {
			cmd := exec.Command("nft", "-f", "-")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	run("table inet firewall { chain early { type filter hook prerouting priority -500; " + rules + "; }; }")
	return func() { run("delete table inet firewall") }
}

// link changes a link in a network namespace, "": this one.
func link(t *testing.T, file, change string) {
	t.Helper()
	if err := netns.IP(file, "link set "+change+"\n"); err != nil {
		t.Fatal(err)
	}
}

func smallMTU(t *testing.T, _ *site) func() {
	link(t, "", bridge+"-2 mtu 1400")
	return func() { link(t, "", bridge+"-2 mtu 1500") }
}

func missingRoute(t *testing.T, s *site) func() {
	conn, err := core.Connect(socketclient.NewVppClient(s.nodes[0].file(startup.API)))
	if err != nil {
		t.Fatal(err)
	}
	channel, err := conn.NewAPIChannel()
	if err != nil {
		t.Fatal(err)
	}
	prefix, err := ip_types.ParsePrefix("10.1.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	found := &ip.IPRouteLookupReply{}
	if err := channel.SendRequest(&ip.IPRouteLookup{Exact: 1, Prefix: prefix}).ReceiveReply(found); err != nil {
		t.Fatal(err)
	}
	change := func(add bool) {
		if err := channel.SendRequest(&ip.IPRouteAddDel{IsAdd: add, Route: found.Route}).ReceiveReply(&ip.IPRouteAddDelReply{}); err != nil {
			t.Fatal(err)
		}
	}
	change(false)
	return func() {
		change(true)
		channel.Close()
		conn.Disconnect()
	}
}

func blockedTunnel(t *testing.T, s *site) func() {
	return nft(t, s.nodes[0], "ip saddr 192.168.16.2 udp dport 4789 drop")
}

func blockedNodes(t *testing.T, s *site) func() {
	return nft(t, s.nodes[0], "ip saddr 192.168.16.3 drop; ip6 saddr fd16::3 drop")
}

func deniedDNS(t *testing.T, s *site) func() {
	s.apply(t, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny-all, namespace: kube-system}
spec: {podSelector: {}, policyTypes: [Ingress]}
`)
	return func() { s.wants(t, 0, "", "", "delete", "networkpolicy", "-n", "kube-system", "deny-all") }
}

func goneEndpoint(t *testing.T, s *site) func() {
	s.apply(t, `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: stale, namespace: `+testSpace+`, labels: {kubernetes.io/service-name: cluster-ip}}
addressType: IPv4
ports: [{name: tcp, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.1.3.250], conditions: {ready: true}}]
`)
	return func() { s.wants(t, 0, "", "", "delete", "endpointslice", "-n", testSpace, "stale") }
}

func blockedNodePort(t *testing.T, s *site) func() {
	svc, err := s.client.CoreV1().Services(testSpace).Get(t.Context(), "node-port", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return nft(t, s.nodes[1], fmt.Sprintf("tcp dport %d drop", svc.Spec.Ports[0].NodePort))
}

// downInterface sets the interface of a test pod down, in its network namespace. The pod is deleted afterwards.
func downInterface(t *testing.T, s *site) func() {
	n := s.nodes[2]
	address := s.pod(t, testSpace, "pod-"+n.name).Status.PodIP
	all, err := filepath.Glob(n.file("kubelet/netns/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		var out []byte
		if err := netns.Do(file, func() (err error) { out, err = exec.Command("ip", "-o", "addr").Output(); return err }); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), " "+address+"/") {
			link(t, file, "eth0 down")
			return func() { s.wants(t, 0, "", "", "delete", "pod", "-n", testSpace, "pod-"+n.name, "--grace-period=1") }
		}
	}
	t.Fatalf("no namespace has %s", address)
	return nil
}

// stoppedVPP stops the process of a VPP.
func stoppedVPP(t *testing.T, s *site) func() {
	its := "\x00--host-interfaces\x00" // the simulated VPP's
	if path := realVPP(); path != "" {
		its = path + "\x00"
	}
	pid, err := findProcess(its, s.nodes[2].dir)
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGSTOP)
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent notices", func() error {
		if out, _, code := s.kubectlAs("contiv", "status", "--node", s.nodes[2].name); code == 0 {
			return errors.New(out)
		}
		return nil
	})
	return func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		s.inSync(t, s.nodes[2])
	}
}

func (s *site) inSync(t *testing.T, n *siteNode) {
	t.Helper()
	eventually(t, "agent of "+n.name+" in sync", func() error {
		if out, complaint, code := s.kubectlAs("contiv", "status", "--node", n.name); code != 0 {
			return errors.New(out + complaint)
		}
		return nil
	}, s.kubelets()...)
}

func downHostLink(t *testing.T, s *site) func() {
	link(t, s.nodes[1].netns, "contiv-host down")
	return func() { link(t, s.nodes[1].netns, "contiv-host up") }
}

// crashingAgent kills an agent twice: the kubelet then waits before it starts the next.
func crashingAgent(t *testing.T, s *site) func() {
	n := s.nodes[1]
	for life := range int32(2) {
		eventually(t, "the agent runs", func() error {
			for _, c := range s.pod(t, agentSpace, n.pod()).Status.ContainerStatuses {
				if c.Name == "agent" && c.RestartCount == life && c.State.Running != nil {
					return nil
				}
			}
			return errors.New("it does not")
		}, s.kubelets()...)
		eventually(t, "its process", func() error {
			pid, err := findProcess("\x00run\x00--cni\x00", "\x00--node\x00"+n.name+"\x00")
			if err == nil {
				err = syscall.Kill(pid, syscall.SIGKILL)
			}
			return err
		}, s.kubelets()...)
	}
	eventually(t, "back-off", func() error {
		for _, c := range s.pod(t, agentSpace, n.pod()).Status.ContainerStatuses {
			if c.Name == "agent" && c.State.Waiting != nil {
				return nil
			}
		}
		return errors.New("it is not seen yet")
	}, s.kubelets()...)
	return func() { s.inSync(t, n) }
}

// findProcess finds a process by texts of its command line. This test has started it: other tests, and the machine, may have agents of nodes with the same names.
func findProcess(texts ...string) (int, error) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		var pid int
		if err == nil && containsAll(string(text), texts) {
			if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err == nil && descendsFrom(pid, os.Getpid()) {
				return pid, nil
			}
		}
	}
	return 0, fmt.Errorf("no process of this test has %q", texts)
}

// descendsFrom reports that a process is another one, or that its parent descends from the other one.
func descendsFrom(pid, other int) bool {
	for pid > 1 && pid != other {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false // it has ended
		}
		var state rune
		if _, err := fmt.Sscanf(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " %c %d", &state, &pid); err != nil { // proc_pid_stat(5): PID (COMMAND) STATE PARENT
			return false
		}
	}
	return pid == other
}

// TestFindProcess: a process with the line that is looked for is found if this test has started it.
func TestFindProcess(t *testing.T) {
	sleep := exec.Command("sh", "-c", "sleep 1000.125 & exec sleep 1000.25")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleep.Wait()                          // killed
	defer func() { _ = sleep.Process.Kill() }() // it may have ended
	eventually(t, "a child", func() error { _, err := findProcess("sleep\x001000.25\x00"); return err })
	var child int
	eventually(t, "a child of a child", func() (err error) { child, err = findProcess("sleep\x001000.125\x00"); return err })
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }() // it may have ended
	if !descendsFrom(child, child) || descendsFrom(os.Getppid(), os.Getpid()) || descendsFrom(1, os.Getpid()) {
		t.Error("a process descends from its child, or does not from itself")
	}
	_ = sleep.Process.Kill() // another process adopts its child
	_ = sleep.Wait()         // killed
	if pid, err := findProcess("sleep\x001000.125\x00"); err == nil {
		t.Errorf("process %d is found, which another one has adopted", pid)
	}
}
