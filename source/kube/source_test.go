package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
	"github.com/contiv-agent/contiv-agent/source/kube/api/apitest"
)

// blank returns an empty object of a resource; custom is "group/version Kind" of one without a Go type.
func blank(resource, custom string) runtime.Object {
	if gv, kind, ok := strings.Cut(custom, " "); ok {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(gv)
		o.SetKind(kind)
		return o
	}
	switch resource {
	case "services":
		return &corev1.Service{}
	case "endpointslices":
		return &discoveryv1.EndpointSlice{}
	case "nodes":
		return &corev1.Node{}
	case "pods":
		return &corev1.Pod{}
	case "namespaces":
		return &corev1.Namespace{}
	case "serviceaccounts":
		return &corev1.ServiceAccount{}
	case "networkpolicies":
		return &networkingv1.NetworkPolicy{}
	}
	return &networkingv1.ServiceCIDR{}
}

func names(o runtime.Object) (resource string, kind schema.GroupVersionKind) {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		kind = o.GroupVersionKind()
		return plural(kind.Kind) + "." + kind.Group, kind
	case *corev1.Service:
		return "services", corev1.SchemeGroupVersion.WithKind("Service")
	case *discoveryv1.EndpointSlice:
		return "endpointslices", discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")
	case *corev1.Node:
		return "nodes", corev1.SchemeGroupVersion.WithKind("Node")
	case *corev1.Pod:
		return "pods", corev1.SchemeGroupVersion.WithKind("Pod")
	case *corev1.Namespace:
		return "namespaces", corev1.SchemeGroupVersion.WithKind("Namespace")
	case *corev1.ServiceAccount:
		return "serviceaccounts", corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	case *networkingv1.NetworkPolicy:
		return "networkpolicies", networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")
	}
	return "servicecidrs", networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR")
}

func listKind(resource, custom string) (kind, apiVersion string) {
	_, k := names(blank(resource, custom))
	return k.Kind + "List", k.GroupVersion().String()
}

func service(name, ip string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: port}}},
	}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// follower is a running source and the lines of what it emits.
type follower struct {
	t      *testing.T
	events chan string
	stop   func()
}

func follow(t *testing.T, c api.Client) *follower {
	t.Helper()
	return followWith(t, Config{Client: c})
}

func followWith(t *testing.T, cfg Config) *follower {
	t.Helper()
	cfg.Batch = 30 * time.Millisecond
	return start(t, New(cfg))
}

func start(t *testing.T, s *Source) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{t: t, events: make(chan string, 1000)}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, func(e event.Event) { f.events <- words(e) }) }()
	stopped := false
	f.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended with %v", err)
		}
	}
	t.Cleanup(f.stop)
	return f
}

// words formats an event as one line. It sorts the changes, since informers of different kinds race each other.
func words(e event.Event) string {
	switch e := e.(type) {
	case *event.SyncStatus:
		if e.Err != nil {
			return e.Status.String() + ": " + e.Err.Error()
		}
		return e.Status.String()
	case *event.Update:
		var out []string
		for _, c := range e.Changes {
			switch {
			case c.Err != nil && c.Object != nil: // refused, but a part of it is enforced
				out = append(out, "!+"+c.Err.Error())
			case c.Err != nil:
				out = append(out, "!"+c.Err.Error())
			case c.Object != nil:
				out = append(out, "+"+c.Ref.String())
			default:
				out = append(out, "-"+c.Ref.String())
			}
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	return fmt.Sprintf("%T", e)
}

func (f *follower) expect(want ...string) {
	f.t.Helper()
	for _, w := range want {
		select {
		case got := <-f.events:
			if got != w {
				f.t.Fatalf("event %q, want %q", got, w)
			}
		case <-time.After(20 * time.Second):
			f.t.Fatalf("no event, want %q", w)
		}
	}
}

// expectFault waits for a status whose error contains why. It skips partial errors, since resources fail one by one.
func (f *follower) expectFault(status, why string) {
	f.t.Helper()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case got := <-f.events:
			if !strings.HasPrefix(got, status+": API server: ") {
				f.t.Fatalf("event %q, want %s with an error", got, status)
			}
			if strings.Contains(got, why) {
				return
			}
		case <-deadline:
			f.t.Fatalf("no fault, want %s: %s", status, why)
		}
	}
}

// recovered waits for a status without error. It skips errors that shrink.
func (f *follower) recovered(status string) {
	f.t.Helper()
	for deadline := time.After(40 * time.Second); ; {
		select {
		case got := <-f.events:
			if got == status {
				return
			}
			if !strings.HasPrefix(got, status+": API server: ") {
				f.t.Fatalf("event %q while recovering", got)
			}
		case <-deadline:
			f.t.Fatal("never recovered")
		}
	}
}

func world() []metav1.Object {
	return []metav1.Object{
		namespace("default"), service("web", "10.96.0.10", 80),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Spec: corev1.NodeSpec{PodCIDR: "10.1.1.0/24"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0"}, Spec: corev1.PodSpec{NodeName: "node-1"}},
		&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.1.2"}}},
		},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}},
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16"}}},
	}
}

const worldWords = "+EndpointSlice default/web-1 +Namespace default +NetworkPolicy default/web +Node node-1 +Pod default/web-0 " +
	"+Service default/web +ServiceAccount default/web +ServiceCIDR kubernetes"

// each runs a test with both forms of list that an API server serves: streamed and paged.
func each(t *testing.T, f func(t *testing.T, s *apiServer)) {
	for _, streaming := range []bool{false, true} {
		t.Run(fmt.Sprintf("streaming=%v", streaming), func(t *testing.T) {
			t.Parallel()
			s := newAPIServer(t)
			s.streaming = streaming
			f(t, s)
		})
	}
}

func TestFollow(t *testing.T) {
	each(t, func(t *testing.T, s *apiServer) {
		s.put(world()...)
		f := follow(t, s.client(t))
		f.expect("wait-for-ready", "resync", worldWords, "in-sync")

		s.put(service("db", "10.96.0.11", 5432))
		f.expect("+Service default/db")
		s.put(service("db", "10.96.0.11", 5433))
		f.expect("+Service default/db")
		s.put(service("db", "10.96.0.11", 0))
		f.expect("!Service default/db: spec.ports[0].port: must be 1 to 65535 (0)")
		s.put(service("db", "10.96.0.11", 5433))
		f.expect("+Service default/db")
		s.remove(service("db", "10.96.0.11", 5433))
		f.expect("-Service default/db")

		// The source does not emit changes without meaning to a data plane: a Service's labels, or changes that cancel out
		// within a batch.
		labelled := service("web", "10.96.0.10", 80)
		labelled.Labels = map[string]string{"team": "blue"}
		s.put(labelled, service("brief", "10.96.0.12", 80))
		s.remove(service("brief", "10.96.0.12", 80))
		s.put(namespace("marker"))
		f.expect("+Namespace marker")
	})
}

func TestSelectors(t *testing.T) {
	s := newAPIServer(t)
	f := follow(t, s.client(t))
	f.expect("wait-for-ready", "resync", "in-sync")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, want := range []string{
		"services?spec.clusterIP!=None", "endpointslices?!service.kubernetes.io/headless", "pods?",
		"nodes?", "namespaces?", "serviceaccounts?", "networkpolicies?", "servicecidrs?",
	} {
		if !slices.Contains(s.asked, want) {
			t.Errorf("%s was not asked; asked were %v", want, s.asked)
		}
	}
}

// A dropped watch resumes where it ended; nothing is lost or repeated.
func TestDroppedWatchResumes(t *testing.T) {
	each(t, func(t *testing.T, s *apiServer) {
		s.put(world()...)
		f := follow(t, s.client(t))
		f.expect("wait-for-ready", "resync", worldWords, "in-sync")
		for i := range 2 {
			s.drop()
			s.put(service("db", "10.96.0.11", int32(1000+i)))
			f.expect("+Service default/db")
		}
	})
}

// 410 Gone means a new list: the source emits what changed meanwhile, once, and nothing else.
func TestExpiredWatchListsAgain(t *testing.T) {
	each(t, func(t *testing.T, s *apiServer) {
		s.put(world()...)
		s.put(service("old", "10.96.0.11", 80), service("changing", "10.96.0.12", 80))
		f := follow(t, s.client(t))
		f.expect("wait-for-ready", "resync", worldWords[:len(worldWords)-len(" +Service default/web +ServiceAccount default/web +ServiceCIDR kubernetes")]+
			" +Service default/changing +Service default/old +Service default/web +ServiceAccount default/web +ServiceCIDR kubernetes", "in-sync")

		s.set(func(s *apiServer) { s.down = true }) // no watch sees the intermediate steps
		s.drop()
		f.expectFault("in-sync", "services")
		s.remove(service("old", "10.96.0.11", 80))
		s.put(service("changing", "10.96.0.12", 81), service("new", "10.96.0.13", 80))
		s.forget()
		s.set(func(s *apiServer) { s.down = false })
		for changes := ""; changes == ""; {
			got := <-f.events
			if !strings.HasPrefix(got, "in-sync") {
				changes = got
				if want := "+Service default/changing +Service default/new -Service default/old"; got != want {
					t.Fatalf("after 410 Gone: %q, want %q", got, want)
				}
			}
		}
		s.put(namespace("marker"))
		for {
			if got := <-f.events; got == "+Namespace marker" {
				return
			} else if !strings.HasPrefix(got, "in-sync") {
				t.Fatalf("after 410 Gone, again: %q", got)
			}
		}
	})
}

// When the API server goes away, the status carries the error and the state stays. A status without error follows recovery.
func TestUnreachableServerKeepsState(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.put(world()...)
	f := follow(t, s.client(t))
	f.expect("wait-for-ready", "resync", worldWords, "in-sync")
	s.set(func(s *apiServer) { s.down = true })
	s.drop()
	f.expectFault("in-sync", "endpointslices, namespaces, networkpolicies, nodes, pods, serviceaccounts, servicecidrs, services: on fire")
	s.set(func(s *apiServer) { s.down = false })
	f.recovered("in-sync")
}

// The source waits for an API server that is unreachable at the start, and the status carries the error.
func TestWaitsForUnreachableServer(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t)
	s.put(world()...)
	s.set(func(s *apiServer) { s.down = true })
	f := follow(t, s.client(t))
	f.expect("wait-for-ready")
	f.expectFault("wait-for-ready", "services")
	s.set(func(s *apiServer) { s.down = false })
	for {
		got := <-f.events
		if got == worldWords {
			break
		}
		if !strings.HasPrefix(got, "wait-for-ready") && !strings.HasPrefix(got, "resync") {
			t.Fatalf("event %q before the snapshot", got)
		}
	}
	f.expect("in-sync")
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, _, err := (&Config{Kubeconfig: writeKubeconfig(t, "http://"+l.Addr().String())}).Clients()
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, c)
	f.expect("wait-for-ready")
	f.expectFault("wait-for-ready", "connection refused")
}

// The source syncs without ServiceCIDRs if the API server does not have them.
func TestWithoutServiceCIDRs(t *testing.T) {
	s := newAPIServer(t)
	s.absent = "servicecidrs"
	s.put(world()...)
	f := follow(t, s.client(t))
	f.expect("wait-for-ready", "resync", strings.TrimSuffix(worldWords, " +ServiceCIDR kubernetes"), "in-sync")
	s.put(namespace("marker"))
	f.expect("+Namespace marker")
}

// The source works with apitest, which has no versions and no streamed lists.
func TestFakeClientset(t *testing.T) {
	c := apitest.New(service("web", "10.96.0.10", 80), namespace("Bad"))
	f := follow(t, c)
	f.expect("wait-for-ready", "resync",
		"!Namespace Bad: metadata.name: must be a DNS label: at most 63 lower-case letters, digits and '-', "+
			"with a letter or digit at both ends (\"Bad\") +Service default/web", "in-sync")
}

func TestTombstone(t *testing.T) {
	s := New(Config{})
	ctx := t.Context()
	it, err := newItem(service("web", "10.96.0.10", 80), false)
	if err != nil {
		t.Fatal(err)
	}
	go s.handler(ctx, &resource{}).OnDelete(cache.DeletedFinalStateUnknown{Key: "default/web", Obj: it})
	if m := <-s.in; m.before == nil || m.before.ref.String() != "Service default/web" || m.after != nil {
		t.Errorf("tombstone passed on as %+v", m)
	}
}

// Heartbeats end in the handler: they do not wake the loop.
func TestHeartbeatEndsInHandler(t *testing.T) {
	node := func(version string) any {
		it, err := newItem(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: version}}, false)
		if err != nil {
			t.Fatal(err)
		}
		return it
	}
	s := New(Config{})
	s.in = make(chan message, 1)
	s.handler(t.Context(), &resource{}).OnUpdate(node("1"), node("2"))
	if len(s.in) > 0 {
		t.Error("a heartbeat was passed on")
	}
}

func TestTransform(t *testing.T) {
	it, err := newItem(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
		Status:     corev1.NodeStatus{Images: make([]corev1.ContainerImage, 50)},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	if i := it.(*item); i.ManagedFields != nil || i.Name != "n" || i.ResourceVersion != "7" || i.object == nil {
		t.Errorf("item %+v", i)
	}
	if again, err := newItem(it, false); err != nil || again != it {
		t.Errorf("transforming an item: %v, %v", again, err)
	}
	if _, err := newItem(&corev1.Secret{}, false); err == nil {
		t.Error("a Secret is accepted")
	}
}

func TestBatch(t *testing.T) {
	v := func(port int32) *item {
		it, err := newItem(service("web", "10.96.0.10", port), false)
		if err != nil {
			t.Fatal(err)
		}
		return it.(*item)
	}
	a, b := v(1), v(2)
	for _, c := range []struct {
		name  string
		steps []step
		want  string
	}{
		{"added", []step{{nil, a}}, "+Service default/web"},
		{"added and removed", []step{{nil, a}, {a, nil}}, ""},
		{"there and back", []step{{a, b}, {b, v(1)}}, ""},
		{"removed and added alike", []step{{a, nil}, {nil, v(1)}}, ""},
		{"removed and added otherwise", []step{{a, nil}, {nil, b}}, "+Service default/web"},
		{"spoilt", []step{{a, v(0)}}, "!Service default/web: spec.ports[0].port: must be 1 to 65535 (0)"},
		{"spoilt and mended", []step{{a, v(0)}, {v(0), a}}, ""},
		{"still spoilt", []step{{v(0), v(0)}}, ""},
		{"removed", []step{{a, nil}}, "-Service default/web"},
	} {
		var bt batch
		for _, s := range c.steps {
			bt.addChange(a.ref, s.before, s.after)
		}
		if got := words(&event.Update{Changes: bt.takeChanges()}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if len(bt.takeChanges()) > 0 {
			t.Errorf("%s: taken twice", c.name)
		}
	}
}
