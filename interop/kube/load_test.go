package kube

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	loadSpace = "load"   // namespace
	loadNode  = "node-1" // the node that is measured; no endpoint is on it
	podRange  = "10.128.0.0/9"
)

// load is Services with EndpointSlices that no controller changes.
type load struct {
	c      *cluster
	each   uint32                       // endpoints of a Service
	slices []*discoveryv1.EndpointSlice // as they are at the API server
	fresh  atomic.Uint32                // addresses given to endpoints that came later
}

// newLoad makes the namespace and the node; Services will have so many endpoints each.
func newLoad(t testing.TB, c *cluster, each uint32) *load {
	t.Helper()
	ctx := context.Background()
	if _, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: loadSpace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: loadNode}, Spec: corev1.NodeSpec{PodCIDR: "10.240.1.0/24", PodCIDRs: []string{"10.240.1.0/24"}}}
	node, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: loadAddr.String()}}
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &load{c: c, each: each}
}

// grow adds Services until there are that many.
func (l *load) grow(t testing.TB, services int) {
	t.Helper()
	began, from := time.Now(), len(l.slices)
	l.slices = append(l.slices, make([]*discoveryv1.EndpointSlice, services-from)...)
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(16)
	for n := from; n < services; n++ {
		group.Go(func() (err error) {
			l.slices[n], err = l.service(ctx, n)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d services more in %s", services-from, time.Since(began).Round(time.Second/10))
}

func (l *load) service(ctx context.Context, n int) (*discoveryv1.EndpointSlice, error) {
	name, port, protocol, yes := fmt.Sprintf("s%d", n), int32(8080), corev1.ProtocolTCP, true
	portName := "http"
	_, err := l.c.client.CoreV1().Services(loadSpace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: portName, Port: 80, TargetPort: intstr.FromInt32(port), Protocol: protocol}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "load",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for e := range l.each {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{address("10.128.0.1", uint32(n)*l.each+e).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		})
	}
	return l.c.client.DiscoveryV1().EndpointSlices(loadSpace).Create(ctx, slice, metav1.CreateOptions{})
}

// replace puts an endpoint never seen before in the place of one of a Service, and returns what the witness saw: the time from just before
// the API server was asked.
func (l *load) replace(w witness, n int) (time.Duration, error) {
	slice := l.slices[n].DeepCopy()
	came, went := address("10.200.0.1", l.fresh.Add(1)), netip.MustParseAddr(slice.Endpoints[0].Addresses[0])
	slice.Endpoints[0].Addresses = []string{came.String()}
	seen := w.expect(came, went)
	began := time.Now()
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: began.UTC().Format(time.RFC3339Nano)}
	slice, err := l.c.client.DiscoveryV1().EndpointSlices(loadSpace).Update(context.Background(), slice, metav1.UpdateOptions{})
	if err != nil {
		return 0, err
	}
	l.slices[n] = slice
	at, err := within(seen, fmt.Sprintf("%s in the place of %s", came, went))
	return at.Sub(began), err
}
