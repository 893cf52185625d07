// Package removal turns the objects of an agent's installation into the answer whether an agent that ends is removed from its node.
//
// Invariant: Removed is true only after this process has seen the DaemonSet and the ServiceAccount of the agent, and then the deletion of both. A
// rolling update, a restart of the node and a DaemonSet that is deleted and made again delete one of them at most.
//
// The agent watches the objects, and does not ask when it ends: kubectl delete and helm uninstall delete the agent's rights with it. The API server ends
// no watch because its rights are gone.
package removal

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Names are the objects of an installation.
type Names struct{ Namespace, DaemonSet, ServiceAccount string }

// Parse reads "NAMESPACE/DAEMONSET/SERVICEACCOUNT".
func Parse(s string) (n Names, _ error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return n, fmt.Errorf("%q: want NAMESPACE/DAEMONSET/SERVICEACCOUNT", s)
	}
	return Names{parts[0], parts[1], parts[2]}, nil
}

// String returns the form that Parse reads.
func (n Names) String() string { return n.Namespace + "/" + n.DaemonSet + "/" + n.ServiceAccount }

const (
	// secondWithin bounds how long Removed waits for the deletion of the second object: kubectl and helm send one request after the other.
	secondWithin = 5 * time.Second
	lookEvery    = 50 * time.Millisecond
)

// Watch follows the objects.
type Watch struct{ parts []*part }

// part is one of the objects.
type part struct {
	cache.SharedIndexInformer
	seen atomic.Bool // it existed
}

// New returns a Watch that follows nothing before Run.
func New(n Names, client dynamic.Interface) *Watch {
	return &Watch{[]*part{
		newPart(client, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, n.Namespace, n.DaemonSet),
		newPart(client, schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, n.Namespace, n.ServiceAccount),
	}}
}

func newPart(all dynamic.Interface, kind schema.GroupVersionResource, namespace, name string) *part {
	client := all.Resource(kind).Namespace(namespace)
	only := func(o metav1.ListOptions) metav1.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		return o
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, only(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, only(o))
		},
	}
	p := &part{SharedIndexInformer: cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, all), &unstructured.Unstructured{}, 0, cache.Indexers{})}
	// Both fail only on an informer that runs already. Without the right nothing is ever seen, and the agent cleans nothing.
	_ = p.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {})
	_, _ = p.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { p.seen.Store(true) }})
	return p
}

// Run follows the objects until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range w.parts {
		all.Go(func() { p.RunWithContext(ctx) })
	}
	all.Wait()
}

// Seen reports that all objects existed.
func (w *Watch) Seen() bool {
	for _, p := range w.parts {
		if !p.seen.Load() {
			return false
		}
	}
	return true
}

// deleted counts the objects that existed and do not any more, or are being deleted.
func (w *Watch) deleted() (n int) {
	for _, p := range w.parts {
		gone := p.seen.Load()
		for _, o := range p.GetStore().List() {
			if u, ok := o.(*unstructured.Unstructured); ok && u.GetDeletionTimestamp() == nil {
				gone = false
			}
		}
		if gone {
			n++
		}
	}
	return n
}

// Removed reports that all objects are deleted. If only some are, it waits for the others, for a few seconds or until ctx ends.
func (w *Watch) Removed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, secondWithin)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		switch w.deleted() {
		case 0:
			return false
		case len(w.parts):
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}
