package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Demo is a cluster for people, with the guestbook in it: an API server they may change with kubectl, and nodes whose Pods are processes that
// talk through a VPP for each node.
type Demo struct {
	Guestbook string    // folder of the example
	Programs  string    // folder with contiv-agent, contiv-cni and guestbook
	Once      bool      // end when the guestbook answers, and a policy forbids what it should
	Out       io.Writer // what people read
}

const guestbook = "guestbook" // namespace of the example

// nodes are those of the example.
var nodes = []string{"node-1", "node-2", "node-3"}

// Run starts it, and ends when the context does or a part of it ends by itself. Nothing is left then but what was built, in the user's
// cache. The folder of this package is to be the current one. The caller has a mount namespace to itself.
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
	cache, err := cached()
	if err != nil {
		s.Fatal(err)
	}
	own, err := filepath.Abs(d.Programs)
	if err != nil {
		s.Fatal(err)
	}
	if err := buildPeers(s.ctx, s.out, cache, "cluster", "agnhost"); err != nil {
		s.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		s.Logf("programs built: %s", took.Round(time.Second/10))
	}
	built = at(cache, own, s.TempDir())
	g := raise(s, d.Guestbook)
	g.served(s)
	g.refused(s)
	g.answers(s)
	s.Logf("all as it should be, after %s", time.Since(began).Round(time.Second/10))
	if d.Once {
		return
	}
	d.printUsage(s, g)
	d.showAgents(s, g)
	for s.ctx.Err() == nil {
		for _, p := range g.kubelets() {
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

// showAgents passes on what the agents log from now on.
func (d *Demo) showAgents(s *stage, g *guests) {
	for _, n := range g.nodes {
		p := start(s, "log of "+n.name, exec.Command(built.cluster, "kubectl", "--kubeconfig", g.path("admin.kubeconfig"),
			"logs", "-n", agentSpace, n.pod(), "-c", "agent", "-f", "--tail=0"))
		p.show(&prefixed{out: s.out, prefix: n.name + " | "})
	}
}

// guests are a site with the guestbook on it, and who looks whether it works.
type guests struct{ *site }

// raise starts all of it.
func raise(t tb, folder string) *guests {
	t.Helper()
	kind := "simulated"
	if path := realVPP(); path != "" {
		kind = path
	}
	t.Logf("three nodes in network namespaces, each with a VPP (%s), contiv-agent run --cni, and a kubelet", kind)
	g := &guests{newSite(t, filepath.Join(folder, "00-cluster.yaml"), nodes)}
	stop := g.step("kubectl apply -f " + folder + ", until all Pods are ready")
	g.kubectl(nil, "apply", "-f", folder, "-f", "testdata/stranger.yaml")
	eventually(t, "Pods ready", func() error { return g.podsReady(t, guestbook, "kube-system", "default") }, g.kubelets()...)
	stop()
	return g
}

// step says how long a part of the start takes.
func (s *site) step(what string) (done func()) {
	began := time.Now()
	s.t.Logf("%s …", what)
	return func() { s.t.Logf("  … %s", time.Since(began).Round(time.Second/10)) }
}

// podsReady is an error while a Pod of the namespaces is not.
func (s *site) podsReady(t tb, namespaces ...string) (err error) {
	for _, namespace := range namespaces {
		list, e := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if e != nil {
			return e
		}
		if len(list.Items) == 0 {
			err = errors.Join(err, fmt.Errorf("no Pod in %s", namespace))
		}
		for i := range list.Items {
			if why := notReady(&list.Items[i]); why != "" {
				err = errors.Join(err, fmt.Errorf("%s/%s: %s", namespace, list.Items[i].Name, why))
			}
		}
	}
	return err
}

// notReady says why a Pod is not ready; "": it is.
func notReady(pod *corev1.Pod) string {
	why := "no status"
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
		if c.Status != corev1.ConditionTrue {
			why = fmt.Sprintf("%s: %s %s", c.Type, c.Reason, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			why += fmt.Sprintf("; %s waits: %s %s", c.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		}
	}
	return why
}

// exec runs a program in a Pod.
func (s *site) exec(namespace, pod string, command ...string) (string, error) {
	stdout, stderr, code := s.kubectlAs(append([]string{"exec", "-n", namespace, pod, "--"}, command...)...)
	if code != 0 {
		return stdout, fmt.Errorf("%s/%s: %q: exit code %d: %s", namespace, pod, command, code, stderr)
	}
	return strings.TrimSpace(stdout), nil
}

// The guestbook's addresses.
const (
	pageURL  = "http://frontend.guestbook.svc.cluster.local"
	leaderAt = "redis-leader.guestbook.svc.cluster.local:6379"
)

// served waits until a Pod's request of the guestbook's page, by its name and Service, is answered, and an entry of the book is read again
// from a follower.
func (g *guests) served(t tb) {
	t.Helper()
	eventually(t, "guestbook", func() error {
		text, err := g.exec(guestbook, "client", "/guestbook", "get", pageURL)
		if err == nil {
			t.Logf("Pod guestbook/client → DNS → Service guestbook/frontend → %q", text)
		}
		return err
	}, g.kubelets()...)
	eventually(t, "the book", func() error {
		if _, err := g.exec(guestbook, "client", "/guestbook", "get", pageURL+"/sign?entry=hello"); err != nil {
			return err
		}
		text, err := g.exec(guestbook, "client", "/guestbook", "get", pageURL+"/book")
		if err == nil && !strings.Contains(text, "hello") {
			err = fmt.Errorf("the book has %q", text)
		}
		return err
	}, g.kubelets()...)
	t.Logf("an entry is written by Service redis-leader, and read by Service redis-follower on another node")
}

// refused waits until a Pod of another namespace gets no answer from the database, which answers a Pod of its namespace.
func (g *guests) refused(t tb) {
	t.Helper()
	command := []string{"/guestbook", "ask", leaderAt, "PING"}
	eventually(t, "policy", func() error {
		answer, err := g.exec(guestbook, "client", command...)
		if err != nil {
			return err
		}
		forbidden, err := g.exec("default", "stranger", command...)
		if err == nil {
			return fmt.Errorf("Pod default/stranger gets %q, which policy redis denies", forbidden)
		}
		if !strings.Contains(err.Error(), "timeout") {
			return fmt.Errorf("not what a policy does: %w", err)
		}
		t.Logf("Pod guestbook/client → Service redis-leader → %q; Pod default/stranger gets no answer: NetworkPolicy guestbook/redis", answer)
		return nil
	}, g.kubelets()...)
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
		}, g.kubelets()...)
	}
	t.Logf("kubectl contiv status, kubectl contiv plan: every agent is in sync, and its VPP as it wants it")
}

// invitation is what people may do.
var invitation = template.Must(template.New("").Parse(`
Three nodes with real Pods: processes in network namespaces, which talk through the VPP of their node. In another terminal:

  export KUBECONFIG={{.Dir}}/admin.kubeconfig PATH={{.Bin}}:$PATH     # kubectl {{.Version}}, contiv-agent
  kubectl get pods -A -o wide
  kubectl create deployment web --image=example/frontend --replicas=6
  kubectl expose deployment web --port=80 --target-port=8080
  kubectl exec -n guestbook client -- /guestbook get http://web.default.svc.cluster.local
  kubectl logs -n kube-system coredns-1
  kubectl exec -it stranger -- sh
  kubectl delete networkpolicy -n guestbook redis

Images are programs: agnhost, pause, busybox (the programs of this machine), and the guestbook's example/frontend, redis, client, kube-dns.
From this machine, a Pod, and a Service by a forwarded port:

  curl http://{{.PodIP}}:8080
  kubectl port-forward -n guestbook service/frontend 8080:80 & curl http://localhost:8080

VPP follows: every transaction is a line below. What the agents know, and what happens to packets:

  kubectl contiv status
  kubectl contiv status --node node-1 --history guestbook/frontend
  kubectl contiv policy guestbook/redis-leader-0
  kubectl contiv plan
  kubectl contiv trace '{"from":"pod:default/stranger","to":"service:guestbook/redis-leader:6379","protocol":"TCP"}'

The same without kubectl, and metrics, by node:

{{range .Nodes}}  contiv-agent status --status-socket {{.Status}}     # {{.Name}}; curl http://{{.Listen}}/metrics
{{end}}
Ctrl-C ends it, and leaves nothing.

`))

// printUsage prints how to use it.
func (d *Demo) printUsage(s *stage, g *guests) {
	type place struct{ Name, Status, Listen string }
	what := struct {
		Dir, Bin, Version, PodIP string
		Nodes                    []place
	}{Dir: g.dir, Bin: g.bin, Version: version}
	if pod, err := g.client.CoreV1().Pods(guestbook).Get(s.ctx, "frontend-0", metav1.GetOptions{}); err == nil {
		what.PodIP = pod.Status.PodIP
	}
	for _, n := range g.nodes {
		what.Nodes = append(what.Nodes, place{n.name, n.file("agent.sock"), n.listen()})
	}
	if err := invitation.Execute(s.out, what); err != nil {
		s.Fatal(err)
	}
}
