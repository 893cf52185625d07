package kube

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// offer is what the EndpointSlices of the shop say of a Pod from a revision of etcd on.
type offer struct {
	revision int64
	ready    bool
}

// withdrawn reports whether Kubernetes took a Pod out of the shop since it was first in it, as far back as etcd knows. It may do that to a Pod
// which stays: controllers that start with an older state of things than the last ones.
func (w *world) withdrawn(t *testing.T, pod *corev1.Pod) bool {
	t.Helper()
	offers := w.offers(t, pod)
	if slices.ContainsFunc(offers, func(o offer) bool { return !o.ready }) {
		return true
	}
	t.Logf("what EndpointSlices said of Pod %s: %v", pod.Name, offers)
	return false
}

// offers are what EndpointSlices have said of a Pod, in order, without repetitions; the first one is ready.
func (w *world) offers(t *testing.T, pod *corev1.Pod) (out []offer) {
	t.Helper()
	client := w.store(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const prefix = "/registry/endpointslices/" + shop + "/"
	now, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0) // whatever was deleted later was not in use
	for _, kv := range now.Kvs {
		last = max(last, kv.ModRevision)
	}
	holds := map[string]bool{} // slices that have the Pod, ready
	for from, at := int64(1), int64(0); at < last; {
		for answer := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
			if err := answer.Err(); err != nil && answer.CompactRevision == 0 {
				t.Fatal(err)
			}
			from = max(from, answer.CompactRevision)
			for _, ev := range answer.Events {
				at = ev.Kv.ModRevision
				delete(holds, string(ev.Kv.Key))
				if ev.Type == clientv3.EventTypePut && offered(t, ev.Kv.Value, pod) {
					holds[string(ev.Kv.Key)] = true
				}
				if ready := len(holds) > 0; len(out) == 0 && ready || len(out) > 0 && out[len(out)-1].ready != ready {
					out = append(out, offer{at, ready})
				}
			}
			if at >= last {
				break
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("history of EndpointSlices: %v", ctx.Err())
		}
	}
	return out
}

// offered reports whether an EndpointSlice of the shop, as the API server stores it, has a Pod, ready.
func offered(t *testing.T, stored []byte, pod *corev1.Pod) bool {
	t.Helper()
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil)
	if err != nil {
		t.Fatalf("stored EndpointSlice: %v", err)
	}
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		t.Fatalf("stored as EndpointSlice: %T", obj)
	}
	if slice.Labels[discoveryv1.LabelServiceName] != "web" {
		return false
	}
	for _, e := range slice.Endpoints {
		if e.TargetRef != nil && e.TargetRef.UID == pod.UID && e.Conditions.Ready != nil && *e.Conditions.Ready {
			return true
		}
	}
	return false
}

func (o offer) String() string {
	text := "ready"
	if !o.ready {
		text = "withdrawn"
	}
	return fmt.Sprintf("%s at %d", text, o.revision)
}
