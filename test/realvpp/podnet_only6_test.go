package realvpp

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestVPPPodNetworkOnly6: a cluster whose nodes and pods have no IPv4 address.
func TestVPPPodNetworkOnly6(t *testing.T) {
	path := theVPP(t)
	c := newPodCluster(t, clusterShape{only6: true})
	one, two := c.addNode(path, 1), c.addNode(path, 2)
	for _, n := range c.nodes {
		c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
		c.serve(n.ns, n.name, 9000)
	}
	a, b, far := c.attach(one, "a", "client"), c.attach(one, "b", "web"), c.attach(two, "far", "web")
	if len(a.result.IPs) != 1 || a.result.Interface.MTU != 1430 {
		t.Errorf("a pod has %v, MTU %d", a.result.IPs, a.result.Interface.MTU)
	}
	c.serveAll(a, b, far)
	c.serve(c.world, "world", 7000)
	c.mesh("IPv6 only", a, b, far)
	c.reaches("pod to the outside", a.netns, "[2001:db8:ffff::10]:7000", "world sees "+one.addr6)
	c.service6(b, far)
	c.reaches("pod to Service", a.netns, "[2001:db8:96::a]:80", "sees "+a.addr(true).String())
	c.reaches("node to Service", one.ns, "[2001:db8:96::a]:80", "sees")
	c.reaches("a pod to a Service that it serves", b.netns, "[2001:db8:96::a]:80", "sees")

	c.write("policy.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\nspec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}\n")
	for _, p := range []*podOf{b, far} {
		c.until("the policy is enforced", func() error {
			if _, err := ask(a.netns, hostPort(p.addr(true), 8080), 300*time.Millisecond); err == nil {
				return errors.New("a denied pod still gets an answer")
			}
			return nil
		})
	}
	friend := c.attach(one, "friend", "friend")
	c.reaches("an allowed pod", friend.netns, hostPort(b.addr(true), 8080), "b sees")
	c.reaches("an allowed pod, across nodes", friend.netns, hostPort(far.addr(true), 8080), "far sees")
	one.kill()
	c.check(one.start())
	c.reaches("across nodes after a restart of VPP", friend.netns, hostPort(far.addr(true), 8080), "far sees")
	c.silent("a denied pod after a restart of VPP", a.netns, hostPort(b.addr(true), 8080))
	c.reaches("an allowed pod to Service", friend.netns, "[2001:db8:96::a]:80", "sees "+friend.addr(true).String())
}

// service6 makes a Service of pods, in IPv6.
func (c *podCluster) service6(pods ...*podOf) {
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\nspec: {clusterIP: \"2001:db8:96::a\", clusterIPs: [\"2001:db8:96::a\"], ipFamilies: [IPv6], selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080, protocol: TCP}]}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}\naddressType: IPv6\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints:\n"
	for _, p := range pods {
		text += fmt.Sprintf("- {addresses: [%q], nodeName: %s, conditions: {ready: true}, targetRef: {kind: Pod, namespace: default, name: %s}}\n", p.addr(true), p.node.name, p.req.Pod.Name)
	}
	c.write("service.yaml", text)
}
