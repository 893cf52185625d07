package convert

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// FuzzObject converts arbitrary objects of every kind. Conversion never panics, gives a value or an error that names the
// object, does not modify its input, gives equal values for equal input, and accepts only what a data plane can use.
func FuzzObject(f *testing.F) {
	for i, seed := range []string{
		`{"metadata":{"name":"web"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80,"targetPort":"http"}]}}`,
		`{"metadata":{"name":"s"},"addressType":"IPv4","ports":[{"port":80}],"endpoints":[{"addresses":["10.1.1.1"]}]}`,
		`{"metadata":{"name":"p"},"spec":{"containers":[{"ports":[{"name":"a","containerPort":1}]}]},"status":{"podIP":"10.1.1.1"}}`,
		`{"metadata":{"name":"n"},"spec":{"podCIDR":"10.1.0.0/24"},"status":{"addresses":[{"type":"InternalIP","address":"1.2.3.4"}]}}`,
		`{"metadata":{"name":"ns","labels":{"a":"b"}}}`,
		`{"metadata":{"name":"c"},"spec":{"cidrs":["10.96.0.0/16"]}}`,
	} {
		f.Add(byte(i), []byte(seed))
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		obj := []runtime.Object{
			&corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{}, &networkingv1.ServiceCIDR{},
		}[kind%6]
		if json.Unmarshal(data, obj) != nil {
			return
		}
		before, err := json.Marshal(obj)
		if err != nil {
			return
		}
		ref, _ := Ref(obj)
		got, err := Object(obj)
		if err != nil {
			if e, ok := err.(*check.Error); !ok || e.Ref != ref || got != nil {
				t.Fatalf("error %v with value %v", err, got)
			}
			return
		}
		after, _ := json.Marshal(obj)
		if string(before) != string(after) {
			t.Fatalf("input changed\nfrom %s\nto   %s", before, after)
		}
		if again, _ := Object(obj); !model.Equal(got, again) {
			t.Fatalf("converted twice: %+v, %+v", got, again)
		}
		switch o := got.(type) {
		case *model.Service:
			for _, p := range o.Ports {
				if p.Port == 0 || p.Protocol == 0 {
					t.Fatalf("port %+v", p)
				}
			}
			for _, a := range o.ClusterIPs {
				if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
					t.Fatalf("cluster IP %v", a)
				}
			}
		case *model.EndpointSlice:
			for _, p := range o.Ports {
				if p.Port == 0 || p.Protocol == 0 {
					t.Fatalf("port %+v", p)
				}
			}
			for _, e := range o.Endpoints {
				if !e.Addr.IsValid() || e.Addr.Is6() != o.IPv6 {
					t.Fatalf("endpoint %+v", e)
				}
			}
		}
		if got != nil && got.Ref() != ref {
			t.Fatalf("Ref %v of the object, %v of the value", ref, got.Ref())
		}
	})
}
