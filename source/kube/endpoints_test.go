package kube

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/source/kube/api/apitest"
)

func TestEndpoints(t *testing.T) {
	port := func(n int32) discoveryv1.EndpointPort { return discoveryv1.EndpointPort{Port: &n} }
	node, other, no := "node-1", "node-2", false
	slice := func(name, service string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "calico-system", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Ports:      ports, Endpoints: endpoints,
		}
	}
	c := Config{Client: apitest.New(
		slice("a", "calico-typha", []discoveryv1.EndpointPort{port(9093), port(5473)},
			discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}, NodeName: &other},
			discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, NodeName: &node},
			discoveryv1.Endpoint{Addresses: []string{"10.0.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}),
		slice("b", "calico-typha", []discoveryv1.EndpointPort{port(5000)}, discoveryv1.Endpoint{Addresses: []string{"fd00::4"}}),
		slice("c", "other", []discoveryv1.EndpointPort{port(5473)}, discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"}}),
	)}
	got, err := c.Endpoints(t.Context(), "calico-system", "calico-typha", "node-1", 5473)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0] != "10.0.0.1:5473" {
		t.Errorf("%v: the endpoint of the node itself is not the first of three", got)
	}
	slices.Sort(got)
	if want := []string{"10.0.0.1:5473", "10.0.0.2:5473", "[fd00::4]:5000"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, err := c.Endpoints(t.Context(), "calico-system", "nothing", "node-1", 5473); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}
