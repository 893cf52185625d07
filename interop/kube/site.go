package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/interop/kube/kubelet"
	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
	"github.com/contiv-agent/contiv-agent/test/startup"
)

// site is a cluster with real nodes and real Pods: each node is a network namespace with a NIC, a kubelet, a VPP and an agent. This process's
// own namespace has the other end of the NICs, and the API server.
//
//	this namespace                                        node-1 (a namespace)                                  node-2, node-3
//	┌──────────────────────────────┐                     ┌───────────────────────────────────────────────┐
//	│ etcd, kube-apiserver,        │                     │ kubelet ── starts ──▶ contiv-vswitch-node-1:  │
//	│ kube-controller-manager,     │                     │    │                     vpp, contiv-agent    │
//	│ kube-scheduler               │                     │    └── contiv-cni ──▶ namespaces of Pods      │
//	│        br 192.168.16.100 ────┼── eth0 ─────────────┤ 192.168.16.1                                  │
//	└──────────────────────────────┘                     └───────────────────────────────────────────────┘
type site struct {
	*cluster
	nodes     []*siteNode
	scheduler *process
	bin       string // folder of programs for people: kubectl, contiv-agent, and kubectl-contiv

	dual       bool     // nodes have IPv6, too
	agentFlags []string // of agents beside those they always have
}

// dualStack gives a site IPv6 beside IPv4.
func dualStack(s *site) { s.dual, s.services = true, serviceRange+",fd00:10:96::/112" }

// agentsWith gives the agents of a site more flags.
func agentsWith(flags ...string) func(*site) {
	return func(s *site) { s.agentFlags = append(s.agentFlags, flags...) }
}

// siteNode is a node of a site.
type siteNode struct {
	name, address string
	dir           string // its files, with short names
	netns         string
	kubelet       *process
}

// The network between the nodes. The nodes' own addresses are those of the example.
const (
	bridge        = "contiv-kube"
	bridgeAddress = "192.168.16.100"
	nodesIPv6     = "fd16::" // of a site with both families; a node's address ends with its number
	apiPort       = 6443
	dnsAddress    = "10.96.0.10" // of the example's kube-dns
)

// apiClient is the name of the certificate by which kubelets know the API server.
const apiClient = "kube-apiserver-kubelet-client"

// newSite starts the API server, controllers, scheduler and nodes. It returns when the nodes are ready, which needs their agents. The nodes
// are those of the manifest.
func newSite(t tb, manifest string, names []string, options ...func(*site)) *site {
	t.Helper()
	s := newAPIServer(t, names, options...)
	stop := s.step("kube-controller-manager, kube-scheduler, Nodes")
	s.control("daemonset-controller", "job-controller", "node-lifecycle-controller", "root-ca-certificate-publisher-controller", "endpoints-controller")
	s.scheduler = s.schedule()
	s.kubectl(nil, "apply", "-f", "testdata/agent.yaml", "-f", "testdata/kubelet.yaml", "-f", manifest)
	s.routes()
	stop()
	s.programs()
	stop = s.step("a kubelet for each node, which starts VPP and contiv-agent, until the nodes are ready")
	for _, n := range s.nodes {
		s.agentPod(n)
		s.startKubelet(n)
	}
	s.nodesReady()
	stop()
	return s
}

// newAPIServer makes the network between the nodes, and starts the API server, which knows their kubelets.
func newAPIServer(t tb, names []string, options ...func(*site)) *site {
	t.Helper()
	s := &site{cluster: &cluster{t: t, dir: t.TempDir(), address: bridgeAddress, port: apiPort, users: people()}}
	for _, option := range options {
		option(s)
	}
	s.bin = s.path("bin")
	s.wire(names)
	ca := newAuthority(s.cluster)
	ca.client(apiClient)
	for _, n := range s.nodes {
		ca.server(n.name, n.address)
		s.users = append(s.users, newUser(n.name, "system:node:"+n.name, "system:nodes"))
	}
	s.more = []string{
		"--advertise-address", bridgeAddress, "--kubelet-certificate-authority", s.path("kubelet-ca.crt"), "--kubelet-preferred-address-types", "InternalIP",
		"--kubelet-client-certificate", s.path(apiClient + ".crt"), "--kubelet-client-key", s.path(apiClient + ".key"),
	}
	stop := s.step("etcd and kube-apiserver " + version)
	s.begin()
	stop()
	return s
}

// wire makes the network between the nodes.
func (s *site) wire(names []string) {
	s.t.Helper()
	for i, name := range names {
		s.nodes = append(s.nodes, &siteNode{name: name, address: fmt.Sprintf("192.168.16.%d", i+1), dir: shortDir(s.t)})
	}
	_ = netns.IP("", "link del "+bridge+"\n") // of a run that was killed
	if _, err := net.InterfaceByName(bridge); err == nil {
		s.t.Fatalf("interface %s exists: another run has it", bridge)
	}
	s.t.Cleanup(func() { _ = netns.IP("", "link del "+bridge+"\n") })
	err := netns.IP("", fmt.Sprintf("link add %s type bridge\nlink set %s up\naddr add %s/24 dev %s\n", bridge, bridge, bridgeAddress, bridge))
	for i, n := range s.nodes {
		n.netns = filepath.Join(n.dir, "netns", "node")
		s.t.Cleanup(n.forgetNames)
		if err = errors.Join(err, s.connect(i)); err != nil {
			break
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// connect makes the network namespace of a node, with its NIC.
func (s *site) connect(i int) error {
	n, port := s.nodes[i], fmt.Sprintf("%s-%d", bridge, i+1)
	if err := netns.Make(n.netns); err != nil {
		return err
	}
	dual := ""
	if s.dual {
		dual = fmt.Sprintf("addr add %s%d/64 dev eth0 nodad\n", nodesIPv6, i+1)
	}
	return errors.Join(
		netns.IP("", fmt.Sprintf("link add %s type veth peer name eth0 netns %s\nlink set %s master %s\nlink set %s up\n", port, n.netns, port, bridge, port)),
		netns.IP(n.netns, fmt.Sprintf("link set eth0 up\naddr add %s/24 dev eth0\nroute add default via %s\n%s", n.address, bridgeAddress, dual)),
		netns.Set(n.netns, "ipv4/ip_forward", "1"), netns.Set(n.netns, "ipv6/conf/all/forwarding", "1"),
	)
}

// forgetNames removes the names of the node's namespaces, so that its folder can be removed. The namespaces have ended with the kubelet.
func (n *siteNode) forgetNames() {
	names, _ := filepath.Glob(n.file("kubelet/netns/*")) // the pattern has no error
	for _, name := range append(names, n.netns) {
		_ = netns.Delete(name) // what is left is in the temporary folder
	}
}

// routes lets this namespace reach Pods: those of a node are behind it.
func (s *site) routes() {
	s.t.Helper()
	list, err := s.client.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, have := range list.Items {
		for _, n := range s.nodes {
			if n.name == have.Name {
				err = errors.Join(err, netns.IP("", fmt.Sprintf("route replace %s via %s dev %s\n", have.Spec.PodCIDR, n.address, bridge)))
			}
		}
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// agentSpace is the namespace of the agents' Pods, and agentLabel what they are known by: those of deploy.
const (
	agentSpace = "contiv-system"
	agentLabel = "app.kubernetes.io/name"
	agentName  = "contiv-vswitch"
)

// pod is the name of the node's agent's Pod.
func (n *siteNode) pod() string { return agentName + "-" + n.name }

// file is one of the node's files.
func (n *siteNode) file(name string) string { return filepath.Join(n.dir, name) }

// listen is where the agent serves metrics and health.
func (n *siteNode) listen() string { return n.address + ":9191" }

// vpp is the program and its arguments.
func (n *siteNode) vpp() (program string, args []string) {
	if path := realVPP(); path != "" {
		return path, startup.VPP(n.dir, 0, "vxlan_plugin.so")
	}
	return built.agent, startup.Simulated(n.dir)
}

// realVPP is the path of a VPP to use; "": the simulated one.
func realVPP() string {
	if path := os.Getenv("CONTIV_VPP"); path != "sim" {
		return path
	}
	return ""
}

// agentPod makes the Pod of a node's VPP and agent, on the node's network, as the DaemonSet of deploy does.
func (s *site) agentPod(n *siteNode) {
	s.t.Helper()
	stats := ""
	if realVPP() != "" {
		stats = n.file(startup.Stats)
	}
	yes, no := true, false
	_, vpp := n.vpp()
	privileged := &corev1.SecurityContext{Privileged: &yes}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: n.pod(), Labels: map[string]string{agentLabel: agentName}},
		Spec: corev1.PodSpec{
			NodeName: n.name, HostNetwork: true, AutomountServiceAccountToken: &no, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{
				{Name: "agent", Image: "contiv-agent", SecurityContext: privileged, Env: []corev1.EnvVar{{Name: "CONTIV_STATUS_SOCKET", Value: n.file("agent.sock")}}, Args: append([]string{
					"run", "--cni", "--cni-state", n.dir, "--cni-conf-dir", n.file("net.d"), "--cni-bin-dir", n.file("bin"), "--cni-program", built.plugin,
					"--kubeconfig", s.path("agent.kubeconfig"), "--node", n.name, "--vpp-socket", n.file(startup.API), "--stats-socket", stats,
					"--status-socket", n.file("agent.sock"), "--journal", n.file("journal"), "--listen", n.listen(),
				}, s.agentFlags...)},
				{Name: "vpp", Image: "vpp", SecurityContext: privileged, Args: vpp, Env: s.preload()},
			},
		},
	}
	eventually(s.t, "Pod "+n.pod(), func() error { // the controllers make the service account
		_, err := s.client.CoreV1().Pods(agentSpace).Create(s.t.Context(), pod, metav1.CreateOptions{})
		return err
	}, s.api, s.controllers)
}

// preload makes a real VPP load deploy/vpp/epoll.c, without which it stops when 16 of its af_packet interfaces are readable at once.
func (s *site) preload() []corev1.EnvVar {
	if realVPP() == "" {
		return nil
	}
	library := s.path("epoll.so")
	if err := buildEpoll(library); err != nil {
		s.t.Logf("no library for VPP 25.06 and later, which then stop on a node with 16 Pods and more: %v", err)
		return nil
	}
	return []corev1.EnvVar{{Name: "LD_PRELOAD", Value: library}}
}

// buildEpoll compiles deploy/vpp/epoll.c to a library.
func buildEpoll(library string) error {
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", library, "../../deploy/vpp/epoll.c").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// startKubelet starts a node's kubelet.
func (s *site) startKubelet(n *siteNode) {
	s.t.Helper()
	vpp, _ := n.vpp()
	cfg := kubelet.Config{
		Node: n.name, Address: n.address, Kubeconfig: s.path(n.name + ".kubeconfig"), Dir: n.file("kubelet"), Lists: n.file("net.d"), Plugins: n.file("bin"),
		DNS: dnsAddress, Cert: s.path(n.name + ".crt"), Key: s.path(n.name + ".key"), ClientCA: s.path("kubelet-ca.crt"), Images: images(vpp), Version: version,
	}
	b, err := json.Marshal(cfg)
	if err == nil {
		err = os.WriteFile(n.file("kubelet.json"), b, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	n.kubelet = launch(s.t, "kubelet of "+n.name, netns.Program{Netns: n.netns, Args: []string{self(), partKubelet, n.file("kubelet.json")}, Env: os.Environ()})
}

// nodesReady waits until all are.
func (s *site) nodesReady() {
	s.t.Helper()
	eventually(s.t, "nodes ready", func() error {
		list, err := s.client.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range list.Items {
			for _, c := range n.Status.Conditions {
				if c.Type != corev1.NodeReady {
					continue
				}
				if c.Status != corev1.ConditionTrue {
					err = errors.Join(err, fmt.Errorf("%s: %s\n%s", n.Name, c.Message, s.agentLog(n.Name)))
				} else {
					ready++
				}
			}
		}
		if err == nil && ready < len(s.nodes) {
			err = fmt.Errorf("%d nodes of %d have reported", ready, len(s.nodes))
		}
		return err
	}, s.kubelets()...)
}

// agentLog is the end of an agent's log.
func (s *site) agentLog(node string) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	tail := int64(5)
	text := ""
	for _, container := range []string{"vpp", "agent"} {
		b, err := s.client.CoreV1().Pods(agentSpace).GetLogs(agentName+"-"+node, &corev1.PodLogOptions{Container: container, TailLines: &tail}).DoRaw(ctx)
		text += fmt.Sprintf("-- %s: %s%v\n", container, b, err)
	}
	return text
}

// kubelets are the processes that a site lives by.
func (s *site) kubelets() []*process {
	out := []*process{s.api, s.controllers, s.scheduler}
	for _, n := range s.nodes {
		out = append(out, n.kubelet)
	}
	return out
}

// programs makes the folder of programs for people.
func (s *site) programs() {
	s.t.Helper()
	kubectl := fmt.Sprintf("#!/bin/sh\nexec %q kubectl \"$@\"\n", built.cluster)
	if err := errors.Join(os.Mkdir(s.bin, 0o755), os.WriteFile(filepath.Join(s.bin, "kubectl"), []byte(kubectl), 0o755), //nolint:gosec // programs
		os.Symlink(built.agent, filepath.Join(s.bin, "contiv-agent")), os.Symlink(built.agent, filepath.Join(s.bin, "kubectl-contiv"))); err != nil {
		s.t.Fatal(err)
	}
}

// kubectlAs runs kubectl as people do who were invited, and returns what it writes, and its exit code.
func (s *site) kubectlAs(args ...string) (stdout, stderr string, code int) {
	var out, complaint strings.Builder
	cmd := exec.Command(filepath.Join(s.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.path("admin.kubeconfig"), "PATH="+s.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return "", err.Error(), -1
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}
