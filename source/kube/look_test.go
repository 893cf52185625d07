package kube

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	dynamicfake "k8s.io/client-go/dynamic/fake"
)

// says is a discovery client that gives the same answer for every group and version.
type says struct {
	list []metav1.APIResource
	err  error
}

func (s *says) Served(_ context.Context, gv string) (*metav1.APIResourceList, error) {
	if gv != admin {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	return &metav1.APIResourceList{APIResources: s.list}, s.err
}

// The source keeps following a kind through errors and through one or two "not found" answers, as a starting server gives.
// It stops after the third in a row. It does not follow kinds that cannot be watched or that it does not read.
func TestTransientNotFoundKeepsKind(t *testing.T) {
	verbs := metav1.Verbs{"list", "watch"}
	there := []metav1.APIResource{
		{Name: "adminnetworkpolicies", Kind: "AdminNetworkPolicy", Verbs: verbs},
		{Name: "baselineadminnetworkpolicies", Kind: "BaselineAdminNetworkPolicy", Verbs: metav1.Verbs{"get"}},
		{Name: "others", Kind: "Other", Verbs: verbs},
	}
	d, left := &says{}, 0
	o := &optional{
		discovery: d, groups: optionalGroups(), dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
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
		changed, err := o.discoverKinds(t.Context())
		if changed != step.changed || (err != nil) != step.fail || len(o.allFollowed()) != step.followed {
			t.Errorf("step %d: changed %v, %v, %d followed; want %+v", i, changed, err, len(o.allFollowed()), step)
		}
	}
	if left != 1 {
		t.Errorf("left %d times", left)
	}
}
