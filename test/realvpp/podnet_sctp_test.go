package realvpp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// TestVPPPodNetworkSCTP sends SCTP between pods of one node and of two, without Services and without policies. In IPv4 NAT44 drops it: it has no address to give to a protocol that it does not
// know. Where cnat serves IPv4, too, it arrives.
func TestVPPPodNetworkSCTP(t *testing.T) {
	for _, renderer := range []string{"auto", "cnat"} {
		t.Run(renderer, func(t *testing.T) {
			c := newPodCluster(t, clusterShape{flags: []string{"--service-renderer", renderer}})
			one, two := c.addNode(theVPP(t), 1), c.addNode(theVPP(t), 2)
			for _, n := range c.nodes {
				c.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
			}
			a, b, far := c.attach(one, "a", "client"), c.attach(one, "b", "web"), c.attach(two, "far", "web")
			for _, p := range []*podOf{b, far} {
				c.associates("SCTP to "+p.req.Pod.Name+", IPv6", a, p, true)
				if renderer == "cnat" {
					c.associates("SCTP to "+p.req.Pod.Name, a, p, false)
				} else if err := c.associate(a, p, false); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("SCTP to %s: %v; want no answer, as the documentation says", p.req.Pod.Name, err)
				}
			}
		})
	}
}

// associates fails unless a pod associates with another one in the end.
func (c *podCluster) associates(what string, from, to *podOf, v6 bool) {
	c.t.Helper()
	c.until(what, func() error { return c.associate(from, to, v6) })
	c.t.Logf("%s: ok", what)
}

// associate sends the first packet of an association to a pod, and its answer. Both have to arrive, from the addresses of the pods. Kernels without SCTP have raw sockets for
// it, too.
func (c *podCluster) associate(from, to *podOf, v6 bool) error {
	network := map[bool]string{false: "ip4:132", true: "ip6:132"}[v6]
	listen := func(p *podOf) (conn net.PacketConn) {
		var err error
		p.do(func() { conn, err = net.ListenPacket(network, p.addr(v6).String()) })
		c.check(err)
		return conn
	}
	in, out := listen(to), listen(from)
	defer in.Close()
	defer out.Close()
	// Ports 20000 and 36412, no tag, CRC32c, INIT of 20 bytes.
	first := []byte{0x4e, 0x20, 0x8e, 0x3c, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 0, 0, 0, 7, 0, 0, 0xff, 0xff, 0, 1, 0, 1, 0, 0, 0, 9}
	copy(first[8:], castagnoli(first))
	answer := bytes.Clone(first)
	copy(answer, []byte{0x8e, 0x3c, 0x4e, 0x20, 0, 0, 0, 7}) // ports and tag
	answer[12] = 2                                           // INIT ACK
	copy(answer[8:], castagnoli(answer))
	for _, step := range []struct {
		packet         []byte
		sender, target net.PacketConn
		from, to       netip.Addr
	}{{first, out, in, from.addr(v6), to.addr(v6)}, {answer, in, out, to.addr(v6), from.addr(v6)}} {
		if _, err := step.sender.WriteTo(step.packet, &net.IPAddr{IP: step.to.AsSlice()}); err != nil {
			return err
		}
		if err := receives(step.target, step.packet, step.from); err != nil {
			return err
		}
	}
	return nil
}

// receives waits for a packet from an address.
func receives(conn net.PacketConn, want []byte, from netip.Addr) error {
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // a socket has deadlines
	buf := make([]byte, 100)
	n, sender, err := conn.ReadFrom(buf)
	if err == nil && (!bytes.Equal(buf[:n], want) || sender.String() != from.String()) {
		err = fmt.Errorf("% x from %s, want % x from %s", buf[:n], sender, want, from)
	}
	return err
}
