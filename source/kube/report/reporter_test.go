package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
	"github.com/contiv-agent/contiv-agent/source/kube/api/apitest"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
)

const node = "node-1"

var guard = model.Ref{Kind: model.Kind(model.KindClusterNetworkPolicy), Name: "guard"}

// world is an API server, an agent and its source's objects, on a clock that advances only when all goroutines wait.
type world struct {
	mu sync.Mutex // guards the fields below
	cluster
	conditions map[string]metav1.Condition // of guard, by type
	applied    []string                    // field managers

	client  apitest.Client
	dynamic *dynamicfake.FakeDynamicClient
	count   atomic.Uint64
	report  atomic.Pointer[event.Report]
	asked   atomic.Int32
	log     logbuffer.Buffer
}

func newAPI(t *testing.T) *world {
	a := &world{
		cluster:    cluster{service("web"): "u1", guard: "u2", {Kind: model.KindNode, Name: node}: "u9"},
		client:     apitest.New(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "u9"}}),
		dynamic:    dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
		conditions: map[string]metav1.Condition{},
	}
	a.says(true)
	a.dynamic.PrependReactor("patch", "clusternetworkpolicies", func(action clienttesting.Action) (bool, runtime.Object, error) {
		p := action.(clienttesting.PatchActionImpl)
		if p.Subresource != "status" || p.PatchType != types.ApplyPatchType || p.Name != guard.Name || p.PatchOptions.Force == nil || !*p.PatchOptions.Force {
			t.Errorf("not an apply of the status: %+v", p)
		}
		var obj struct {
			Status struct{ Conditions []metav1.Condition }
		}
		if err := json.Unmarshal(p.Patch, &obj); err != nil {
			t.Error(err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		manager := p.PatchOptions.FieldManager
		a.applied = append(a.applied, manager)
		for kind := range a.conditions {
			if manager == Controller && kind == Accepted || kind == Programmed+strings.TrimPrefix(manager, Controller+"-") {
				delete(a.conditions, kind)
			}
		}
		for _, c := range obj.Status.Conditions {
			a.conditions[c.Type] = c
		}
		return true, nil, nil
	})
	return a
}

func (a *world) says(ready bool, problems ...event.Problem) {
	rep := &event.Report{Ready: ready, Problems: problems}
	if len(problems) > 0 {
		rep.Summary = fmt.Sprintf("%d REFUSED", len(problems))
	}
	if !ready {
		rep.Waiting = "VPP is not connected"
	}
	a.report.Store(rep)
	a.count.Add(1)
}

// Identity implements Objects.
func (a *world) Identity(ref model.Ref) (kube.Identity, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.identity(ref)
}

func (a *world) identity(ref model.Ref) (kube.Identity, bool) {
	id, ok := a.find(ref)
	if ref == guard {
		id.GroupVersionKind, id.Resource = schema.GroupVersionKind{Group: "policy.networking.k8s.io", Version: "v1alpha2", Kind: "ClusterNetworkPolicy"}, "clusternetworkpolicies"
		for _, c := range a.conditions {
			id.Conditions = append(id.Conditions, c)
		}
	}
	return id, ok
}

// Identities implements Objects.
func (a *world) Identities(visit func(model.Ref, *kube.Identity) bool, kinds ...model.Kind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ref := range a.cluster {
		for _, k := range kinds {
			if id, _ := a.identity(ref); ref.Kind == k && !visit(ref, &id) {
				return
			}
		}
	}
}

// run starts a reporter under synctest and calls play beside it.
func (a *world) run(t *testing.T, cfg Config, play func()) {
	t.Helper()
	a.runWith(t, cfg, a, play)
}

func (a *world) runWith(t *testing.T, cfg Config, objects Objects, play func()) {
	t.Helper()
	cfg.Node, cfg.Logger = node, slog.New(slog.NewTextHandler(&a.log, nil))
	r := New(cfg, objects, func() (api.Client, dynamic.Interface, error) {
		return a.client, a.dynamic, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- r.Run(ctx, a.count.Load, func(context.Context) (*event.Report, error) {
			a.asked.Add(1)
			if rep := a.report.Load(); rep != nil {
				return rep, nil
			}
			return nil, errors.New("stuck")
		})
	}()
	play()
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// nodes are the Nodes of the API server.
var nodes = corev1.SchemeGroupVersion.WithResource("nodes")

// read reads an object, or a list if it has no name.
func (a *world) read(t *testing.T, resource schema.GroupVersionResource, namespace, name string, into runtime.Object) {
	t.Helper()
	if err := a.client.Read(context.Background(), api.Target{GroupVersionResource: resource, Namespace: namespace, Name: name}, metav1.ListOptions{}, into); err != nil {
		t.Fatal(err)
	}
}

// own returns the agent's Node.
func (a *world) own(t *testing.T) *corev1.Node {
	t.Helper()
	var n corev1.Node
	a.read(t, nodes, "", node, &n)
	return &n
}

// lease returns the agent's Lease.
func (a *world) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	var l coordinationv1.Lease
	a.read(t, coordinationv1.SchemeGroupVersion.WithResource("leases"), "contiv-system", node, &l)
	return &l
}

func (a *world) events(t *testing.T) map[string]eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	a.read(t, eventsv1.SchemeGroupVersion.WithResource("events"), "", "", &list)
	out := map[string]eventsv1.Event{}
	for _, e := range list.Items {
		out[e.Reason] = e
	}
	if len(out) != len(list.Items) {
		t.Errorf("%d events of %d reasons", len(list.Items), len(out))
	}
	return out
}

func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// An Event carries the agent's text, and a second one reports the repair. Repeated problems increase their Event's count.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.run(t, Config{Events: true}, func() {
			a.says(true, ports)
			later(time.Minute)
			e := a.events(t)[string(event.NotSupported)]
			if e.Note != ports.Text || e.Type != corev1.EventTypeWarning || e.ReportingController != "contiv-agent" || e.ReportingInstance != node ||
				e.Action == "" || e.EventTime.IsZero() || e.Series != nil || e.Namespace != "shop" ||
				e.Regarding != (corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "shop", Name: "web", UID: "u1"}) {
				t.Errorf("%+v", e)
			}
			a.says(true)
			later(time.Minute)
			a.says(true, ports)
			later(time.Minute)
			all := a.events(t)
			if e := all[string(event.Rendered)]; len(all) != 2 || e.Type != corev1.EventTypeNormal || e.Series != nil || e.Note != allFixed {
				t.Errorf("%d, %+v", len(all), e)
			}
			if e := all[string(event.NotSupported)]; e.Series == nil || e.Series.Count != 2 || time.Since(e.Series.LastObservedTime.Time) > time.Minute {
				t.Errorf("%+v", e.Series)
			}
			later(40 * time.Minute)
			if e := a.events(t)[string(event.NotSupported)]; e.Series.Count != 3 {
				t.Errorf("%+v", e.Series)
			}
		})
	})
}

// A restarted agent does not repeat recent Events, neither its earlier ones nor another agent's.
func TestRecentEventIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		for range 3 {
			a.run(t, Config{Events: true}, func() {
				a.says(true, ports)
				later(time.Minute)
			})
		}
		if e := a.events(t)[string(event.NotSupported)]; e.Name == "" || e.Series != nil {
			t.Errorf("%+v", e)
		}
		a.run(t, Config{Events: true}, func() { later(time.Minute) })
		if len(a.events(t)) != 1 {
			t.Error("an agent that reported no problem reports its repair")
		}
		later(time.Hour)
		a.run(t, Config{Events: true}, func() {
			a.says(true, ports)
			later(time.Minute)
		})
		if e := a.events(t)[string(event.NotSupported)]; e.Series == nil || e.Series.Count != 2 {
			t.Errorf("%+v", e.Series)
		}
	})
}

// While the API server is away the reporter keeps all reports and logs little. While the agent is not ready it reports no
// objects. It asks the agent only after changes.
func TestReportsSurviveOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		var down atomic.Bool
		down.Store(true)
		a.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			if down.Load() {
				return true, nil, errors.New("connection refused")
			}
			return false, nil, nil
		})
		a.run(t, Config{Events: true}, func() {
			a.says(true, ports)
			later(10 * time.Minute)
			down.Store(false)
			later(time.Minute)
			if len(a.events(t)) != 1 || strings.Count(a.log.String(), "connection refused") != 1 || !strings.Contains(a.log.String(), "reported again") {
				t.Errorf("%d events\n%s", len(a.events(t)), &a.log)
			}
			a.says(false, full)
			later(10 * time.Minute)
			a.report.Store(nil)
			later(10 * time.Minute)
			if all := a.events(t); len(all) != 1 {
				t.Errorf("%+v", all)
			}
			asked := a.asked.Load()
			later(30 * time.Minute)
			if n := a.asked.Load() - asked; n < 29 || n > 31 {
				t.Errorf("asked %d times in 30 minutes", n)
			}
			a.says(true)
			later(11 * time.Second)
			if n := a.asked.Load() - asked; n < 31 {
				t.Errorf("not asked after a change")
			}
		})
	})
}

// An Event that cannot be created, as in a terminating namespace, does not delay others.
func TestFailedEventDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
			e := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
			return e.Regarding.Name == "web", nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
		})
		a.run(t, Config{Events: true}, func() {
			a.says(true, ports)
			later(20 * time.Second)
			a.says(true, ports, event.Problem{Ref: guard, Reason: event.NotUnderstood, Text: "x"})
			later(5 * time.Minute)
			if all := a.events(t); len(all) != 1 || all[string(event.NotUnderstood)].Note != "x" {
				t.Errorf("%+v", all)
			}
		})
	})
}

func TestForbiddenIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		var tries atomic.Int32
		a.client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			tries.Add(1)
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
		})
		a.run(t, Config{Events: true}, func() {
			a.says(true, ports, taken)
			later(time.Hour)
		})
		if n := strings.Count(a.log.String(), "not reported"); n != 1 || tries.Load() < 5 || tries.Load() > 12 {
			t.Errorf("said %d times, tried %d times\n%s", n, tries.Load(), &a.log)
		}
	})
}

// The Lease is owned by its Node, is renewed, carries the agent's readiness, and is released at the end.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		get := func() (holder, ready, waiting string, old time.Duration) {
			l := a.lease(t)
			if len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "u9" || *l.Spec.LeaseDurationSeconds != 40 {
				t.Errorf("%+v", l)
			}
			return *l.Spec.HolderIdentity, l.Annotations[Ready], l.Annotations[Waiting], time.Since(l.Spec.RenewTime.Time)
		}
		own := model.Ref{Kind: model.KindNode, Name: node}
		delete(a.cluster, own) // the source does not know the Node yet
		a.run(t, Config{LeaseNamespace: "contiv-system"}, func() {
			later(5 * time.Second)
			a.mu.Lock()
			a.cluster[own] = "u9"
			a.mu.Unlock()
			for i := range 20 {
				later(30 * time.Second)
				if holder, ready, _, old := get(); holder != node || ready != "true" || old > 11*time.Second {
					t.Errorf("%d: %q %q, renewed %s ago", i, holder, ready, old)
				}
			}
			a.says(true, ports)
			later(30 * time.Second)
			l := a.lease(t)
			if l.Annotations[Ready] != "true" || l.Annotations[Problems] != "1 REFUSED" {
				t.Errorf("ready, with a problem: %v", l.Annotations)
			}
			a.says(false)
			later(30 * time.Second)
			if _, ready, waiting, _ := get(); ready != "false" || waiting != "VPP is not connected" {
				t.Errorf("%q %q", ready, waiting)
			}
		})
		if holder, ready, waiting, _ := get(); holder != "" || ready != "false" || waiting != "the agent was stopped" {
			t.Errorf("%q %q %q", holder, ready, waiting)
		}
		if n := len(a.client.Actions()); n > 90 {
			t.Errorf("%d requests in eleven minutes", n)
		}
	})
}

// The condition of the Node is written when it changes, at once when the agent becomes ready, and at the end.
func TestNodeCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		get := func() (out corev1.NodeCondition) {
			for _, c := range a.own(t).Status.Conditions {
				if c.Type == NodeCondition {
					out = c
				}
			}
			return out
		}
		a.run(t, Config{NodeCondition: true}, func() {
			later(10 * time.Second)
			if c := get(); c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero() {
				t.Errorf("%+v", c)
			}
			for range 10 {
				a.says(false)
				later(20 * time.Second)
				a.says(true)
				later(20 * time.Second)
			}
			if n := writes(a); n != 1 {
				t.Errorf("%d writes", n)
			}
			a.says(false)
			later(time.Minute)
			if c := get(); c.Status != corev1.ConditionFalse || c.Message != "VPP is not connected" || c.Reason != "AgentNotReady" {
				t.Errorf("%+v", c)
			}
			later(time.Hour)
			if n := writes(a); n != 2 {
				t.Errorf("%d writes", n)
			}
			a.says(true, ports)
			later(10 * time.Second)
			if c := get(); c.Status != corev1.ConditionTrue || c.Reason != "AgentReadyWithProblems" || strings.Contains(c.Message, "VPP is as Kubernetes asks for") {
				t.Errorf("ready, with a problem: %+v", c)
			}
			a.says(true)
			later(time.Minute)
			if c := get(); c.Status != corev1.ConditionTrue || c.Reason != "AgentReady" {
				t.Errorf("no problem any more: %+v", c)
			}
			if n := writes(a); n != 4 {
				t.Errorf("%d writes", n)
			}
		})
		if c := get(); c.Status != corev1.ConditionUnknown || c.Reason != "AgentStopped" {
			t.Errorf("%+v", c)
		}
	})
}

// An agent that connects pods says once that the network of the Node is available, and keeps what others say about the Node.
func TestNetworkAvailable(t *testing.T) {
	for _, pods := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t)
			a.says(false)
			set := func() {
				n := a.own(t)
				n.Status.Conditions = []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
					{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"},
				}
				if err := a.client.UpdateStatus(nodes, n); err != nil {
					t.Fatal(err)
				}
			}
			get := func() string {
				var out []string
				for _, c := range a.own(t).Status.Conditions {
					if c.Type != NodeCondition {
						out = append(out, string(c.Type)+"="+string(c.Status))
					}
				}
				slices.Sort(out)
				return strings.Join(out, " ")
			}
			set()
			want := map[bool]string{false: "NetworkUnavailable=True Ready=True", true: "NetworkUnavailable=False Ready=True"}[pods]
			a.run(t, Config{NodeCondition: true, Pods: pods}, func() {
				later(2 * time.Minute)
				if got := get(); got != "NetworkUnavailable=True Ready=True" {
					t.Errorf("before the agent was ready: %s", got)
				}
				a.says(true)
				later(time.Minute)
				if got := get(); got != want {
					t.Errorf("ready: %s, want %s", got, want)
				}
				a.says(false)
				later(2 * time.Minute)
				if got := get(); got != want {
					t.Errorf("no longer ready: %s, want %s", got, want)
				}
				set() // by a cloud's controller, which has a reason to say it again
				a.says(true)
				later(time.Minute)
				if got := get(); got != "NetworkUnavailable=True Ready=True" {
					t.Errorf("said again by another: %s", got)
				}
			})
		})
	}
}

func writes(a *world) (n int) {
	for _, action := range a.client.Actions() {
		if action.Matches("patch", "nodes/status") {
			n++
		}
	}
	return n
}

// Policies have conditions only while something is wrong. Each node has its field manager, and no condition is written
// twice.
func TestConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		a.cluster[model.Ref{Kind: model.KindNode, Name: "node-2"}] = "u8"
		refused := event.Problem{Ref: guard, Reason: event.NotUnderstood, Text: "not understood"}
		lists := event.Problem{Ref: guard, Reason: event.NotEnforced, Text: "too many rules"}
		a.conditions[Programmed+"gone"] = metav1.Condition{Type: Programmed + "gone", Status: metav1.ConditionFalse, Reason: "NotProgrammed", Message: "x"}
		a.conditions[Programmed+"node-2"] = metav1.Condition{Type: Programmed + "node-2", Status: metav1.ConditionFalse, Reason: "NotProgrammed", Message: "x"}
		a.run(t, Config{Conditions: true}, func() {
			a.says(true, ports, refused, lists)
			later(5 * time.Minute)
			a.mu.Lock()
			defer a.mu.Unlock()
			later := func(d time.Duration) {
				a.mu.Unlock()
				later(d)
				a.mu.Lock()
			}
			c, mine := a.conditions[Accepted], a.conditions[Programmed+node]
			if c.Status != metav1.ConditionFalse || c.Reason != string(event.NotUnderstood) || c.Message != refused.Text || c.LastTransitionTime.IsZero() ||
				mine.Reason != string(event.NotEnforced) || mine.Message != lists.Text {
				t.Errorf("%+v", a.conditions)
			}
			if _, there := a.conditions[Programmed+"gone"]; there || len(a.conditions) != 3 || len(a.applied) != 3 {
				t.Errorf("%v, written by %q", a.conditions, a.applied)
			}
			since := c.LastTransitionTime
			a.says(true, event.Problem{Ref: guard, Reason: event.NotUnderstood, Text: "still not"}, lists)
			later(5 * time.Minute)
			if c := a.conditions[Accepted]; c.Message != "still not" || !c.LastTransitionTime.Equal(&since) || len(a.applied) != 4 {
				t.Errorf("%+v, written by %q", c, a.applied)
			}
			a.says(true)
			later(5 * time.Minute)
			if _, other := a.conditions[Programmed+"node-2"]; !other || len(a.conditions) != 1 || len(a.applied) != 6 {
				t.Errorf("%v, written by %q", a.conditions, a.applied)
			}
			for i := range mostNodes {
				name := fmt.Sprint("full-", i)
				a.cluster[model.Ref{Kind: model.KindNode, Name: name}] = name
				a.conditions[Programmed+name] = metav1.Condition{Type: Programmed + name}
			}
			a.says(true, lists)
			later(5 * time.Minute)
			if _, there := a.conditions[Programmed+node]; there {
				t.Error("ten nodes and this one have their say")
			}
			delete(a.conditions, Programmed+"full-0")
			delete(a.conditions, Programmed+"node-2")
			later(5 * time.Minute)
			lists.Text = "far too many rules"
			a.says(true, lists)
			later(5 * time.Minute)
			if c := a.conditions[Programmed+node]; c.Message != lists.Text {
				t.Errorf("one of ten that have their say: %+v", c)
			}
		})
	})
}

func TestFieldManager(t *testing.T) {
	long := strings.Repeat("n", 200)
	if a, b := fieldManager(long+"a"), fieldManager(long+"b"); a == b || len(a) > 128 {
		t.Errorf("%s, %s", a, b)
	}
	if fieldManager("") != "contiv-agent" || fieldManager("n") != "contiv-agent-n" {
		t.Error(fieldManager(""), fieldManager("n"))
	}
}

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{{"abc", 3, "abc"}, {"abcdef", 5, "ab…"}, {"äöüäöü", 7, "äö…"}, {"äöüäöü", 6, "ä…"}} {
		if got := shorten(c.text, c.most); got != c.want {
			t.Errorf("%q to %d: %q", c.text, c.most, got)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Node: node}} {
		r := New(cfg, newAPI(t), func() (api.Client, dynamic.Interface, error) { return nil, nil, errors.New("no kubeconfig") })
		if err := r.Run(t.Context(), nil, nil); err == nil {
			t.Error("no error")
		}
		if cfg.Any() {
			t.Error("reports something")
		}
	}
}
