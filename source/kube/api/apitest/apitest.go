// Package apitest is an api.Client of objects in memory, by client-go's object tracker.
//
// Invariant: each request is one action, as client-go's fake clientset records it, so that reactors see it. The clientset itself is not used: it has every
// kind of every group, which takes a quarter of the time to compile all that the tests import.
package apitest

import (
	"context"
	"reflect"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

// Client is an api.Client of the objects in a tracker. The tracker has no versions and no streamed lists, and it ignores field selectors.
type Client struct {
	*clienttesting.Fake
	scheme *runtime.Scheme
}

var _ api.Client = Client{}

// Scheme returns the kinds of the groups that the agent reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two types of one kind
		}
	}
	return s
}

// New returns a client of the given objects. It panics at an object of another group.
func New(objects ...runtime.Object) Client {
	c := Client{&clienttesting.Fake{}, Scheme()}
	tracker := clienttesting.NewObjectTracker(c.scheme, serializer.NewCodecFactory(c.scheme).UniversalDecoder())
	for _, o := range objects {
		if err := tracker.Add(o); err != nil {
			panic(err)
		}
	}
	c.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	c.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := tracker.Watch(action.GetResource(), action.GetNamespace(), action.(clienttesting.WatchActionImpl).ListOptions)
		return err == nil, w, err
	})
	return c
}

// IsWatchListSemanticsUnSupported makes client-go's informers list and then watch.
func (c Client) IsWatchListSemanticsUnSupported() bool { return true }

// Read implements api.Client.
func (c Client) Read(_ context.Context, t api.Target, o metav1.ListOptions, into runtime.Object) error {
	var action clienttesting.Action = clienttesting.NewGetAction(t.GroupVersionResource, t.Namespace, t.Name)
	if t.Name == "" {
		kinds, _, err := c.scheme.ObjectKinds(into)
		if err != nil {
			return err
		}
		kind := kinds[0]
		kind.Kind = kind.Kind[:len(kind.Kind)-len("List")] // the action wants the kind of the items
		action = clienttesting.NewListActionWithOptions(t.GroupVersionResource, kind, t.Namespace, o)
	}
	have, err := c.Invokes(action, into)
	if err != nil || have == nil {
		return err
	}
	if t.Name == "" {
		if have, err = selectItems(have, o.LabelSelector); err != nil {
			return err
		}
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(have).Elem())
	return nil
}

// selectItems returns a list of those items that a label selector matches.
func selectItems(list runtime.Object, selector string) (runtime.Object, error) {
	s, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	var out []runtime.Object
	for _, item := range items {
		m, err := meta.Accessor(item)
		if err != nil {
			return nil, err
		}
		if s.Matches(labels.Set(m.GetLabels())) {
			out = append(out, item)
		}
	}
	list = list.DeepCopyObject()
	return list, meta.SetList(list, out)
}

// Watch implements api.Client.
func (c Client) Watch(_ context.Context, t api.Target, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.InvokesWatch(clienttesting.NewWatchActionWithOptions(t.GroupVersionResource, t.Namespace, o))
}

// Create implements api.Client.
func (c Client) Create(_ context.Context, t api.Target, obj runtime.Object) error {
	_, err := c.Invokes(clienttesting.NewCreateAction(t.GroupVersionResource, t.Namespace, obj), obj)
	return err
}

// UpdateStatus replaces an object without a namespace, as another client that writes its status.
func (c Client) UpdateStatus(resource schema.GroupVersionResource, obj runtime.Object) error {
	_, err := c.Invokes(clienttesting.NewRootUpdateSubresourceAction(resource, "status", obj), obj)
	return err
}

// Patch implements api.Client.
func (c Client) Patch(_ context.Context, t api.Target, kind types.PatchType, patch []byte) error {
	var sub []string
	if t.Subresource != "" {
		sub = []string{t.Subresource}
	}
	_, err := c.Invokes(clienttesting.NewPatchSubresourceAction(t.GroupVersionResource, t.Namespace, t.Name, kind, patch, sub...), nil)
	return err
}

// Served implements api.Client. It returns a "not found" for a group that is not in Resources.
func (c Client) Served(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	if _, err := c.Invokes(clienttesting.ActionImpl{Verb: "get", Resource: schema.GroupVersionResource{Resource: "resource"}}, nil); err != nil {
		return nil, err
	}
	for _, list := range c.Resources {
		if list.GroupVersion == groupVersion {
			return list, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
}
