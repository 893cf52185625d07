package removal

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/contiv-agent/contiv-agent/source/kube/rbactest"
)

var names = Names{"contiv-system", "contiv-vswitch", "contiv-agent"}

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(names.Namespace)
	u.SetName(name)
	return u
}

func daemonSet() *unstructured.Unstructured { return object("apps/v1", "DaemonSet", names.DaemonSet) }

func account() *unstructured.Unstructured {
	return object("v1", "ServiceAccount", names.ServiceAccount)
}

// cluster has the objects of an installation.
type cluster struct {
	t          *testing.T
	sets, accs dynamic.ResourceInterface
}

func (c *cluster) remove(r dynamic.ResourceInterface, name string) {
	if err := r.Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) create(r dynamic.ResourceInterface, o *unstructured.Unstructured) {
	if _, err := r.Create(c.t.Context(), o, metav1.CreateOptions{}); err != nil {
		c.t.Error(err)
	}
}

// TestRemoved: only the deletion of both objects counts, and one that was never seen does not.
func TestRemoved(t *testing.T) {
	for _, c := range []struct {
		name   string
		absent bool // the objects do not exist when the agent starts
		do     func(c *cluster)
		want   bool
		waits  bool
	}{
		{name: "nothing happens", do: func(*cluster) {}},
		{name: "kubectl delete", do: func(c *cluster) { c.remove(c.accs, names.ServiceAccount); c.remove(c.sets, names.DaemonSet) }, want: true},
		{name: "the DaemonSet alone", do: func(c *cluster) { c.remove(c.sets, names.DaemonSet) }, waits: true},
		{name: "the ServiceAccount alone", do: func(c *cluster) { c.remove(c.accs, names.ServiceAccount) }, waits: true},
		{name: "helm uninstall, one after the other", do: func(c *cluster) {
			c.remove(c.sets, names.DaemonSet)
			time.AfterFunc(2*time.Second, func() { c.remove(c.accs, names.ServiceAccount) })
		}, want: true, waits: true},
		{name: "both are made again", do: func(c *cluster) {
			c.remove(c.accs, names.ServiceAccount)
			c.remove(c.sets, names.DaemonSet)
			c.create(c.accs, account())
			c.create(c.sets, daemonSet())
		}},
		{name: "the DaemonSet waits for its pods", do: func(c *cluster) {
			u := daemonSet()
			now := metav1.Now()
			u.SetDeletionTimestamp(&now)
			if _, err := c.sets.Update(c.t.Context(), u, metav1.UpdateOptions{}); err != nil {
				c.t.Error(err)
			}
			c.remove(c.accs, names.ServiceAccount)
		}, want: true},
		{name: "wrong names", absent: true, do: func(*cluster) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := []runtime.Object{daemonSet(), account()}
				if c.absent {
					objects = nil
				}
				client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
					{Group: "apps", Version: "v1", Resource: "daemonsets"}: "DaemonSetList", {Version: "v1", Resource: "serviceaccounts"}: "ServiceAccountList",
				}, objects...)
				in := &cluster{
					t, client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}).Namespace(names.Namespace),
					client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}).Namespace(names.Namespace),
				}
				ctx, stop := context.WithCancel(t.Context())
				w, done := New(names, client), make(chan struct{})
				go func() { defer close(done); w.Run(ctx) }()
				time.Sleep(time.Second)
				synctest.Wait()
				if w.Seen() == c.absent {
					t.Errorf("seen: %t", w.Seen())
				}
				c.do(in)
				synctest.Wait()
				began := time.Now()
				if got := w.Removed(t.Context()); got != c.want || time.Since(began) > 0 != c.waits {
					t.Errorf("removed: %t after %s", got, time.Since(began))
				}
				stop()
				<-done
			})
		})
	}
}

func TestParse(t *testing.T) {
	if n, err := Parse(names.String()); err != nil || n != names {
		t.Errorf("%v, %v", n, err)
	}
	for _, s := range []string{"", "a/b", "a/b/", "/b/c", "a//c", "a/b/c/d"} {
		if n, err := Parse(s); err == nil {
			t.Errorf("%q is %v", s, n)
		}
	}
}

// TestRolesAreExact compares the role in deploy with what this package lists and watches.
func TestRolesAreExact(t *testing.T) {
	want := []string{"apps/daemonsets list", "apps/daemonsets watch", "/serviceaccounts list", "/serviceaccounts watch"}
	slices.Sort(want)
	if diff := cmp.Diff(want, rbactest.Rights(t, "../../../deploy/cni/role.yaml", "")); diff != "" {
		t.Errorf("(- read, + role):\n%s", diff)
	}
}
