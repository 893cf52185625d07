package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
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
	scratch := s.TempDir()
	if err := build(s.ctx, s.out, scratch, "cluster"); err != nil {
		s.Fatal(err)
	}
	fmt.Fprintf(s.out, "starting etcd, kube-apiserver and kube-controller-manager %s\n", version)
	c := newCluster(s)
	c.kubectl(nil, "apply", "-f", "testdata/agent.yaml", "-f", filepath.Join(d.Guestbook, "00-cluster.yaml"))
	k := startKubelet(s, c, c.hosts())
	c.control()
	var nodes []*node
	for _, h := range k.hosts {
		nodes = append(nodes, newNode(s, c, h.name))
		fmt.Fprintf(s.out, "%s: VPP (simulated), and contiv-agent run --source kube on it, in sync\n", h.name)
	}
	c.kubectl(nil, "apply", "-f", d.Guestbook)
	fmt.Fprintf(s.out, "kubectl apply -f %s\n", d.Guestbook)
	g := &guests{c, k, nodes}
	g.served(s)
	g.refused(s)
	fmt.Fprintf(s.out, "all as it should be, after %s\n", time.Since(began).Round(time.Second/10))
	if d.Once {
		return
	}
	d.invite(s, c, nodes)
	for _, n := range nodes {
		n.agent.show(&prefixed{out: s.out, prefix: n.name + " | "})
	}
	for s.ctx.Err() == nil {
		for _, p := range append([]*process{c.api, c.controllers}, agents(nodes)...) {
			if err := p.running(); err != nil && s.ctx.Err() == nil {
				s.Fatal(err)
			}
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(time.Second / 2):
		}
	}
	fmt.Fprintln(s.out, "stopping")
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

// guests are who looks whether the guestbook works.
type guests struct {
	c       *cluster
	kubelet *kubelet
	nodes   []*node
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

{{range .Nodes}}  contiv-agent status --status-socket {{.Status}}     # {{.Name}}
{{end}}  contiv-agent status --status-socket {{(index .Nodes 0).Status}} --history guestbook/frontend
  contiv-agent policy --status-socket {{(index .Nodes 0).Status}} guestbook/redis-leader-0
{{range .Nodes}}  curl http://{{.Listen}}/metrics     # {{.Name}}
{{end}}
Ctrl-C ends it, and leaves nothing.

`))

// invite tells people how to use it.
func (d *Demo) invite(s *stage, c *cluster, nodes []*node) {
	type place struct{ Name, Status, Listen string }
	what := struct {
		Dir, Bin, Version string
		Nodes             []place
	}{Dir: c.dir, Bin: c.path("bin"), Version: version}
	for _, n := range nodes {
		what.Nodes = append(what.Nodes, place{n.name, n.status, n.listen})
	}
	if err := os.Mkdir(what.Bin, 0o755); err != nil {
		s.Fatal(err)
	}
	kubectl := fmt.Sprintf("#!/bin/sh\nexec %q kubectl \"$@\"\n", built.cluster)
	err := errors.Join(os.WriteFile(filepath.Join(what.Bin, "kubectl"), []byte(kubectl), 0o755), os.Symlink(built.agent, filepath.Join(what.Bin, "contiv-agent")))
	if err != nil {
		s.Fatal(err)
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
