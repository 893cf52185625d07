package realvpp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// TestVPPPodNetworkPorts sends packets to host ports: from outside, from the node itself, from pods and from another node.
func TestVPPPodNetworkPorts(t *testing.T) {
	c := openPodCluster(t, theVPP(t))
	one, two := c.nodes[0], c.nodes[1]
	for _, n := range c.nodes {
		c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
	}
	web := c.attach(one, "web", "web", func(r *protocol.Request) {
		r.PortMappings = []protocol.PortMapping{
			{HostPort: 8081, ContainerPort: 8080, Protocol: "TCP"},
			{HostPort: 5301, ContainerPort: 5300, Protocol: "UDP"},
			{HostPort: 36413, ContainerPort: 36412, Protocol: "SCTP"},
			{HostPort: 8082, ContainerPort: 8080, Protocol: "TCP", HostIP: netip.MustParseAddr("192.168.16.50")},
		}
	})
	c.check(one.ns.ip("addr add 192.168.16.50/24 dev eth0\n"))
	near, far := c.attach(one, "near", "client"), c.attach(two, "far", "client")
	c.serve(web.netns, "web", 8080)
	c.echo(web.netns, 5300)

	c.portAnswers(one, near, far)
	for _, v6 := range []bool{false, true} {
		at := one.address(v6)
		c.echoes("UDP from outside", c.world, hostPort(at, 5301), outsider(v6))
		c.echoes("UDP of the node's process", one.ns, hostPort(at, 5301), at.String())
	}
	c.reaches("the host port of one address", c.world, "192.168.16.50:8082", "web sees 192.168.16.100")
	c.silent("the host port of another address", c.world, one.addr+":8082")
	c.silent("a host port on another node", c.world, two.addr+":8081")
	c.sctp(web, one)
	c.portPolicies(one, near, far)
	c.portsRemain(one, near, far)
	c.portsLeave(one, web)
}

func (n *podNode) address(v6 bool) netip.Addr {
	if v6 {
		return netip.MustParseAddr("2001:db8:16::" + n.addr[len("192.168.16."):])
	}
	return netip.MustParseAddr(n.addr)
}

// outsider is the address of the network between the nodes.
func outsider(v6 bool) string {
	if v6 {
		return "2001:db8:16::100"
	}
	return "192.168.16.100"
}

// portAnswers fails unless clients on all sides get an answer from host port 8081.
func (c *podCluster) portAnswers(n *podNode, near, far *podOf) {
	c.t.Helper()
	for _, v6 := range []bool{false, true} {
		at, detour := n.address(v6), "169.254.1.9"
		if v6 {
			detour = "fd69:254:1::9"
		}
		to := hostPort(at, 8081)
		c.reaches("host port from outside", c.world, to, "web sees "+outsider(v6))
		c.reaches("host port from the node", n.ns, to, "web sees "+at.String())
		c.reaches("host port from a pod of the node", near.netns, to, "web sees "+detour)
		c.reaches("host port from a pod of another node", far.netns, to, "web sees "+detour)
		c.reaches("host port from another node", c.nodes[1].ns, to, "web sees "+detour)
	}
}

// portPolicies isolates the pod but for one client outside: policies see that client behind the host port, and no other passes.
func (c *podCluster) portPolicies(n *podNode, near, far *podOf) {
	c.t.Helper()
	c.write("policy.yaml", "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: default}\nspec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 192.168.16.100/32}}, {ipBlock: {cidr: \"2001:db8:16::100/128\"}}]}]}\n")
	for _, v6 := range []bool{false, true} {
		to := hostPort(n.address(v6), 8081)
		c.until("the policy is enforced", func() error {
			if _, err := ask(near.netns, to, 300*time.Millisecond); err == nil {
				return errors.New("a denied pod still gets an answer")
			}
			return nil
		})
		c.silent("host port from a denied pod", near.netns, to)
		c.silent("host port from a denied pod of another node", far.netns, to)
		c.silent("host port from a denied node", c.nodes[1].ns, to)
		c.reaches("host port from the permitted client", c.world, to, "web sees "+outsider(v6))
	}
	c.write("policy.yaml", "")
	c.until("the policy is gone", func() error {
		_, err := ask(near.netns, hostPort(n.address(false), 8081), 300*time.Millisecond)
		return err
	})
}

// portsRemain kills the agent and VPP; a second pod that wants the port is refused.
func (c *podCluster) portsRemain(n *podNode, near, far *podOf) {
	c.t.Helper()
	ns, err := newNetns()
	c.check(err)
	c.t.Cleanup(ns.close)
	r := protocol.Request{
		Attachment: protocol.Attachment{ContainerID: "rival", IfName: "eth0"}, Netns: ns.path, Pod: protocol.Pod{Namespace: "default", Name: "rival"},
		PortMappings: []protocol.PortMapping{{HostPort: 8081, ContainerPort: 80, Protocol: "TCP", HostIP: n.address(false)}},
	}
	if _, err := n.client().Add(c.t.Context(), r); err == nil || !strings.Contains(err.Error(), "host port 192.168.16.1:8081/TCP: pod default/web has it") {
		c.t.Errorf("a second pod with the host port: %v", err)
	}
	n.stopAgent()
	c.portAnswers(n, near, far)
	c.startAgent(n)
	c.until("STATUS after a restart of the agent", func() error { return n.client().Status(c.t.Context()) })
	st, err := control.FetchStatus(c.t.Context(), n.status(), true)
	c.check(err)
	for _, txn := range st.History {
		if txn.Writes > 0 {
			c.t.Errorf("%sa restarted agent writes: %+v", c.tails(), txn)
		}
	}
	n.kill()
	c.check(n.start())
	c.portAnswers(n, near, far)
}

// portsLeave deletes the pod: nothing answers at its ports, and another pod may have them.
func (c *podCluster) portsLeave(n *podNode, web *podOf) {
	c.t.Helper()
	to := hostPort(n.address(false), 5301)
	before, between := c.datagrams(to), c.datagrams(to)
	c.check(before())
	c.check(n.client().Delete(c.t.Context(), web.req))
	c.object(n, "web", "web", "phase: Succeeded")
	c.silent("the host port of a deleted pod", c.world, hostPort(n.address(false), 8081))
	if between() == nil {
		c.t.Error("UDP: the host port of a deleted pod answers")
	}
	c.serve(n.ns, "node-1", 8081)
	c.reaches("the node's own server at the port of a deleted pod", c.world, hostPort(n.address(false), 8081), "node-1 sees 192.168.16.100")
	next := c.attach(n, "next", "web", func(r *protocol.Request) {
		r.PortMappings = []protocol.PortMapping{{HostPort: 8081, ContainerPort: 8080, Protocol: "TCP"}, {HostPort: 5301, ContainerPort: 5300, Protocol: "UDP"}}
	})
	c.serve(next.netns, "next", 8080)
	c.reaches("the host port of the next pod", c.world, hostPort(n.address(false), 8081), "next sees 192.168.16.100")
	c.echo(next.netns, 5300)
	c.until("UDP of a socket that the deleted pod answered", before)
	c.until("UDP of a socket that nobody answered", between)
}

// datagrams returns a function that sends a datagram from the same socket outside each time, and waits for the answer.
func (c *podCluster) datagrams(to string) func() error {
	c.t.Helper()
	var conn net.Conn
	var err error
	c.world.do(func() { conn, err = net.Dial("udp", to) })
	c.check(err)
	c.t.Cleanup(func() { _ = conn.Close() })
	return func() error {
		_ = conn.SetDeadline(time.Now().Add(500 * time.Millisecond)) // a socket has deadlines
		_, _ = conn.Write([]byte("?"))                               // an error of an earlier datagram, or that of Read
		_, err := conn.Read(make([]byte, 100))
		return err
	}
}

// echo answers each datagram to a port, in both families, with the client's address.
func (c *podCluster) echo(at *netns, on int) {
	c.t.Helper()
	for _, family := range []string{"udp4", "udp6"} {
		var l net.PacketConn
		var err error
		at.do(func() { l, err = net.ListenPacket(family, fmt.Sprintf(":%d", on)) })
		c.check(err)
		c.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for buf := make([]byte, 100); ; {
				_, from, err := l.ReadFrom(buf)
				if err != nil {
					return
				}
				host, _, _ := net.SplitHostPort(from.String())
				_, _ = l.WriteTo([]byte(host), from) // the client asks again
			}
		}()
	}
}

// echoes fails unless a client of UDP gets an answer that has its address.
func (c *podCluster) echoes(what string, from *netns, to, want string) {
	c.t.Helper()
	c.until(what, func() (err error) {
		ended, failed := from.beside(func() {
			var conn net.Conn
			if conn, err = net.Dial("udp", to); err != nil {
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Second)) // a socket has deadlines
			buf := make([]byte, 100)
			n := 0
			if _, err = conn.Write([]byte("?")); err == nil {
				n, err = conn.Read(buf)
			}
			if got := string(buf[:n]); err == nil && got != want {
				err = fmt.Errorf("the pod sees %s, want %s", got, want)
			}
		})
		if failed != nil {
			return failed
		}
		<-ended
		return err
	})
	c.t.Logf("%s: ok", what)
}

// sctp sends the first packet of an association to a host port, and looks for it in the pod, with the pod's port. It does so in IPv6: NAT44 drops
// SCTP that enters VPP by the host link. Kernels without SCTP have raw sockets for it, too.
func (c *podCluster) sctp(p *podOf, n *podNode) {
	c.t.Helper()
	var in, out net.PacketConn
	var err error
	p.do(func() { in, err = net.ListenPacket("ip6:132", p.addr(true).String()) })
	c.check(err)
	defer in.Close()
	c.world.do(func() { out, err = net.ListenPacket("ip6:132", outsider(true)) })
	c.check(err)
	defer out.Close()
	// Ports 20000 and 36413, no tag, CRC32c, INIT of 20 bytes.
	first := []byte{0x4e, 0x20, 0x8e, 0x3d, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 7, 0, 0, 0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 9}
	copy(first[8:], castagnoli(first))
	c.until("SCTP from outside", func() error {
		if _, err := out.WriteTo(first, &net.IPAddr{IP: n.address(true).AsSlice()}); err != nil {
			return err
		}
		_ = in.SetDeadline(time.Now().Add(time.Second)) // a socket has deadlines
		buf := make([]byte, 100)
		got, from, err := in.ReadFrom(buf)
		if err != nil {
			return err
		}
		want := bytes.Clone(first)
		want[3] = 0x3c // port 36412
		copy(want[8:], castagnoli(want))
		if !bytes.Equal(buf[:got], want) || from.String() != outsider(true) {
			c.t.Fatalf("SCTP: the pod gets % x from %s, want % x", buf[:got], from, want)
		}
		return nil
	})
	c.t.Log("SCTP from outside: ok")
}

// castagnoli is the checksum of an SCTP packet (RFC 9260, appendix A).
func castagnoli(packet []byte) []byte {
	p := bytes.Clone(packet)
	copy(p[8:12], []byte{0, 0, 0, 0})
	return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
}
