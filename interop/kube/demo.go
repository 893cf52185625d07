package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Demo is a cluster for people, with the guestbook in it: an API server they may change with kubectl, and for each node an agent on a VPP.
type Demo struct {
	Guestbook string    // folder of the example
	Once      bool      // end when every node has been seen to do what it should
	Out       io.Writer // what people read
}

const guestbook = "guestbook" // namespace of the example

// Run starts it, and ends when the context does or a part of it ends by itself. Nothing is left then but what was built, in the user's
// cache. The folder of this package is to be the current one; one runs at a time in a process.
func (d *Demo) Run(ctx context.Context) error {
	s := &stage{ctx: ctx, out: d.Out}
	err := s.perform(d.run)
	if ctx.Err() != nil {
		return nil // asked to stop, stopped
	}
	return err
}

func (d *Demo) run(s *stage) {
	began := time.Now()
	if err := build(s.ctx, s.out, s.TempDir(), "cluster"); err != nil {
		s.Fatal(err)
	}
	g := raise(s, d.Guestbook)
	g.served(s)
	g.refused(s)
	g.answers(s)
	s.Logf("all as it should be, after %s", time.Since(began).Round(time.Second/10))
	if d.Once {
		return
	}
	d.printUsage(s, g)
	for _, n := range g.nodes {
		n.agent.show(&prefixed{out: s.out, prefix: n.name + " | "})
	}
	for s.ctx.Err() == nil {
		for _, p := range append([]*process{g.c.api, g.c.controllers}, agents(g.nodes)...) {
			if err := p.running(); err != nil && s.ctx.Err() == nil {
				s.Fatal(err)
			}
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(time.Second / 2):
		}
	}
	s.Logf("stopping")
}

// guests are a cluster with the guestbook in it, and who looks whether it works.
type guests struct {
	c       *cluster
	kubelet *kubelet
	nodes   []*node
	bin     string // folder of programs for people: kubectl, contiv-agent, and kubectl-contiv
}

// raise starts all of it.
func raise(t tb, folder string) *guests {
	t.Helper()
	t.Logf("starting etcd, kube-apiserver and kube-controller-manager %s", version)
	c := newCluster(t)
	c.kubectl(nil, "apply", "-f", "testdata/agent.yaml", "-f", filepath.Join(folder, "00-cluster.yaml"))
	g := &guests{c: c, kubelet: startKubelet(t, c, c.hosts()), bin: c.path("bin")}
	c.control()
	for _, h := range g.kubelet.hosts {
		g.nodes = append(g.nodes, newNode(t, c, h.name))
		t.Logf("%s: VPP (simulated), and contiv-agent run --source kube on it, in sync", h.name)
	}
	g.kubelet.exec(t, g.runs)
	g.pods(t)
	kubectl := fmt.Sprintf("#!/bin/sh\nexec %q kubectl \"$@\"\n", built.cluster)
	if err := errors.Join(os.Mkdir(g.bin, 0o755), os.WriteFile(filepath.Join(g.bin, "kubectl"), []byte(kubectl), 0o755),
		os.Symlink(built.agent, filepath.Join(g.bin, "contiv-agent")), os.Symlink(built.agent, filepath.Join(g.bin, "kubectl-contiv"))); err != nil {
		t.Fatal(err)
	}
	c.kubectl(nil, "apply", "-f", folder)
	t.Logf("kubectl apply -f %s", folder)
	return g
}

// agentSpace is the namespace of the agents' Pods, and agentLabel what they are known by: those of deploy.
const (
	agentSpace = "contiv-system"
	agentLabel = "app.kubernetes.io/name"
	agentName  = "contiv-vswitch"
)

// pods makes a Pod for every agent, as the DaemonSet does. The agent's process runs outside it.
func (g *guests) pods(t tb) {
	t.Helper()
	spaces := g.c.client.CoreV1().Namespaces()
	if _, err := spaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agentSpace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range g.nodes {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: agentName + "-" + n.name, Labels: map[string]string{agentLabel: agentName}},
			Spec:       corev1.PodSpec{NodeName: n.name, HostNetwork: true, Containers: []corev1.Container{{Name: "agent", Image: "contiv-agent"}}},
		}
		if _, err := g.c.client.CoreV1().Pods(agentSpace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// runs runs a command in a Pod of an agent: contiv-agent, which finds the agent there. In other Pods there is nothing to run.
func (g *guests) runs(pod *corev1.Pod, command []string) (stdout, stderr string, code int) {
	at := slices.IndexFunc(g.nodes, func(n *node) bool { return n.name == pod.Spec.NodeName })
	if pod.Namespace != agentSpace || at < 0 || len(command) == 0 || command[0] != "contiv-agent" {
		return "", "no such program: this Pod exists as far as the API is concerned\n", 127
	}
	var out, complaint strings.Builder
	cmd := exec.Command(built.agent, command[1:]...)
	cmd.Env = append(os.Environ(), "CONTIV_STATUS_SOCKET="+g.nodes[at].status)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return "", err.Error() + "\n", 126
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// kubectlAs runs kubectl as people do who were invited, and returns what it writes, and its exit code.
func (g *guests) kubectlAs(args ...string) (stdout, stderr string, code int) {
	var out, complaint strings.Builder
	cmd := exec.Command(filepath.Join(g.bin, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+g.c.path("admin.kubeconfig"), "PATH="+g.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return "", err.Error(), -1
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// answers waits until kubectl contiv says of every node that it is in sync, and that its VPP is as it should be.
func (g *guests) answers(t tb) {
	t.Helper()
	for _, command := range []string{"status", "plan"} {
		eventually(t, "kubectl contiv "+command, func() error {
			stdout, stderr, code := g.kubectlAs("contiv", command)
			if code != 0 {
				return fmt.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
			for _, n := range g.nodes {
				if !strings.Contains(stdout, "== "+n.name+" (") {
					return fmt.Errorf("nothing of %s in\n%s", n.name, stdout)
				}
			}
			return nil
		}, agents(g.nodes)...)
	}
	t.Logf("kubectl contiv status, kubectl contiv plan: every agent is in sync, and its VPP as it wants it")
}

func agents(nodes []*node) (out []*process) {
	for _, n := range nodes {
		out = append(out, n.agent)
	}
	return out
}

// hosts are the nodes the API server has, as a kubelet knows them.
func (c *cluster) hosts() (out []host) {
	c.t.Helper()
	list, err := c.client.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, n := range list.Items {
		h := host{name: n.Name}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				h.address, err = netip.ParseAddr(a.Address)
			}
		}
		if err == nil {
			h.pods, err = netip.ParsePrefix(n.Spec.PodCIDR)
		}
		if err != nil || !h.address.IsValid() {
			c.t.Fatalf("node %s: no address, or no range for Pods: %v", n.Name, err)
		}
		out = append(out, h)
	}
	return out
}

// served waits until a connection from a front end on each node to the Service of the database gets to the database.
func (g *guests) served(t tb) {
	t.Helper()
	const service, port = "redis-leader", 6379
	for _, n := range g.nodes {
		eventually(t, "guestbook served on "+n.name, func() error {
			svc, err := g.c.client.CoreV1().Services(guestbook).Get(t.Context(), service, metav1.GetOptions{})
			if err != nil {
				return err
			}
			leader, err := g.c.client.CoreV1().Pods(guestbook).Get(t.Context(), "redis-leader-0", metav1.GetOptions{})
			if err != nil {
				return err
			}
			from, found := g.kubelet.find(n.name, guestbook, "frontend")
			if !found {
				return errors.New("no front end yet")
			}
			vip := netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), port)
			to, err := n.connect(from, vip)
			if err != nil {
				return err
			}
			if to.Addr().String() != leader.Status.PodIP || to.Port() != port {
				return fmt.Errorf("a connection to %s goes to %s, which is not %s", vip, to, leader.Name)
			}
			t.Logf("%s: Pod %s/%s → Service %s/%s %s → Pod %s %s", n.name, from.Namespace, from.Name, guestbook, service, vip, leader.Name, to)
			return nil
		}, n.agent)
	}
}

// refused waits until DNS, which is of another namespace, is kept from the database on its node.
func (g *guests) refused(t tb) {
	t.Helper()
	for _, n := range g.nodes {
		from, found := g.kubelet.find(n.name, "kube-system", "")
		if !found {
			continue
		}
		to, found := g.kubelet.find(n.name, guestbook, "redis")
		if !found {
			continue
		}
		eventually(t, "policy on "+n.name, func() error {
			where, err := n.connect(from, netip.AddrPortFrom(netip.MustParseAddr(to.Status.PodIP), 6379))
			if err == nil {
				return fmt.Errorf("Pod %s/%s gets to %s, which policy redis denies", from.Namespace, from.Name, where)
			}
			lines := strings.Split(err.Error(), "\n")
			t.Logf("%s: Pod %s/%s → Pod %s/%s: NetworkPolicy %s/redis does not let it through (%s)",
				n.name, from.Namespace, from.Name, guestbook, to.Name, guestbook, strings.TrimSpace(lines[len(lines)-1]))
			return nil
		}, n.agent)
		return
	}
	t.Fatalf("no node has a Pod of kube-system and a database")
}

// invitation is what people may do.
var invitation = template.Must(template.New("").Parse(`
Three nodes: etcd, API server and controllers are the real ones; Pods exist as far as the API is concerned, get an address, and an
interface in the simulated VPP of their node. In another terminal:

  export KUBECONFIG={{.Dir}}/admin.kubeconfig PATH={{.Bin}}:$PATH     # kubectl {{.Version}}, contiv-agent
  kubectl get pods -A -o wide
  kubectl create deployment web --image=any --replicas=6
  kubectl expose deployment web --port=80 --target-port=8080
  kubectl scale deployment web --replicas=2
  kubectl delete networkpolicy -n guestbook redis

VPP follows: every transaction is a line below. What the agents know, and what happens to packets:

  kubectl contiv status
  kubectl contiv status --node node-1 --history guestbook/frontend
  kubectl contiv policy guestbook/redis-leader-0
  kubectl contiv plan
  kubectl contiv trace '{"from":"pod:kube-system/coredns-1","to":"service:guestbook/redis-leader:6379","protocol":"TCP"}'

The same without kubectl, and metrics, by node:

{{range .Nodes}}  contiv-agent status --status-socket {{.Status}}     # {{.Name}}; curl http://{{.Listen}}/metrics
{{end}}
Ctrl-C ends it, and leaves nothing.

`))

// printUsage prints how to use it.
func (d *Demo) printUsage(s *stage, g *guests) {
	type place struct{ Name, Status, Listen string }
	what := struct {
		Dir, Bin, Version string
		Nodes             []place
	}{Dir: g.c.dir, Bin: g.bin, Version: version}
	for _, n := range g.nodes {
		what.Nodes = append(what.Nodes, place{n.name, n.status, n.listen})
	}
	if err := invitation.Execute(s.out, what); err != nil {
		s.Fatal(err)
	}
}

// prefixed writes whole lines, each behind a prefix.
type prefixed struct {
	out    io.Writer
	prefix string
	rest   []byte
}

// Write implements io.Writer.
func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		if _, err := fmt.Fprintf(p.out, "%s%s\n", p.prefix, line); err != nil {
			return 0, err
		}
		p.rest = rest
	}
}

// stage is what a test is to its helpers, for a program.
type stage struct {
	ctx context.Context // of all that is on it
	out io.Writer

	mu     sync.Mutex
	undo   []func()
	failed bool
}

// collapse is the panic by which Fatalf ends what is performed.
type collapse struct{ why error }

// perform does something, and then undoes what was said to Cleanup, the last first.
func (s *stage) perform(do func(*stage)) (err error) {
	defer func() {
		for at := len(s.undo) - 1; at >= 0; at-- {
			s.undo[at]()
		}
	}()
	defer func() {
		switch over := recover().(type) {
		case nil:
		case collapse:
			err, s.failed = over.why, s.ctx.Err() == nil
		default:
			panic(over)
		}
	}()
	do(s)
	return nil
}

func (s *stage) Helper() {}

func (s *stage) Context() context.Context { return s.ctx }

func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "contiv-kube-")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			s.Errorf("%v", err)
		}
	})
	return dir
}

func (s *stage) Cleanup(f func()) { s.undo = append(s.undo, f) }

func (s *stage) Failed() bool { return s.failed }

func (s *stage) Logf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *stage) Errorf(format string, args ...any) { s.Logf(format, args...) }

func (s *stage) Fatal(args ...any) { panic(collapse{errors.New(fmt.Sprint(args...))}) }

func (s *stage) Fatalf(format string, args ...any) { panic(collapse{fmt.Errorf(format, args...)}) }
