package realvpp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// addressService is a Service without a selector, with cluster IPs of both families. Its only endpoints are addresses that are no pod's, with this port.
func (c *podCluster) addressService(name string, id, port int, addrs ...netip.Addr) {
	c.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n  clusterIP: %s\n  clusterIPs: [%[2]s, %q]\n  ipFamilies: [IPv4, IPv6]\n"+
		"  ports: [{name: tcp, port: 80, targetPort: %d, protocol: TCP}, {name: udp, port: 80, targetPort: %[4]d, protocol: UDP}]\n",
		name, serviceAddr(id, false), serviceAddr(id, true), port)
	for _, a := range addrs {
		family := map[bool]string{false: "IPv4", true: "IPv6"}[a.Is6()]
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}\naddressType: %[3]s\n"+
			"ports: [{name: tcp, port: %d, protocol: TCP}, {name: udp, port: %[4]d, protocol: UDP}]\nendpoints: [{addresses: [%[5]q], conditions: {ready: true}}]\n",
			name, strings.ToLower(family), family, port, a.String())
	}
	c.write("service-"+name+".yaml", b.String())
}

// TestVPPPodNetworkHostEndpoints dials Services whose endpoints are no pods: processes of the client's node, of another node, and outside of the cluster. VPP sends the packets
// of the node's own processes back to the kernel, which has their source address itself.
func TestVPPPodNetworkHostEndpoints(t *testing.T) {
	c := openPodCluster(t, theVPP(t))
	one, two := c.nodes[0], c.nodes[1]
	for _, n := range c.nodes {
		c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
	}
	a := c.attach(one, "a", "client")
	for i, s := range []struct {
		name  string
		at    *netns
		addrs []netip.Addr
	}{
		{"node-1", one.ns, []netip.Addr{one.nodeAddr(false), one.nodeAddr(true)}},
		{"node-2", two.ns, []netip.Addr{two.nodeAddr(false), two.nodeAddr(true)}},
		{"world", c.world, []netip.Addr{netip.MustParseAddr("198.51.100.10"), netip.MustParseAddr("2001:db8:ffff::10")}},
	} {
		c.serve(s.at, s.name, 9000)
		for _, a := range s.addrs {
			c.answerUDP(s.at, s.name, "udp", hostPort(a, 9000))
		}
		c.addressService(s.name, 40+i, 9000, s.addrs...)
	}
	c.addressService("silent", 43, 9001, one.nodeAddr(false), one.nodeAddr(true))
	var all []path
	for _, v6 := range []bool{false, true} {
		for _, client := range []struct {
			name string
			*netns
		}{{"a pod", a.netns}, {"a process", one.ns}} {
			for id, end := range map[int]string{40: "node-1 sees", 41: "node-2 sees", 42: "world sees " + one.nodeAddr(v6).String()} {
				if v6 && id == 41 && client.netns == one.ns { // cnat gives it the node's address, so that the answer arrives at the kernel
					continue
				}
				all = slices.Concat(all, gets(client.name, client.netns, hostPort(serviceAddr(id, v6), 80), end))
			}
			all = slices.Concat(all, isRefused(client.name+" to a port without a process", client.netns, hostPort(serviceAddr(43, v6), 80)))
		}
	}
	c.paths(all)
}
