// Package apitest turns client-go's fake clientset into an api.Client.
//
// Invariant: each request is one action of the clientset, as its own typed clients record it, so that its reactors see it.
package apitest

import (
	"context"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"

	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

// Client is an api.Client of the objects in a fake clientset. The clientset has no versions and no streamed lists, and it
// ignores field selectors.
type Client struct{ *fake.Clientset }

// New returns a client of the given objects.
func New(objects ...runtime.Object) Client { return Client{fake.NewClientset(objects...)} }

var _ api.Client = Client{}

// Read implements api.Client.
func (c Client) Read(_ context.Context, t api.Target, o metav1.ListOptions, into runtime.Object) error {
	var action clienttesting.Action = clienttesting.NewGetAction(t.GroupVersionResource, t.Namespace, t.Name)
	if t.Name == "" {
		kinds, _, err := scheme.Scheme.ObjectKinds(into)
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

// Patch implements api.Client.
func (c Client) Patch(_ context.Context, t api.Target, kind types.PatchType, patch []byte) error {
	var sub []string
	if t.Subresource != "" {
		sub = []string{t.Subresource}
	}
	_, err := c.Invokes(clienttesting.NewPatchSubresourceAction(t.GroupVersionResource, t.Namespace, t.Name, kind, patch, sub...), nil)
	return err
}

// Served implements api.Client.
func (c Client) Served(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	return c.Discovery().ServerResourcesForGroupVersion(groupVersion)
}
