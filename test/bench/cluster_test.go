package bench

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

const (
	nodeName    = "node-0"
	podsPerNode = 100
	servicePort = 80
	targetPort  = 8080
)

// cluster has services with the same number of endpoints each, as the agent of its first node receives it: all Services, slices and
// Nodes, and the Pods of that node.
type cluster struct {
	nodes    []*model.Node
	pods     []*model.Pod
	services []*model.Service
	slices   []*model.EndpointSlice
}

// newCluster spreads the endpoints over nodes of 100 pods each. Change, if not nil, makes a service other than a plain
// ClusterIP one.
func newCluster(services, endpoints int, change func(i int, svc *model.Service)) *cluster {
	c := &cluster{}
	total := services * endpoints
	for i := range (total + podsPerNode - 1) / podsPerNode {
		c.nodes = append(c.nodes, &model.Node{
			Name:        fmt.Sprintf("node-%d", i),
			InternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}).Next()},
			PodCIDRs:    []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)},
		})
	}
	for i := range services {
		svc := &model.Service{
			ID: model.ServiceID{Namespace: "default", Name: fmt.Sprintf("svc-%d", i)}, ClusterIPs: []netip.Addr{clusterIP(i)},
			Ports: []model.ServicePort{{Name: "http", Protocol: model.TCP, Port: servicePort}},
		}
		if change != nil {
			change(i, svc)
		}
		slice := &model.EndpointSlice{
			ID: model.SliceID{Namespace: "default", Name: svc.ID.Name + "-1"}, Service: svc.ID,
			Ports: []model.EndpointPort{{Name: "http", Protocol: model.TCP, Port: targetPort}},
		}
		for j := range endpoints {
			slice.Endpoints = append(slice.Endpoints, c.endpoint(i*endpoints+j))
		}
		c.services, c.slices = append(c.services, svc), append(c.slices, slice)
	}
	return c
}

func clusterIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 16 + byte(i>>16), byte(i >> 8), byte(i)}).Next()
}

// endpoint is the k-th pod of the cluster; pods go round the nodes, so that every service has them in many places.
func (c *cluster) endpoint(k int) model.Endpoint {
	n := c.nodes[k%len(c.nodes)]
	cidr := n.PodCIDRs[0].Addr().As4()
	cidr[3] = byte(2 + k/len(c.nodes))
	ep := model.Endpoint{
		Addr: netip.AddrFrom4(cidr), Ready: true, Serving: true, NodeName: n.Name,
		Pod: model.PodID{Namespace: "default", Name: fmt.Sprintf("pod-%d", k)},
	}
	if n.Name == nodeName {
		c.pods = append(c.pods, &model.Pod{ID: ep.Pod, NodeName: n.Name, IPs: []netip.Addr{ep.Addr}})
	}
	return ep
}

// changes are all objects as a source delivers them.
func (c *cluster) changes() []event.Change {
	var out []event.Change
	for _, n := range c.nodes {
		out = append(out, put(n))
	}
	for _, p := range c.pods {
		out = append(out, put(p))
	}
	for i := range c.services {
		out = append(out, put(c.services[i]), put(c.slices[i]))
	}
	return out
}

func put(obj model.Object) event.Change { return event.Change{Ref: obj.Ref(), Object: obj} }

// toggled are two versions of a service's slice that differ in one endpoint: without the last, and with it.
func (c *cluster) toggled(i int) [2]*model.EndpointSlice {
	fewer := *c.slices[i]
	fewer.Endpoints = fewer.Endpoints[:len(fewer.Endpoints)-1]
	return [2]*model.EndpointSlice{&fewer, c.slices[i]}
}
