package realvpp

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// TestVPPPodNetworkNodes: nodes join, change their addresses, exchange them, and leave. Pods of all nodes reach each other in between, and a node
// that leaves leaves nothing behind.
func TestVPPPodNetworkNodes(t *testing.T) {
	path := theVPP(t)
	c := openPodCluster(t, path)
	one, two := c.nodes[0], c.nodes[1]
	for _, n := range c.nodes {
		c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
	}
	pods := []*podOf{c.attach(one, "a", "web"), c.attach(two, "b", "web")}
	c.serveAll(pods...)
	c.serve(one.ns, one.name, 9000)
	c.serve(two.ns, two.name, 9000)
	c.mesh("two nodes", pods...)
	before := map[*podNode]string{one: one.left(t), two: two.left(t)}

	three := c.addNode(path, 3)
	c.until("STATUS of node-3", func() error { return three.client().Status(t.Context()) })
	pods = append(pods, c.attach(three, "c", "web"))
	c.serveAll(pods[2])
	c.serve(three.ns, three.name, 9000)
	c.mesh("a third node", pods...)

	flows := c.flows(pods[0], pods[1:]...)
	c.moveNode(three, "192.168.16.33", "2001:db8:16::33")
	c.mesh("a node has other addresses", pods...)
	c.moveNode(two, "192.168.16.3", "2001:db8:16::3")
	c.mesh("a node has the former addresses of another", pods...)
	c.exchange(two, three)
	c.mesh("two nodes have exchanged their addresses", pods...)
	for _, f := range flows {
		f.continues(c)
	}
	c.moveNode(two, "192.168.16.2", "2001:db8:16::2")

	c.check(three.client().Delete(t.Context(), pods[2].req))
	c.removeManifest("pod-c.yaml")
	c.removeManifest("node-3.yaml")
	for n, want := range before {
		c.until("nothing of node-3 on "+n.name, func() error { return differ(want, n.left(t)) })
	}
	c.silent("a pod of a node that left", pods[0].netns, hostPort(pods[2].addr(false), 8080))
	c.mesh("a node left", pods[:2]...)
}

// differ returns an error that names the lines of one text alone.
func differ(want, got string) error {
	have := map[string]int{}
	for line := range strings.Lines(want + "\n") {
		have[strings.TrimSpace(line)]--
	}
	for line := range strings.Lines(got + "\n") {
		have[strings.TrimSpace(line)]++
	}
	text := ""
	for line, n := range have {
		if n != 0 {
			text += fmt.Sprintf("\n%+d %s", n, line)
		}
	}
	if text != "" {
		return fmt.Errorf("not as before:%s", text)
	}
	return nil
}

func (c *podCluster) serveAll(pods ...*podOf) {
	for _, p := range pods {
		c.serve(p.netns, p.req.Pod.Name, 8080)
	}
}

// mesh fails unless each pod and each node reaches each pod, in all families. Pods see the client's address.
func (c *podCluster) mesh(what string, pods ...*podOf) {
	c.t.Helper()
	for _, v6 := range c.families() {
		for _, to := range pods {
			for _, from := range pods {
				if from != to {
					c.answers(fmt.Sprintf("%s: pod %s to pod %s", what, from.req.Pod.Name, to.req.Pod.Name), from.netns, hostPort(to.addr(v6), 8080), to.req.Pod.Name+" sees "+from.addr(v6).String())
				}
				c.answers(fmt.Sprintf("%s: %s to pod %s", what, from.node.name, to.req.Pod.Name), from.node.ns, hostPort(to.addr(v6), 8080), to.req.Pod.Name+" sees")
				c.answers(fmt.Sprintf("%s: pod %s to %s", what, to.req.Pod.Name, from.node.name), to.netns, hostPort(from.node.nodeAddr(v6), 9000), from.node.name+" sees "+to.addr(v6).String())
			}
		}
	}
	c.t.Logf("%s: every pod reaches and is reached", what)
}

// moveNode gives a node other addresses: first to its NIC, as an administrator does, then to its Node object, as its kubelet does.
func (c *podCluster) moveNode(n *podNode, addr, addr6 string) {
	c.t.Helper()
	c.moveNIC(n, addr, addr6)
	c.writeNode(n)
}

func (c *podCluster) moveNIC(n *podNode, addr, addr6 string) {
	c.t.Helper()
	c.check(n.ns.ip(fmt.Sprintf("addr del %s/24 dev eth0\naddr add %s/24 dev eth0\naddr del %s/64 dev eth0\naddr add %s/64 dev eth0 nodad\nroute replace default via 192.168.16.100\nroute replace default via 2001:db8:16::100\n", n.addr, addr, n.addr6, addr6)))
	n.addr, n.addr6 = addr, addr6
}

// exchange exchanges the addresses of two nodes. For some time the Node objects of both have the same ones.
func (c *podCluster) exchange(a, b *podNode) {
	c.t.Helper()
	a4, a6, b4, b6 := a.addr, a.addr6, b.addr, b.addr6
	c.moveNIC(a, "192.168.16.99", "2001:db8:16::99")
	c.moveNIC(b, a4, a6)
	c.moveNIC(a, b4, b6)
	c.writeNode(a)
	wait(c.t.Context(), time.Second) // agents have read the folder
	c.writeNode(b)
}

// keepAlive is a connection whose server sends everything back.
type keepAlive struct {
	name string
	conn net.Conn
	in   *bufio.Reader
	sent int
}

// flows opens connections from a pod to others, in all families.
func (c *podCluster) flows(from *podOf, to ...*podOf) (out []*keepAlive) {
	c.t.Helper()
	for _, p := range to {
		for _, v6 := range c.families() {
			family := map[bool]string{false: "tcp4", true: "tcp6"}[v6]
			c.repeats(p.netns, family, 7777)
			f := &keepAlive{name: fmt.Sprintf("%s to %s, %s", from.req.Pod.Name, p.req.Pod.Name, family)}
			var err error
			from.do(func() { f.conn, err = net.DialTimeout(family, hostPort(p.addr(v6), 7777), 5*time.Second) })
			c.check(err)
			c.t.Cleanup(func() { _ = f.conn.Close() })
			f.in = bufio.NewReader(f.conn)
			f.continues(c)
			out = append(out, f)
		}
	}
	return out
}

// continues fails unless the server answers once more on the connection.
func (f *keepAlive) continues(c *podCluster) {
	c.t.Helper()
	f.sent++
	_ = f.conn.SetDeadline(time.Now().Add(patience)) // a connection has deadlines
	want := fmt.Sprintf("%d\n", f.sent)
	_, err := f.conn.Write([]byte(want))
	got := ""
	if err == nil {
		got, err = f.in.ReadString('\n')
	}
	if err != nil || got != want {
		c.t.Fatalf("%sconnection %s: got %q, %v, want %q", c.tails(), f.name, got, err, want)
	}
}
