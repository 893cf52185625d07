package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/contiv-agent/contiv-agent/source/kube/api"
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

// typed fills in how to read r through a client of Kubernetes' own groups. L is the type of its lists.
func typed[L any, list interface {
	*L
	runtime.Object
}](c api.Client, gv schema.GroupVersion, r resource,
) resource {
	target := api.Target{GroupVersionResource: gv.WithResource(r.name)}
	r.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l := list(new(L))
		return l, c.Read(ctx, target, o, l)
	}
	r.watch = func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return c.Watch(ctx, target, o)
	}
	return r
}

// resources returns all kinds, with kube-proxy's selectors: the API server does not even send Services that are not
// proxied.
func resources(c api.Client) []resource {
	core, networking := corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion
	return []resource{
		typed[corev1.ServiceList](c, core, resource{name: "services", example: &corev1.Service{}, fields: "spec.clusterIP!=None"}),
		typed[discoveryv1.EndpointSliceList](c, discoveryv1.SchemeGroupVersion, resource{
			name: "endpointslices", example: &discoveryv1.EndpointSlice{}, labels: "!" + corev1.IsHeadlessService,
		}),
		typed[corev1.NodeList](c, core, resource{name: "nodes", example: &corev1.Node{}}),
		typed[corev1.PodList](c, core, resource{name: "pods", example: &corev1.Pod{}}),
		typed[corev1.NamespaceList](c, core, resource{name: "namespaces", example: &corev1.Namespace{}}),
		typed[corev1.ServiceAccountList](c, core, resource{name: "serviceaccounts", example: &corev1.ServiceAccount{}}),
		typed[networkingv1.NetworkPolicyList](c, networking, resource{name: "networkpolicies", example: &networkingv1.NetworkPolicy{}}),
		typed[networkingv1.ServiceCIDRList](c, networking, resource{name: "servicecidrs", example: &networkingv1.ServiceCIDR{}, optional: true, dispensable: true}),
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
