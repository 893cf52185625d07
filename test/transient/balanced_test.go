package transient_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// balanced gives Services load-balancer IPs, most of them for some clients only; the clients change from step to step.
func balanced(objects []policy.Object, seed uint64, step int) []policy.Object {
	out := make([]policy.Object, len(objects))
	for i, o := range objects {
		if s, ok := o.(*corev1.Service); ok && s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone {
			o = balancedService(s, seed, step)
		}
		out[i] = o
	}
	return out
}

func balancedService(old *corev1.Service, seed uint64, step int) *corev1.Service {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s", old.Namespace, old.Name)
	name := h.Sum64()
	rng := rand.New(rand.NewPCG(seed+name, (uint64(step)+name%2)/2)) // the same for two steps
	ranges := [][]string{
		nil, {"198.51.100.0/24"}, {"10.0.0.0/9"}, {"192.168.0.0/16", "198.51.100.7/32"}, {"203.0.113.0/24"},
	}
	n := rng.IntN(len(ranges) + 1)
	if n == len(ranges) {
		return old
	}
	s := old.DeepCopy()
	s.Spec.Type, s.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, ranges[n]
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("198.18.0.%d", 1+name%250)}}
	return s
}
