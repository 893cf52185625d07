package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/model"
)

func TestServiceHasDefaultsAndProblems(t *testing.T) {
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	o.Spec.ClusterIP = "10.96.0.1"
	o.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	s, ps := Service(o)
	if err := ps.Err(); err != nil || s.ID != (model.ServiceID{Namespace: "default", Name: "web"}) || s.Ports[0].Protocol != model.TCP {
		t.Errorf("%+v, %v", s, err)
	}
	o.Spec.Ports[0].Port = 0
	if _, ps = Service(o); len(ps.List) != 1 || ps.List[0].Field != "spec.ports[0].port" {
		t.Errorf("problems %v", ps.List)
	}
}

func TestSliceOfNamesIsNothing(t *testing.T) {
	if s, ps := EndpointSlice(&discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeFQDN}); s != nil || ps != nil {
		t.Errorf("%v, %v", s, ps)
	}
}
