package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

const shop = "shop" // namespace of testdata/shop.yaml

// world is a cluster with an agent on each node; that of the second serves Services by cnat.
type world struct {
	*cluster
	*fabric
}

// TestCluster is a cluster's life for its agents: from an empty cluster to a shop with policies, rolling updates, and an API
// server that fails and returns. At the end VPP equals the result of a new agent on an empty VPP.
func TestCluster(t *testing.T) {
	repeat(t)
	c := newCluster(t)
	c.kubectl(nil, "apply", "-f", "testdata/agent.yaml")
	w := &world{c, &fabric{kubelet: newFakeKubelet(t, c)}}
	c.control()
	for i, name := range nodes {
		w.nodes = append(w.nodes, newNode(t, c, name, "--service-renderer", []string{"nat44", "cnat", "auto"}[i]))
	}
	w.kubelet.exec(t, w.agnhost)
	w.kubelet.wait(w.wired, w.spare)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"services of deployments", w.services},
		{"policies", w.policies},
		{"exec", w.fromPods},
		{"rolling update", w.rollingUpdate},
		{"API server killed under change", w.killed},
		{"changed behind its back, and compacted", w.compacted},
		{"as a fresh agent", w.fresh},
		{"embedded sim", w.embedded},
	} {
		if !t.Run(step.name, step.do) {
			return // the next one builds on it
		}
	}
}

// vip is the address of the shop.
func (w *world) vip(t *testing.T) netip.AddrPort {
	t.Helper()
	svc, err := w.client.CoreV1().Services(shop).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.MustParseAddr(svc.Spec.ClusterIP), 80)
}

// ready are the endpoints Kubernetes has for the shop, sorted.
func (w *world) ready(ctx context.Context) ([]netip.Addr, error) {
	list, err := w.client.DiscoveryV1().EndpointSlices(shop).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if *e.Conditions.Ready {
				out = append(out, netip.MustParseAddr(e.Addresses[0]))
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// served waits until connections from each node's client reach every ready endpoint, and nothing else. None is made before VPP is
// configured so: what VPP remembers of a client's port would lead a connection from there to an endpoint of before.
func (w *world) served(t *testing.T, endpoints int) {
	t.Helper()
	vip := w.vip(t)
	for _, n := range w.nodes {
		client, _ := w.kubelet.one(t, n.name, "client")
		eventually(t, "shop served on "+n.name, func() error {
			want, err := w.ready(t.Context())
			if err != nil {
				return err
			}
			if len(want) != endpoints {
				return fmt.Errorf("%d endpoints, want %d", len(want), endpoints)
			}
			if led := n.led(vip); !slices.Equal(led, want) {
				return fmt.Errorf("VPP leads to %d endpoints, want %d: %v, want %v", len(led), len(want), led, want)
			}
			reached := map[netip.Addr]bool{}
			for range 30 * endpoints { // one that is one of 50 is missed once in 10¹³
				to, err := n.connect(client, vip)
				if err != nil {
					return err
				}
				if to.Port() != 8080 || !slices.Contains(want, to.Addr()) {
					return fmt.Errorf("a connection went to %s, which is no endpoint", to)
				}
				reached[to.Addr()] = true
			}
			if len(reached) != len(want) {
				return fmt.Errorf("%d of %d endpoints get connections", len(reached), len(want))
			}
			return nil
		}, n.agent)
	}
}

func (w *world) services(t *testing.T) {
	w.kubectl(nil, "apply", "-f", "testdata/shop.yaml")
	for _, name := range []string{"web", "client", "stranger"} {
		w.kubectl(nil, "-n", shop, "rollout", "status", "deployment/"+name, "--timeout=120s")
	}
	w.served(t, 50)
	w.scale(t, 7)
	w.served(t, 7)
	w.scale(t, 50)
	w.served(t, 50)
}

func (w *world) scale(t *testing.T, replicas int) {
	t.Helper()
	w.kubectl(nil, "-n", shop, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", replicas))
}

// policies looks at connections from a stranger and from a client to a Pod of the shop on the same node.
func (w *world) policies(t *testing.T) {
	passes := func(n *node, app string) bool {
		from, _ := w.kubelet.one(t, n.name, app)
		_, to := w.kubelet.one(t, n.name, "web")
		_, err := n.connect(from, netip.AddrPortFrom(to, 8080))
		return err == nil
	}
	check := func(stranger bool) {
		t.Helper()
		for _, n := range w.nodes {
			eventually(t, "policy on "+n.name, func() error {
				if is := passes(n, "stranger"); is != stranger {
					return fmt.Errorf("a stranger's connection passes: %v", is)
				}
				if !passes(n, "client") {
					return fmt.Errorf("a client's connection does not pass")
				}
				return nil
			}, n.agent)
		}
	}
	check(true)
	w.kubectl(nil, "apply", "-f", "testdata/policy.yaml")
	check(false)
	w.kubectl(nil, "delete", "-f", "testdata/policy.yaml")
	check(true)
	w.kubectl(nil, "apply", "-f", "testdata/policy.yaml")
	check(false)
}

// fromPods looks at the shop as people may, with kubectl exec (which speaks WebSocket).
func (w *world) fromPods(t *testing.T) {
	for _, n := range w.nodes {
		client, _ := w.kubelet.one(t, n.name, "client")
		connect := func(port int) []string {
			return []string{"-n", shop, "exec", client.Name, "--", "/agnhost", "connect", "--timeout=3s", fmt.Sprintf("%s:%d", w.vip(t).Addr(), port)}
		}
		if said := w.kubectl(nil, connect(80)...); said != "" {
			t.Errorf("%s: the shop: %s", n.name, said)
		}
		cmd := exec.Command(built.cluster, append([]string{"kubectl", "--kubeconfig", w.path("admin.kubeconfig")}, connect(81)...)...)
		said, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), "REFUSED") && !strings.Contains(string(said), "TIMEOUT") {
			t.Errorf("%s: a port the shop does not have: %v: %s", n.name, err, said)
		}
	}
}

// rollingUpdate replaces all 50 Pods under streams of connections, none of which may fail.
func (w *world) rollingUpdate(t *testing.T) {
	s := w.stream(t)
	w.kubectl(nil, "-n", shop, "rollout", "restart", "deployment/web")
	w.kubectl(nil, "-n", shop, "rollout", "status", "deployment/web", "--timeout=180s")
	w.served(t, 50)
	s.end(t)
}

// killed ends the API server without a word, three times, while Deployments grow and shrink and Services come and go, and connections
// are made all the time.
func (w *world) killed(t *testing.T) {
	s := w.stream(t)
	stop, ended := make(chan struct{}), make(chan int, 1)
	go func() {
		random, changes := rand.New(rand.NewPCG(3, 4)), 0
		for n := 0; ; n++ {
			select {
			case <-stop:
				ended <- changes
				return
			case <-time.After(20 * time.Millisecond):
			}
			if w.churn(n, random) == nil { // it may be away
				changes++
			}
		}
	}()
	for range 3 {
		time.Sleep(700 * time.Millisecond)
		w.api.kill()
		time.Sleep(500 * time.Millisecond)
		w.serve()
		w.cluster.ready()
	}
	close(stop)
	t.Logf("%d changes", <-ended)
	w.controlAgain()
	eventually(t, "scale", func() error {
		_, err := w.client.AppsV1().Deployments(shop).Patch(t.Context(), "web", "application/merge-patch+json", []byte(`{"spec":{"replicas":20}}`), metav1.PatchOptions{})
		return err
	}, w.api)
	w.served(t, 20)
	s.end(t)
}

// churn is one change.
func (w *world) churn(n int, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	name := fmt.Sprintf("extra-%d", n%10)
	services := w.client.CoreV1().Services(shop)
	switch n % 4 {
	case 0:
		patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, 10+random.IntN(30))
		_, err := w.client.AppsV1().Deployments(shop).Patch(ctx, "web", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		return err
	case 1:
		return services.Delete(ctx, name, metav1.DeleteOptions{})
	}
	_, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": []string{"web", "client"}[n%2]}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	return err
}

// compacted changes the cluster through a second API server while the one the agents follow is away, and lets etcd forget what has been:
// nobody can go on where they were.
func (w *world) compacted(t *testing.T) {
	list, err := w.client.CoreV1().Services(shop).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.api.kill()
	second := w.second(t)
	for _, svc := range list.Items {
		if err := second.CoreV1().Services(shop).Delete(t.Context(), svc.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		if err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
			ns, err := second.CoreV1().Namespaces().Get(t.Context(), shop, metav1.GetOptions{})
			if err != nil {
				return err
			}
			ns.Labels["turn"] = fmt.Sprint(n)
			_, err = second.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.forget(t)
	w.serve()
	w.cluster.ready()
	watch, err := w.client.CoreV1().Services(shop).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err == nil {
		ev := <-watch.ResultChan()
		watch.Stop()
		err = apierrors.FromObject(ev.Object)
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Fatalf("a watch goes on where it was: %v", err)
	}
	w.controlAgain()
	w.kubectl(nil, "apply", "-f", "testdata/shop.yaml") // the Service has another address now
	w.served(t, 50)
}

func (w *world) fresh(t *testing.T) {
	for _, n := range w.nodes {
		n.inSync(t)
		n.equalsFresh(t, w.cluster)
	}
}

// embedded runs the agent with its own sim, up to the first sync.
func (w *world) embedded(t *testing.T) {
	out, err := exec.Command(built.agent, "run", "--kubeconfig", w.path("agent.kubeconfig"), "--sim", "--once", "--node", nodes[2]).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "CONFIGURED  shop/web") || strings.Contains(string(out), "PENDING") {
		t.Errorf("the shop is not configured:\n%s", out)
	}
}
