package kube

import (
	"bufio"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// aloneAsRoot runs the test in a process with separate namespaces, whose network has no other run's bridge. It returns false in the first
// process, when the second has ended.
func aloneAsRoot(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inNamespace) != "" {
		return true
	}
	if err := netns.Possible(); err != nil {
		t.Skip(err)
	}
	which := "^" + t.Name() + "$"
	if _, parts, some := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); some {
		which += "/" + parts
	}
	if err := again(built.scratch, "-test.run", which, "-test.v", "-test.timeout", "30m"); err != nil {
		t.Fatal(err)
	}
	return false
}

// TestPods is what Pods do on real nodes: the guestbook's, which the scheduler's join; programs, logs and ports of them by kubectl; Pods that fail, and
// what is left of those that are deleted; and an agent that is killed.
func TestPods(t *testing.T) {
	if !aloneAsRoot(t) {
		return
	}
	g := raise(t, "../../examples/guestbook")
	g.served(t)
	g.refused(t)
	for _, part := range []struct {
		name string
		do   func(t *testing.T, g *guests)
	}{
		{"from this machine", fromOutside},
		{"kubectl contiv", kubectlContiv},
		{"exec", execs},
		{"logs", logs},
		{"port-forward", portForward},
		{"failing Pods", failing},
		{"a Deployment", deployment},
		{"a Pod is deleted", deleted},
		{"an agent is killed", killedAgent},
		{"a kubelet is killed", killedKubelet},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.do(t, g) }) {
			for _, n := range g.nodes {
				t.Logf("%s: %s", n.name, g.agentLog(n.name))
			}
			return
		}
	}
}

// wants fails unless a command of kubectl ends so.
func (s *site) wants(t *testing.T, code int, stdout, stderr string, args ...string) {
	t.Helper()
	out, complaint, got := s.kubectlAs(args...)
	if got != code || !strings.Contains(out, stdout) || !strings.Contains(complaint, stderr) {
		t.Errorf("kubectl %q: exit code %d, want %d; %q, want %q; %q, want %q", args, got, code, out, stdout, complaint, stderr)
	}
}

// page gets one from this namespace.
func page(url string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func (s *site) pod(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := s.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// apply applies a manifest.
func (s *site) apply(t *testing.T, manifest string) {
	t.Helper()
	s.write("apply.yaml", manifest)
	s.wants(t, 0, "", "", "apply", "-f", s.path("apply.yaml"))
}

// fromOutside asks each Pod of the web server without a Service, from the network between the nodes.
func fromOutside(t *testing.T, g *guests) {
	for i := range g.nodes {
		name := fmt.Sprint("frontend-", i)
		eventually(t, name, func() error {
			text, err := page("http://" + netip.AddrPortFrom(netip.MustParseAddr(g.pod(t, guestbook, name).Status.PodIP), 8080).String())
			if err == nil && text != name+" sees "+bridgeAddress {
				err = errors.New(text)
			}
			return err
		}, g.kubelets()...)
	}
}

// kubectlContiv asks all agents at once, by exec in their Pods.
func kubectlContiv(t *testing.T, g *guests) {
	g.answers(t)
	ask := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := g.kubectlAs(append([]string{"contiv"}, args...)...)
		if code != want {
			t.Errorf("kubectl contiv %q: exit code %d, want %d\n%s%s", args, code, want, stdout, stderr)
		}
		return stdout, stderr
	}
	says := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	stdout, _ := ask(0, "status", "--node", "node-2", "guestbook/frontend")
	says(stdout, "node-2", "in sync", "guestbook/frontend")
	stdout, _ = ask(0, "policy", "guestbook/redis-leader-0", "guestbook/redis-follower-0")
	says(stdout, "== node-1 (contiv-vswitch-node-1)", "== node-2 (contiv-vswitch-node-2)", "NetworkPolicy guestbook/redis")
	stdout, _ = ask(0, "trace", `{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}`,
		`{"from":"pod:kube-system/coredns-1","to":"service:guestbook/redis-leader:6379","protocol":"TCP"}`)
	says(stdout, "service:guestbook/frontend:80 TCP: delivered", "denied: NetworkPolicy guestbook/redis isolates guestbook/redis-leader-0")
	_, stderr := ask(2, "status", "no/such")
	says(stderr, "no Service no/such")
	if strings.Contains(stderr, "command terminated") {
		t.Errorf("kubectl repeats exit codes:\n%s", stderr)
	}
}

func execs(t *testing.T, g *guests) {
	g.wants(t, 0, "client\n", "", "exec", "-n", guestbook, "client", "--", "hostname")
	g.wants(t, 3, "out\n", "complaint\n", "exec", "-n", guestbook, "client", "--", "sh", "-c", "echo out; echo complaint >&2; exit 3")
	g.wants(t, 0, "nameserver 10.96.0.10\n", "", "exec", "-n", guestbook, "client", "--", "cat", "/etc/resolv.conf")
	g.wants(t, 127, "", "no-such-program", "exec", "-n", guestbook, "client", "--", "no-such-program")
	if out := g.atTerminal(t, "client", "tty"); !strings.HasPrefix(out, "/dev/pts/") {
		t.Errorf("tty writes %q", out)
	}
	cmd := exec.Command(filepath.Join(g.bin, "kubectl"), "--kubeconfig", g.path("admin.kubeconfig"), "exec", "-i", "-n", guestbook, "client", "--", "cat")
	cmd.Stdin = strings.NewReader(strings.Repeat("line\n", 1<<16))
	if out, err := cmd.Output(); err != nil || len(out) != 5<<16 {
		t.Errorf("%d bytes came back from cat: %v", len(out), err)
	}
	// Nobody but the API server may use a kubelet.
	anybody := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // a kubelet must refuse it
	resp, err := anybody.Get("https://" + g.nodes[0].address + ":10250/healthz")
	if err == nil {
		_ = resp.Body.Close() // the answer is the error
		t.Errorf("a kubelet answers anybody: %s", resp.Status)
	} else if !strings.Contains(err.Error(), "certificate required") {
		t.Error(err)
	}
}

// atTerminal runs a program at a terminal, which kubectl does only if it has one itself.
func (s *site) atTerminal(t *testing.T, pod string, command ...string) string {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", s.path("admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	url := s.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(guestbook).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdin: true, Stdout: true, TTY: true}, scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, url.String())
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	in, hold := io.Pipe()
	defer hold.Close()
	if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: in, Stdout: &out, Tty: true}); err != nil {
		t.Error(err)
	}
	return out.String()
}

func logs(t *testing.T, g *guests) {
	g.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  containers:
  - name: writer
    image: busybox
    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: WORD, value: "line-$(NODE)"}]
    command: [sh, -c, 'for i in 1 2 3; do echo $(WORD) $i; done; echo complaint >&2; sleep 2; echo $0 last; sleep 1000', $(WORD)]
`)
	eventually(t, "a log", func() error {
		if out, _, _ := g.kubectlAs("logs", "writer"); !strings.Contains(out, " 3\n") {
			return errors.New(out)
		}
		return nil
	}, g.kubelets()...)
	node := g.pod(t, "default", "writer").Spec.NodeName
	g.wants(t, 0, "complaint\n", "", "logs", "writer")
	// Nothing orders the lines of two streams.
	text, _, code := g.kubectlAs("logs", "writer")
	if lines := strings.Replace(text, "complaint\n", "", 1); code != 0 || !strings.HasPrefix(lines, "line-"+node+" 1\nline-"+node+" 2\nline-"+node+" 3\n") {
		t.Errorf("exit code %d, %q", code, text)
	}
	out, _, _ := g.kubectlAs("logs", "writer", "--timestamps", "--tail=1")
	if fields := strings.Fields(out); len(fields) < 2 {
		t.Errorf("%q", out)
	} else if _, err := time.Parse(time.RFC3339Nano, fields[0]); err != nil || strings.Count(out, "\n") != 1 {
		t.Errorf("%q: %v", out, err)
	}
	follow := exec.Command(filepath.Join(g.bin, "kubectl"), "--kubeconfig", g.path("admin.kubeconfig"), "logs", "-f", "writer")
	pipe, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = follow.Process.Kill(); _ = follow.Wait() }()
	for in := bufio.NewScanner(pipe); ; {
		if !in.Scan() {
			t.Fatal("the log ended")
		}
		if strings.HasSuffix(in.Text(), " last") {
			break
		}
	}
	g.wants(t, 0, "deleted", "", "delete", "pod", "writer", "--grace-period=1")
}

// portForward asks a Pod's web server and a Service by ports of this machine.
func portForward(t *testing.T, g *guests) {
	for _, target := range []string{"pod/frontend-0", "service/frontend"} {
		port := freePort(t)
		to := "8080"
		if strings.HasPrefix(target, "service") {
			to = "80"
		}
		p := start(t, "port-forward", exec.Command(filepath.Join(g.bin, "kubectl"), "--kubeconfig", g.path("admin.kubeconfig"), "port-forward", "-n", guestbook, target, fmt.Sprintf("%d:%s", port, to)))
		for range 2 {
			eventually(t, "port-forward to "+target, func() error {
				text, err := page(fmt.Sprintf("http://127.0.0.1:%d", port))
				if err == nil && !strings.Contains(text, "sees 127.0.0.1") {
					err = errors.New(text)
				}
				return err
			}, p)
		}
		p.kill()
	}
}

// failing Pods say why.
func failing(t *testing.T, g *guests) {
	g.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: unknown}
spec: {containers: [{name: c, image: nginx:1.29}]}
---
apiVersion: v1
kind: Pod
metadata: {name: crash}
spec: {containers: [{name: c, image: busybox, command: [sh, -c, 'echo a life; exit 3']}]}
---
apiVersion: v1
kind: Pod
metadata: {name: once}
spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: [sh, -c, 'cat /var/run/secrets/kubernetes.io/serviceaccount/namespace']}]}
---
apiVersion: v1
kind: Pod
metadata: {name: unready}
spec: {containers: [{name: c, image: example/frontend, ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {path: /none, port: http}, periodSeconds: 1}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  containers:
  - name: c
    image: example/frontend
    startupProbe: {exec: {command: ["true"]}, periodSeconds: 1}
    livenessProbe: {tcpSocket: {port: 8080}}
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: hook}
spec: {containers: [{name: c, image: pause, lifecycle: {preStop: {sleep: {seconds: 1}}}}]}
`)
	state := func(name string, ok func(s *corev1.PodStatus, c *corev1.ContainerStatus) bool) {
		t.Helper()
		eventually(t, "Pod "+name, func() error {
			pod := g.pod(t, "default", name)
			if len(pod.Status.ContainerStatuses) == 0 || !ok(&pod.Status, &pod.Status.ContainerStatuses[0]) {
				return fmt.Errorf("%+v", pod.Status)
			}
			return nil
		}, g.kubelets()...)
	}
	state("unknown", func(_ *corev1.PodStatus, c *corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && strings.Contains(c.State.Waiting.Reason, "Image") && strings.Contains(c.State.Waiting.Message, "busybox")
	})
	state("crash", func(_ *corev1.PodStatus, c *corev1.ContainerStatus) bool {
		return c.RestartCount == 1 && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" && c.LastTerminationState.Terminated.ExitCode == 3
	})
	g.wants(t, 0, "a life\n", "", "logs", "crash", "--previous")
	state("once", func(s *corev1.PodStatus, _ *corev1.ContainerStatus) bool {
		return s.Phase == corev1.PodSucceeded && s.PodIP != ""
	})
	g.wants(t, 0, "default", "", "logs", "once")
	state("probed", func(s *corev1.PodStatus, c *corev1.ContainerStatus) bool { return c.Ready && *c.Started })
	state("unready", func(s *corev1.PodStatus, c *corev1.ContainerStatus) bool {
		return s.Phase == corev1.PodRunning && c.State.Running != nil && !c.Ready && time.Since(c.State.Running.StartedAt.Time) > 2*time.Second
	})
	g.wants(t, 0, "Readiness probe failed: HTTP probe failed with statuscode: 404", "", "describe", "pod", "unready")
	state("hook", func(_ *corev1.PodStatus, c *corev1.ContainerStatus) bool {
		return c.State.Waiting != nil && c.State.Waiting.Reason == "CreateContainerConfigError"
	})
	g.wants(t, 0, "", "", "delete", "pod", "unknown", "crash", "once", "probed", "unready", "hook", "--grace-period=1")
}

// deployment lets the scheduler place Pods, which a Service leads to by its name; and the API server's own Service works in them.
func deployment(t *testing.T, g *guests) {
	g.wants(t, 0, "", "", "create", "deployment", "web", "--image=example/frontend", "--replicas=3")
	g.wants(t, 0, "", "", "expose", "deployment", "web", "--port=80", "--target-port=8080")
	g.wants(t, 0, "successfully rolled out", "", "rollout", "status", "deployment/web", "--timeout=120s")
	eventually(t, "Service web", func() error {
		text, err := g.exec("default", "stranger", "/guestbook", "get", "http://web")
		if err == nil && !strings.HasPrefix(text, "web-") {
			err = errors.New(text)
		}
		return err
	}, g.kubelets()...)
	g.wants(t, 0, "", "", "create", "deployment", "agnhost", "--image=registry.k8s.io/e2e-test-images/agnhost:2.59", "--", "/agnhost", "netexec")
	g.wants(t, 0, "successfully rolled out", "", "rollout", "status", "deployment/agnhost", "--timeout=120s")
	g.wants(t, 0, "", "", "exec", "deployment/agnhost", "--", "/agnhost", "connect", "web.default.svc.cluster.local:80", "--timeout=5s")
	g.wants(t, 1, "", "TIMEOUT", "exec", "deployment/agnhost", "--", "/agnhost", "connect", leaderAt, "--timeout=1s")
	g.wants(t, 0, "", "", "exec", "deployment/agnhost", "--", "/agnhost", "connect", "kubernetes.default.svc.cluster.local:443", "--timeout=5s")
}

// links are the interfaces of a node's pods in its kernel.
func links(t *testing.T, n *siteNode) (out []string) {
	t.Helper()
	err := netns.Do(n.netns, func() error {
		text, err := exec.Command("ip", "-o", "link").Output()
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); strings.HasPrefix(fields[1], "cv-") {
				out = append(out, fields[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// deleted compares what a node has before a Pod and after its end.
func deleted(t *testing.T, g *guests) {
	n := g.nodes[1]
	files := func() int {
		names, _ := filepath.Glob(n.file("kubelet/netns/*"))
		cached, _ := filepath.Glob(n.file("kubelet/cni/results/*"))
		return len(names) + len(cached)
	}
	beforeLinks, beforeFiles := len(links(t, n)), files()
	g.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: short}
spec: {nodeName: node-2, containers: [{name: c, image: example/frontend}]}
`)
	g.wants(t, 0, "condition met", "", "wait", "--for=condition=Ready", "pod/short", "--timeout=120s")
	if now := len(links(t, n)); now != beforeLinks+1 {
		t.Errorf("%d interfaces to pods, want %d", now, beforeLinks+1)
	}
	ip := g.pod(t, "default", "short").Status.PodIP
	began := time.Now()
	g.wants(t, 0, "deleted", "", "delete", "pod", "short", "--wait", "--timeout=120s")
	t.Logf("deleted in %s", time.Since(began).Round(time.Millisecond))
	if now := len(links(t, n)); now != beforeLinks {
		t.Errorf("%d interfaces to pods, want %d: %q", now, beforeLinks, links(t, n))
	}
	if now := files(); now != beforeFiles {
		t.Errorf("%d names and results are left, want %d", now, beforeFiles)
	}
	if text, err := page("http://" + ip + ":8080"); err == nil {
		t.Errorf("%s answers: %s", ip, text)
	}
	stdout, _, _ := g.kubectlAs("contiv", "plan", "--node", n.name)
	if strings.Contains(stdout, "default/short") {
		t.Errorf("VPP has something of the Pod:\n%s", stdout)
	}
}

// agentProcess finds the agent of a node.
func agentProcess(t *testing.T, n *siteNode) int {
	t.Helper()
	pid, err := findProcess("\x00run\x00--cni\x00", "\x00--node\x00"+n.name+"\x00")
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// killedAgent kills an agent under requests: no packet of Pods that exist needs it, and the next one serves new Pods.
func killedAgent(t *testing.T, g *guests) {
	n := g.nodes[0]
	to := "http://" + g.pod(t, guestbook, "frontend-0").Status.PodIP + ":8080"
	if err := syscall.Kill(agentProcess(t, n), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := page(to); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "the next agent", func() error {
		for _, c := range g.pod(t, agentSpace, n.pod()).Status.ContainerStatuses {
			if c.Name == "agent" && c.RestartCount == 1 && c.State.Running != nil {
				return nil
			}
		}
		return errors.New("it is not started again")
	}, g.kubelets()...)
	g.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: late, namespace: guestbook}
spec: {nodeName: node-1, containers: [{name: c, image: example/client}]}
`)
	g.wants(t, 0, "condition met", "", "wait", "-n", guestbook, "--for=condition=Ready", "pod/late", "--timeout=120s")
	if text, err := g.exec(guestbook, "late", "/guestbook", "get", pageURL); err != nil {
		t.Error(text, err)
	}
	g.answers(t)
	g.wants(t, 0, "", "", "delete", "pod", "-n", guestbook, "late", "--grace-period=1")
}

// killedKubelet is the restart of a node: VPP, agent and Pods end with the kubelet, and come back by the API server.
func killedKubelet(t *testing.T, g *guests) {
	n := g.nodes[2]
	n.kubelet.kill()
	g.startKubelet(n)
	eventually(t, "Pods of the node again", func() error {
		for _, name := range []string{"frontend-2", "redis-follower-1"} {
			pod := g.pod(t, guestbook, name)
			if why := notReady(pod); why != "" || pod.Status.ContainerStatuses[0].RestartCount != 1 {
				return fmt.Errorf("%s: %s, %+v", name, why, pod.Status.ContainerStatuses)
			}
		}
		return nil
	}, g.kubelets()...)
	eventually(t, "frontend-2", func() error {
		text, err := page("http://" + g.pod(t, guestbook, "frontend-2").Status.PodIP + ":8080")
		if err == nil && text != "frontend-2 sees "+bridgeAddress {
			err = errors.New(text)
		}
		return err
	}, g.kubelets()...)
	g.answers(t)
}
