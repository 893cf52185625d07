package kube

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// host is a node, as a kubelet knows it.
type host struct {
	name    string
	address netip.Addr
	pods    netip.Prefix // where its Pods' addresses are from
	next    uint32
}

// fakeKubelet is the scheduler and all kubelets for the API: it binds Pods in turn, gives them an address of their node, makes
// them ready at once, and removes them some time after their deletion.
type fakeKubelet struct {
	c     *cluster
	hosts []host
	turn  int
	ended map[string]time.Time      // when a Pod was first seen to terminate, by UID
	mu    sync.Mutex                // guards what follows
	holds map[netip.Addr]corev1.Pod // who has an address
	pods  map[string]corev1.Pod     // those that have begun, by namespace/name
	wired func(*corev1.Pod) bool    // reports whether a Pod can be reached; until then it is not ready; nil: always
	spare func(*corev1.Pod) bool    // reports whether no Service leads to a Pod any more; until then the Pod stays; nil: always
}

const grace = time.Second // minimum time that a deleted Pod still answers

// newFakeKubelet makes the nodes, and works until the test ends.
func newFakeKubelet(t tb, c *cluster) *fakeKubelet {
	t.Helper()
	var hosts []host
	for i, name := range nodes {
		h := host{name: name, address: address("192.168.77.1", uint32(i)), pods: netip.PrefixFrom(address("10.240.1.0", uint32(i)<<8), 24)}
		hosts = append(hosts, h)
		cidr := h.pods.String()
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}},
			Spec:       corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		}
		node, err := c.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.address.String()}}
		if _, err := c.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return startFakeKubelet(t, c, hosts)
}

// startFakeKubelet makes existing nodes ready, and works on them until the test ends.
func startFakeKubelet(t tb, c *cluster, hosts []host) *fakeKubelet {
	t.Helper()
	for _, h := range hosts {
		ready := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastTransitionTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if _, err := c.client.CoreV1().Nodes().Patch(t.Context(), h.name, types.StrategicMergePatchType, []byte(ready), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	k := &fakeKubelet{c: c, hosts: hosts, ended: map[string]time.Time{}, holds: map[netip.Addr]corev1.Pod{}, pods: map[string]corev1.Pod{}}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			k.look(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	return k
}

// look does what is due for every Pod. The API server may be away, and a Pod may have changed since: the next look comes soon.
func (k *fakeKubelet) look(ctx context.Context) {
	list, err := k.c.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	holds, pods := map[netip.Addr]corev1.Pod{}, map[string]corev1.Pod{}
	for _, pod := range list.Items {
		ip, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil {
			continue
		}
		pods[pod.Namespace+"/"+pod.Name] = pod
		if !pod.Spec.HostNetwork {
			holds[ip] = pod
		}
	}
	k.mu.Lock()
	k.holds, k.pods = holds, pods
	k.mu.Unlock()
	for i := range list.Items {
		k.tend(ctx, &list.Items[i])
	}
}

func (k *fakeKubelet) tend(ctx context.Context, pod *corev1.Pod) {
	pods := k.c.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		if first, ok := k.ended[string(pod.UID)]; !ok {
			k.ended[string(pod.UID)] = time.Now()
		} else if pod.Status.PodIP == "" || time.Since(first) > grace && k.isSpare(pod) {
			now := int64(0)
			_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
		}
	case pod.Spec.NodeName == "":
		k.turn++
		_ = pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: k.hosts[k.turn%len(k.hosts)].name},
		}, metav1.CreateOptions{})
	case pod.Status.PodIP == "":
		for i := range k.hosts {
			if h := &k.hosts[i]; h.name == pod.Spec.NodeName {
				k.begin(ctx, pod, h)
			}
		}
	case len(pod.Status.Conditions) == 0 || pod.Status.Conditions[len(pod.Status.Conditions)-1].Status != corev1.ConditionTrue:
		if k.isWired(pod) {
			conditions(pod, corev1.ConditionTrue)
			_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		}
	}
}

// wait lets no Pod be ready before it is wired, nor go before it is spare.
func (k *fakeKubelet) wait(wired, spare func(*corev1.Pod) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wired, k.spare = wired, spare
}

func (k *fakeKubelet) isSpare(pod *corev1.Pod) bool {
	k.mu.Lock()
	spare := k.spare
	k.mu.Unlock()
	return spare == nil || spare(pod)
}

func (k *fakeKubelet) isWired(pod *corev1.Pod) bool {
	k.mu.Lock()
	wired := k.wired
	k.mu.Unlock()
	return wired == nil || wired(pod)
}

// conditions says whether a Pod is ready; the last one is the last to come true.
func conditions(pod *corev1.Pod, ready corev1.ConditionStatus) {
	pod.Status.Conditions = nil
	for _, c := range []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: ready},
		{Type: corev1.PodReady, Status: ready},
	} {
		c.LastTransitionTime = metav1.Now()
		pod.Status.Conditions = append(pod.Status.Conditions, c)
	}
}

// begin gives a Pod an address, the node's own if it is on the node's network, and says that it runs, and is ready if nothing is missing.
func (k *fakeKubelet) begin(ctx context.Context, pod *corev1.Pod, h *host) {
	ip := h.address
	if !pod.Spec.HostNetwork {
		ip = k.free(h)
	}
	pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = corev1.PodRunning, ip.String(), []corev1.PodIP{{IP: ip.String()}}
	pod.Status.HostIP, pod.Status.HostIPs = h.address.String(), []corev1.HostIP{{IP: h.address.String()}}
	now := metav1.Now()
	pod.Status.StartTime = &now
	conditions(pod, corev1.ConditionFalse)
	if k.isWired(pod) {
		conditions(pod, corev1.ConditionTrue)
	}
	started := true
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	if _, err := k.c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err == nil && ip != h.address {
		k.mu.Lock()
		k.holds[ip] = *pod
		k.mu.Unlock()
	}
}

// address is the n-th above a base.
func address(base string, n uint32) netip.Addr {
	b := netip.MustParseAddr(base).As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b)
}

// free is the next address of a node nobody has. They are few, so they are used again soon, as a CNI's may be.
func (k *fakeKubelet) free(h *host) netip.Addr {
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		h.next++
		ip := address(h.pods.Addr().String(), 2+h.next%60)
		if _, used := k.holds[ip]; !used {
			return ip
		}
	}
}

// at is who has an address.
func (k *fakeKubelet) at(ip netip.Addr) (corev1.Pod, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pod, ok := k.holds[ip]
	return pod, ok
}

// named is a Pod that has begun.
func (k *fakeKubelet) named(namespace, name string) (corev1.Pod, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pod, ok := k.pods[namespace+"/"+name]
	return pod, ok
}

// running are the Pods that have begun.
func (k *fakeKubelet) running() []corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.pods))
}

// find is a Pod of a namespace on a node, with that label app unless it is empty; false: there is none.
func (k *fakeKubelet) find(node, namespace, app string) (corev1.Pod, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range k.holds {
		if pod.Spec.NodeName == node && pod.Namespace == namespace && (app == "" || pod.Labels["app"] == app) && pod.DeletionTimestamp == nil {
			return pod, true
		}
	}
	return corev1.Pod{}, false
}

// one is a Pod with that label app on a node, and its address.
func (k *fakeKubelet) one(t tb, node, app string) (corev1.Pod, netip.Addr) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for ip, pod := range k.holds {
		if pod.Spec.NodeName == node && pod.Labels["app"] == app && pod.DeletionTimestamp == nil {
			return pod, ip
		}
	}
	t.Fatalf("%s has no Pod with app=%s", node, app)
	return corev1.Pod{}, netip.Addr{}
}
