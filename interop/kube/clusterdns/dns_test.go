package clusterdns

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names have the addresses of Services, or of ready endpoints, and change with them.
func TestNames(t *testing.T) {
	n := newNames()
	no, host := false, "redis-0"
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "guestbook"} }
	web := &corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.80", "fd00::80"}}}
	n.service(web, false)
	n.service(&corev1.Service{ObjectMeta: meta("redis"), Spec: corev1.ServiceSpec{ClusterIPs: []string{"None"}}}, false)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta("redis-1"), Endpoints: []discoveryv1.Endpoint{
		{Addresses: []string{"10.1.1.3"}, Hostname: &host}, {Addresses: []string{"10.1.2.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
	}}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "redis"}
	n.slice(slice, false)
	wants := func(name, want string) {
		t.Helper()
		if addrs, known := n.find(name); fmt.Sprint(addrs, known) != want {
			t.Errorf("%s: %v %v, want %s", name, addrs, known, want)
		}
	}
	wants("web.guestbook.svc.cluster.local.", "[10.96.0.80 fd00::80] true")
	wants("redis.guestbook.svc.cluster.local.", "[10.1.1.3] true")
	wants("redis-0.redis.guestbook.svc.cluster.local.", "[10.1.1.3] true")
	wants("redis-1.redis.guestbook.svc.cluster.local.", "[] false")
	wants("web.other.svc.cluster.local.", "[] false")
	wants("web.guestbook.", "[] false")
	n.slice(slice, true)
	wants("redis.guestbook.svc.cluster.local.", "[] true")
	alias := &corev1.Service{ObjectMeta: meta("alias"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "Web.guestbook.svc.cluster.local"}}
	n.service(alias, false)
	wants("alias.guestbook.svc.cluster.local.", "[10.96.0.80 fd00::80] true")
	alias = &corev1.Service{ObjectMeta: meta("alias"), Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.81"}}}
	n.service(alias, false)
	wants("alias.guestbook.svc.cluster.local.", "[10.96.0.81] true")
	n.service(alias, true)
	wants("alias.guestbook.svc.cluster.local.", "[] false")
	n.service(web, true)
	wants("web.guestbook.svc.cluster.local.", "[] false")
}
