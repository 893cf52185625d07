package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

// Endpoints reads the ready endpoints of a Service from the API server, as host:port. Endpoints on node are first; the rest
// are in random order. If the Service has several ports, Endpoints uses the one with the number port, else the first. The
// result may be empty.
func (c *Config) Endpoints(ctx context.Context, namespace, service, node string, port uint16) ([]string, error) {
	client, _, err := c.Clients()
	if err != nil {
		return nil, err
	}
	target := api.Target{GroupVersionResource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Namespace: namespace}
	var list discoveryv1.EndpointSliceList
	if err := client.Read(ctx, target, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service}, &list); err != nil {
		return nil, fmt.Errorf("endpoints of %s/%s: %w", namespace, service, err)
	}
	var here, there []string
	for i := range list.Items {
		s := &list.Items[i]
		at := slicePort(s.Ports, port)
		for _, e := range s.Endpoints {
			if at == 0 || len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			addr := net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(at)))
			if e.NodeName != nil && *e.NodeName == node {
				here = append(here, addr)
			} else {
				there = append(there, addr)
			}
		}
	}
	rand.Shuffle(len(there), func(i, j int) { there[i], there[j] = there[j], there[i] })
	return slices.Concat(here, there), nil
}

func slicePort(ports []discoveryv1.EndpointPort, want uint16) int32 {
	first := int32(0)
	for _, p := range ports {
		switch {
		case p.Port == nil:
		case *p.Port == int32(want):
			return *p.Port
		case first == 0:
			first = *p.Port
		}
	}
	return first
}
