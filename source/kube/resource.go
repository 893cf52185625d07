package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// resource is one kind of object to list and watch.
type resource struct {
	name        string // plural, as in URLs and messages; with the group, unless it is one of Kubernetes' core groups
	example     runtime.Object
	labels      string        // label selector
	fields      string        // field selector
	optional    bool          // may be missing: the source continues without it
	dispensable bool          // may be forbidden: it contains no policies
	without     chan struct{} // closed when the source continues without it
	identified  bool          // keep the identities of its objects
	list        func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch       func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// api is the interface that all typed clients share.
type api[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// throughClient fills in how to read r through a typed client.
func throughClient[L runtime.Object](c api[L], r resource) resource {
	r.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return c.List(ctx, o) }
	r.watch = c.Watch
	return r
}

// resources returns all kinds, with kube-proxy's selectors: the API server does not even send Services that are not
// proxied.
func resources(c kubernetes.Interface) []resource {
	core := c.CoreV1()
	return []resource{
		throughClient(core.Services(""), resource{name: "services", example: &corev1.Service{}, fields: "spec.clusterIP!=None"}),
		throughClient(c.DiscoveryV1().EndpointSlices(""), resource{
			name: "endpointslices", example: &discoveryv1.EndpointSlice{}, labels: "!" + corev1.IsHeadlessService,
		}),
		throughClient(core.Nodes(), resource{name: "nodes", example: &corev1.Node{}}),
		throughClient(core.Pods(""), resource{name: "pods", example: &corev1.Pod{}}),
		throughClient(core.Namespaces(), resource{name: "namespaces", example: &corev1.Namespace{}}),
		throughClient(core.ServiceAccounts(""), resource{name: "serviceaccounts", example: &corev1.ServiceAccount{}}),
		throughClient(c.NetworkingV1().NetworkPolicies(""), resource{name: "networkpolicies", example: &networkingv1.NetworkPolicy{}}),
		throughClient(c.NetworkingV1().ServiceCIDRs(), resource{name: "servicecidrs", example: &networkingv1.ServiceCIDR{}, optional: true, dispensable: true}),
	}
}

// informer returns a shared informer for r whose store holds items. Its requests use client and pass the gate g; health
// gets the result of each, with its verb. With keys, items also carry datastore keys and no selector applies.
func (r *resource) informer(client any, g *gate, keys bool, health func(verb string, err error)) cache.SharedIndexInformer {
	selected := func(o *metav1.ListOptions) {
		if !keys {
			o.LabelSelector, o.FieldSelector = r.labels, r.fields
		}
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (l runtime.Object, err error) {
			selected(&o)
			err = g.pass(ctx, func(err error) { health("list", err) }, func() error {
				l, err = r.list(ctx, o)
				return err
			})
			return l, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (w watch.Interface, err error) {
			selected(&o)
			err = g.pass(ctx, func(err error) { health("watch", err) }, func() error {
				w, err = r.watch(ctx, o)
				return err
			})
			return w, err
		},
	}
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, client), r.example, 0, cache.Indexers{})
	// Both fail only on an informer that runs already.
	_ = i.SetTransform(transform(keys, r.identified))
	_ = i.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // health has the error already
	return i
}
