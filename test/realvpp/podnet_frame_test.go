package realvpp

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"
)

// TestVPPPodNetworkFirstFrame: VPP receives what a pod sends at once after ADD, in each family, also if VPP begins to receive frames of an interface long
// after it has acknowledged it.
func TestVPPPodNetworkFirstFrame(t *testing.T) {
	path := theVPP(t)
	for _, only6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("IPv6 only %t", only6), func(t *testing.T) {
			c := newPodCluster(t, clusterShape{only6: only6, simulated: []string{"--receive-after", "300ms"}})
			n := c.addNode(path, 1)
			c.until("STATUS", func() error { return n.client().Status(t.Context()) })
			to := c.attach(n, "to", "web")
			for i := range 4 {
				from := c.attach(n, fmt.Sprintf("from%d", i), "web")
				for _, v6 := range c.families() {
					c.check(c.arrives(from, to, v6))
				}
			}
		})
	}
}

// arrives sends one datagram between pods.
func (c *podCluster) arrives(from, to *podOf, v6 bool) error {
	var in, out net.PacketConn
	var err, failed error
	to.do(func() { in, err = net.ListenPacket("udp", hostPort(to.addr(v6), 7070)) })
	from.do(func() { out, failed = net.ListenPacket("udp", hostPort(from.addr(v6), 7071)) })
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	defer in.Close()
	defer out.Close()
	if _, err := out.WriteTo([]byte(from.req.Pod.Name), &net.UDPAddr{IP: to.addr(v6).AsSlice(), Port: 7070}); err != nil {
		return err
	}
	_ = in.SetReadDeadline(time.Now().Add(3 * time.Second)) // a connection has deadlines
	buf := make([]byte, 100)
	n, _, err := in.ReadFrom(buf)
	if err != nil {
		return fmt.Errorf("the first datagram of %s, IPv6 %t: %w", from.req.Pod.Name, v6, err)
	}
	if got := string(buf[:n]); got != from.req.Pod.Name {
		return fmt.Errorf("got %q from %s", got, from.req.Pod.Name)
	}
	return nil
}
