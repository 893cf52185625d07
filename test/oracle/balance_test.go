package oracle

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/trace"
)

// TestEveryEndpointGetsItsShare opens many connections from outside, one after the other on an otherwise idle node, as VPP's
// own random numbers decide: no endpoint may starve. (Kubernetes: uniformly random.)
func TestEveryEndpointGetsItsShare(t *testing.T) {
	const perEndpoint = 100
	for _, n := range []int{2, 3, 4, 5, 6, 8, 10, 16, 28} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			got := map[netip.Addr]int{}
			v := balancedNode(t, n)
			for i := range n * perEndpoint {
				p := sim.Packet{Src: addr("198.51.100.%d", 1+i%250), Dst: addr("192.168.16.1"), Proto: model.TCP, TCPFlags: 2, SrcPort: uint16(10000 + i), DstPort: 30080}
				fate := v.Send(cni.Uplink, p)
				if len(fate.Out) != 1 {
					t.Fatalf("connection %d: %v", i, fate.Hops)
				}
				got[fate.Out[0].Packet.Dst]++
			}
			for i := range n {
				if share := got[addr("10.1.1.%d", 2+i)]; share < perEndpoint/2 || share > 2*perEndpoint {
					t.Errorf("endpoint %d of %d got %d connections, fair would be %d: %v", i, n, share, perEndpoint, got)
				}
			}
		})
	}
}

// balancedNode is the VPP of a node with one Service of n local endpoints and node port 30080.
func balancedNode(t *testing.T, n int) *sim.VPP {
	t.Helper()
	node := &model.Node{Name: "node-1", InternalIPs: []netip.Addr{addr("192.168.16.1")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}}
	svc := &model.Service{
		ID: model.ServiceID{Namespace: "default", Name: "web"}, Type: model.NodePort, ClusterIPs: []netip.Addr{addr("10.96.0.10")},
		Ports: []model.ServicePort{{Protocol: model.TCP, Port: 80, NodePort: 30080}},
	}
	slice := &model.EndpointSlice{ID: model.SliceID{Namespace: "default", Name: "web-1"}, Service: svc.ID, Ports: []model.EndpointPort{{Protocol: model.TCP, Port: 8080}}}
	changes := []event.Change{{Ref: node.Ref(), Object: node}, {Ref: svc.Ref(), Object: svc}}
	for i := range n {
		ip := addr("10.1.1.%d", 2+i)
		pod := &model.Pod{ID: model.PodID{Namespace: "default", Name: fmt.Sprint("web-", i)}, NodeName: node.Name, IPs: []netip.Addr{ip}}
		slice.Endpoints = append(slice.Endpoints, model.Endpoint{Addr: ip, Ready: true, Serving: true, NodeName: node.Name, Pod: pod.ID})
		changes = append(changes, event.Change{Ref: pod.Ref(), Object: pod})
	}
	c := trace.NewCluster(trace.Config{})
	t.Cleanup(c.Close)
	if err := c.Apply(context.Background(), append(changes, event.Change{Ref: slice.Ref(), Object: slice})); err != nil {
		t.Fatal(err)
	}
	return c.Sim(node.Name)
}
