package kube

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"

	dynamicfake "k8s.io/client-go/dynamic/fake"
)

// says is discovery that answers the same for every group and version.
type says struct {
	discovery.ServerResourcesInterfaceWithContext
	list []metav1.APIResource
	err  error
}

func (s *says) ServerResourcesForGroupVersionWithContext(_ context.Context, gv string) (*metav1.APIResourceList, error) {
	if gv != admin {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	return &metav1.APIResourceList{APIResources: s.list}, s.err
}

// What is followed stays through errors and through a "not found" or two, as of a server that starts; a third in a row
// means it. Neither a kind that may not be watched nor one that is not read is followed.
func TestLook(t *testing.T) {
	verbs := metav1.Verbs{"list", "watch"}
	there := []metav1.APIResource{
		{Name: "adminnetworkpolicies", Kind: "AdminNetworkPolicy", Verbs: verbs},
		{Name: "baselineadminnetworkpolicies", Kind: "BaselineAdminNetworkPolicy", Verbs: metav1.Verbs{"get"}},
		{Name: "others", Kind: "Other", Verbs: verbs},
	}
	d, left := &says{}, 0
	o := &optional{
		discovery: d, groups: optionalGroups(), dynamic: dynamicfake.NewSimpleDynamicClient(scheme.Scheme),
		start: func(_ context.Context, r *resource, _ any, _ func(error)) (*following, error) {
			inf := r.informer(nil, newGate(), false, func(string, error) {})
			return &following{informer: inf, stop: func() {}, gone: func(*item) {}, lost: func() { left++ }}, nil
		},
	}
	gone := apierrors.NewNotFound(schema.GroupResource{}, admin)
	for i, step := range []struct {
		list          []metav1.APIResource
		err           error
		changed, fail bool
		followed      int
	}{
		{nil, gone, false, false, 0},
		{there, nil, true, false, 1},
		{there, nil, false, false, 1},
		{nil, gone, true, false, 1},
		{nil, gone, true, false, 1},
		{there, nil, false, false, 1},
		{nil, errors.New("unavailable"), false, true, 1},
		{nil, gone, true, false, 1},
		{nil, nil, true, false, 1},
		{nil, gone, true, false, 0},
		{nil, gone, false, false, 0},
		{there, nil, true, false, 1},
	} {
		d.list, d.err = step.list, step.err
		changed, err := o.look(t.Context())
		if changed != step.changed || (err != nil) != step.fail || len(o.all()) != step.followed {
			t.Errorf("step %d: changed %v, %v, %d followed; want %+v", i, changed, err, len(o.all()), step)
		}
	}
	if left != 1 {
		t.Errorf("left %d times", left)
	}
}
