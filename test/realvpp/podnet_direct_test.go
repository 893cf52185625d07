package realvpp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// TestVPPPodNetworkDirect: nodes whose VPPs share a link, without tunnels. The VPPs of two nodes read a link of the kernel; that of the third has
// an interface from its own configuration.
func TestVPPPodNetworkDirect(t *testing.T) {
	path := theVPP(t)
	c := newPodCluster(t, clusterShape{direct: true})
	one, two := c.addNode(path, 1), c.addNode(path, 2)
	three := c.addNode(path, 3)
	pods := c.podOnEach()
	c.allPaths("direct", pods)
	c.once(pods[1].netns, pods[0].netns, pods[0].addr(false))
	c.write("policy.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\nspec: {podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}\n")
	c.until("the policy is enforced", func() error {
		if _, err := ask(pods[0].netns, hostPort(pods[1].addr(false), 8080), 300*time.Millisecond); err == nil {
			return errors.New("a denied pod still gets an answer")
		}
		return nil
	})
	friend := c.attach(one, "friend", "friend")
	for _, v6 := range c.families() {
		c.reaches("an allowed pod, across nodes", friend.netns, hostPort(pods[1].addr(v6), 8080), "sees "+friend.addr(v6).String())
		c.silent("a denied pod", pods[0].netns, hostPort(pods[1].addr(v6), 8080))
	}
	one.kill()
	c.check(one.start())
	three.kill()
	c.check(three.start())
	three.ownUplink(t)
	c.reaches("after restarts of VPPs", friend.netns, hostPort(pods[2].addr(false), 8080), "p3 sees")
	c.reaches("IPv6 after restarts of VPPs", friend.netns, hostPort(pods[2].addr(true), 8080), "p3 sees")
	c.silent("a denied pod after restarts of VPPs", pods[1].netns, hostPort(pods[2].addr(false), 8080))

	c.removeManifest("policy.yaml")
	c.uplinkOf(two, "192.168.17.22/24,2001:db8:17::22/64")
	c.mesh("a node's uplink has other addresses", pods...)
	c.uplinkOf(two, "192.168.17.22/24")
	c.until("STATUS without an IPv6 address of the uplink", func() error {
		if err := two.client().Status(t.Context()); err == nil || !strings.Contains(err.Error(), "has no address of the family of pod CIDR 2001:db8:1:2::/64") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
	c.uplinkOf(two, "192.168.17.2/24,2001:db8:17::2/64")
	c.mesh("and its first ones again", pods...)
}

// podOnEach attaches a pod of the Service to each node. Pods, nodes and the world outside serve.
func (c *podCluster) podOnEach() (pods []*podOf) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.until("STATUS of "+n.name, func() error { return n.client().Status(c.t.Context()) })
		c.serve(n.ns, n.name, 9000)
		pods = append(pods, c.attach(n, "p"+fmt.Sprint(n.number), "web"))
	}
	if mtu := pods[0].result.Interface.MTU; mtu != 1500 {
		c.t.Errorf("a pod has the MTU %d", mtu)
	}
	c.serveAll(pods...)
	c.serve(c.world, "world", 7000)
	return pods
}

// allPaths fails unless the last of some pods reaches all others, nodes, a Service of the others and the outside, and is reached, without tunnels.
func (c *podCluster) allPaths(what string, pods []*podOf) {
	c.t.Helper()
	c.mesh(what, pods...)
	last, others := pods[len(pods)-1], pods[:len(pods)-1]
	for _, v6 := range c.families() {
		c.reaches("pod to the outside", last.netns, map[bool]string{false: "198.51.100.10:7000", true: "[2001:db8:ffff::10]:7000"}[v6], "world sees "+last.node.nodeAddr(v6).String())
	}
	c.service(others...)
	c.reaches("pod to Service", last.netns, "10.96.0.10:80", "sees "+last.addr(false).String())
	c.reaches("node to Service", last.node.ns, "10.96.0.10:80", "sees")
	for _, n := range c.nodes {
		if text := n.left(c.t); strings.Contains(text, "vxlan") {
			c.t.Errorf("%s has\n%s", n.name, text)
		}
	}
}

// once fails if a datagram arrives twice: the kernel, which sees the frames of VPP's link, too, must not forward them.
func (c *podCluster) once(from, to *netns, addr netip.Addr) {
	c.t.Helper()
	var in, out net.PacketConn
	var err, failed error
	to.do(func() { in, err = net.ListenPacket("udp4", ":7070") })
	from.do(func() { out, failed = net.ListenPacket("udp4", ":7071") })
	c.check(errors.Join(err, failed))
	defer in.Close()
	defer out.Close()
	seen := map[string]int{}
	for i := range 20 {
		_, err := out.WriteTo([]byte(fmt.Sprint(i)), &net.UDPAddr{IP: addr.AsSlice(), Port: 7070})
		c.check(err)
	}
	buf := make([]byte, 100)
	for {
		_ = in.SetReadDeadline(time.Now().Add(2 * time.Second)) // a connection has deadlines
		n, _, err := in.ReadFrom(buf)
		if err != nil {
			break
		}
		seen[string(buf[:n])]++
	}
	for text, n := range seen {
		if n > 1 {
			c.t.Errorf("datagram %s arrived %d times", text, n)
		}
	}
	if len(seen) == 0 {
		c.t.Error("no datagram arrived")
	}
}

// uplinkOf changes the addresses of a node's uplink.
func (c *podCluster) uplinkOf(n *podNode, addrs string) {
	c.t.Helper()
	n.uplink = addrs
	c.writeNode(n)
}

// ownUplink makes the interface that a VPP has by its startup configuration.
func (n *podNode) ownUplink(t *testing.T) {
	t.Helper()
	conn := plain(vpp.Config{Socket: n.socket()})
	defer conn.close()
	if err := conn.wait(); err != nil {
		t.Fatal(err)
	}
	r := conn.conn.Do(t.Context(), vpp.Call{Msg: &af_packet.AfPacketCreateV3{Mode: af_packet.AF_PACKET_API_MODE_ETHERNET, HwAddr: vppMAC(77), HostIfName: "up0", NumRxQueues: 1, NumTxQueues: 1}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	index := r.Msg.(*af_packet.AfPacketCreateV3Reply).SwIfIndex
	for _, text := range strings.Split(n.uplink, ",") {
		p, err := ip_types.ParseAddressWithPrefix(text)
		if err != nil {
			t.Fatal(err)
		}
		if r := conn.conn.Do(t.Context(), vpp.Call{Msg: &interfaces.SwInterfaceAddDelAddress{SwIfIndex: index, IsAdd: true, Prefix: p}})[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if r := conn.conn.Do(t.Context(), vpp.Call{Msg: up(index)})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
}
