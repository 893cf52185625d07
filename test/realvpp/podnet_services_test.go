package realvpp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// worldAddr is the address of the network between the nodes.
func worldAddr(v6 bool) string {
	if v6 {
		return "2001:db8:16::100"
	}
	return "192.168.16.100"
}

// dualService makes a Service with a node port and cluster IPs of both families, for TCP and UDP. Its last hexadecimal digits are id.
func (c *podCluster) dualService(name string, id int, more string, pods ...*podOf) {
	c.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n  type: NodePort\n  clusterIP: 10.96.0.%d\n  clusterIPs: [10.96.0.%[2]d, \"2001:db8:96::%[2]d\"]\n  ipFamilies: [IPv4, IPv6]\n%s  selector: {app: web}\n  ports:\n  - {name: tcp, port: 80, targetPort: 8080, nodePort: %d, protocol: TCP}\n  - {name: udp, port: 80, targetPort: 8080, nodePort: %[4]d, protocol: UDP}\n",
		name, id, more, nodePortOf(id))
	for _, v6 := range []bool{false, true} {
		family := map[bool]string{false: "IPv4", true: "IPv6"}[v6]
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}\naddressType: %[3]s\nports:\n- {name: tcp, port: 8080, protocol: TCP}\n- {name: udp, port: 8080, protocol: UDP}\nendpoints:\n", name, strings.ToLower(family), family)
		for _, p := range pods {
			fmt.Fprintf(&b, "- {addresses: [\"%s\"], nodeName: %s, conditions: {ready: true}, targetRef: {kind: Pod, namespace: default, name: %s}}\n", p.addr(v6), p.node.name, p.req.Pod.Name)
		}
		if len(pods) == 0 {
			b.WriteString("[]\n")
		}
	}
	text := strings.Replace(b.String(), "endpoints:\n[]", "endpoints: []", -1)
	c.write("service-"+name+".yaml", text)
}

func nodePortOf(id int) int { return 30000 + id }

// serviceAddr is the cluster IP of a dualService.
func serviceAddr(id int, v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:96::%d", id))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", id))
}

// serveUDP answers each datagram with a name, the client's address, and the datagram's length.
func (c *podCluster) serveUDP(at *netns, name string, on int) {
	c.t.Helper()
	for _, family := range []string{"udp4", "udp6"} {
		c.answerUDP(at, name, family, fmt.Sprintf(":%d", on))
	}
}

// answerUDP is serveUDP at one address: from a socket without one, Linux answers from an address that it chooses.
func (c *podCluster) answerUDP(at *netns, name, family, address string) {
	c.t.Helper()
	var l net.PacketConn
	var err error
	at.do(func() { l, err = net.ListenPacket(family, address) })
	c.check(err)
	c.t.Cleanup(func() { _ = l.Close() })
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(from.String())
			_, _ = l.WriteTo(fmt.Appendf(nil, "%s sees %s %d", name, host, n), from) // the client may be gone
		}
	}()
}

// askUDP sends a datagram and returns the answer.
func askUDP(from *netns, to string, length int, limit time.Duration) (line string, err error) {
	ended, failed := from.beside(func() {
		var conn net.Conn
		if conn, err = net.Dial("udp", to); err != nil {
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(limit)) // a socket has deadlines
		if _, err = conn.Write(make([]byte, length)); err != nil {
			return
		}
		b := make([]byte, 2048)
		var n int
		n, err = conn.Read(b)
		line = string(b[:n])
	})
	if failed != nil {
		return "", failed
	}
	<-ended
	return line, err
}

// path is what a client must get at an address.
type path struct {
	what string
	try  func() error
}

// paths fails unless all paths work in the end. It names those that do not.
func (c *podCluster) paths(all []path) {
	c.t.Helper()
	begin := time.Now()
	for round := 0; ; round++ {
		errs := make([]error, len(all))
		var wg sync.WaitGroup
		for i, p := range all {
			wg.Go(func() { errs[i] = p.try() })
		}
		wg.Wait()
		var left []path
		var why []string
		for i, p := range all {
			if errs[i] != nil {
				left, why = append(left, p), append(why, fmt.Sprintf("%s: %v", p.what, errs[i]))
			}
		}
		c.t.Logf("round %d: %d of %d paths work", round, len(all)-len(left), len(all))
		if all = left; len(all) == 0 {
			return
		}
		if time.Since(begin) > patience {
			c.t.Fatalf("%s%s", c.tails(), strings.Join(why, "\n"))
		}
	}
}

// gets is an answer to a connection by TCP and to a datagram by UDP.
func gets(what string, from *netns, to, want string) []path {
	expect := func(line string, err error) error {
		if err == nil && !strings.Contains(line, want) {
			err = fmt.Errorf("got %q, want %q", line, want)
		}
		return err
	}
	what = fmt.Sprintf("%s: %s", what, to)
	return []path{
		{what + " (TCP)", func() error { return expect(ask(from, to, time.Second)) }},
		{what + " (UDP)", func() error { return expect(askUDP(from, to, 100, time.Second)) }},
	}
}

// isRefused is an error that says so: of a connection by TCP, and of a socket that sent a datagram.
func isRefused(what string, from *netns, to string) []path {
	expect := func(line string, err error) error {
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("got %q, %w; want connection refused", line, err)
		}
		return nil
	}
	what = fmt.Sprintf("%s: %s", what, to)
	return []path{
		{what + " (TCP)", func() error { return expect(ask(from, to, time.Second)) }},
		{what + " (UDP)", func() error { return expect(askUDP(from, to, 10, time.Second)) }},
	}
}

// TestVPPPodNetworkServices sends packets to node ports, from every kind of client, and to Services without endpoints.
func TestVPPPodNetworkServices(t *testing.T) {
	c := openPodCluster(t, theVPP(t))
	one, two := c.nodes[0], c.nodes[1]
	for _, n := range c.nodes {
		c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
	}
	a, b := c.attach(one, "a", "client"), c.attach(one, "b", "web")
	far, other := c.attach(two, "far", "web"), c.attach(two, "other", "client")
	for _, p := range []*podOf{b, far} {
		c.serve(p.netns, p.req.Pod.Name, 8080)
		c.serveUDP(p.netns, p.req.Pod.Name, 8080)
	}
	c.serve(one.ns, "a process of the node", nodePortOf(20))
	c.reaches("a process with the port of no Service yet", c.world, one.addr+":30020", "a process of the node")
	c.dualService("all", 20, "", b, far)
	c.dualService("local", 21, "  externalTrafficPolicy: Local\n", far)
	c.dualService("external", 23, "  externalIPs: [198.51.100.77, \"2001:db8:ffff::77\"]\n", b)
	c.dualService("none", 22, "")
	c.check(c.world.ip("route add 198.51.100.77/32 via " + one.addr + "\nroute add 2001:db8:ffff::77/128 via " + one.addr6 + "\n"))
	var all []path
	for _, v6 := range []bool{false, true} {
		all = slices.Concat(all, c.nodePorts(v6, a, other), c.localNodePorts(v6, a, other), c.withoutEndpoints(v6, one, a))
	}
	c.paths(all)
	for _, v6 := range []bool{false, true} {
		here := hostPort(one.nodeAddr(v6), uint16(nodePortOf(21)))
		c.silent("Local, outside to a node without endpoint", c.world, here)
		c.silent("Local, a process to another node without endpoint", two.ns, here)
		if !v6 { // cnat gives it the node's address, and an endpoint
			c.silent("Local, a pod to another node without endpoint", other.netns, here)
		}
	}
	c.removeManifest("service-all.yaml")
	c.reaches("a process with the port of a deleted Service", c.world, one.addr+":30020", "a process of the node")
	c.reaches("a process of its node, with the port of a deleted Service", one.ns, one.addr+":30020", "a process of the node")
}

// nodePorts dials a Service whose clients may reach all endpoints.
func (c *podCluster) nodePorts(v6 bool, a, other *podOf) (all []path) {
	for _, client := range []struct {
		name string
		*netns
	}{{"outside", c.world}, {"node-1", c.nodes[0].ns}, {"node-2", c.nodes[1].ns}, {"pod of node-1", a.netns}, {"pod of node-2", other.netns}} {
		for _, n := range c.nodes {
			for _, end := range []string{"b sees", "far sees"} {
				all = append(all, gets(client.name+" to a node port, "+end, client.netns, hostPort(n.nodeAddr(v6), uint16(nodePortOf(20))), end)...)
			}
		}
		external := map[bool]string{false: "198.51.100.77", true: "2001:db8:ffff::77"}[v6]
		if client.name == "outside" || client.name == "node-1" {
			all = append(all, gets(client.name+" to an external IP", client.netns, net.JoinHostPort(external, "80"), "b sees")...)
		}
	}
	return all
}

// localNodePorts dials a Service whose only endpoint is on the second node and whose external policy is Local.
func (c *podCluster) localNodePorts(v6 bool, a, other *podOf) []path {
	one, two := c.nodes[0], c.nodes[1]
	here, there := hostPort(one.nodeAddr(v6), uint16(nodePortOf(21))), hostPort(two.nodeAddr(v6), uint16(nodePortOf(21)))
	return slices.Concat(
		gets("Local, outside to the endpoint's node", c.world, there, "far sees "+worldAddr(v6)),
		gets("Local, a pod to the endpoint's node", a.netns, there, "far sees "+a.addr(v6).String()),
		gets("Local, a process to the endpoint's node", one.ns, there, "far sees "+one.nodeAddr(v6).String()),
		gets("Local, a pod of the endpoint's node", other.netns, there, "far sees "+other.addr(v6).String()),
		gets("Local, a process of the endpoint's node", two.ns, there, "far sees"),
		gets("Local, a pod to its own node without endpoint", a.netns, here, "far sees"),
		gets("Local, a process to its own node without endpoint", one.ns, here, "far sees"),
	)
}

// withoutEndpoints dials a Service without endpoints.
func (c *podCluster) withoutEndpoints(v6 bool, one *podNode, a *podOf) (all []path) {
	vip, unused := hostPort(serviceAddr(22, v6), 80), hostPort(serviceAddr(20, v6), 81)
	for _, client := range []struct {
		name string
		*netns
	}{{"a pod", a.netns}, {"a process", one.ns}} {
		more := slices.Concat(isRefused(client.name+" to a cluster IP without endpoints", client.netns, vip),
			isRefused(client.name+" to an unused port of a cluster IP", client.netns, unused))
		if client.netns == one.ns && !v6 { // the kernel sends no ICMP error to itself on behalf of another address
			more = slices.DeleteFunc(more, func(p path) bool { return strings.HasSuffix(p.what, "(UDP)") })
		}
		all = append(all, more...)
	}
	for _, client := range []*netns{a.netns, one.ns, c.world} {
		all = append(all, isRefused("a node port without endpoints", client, hostPort(one.nodeAddr(v6), uint16(nodePortOf(22))))...)
	}
	return all
}
