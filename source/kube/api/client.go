// Package api reads and writes objects of Kubernetes' own API groups over REST.
//
// Invariant: a client knows the kinds that New registers, and no other. client-go's clientset knows every kind of every group; a
// program that links it is a third larger. Content types, rate limits and errors are those of the clientset: protobuf, one limit per
// group, and the errors of k8s.io/apimachinery/pkg/api/errors.
package api

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Client makes requests to an API server. *REST is one; apitest.Client is a fake.
type Client interface {
	// Read reads the object with the target's name, or a list if the target has no name, into an object of that type. Only
	// lists use the options.
	Read(context.Context, Target, metav1.ListOptions, runtime.Object) error
	// Watch watches the objects of a target without a name.
	Watch(context.Context, Target, metav1.ListOptions) (watch.Interface, error)
	// Create creates an object in the target's namespace.
	Create(context.Context, Target, runtime.Object) error
	// Patch changes the object with the target's name.
	Patch(context.Context, Target, types.PatchType, []byte) error
	// Served returns the resources of a group and version, "group/version". The error is "not found" if the API server does not
	// serve it. Callers do not change the list: the next answer may be the same one.
	Served(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Target is what a request is about.
type Target struct {
	schema.GroupVersionResource
	Namespace   string // "": all, or the resource has no namespaces
	Name        string // "": the list
	Subresource string // "": the object itself
}

// kinds returns an empty object of each kind that a client sends or receives.
func kinds() map[schema.GroupVersion][]runtime.Object {
	return map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion: {
			&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{},
			&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{},
		},
		discoveryv1.SchemeGroupVersion: {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		networkingv1.SchemeGroupVersion: {
			&networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicyList{}, &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{},
		},
		coordinationv1.SchemeGroupVersion: {&coordinationv1.Lease{}},
		eventsv1.SchemeGroupVersion:       {&eventsv1.Event{}},
	}
}

// REST is a Client over HTTP. Create with New.
type REST struct {
	groups     map[schema.GroupVersion]rest.Interface
	discovery  rest.Interface
	parameters runtime.ParameterCodec
	served     sync.Map // group version → answer, the last one
}

// answer is one that the server mostly repeats byte for byte.
type answer struct {
	body []byte
	list *metav1.APIResourceList
}

// New returns a client for the server of cfg. Its requests ask for protobuf first, which costs a third of JSON's work.
func New(cfg *rest.Config) (*REST, error) {
	shared := rest.CopyConfig(cfg)
	shared.AcceptContentTypes, shared.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	scheme := runtime.NewScheme()
	for gv, objects := range kinds() {
		scheme.AddKnownTypes(gv, objects...)
		metav1.AddToGroupVersion(scheme, gv) // options, watch events and Status, in which errors arrive
	}
	shared.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	transport, err := rest.HTTPClientFor(shared) // one for all groups
	if err != nil {
		return nil, err
	}
	connect := func(gv schema.GroupVersion) (rest.Interface, error) {
		group := rest.CopyConfig(shared)
		if group.GroupVersion, group.APIPath = &gv, "/apis"; gv.Group == "" {
			group.APIPath = "/api"
		}
		return rest.RESTClientForConfigAndClient(group, transport)
	}
	c := &REST{groups: map[schema.GroupVersion]rest.Interface{}, parameters: runtime.NewParameterCodec(scheme)}
	for gv := range kinds() {
		if c.groups[gv], err = connect(gv); err != nil {
			return nil, err
		}
	}
	c.discovery, err = connect(schema.GroupVersion{Version: "v1"})
	return c, err
}

// Host returns the server's host and port.
func (c *REST) Host() string { return c.discovery.Get().URL().Host }

// group returns the client of the target's group and version.
func (c *REST) group(t Target) (rest.Interface, error) {
	g, ok := c.groups[t.GroupVersion()]
	if !ok {
		return nil, fmt.Errorf("%s: this client has no kinds of %s", t.Resource, t.GroupVersion())
	}
	return g, nil
}

// aim addresses a request to a target.
func (t Target) aim(r *rest.Request) *rest.Request {
	r = r.NamespaceIfScoped(t.Namespace, t.Namespace != "").Resource(t.Resource)
	if t.Name != "" {
		r = r.Name(t.Name)
	}
	if t.Subresource != "" {
		r = r.SubResource(t.Subresource)
	}
	return r
}

// timeout returns how long the server may take for a list or a watch; 0: as long as it wants.
func timeout(o *metav1.ListOptions) time.Duration {
	if o.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*o.TimeoutSeconds) * time.Second
}

// Read implements Client.
func (c *REST) Read(ctx context.Context, t Target, o metav1.ListOptions, into runtime.Object) error {
	g, err := c.group(t)
	if err != nil {
		return err
	}
	r := t.aim(g.Get())
	if t.Name == "" {
		r = r.VersionedParams(&o, c.parameters).Timeout(timeout(&o))
	}
	return r.Do(ctx).Into(into)
}

// Watch implements Client.
func (c *REST) Watch(ctx context.Context, t Target, o metav1.ListOptions) (watch.Interface, error) {
	g, err := c.group(t)
	if err != nil {
		return nil, err
	}
	o.Watch = true
	return t.aim(g.Get()).VersionedParams(&o, c.parameters).Timeout(timeout(&o)).Watch(ctx)
}

// Create implements Client.
func (c *REST) Create(ctx context.Context, t Target, obj runtime.Object) error {
	g, err := c.group(t)
	if err != nil {
		return err
	}
	return t.aim(g.Post()).Body(obj).Do(ctx).Error()
}

// Patch implements Client.
func (c *REST) Patch(ctx context.Context, t Target, kind types.PatchType, patch []byte) error {
	g, err := c.group(t)
	if err != nil {
		return err
	}
	return t.aim(g.Patch(kind)).Body(patch).Do(ctx).Error()
}

// Served implements Client.
func (c *REST) Served(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	res := c.discovery.Get().AbsPath("/apis/" + groupVersion).Do(ctx)
	body, err := res.Raw()
	if last, ok := c.served.Load(groupVersion); ok && err == nil && bytes.Equal(last.(answer).body, body) {
		return last.(answer).list, nil
	}
	l := &metav1.APIResourceList{}
	if err := res.Into(l); err != nil {
		return nil, err
	}
	c.served.Store(groupVersion, answer{body, l})
	return l, nil
}
