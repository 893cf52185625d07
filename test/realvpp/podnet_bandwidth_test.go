package realvpp

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/policer"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// policerPlugin is a plugin of VPP from 26.06 on; before, policers are VPP's.
const policerPlugin = "policer_plugin.so"

const (
	slowRate  = 1_000_000 // bits per second
	slowBurst = 90_000    // bytes, what the agent makes of a burst that nobody chose
	train     = 1500      // datagrams: at that rate they take 17 s
	datagram  = 1400
)

// TestVPPPodNetworkBandwidth sends more than a pod may receive or send, and counts what arrives. The limits are those of the time that the sender takes.
func TestVPPPodNetworkBandwidth(t *testing.T) {
	path := theVPP(t)
	if isNewerVPP(path) {
		needPlugin(t, path, policerPlugin)
	}
	c := openPodCluster(t, path)
	n := c.nodes[0]
	c.until("STATUS", func() error { return n.client().Status(t.Context()) })
	limit := func(r *protocol.Request) {
		r.Bandwidth = &protocol.Bandwidth{IngressRate: slowRate, IngressBurst: 1<<31 - 1, EgressRate: slowRate, EgressBurst: 1<<31 - 1}
	}
	slow, fast, peer := c.attach(n, "slow", "client", limit), c.attach(n, "fast", "client"), c.attach(n, "peer", "client")
	for _, v6 := range []bool{false, true} {
		free, _ := c.flood(peer, fast, v6)
		c.bounded("received", c.flooded(peer, slow, v6), free)
		c.bounded("sent", c.flooded(slow, peer, v6), free)
	}
	n.stopAgent()
	c.startAgent(n)
	c.until("STATUS after a restart of the agent", func() error { return n.client().Status(t.Context()) })
	n.kill()
	c.check(n.start())
	c.serve(slow.netns, "slow", 8080)
	c.reaches("after a restart of VPP", peer.netns, hostPort(slow.addr(false), 8080), "slow sees")
	free, _ := c.flood(peer, fast, false)
	c.bounded("received after a restart of VPP", c.flooded(peer, slow, false), free)
	if got := c.policers(n); got != 2 {
		t.Errorf("VPP has %d policers", got)
	}
	c.check(n.client().Delete(t.Context(), slow.req))
	if got := c.policers(n); got != 0 {
		t.Errorf("VPP has %d policers after DEL", got)
	}
}

// flooding is what arrived of a train of datagrams, and how long sending took.
type flooding struct {
	bytes int64
	took  time.Duration
}

func (c *podCluster) flooded(from, to *podOf, v6 bool) flooding {
	c.t.Helper()
	bytes, took := c.flood(from, to, v6)
	return flooding{bytes, took}
}

// flood sends a train of datagrams and returns the bytes that arrive, with their headers.
func (c *podCluster) flood(from, to *podOf, v6 bool) (bytes int64, took time.Duration) {
	c.t.Helper()
	var in *net.UDPConn
	var err error
	to.do(func() { in, err = net.ListenUDP("udp", &net.UDPAddr{IP: to.addr(v6).AsSlice()}) })
	c.check(err)
	_ = in.SetReadBuffer(8 << 20) // less is enough for what limits let pass
	var count atomic.Int64
	read := make(chan struct{})
	go func() {
		defer close(read)
		for buf := make([]byte, 2000); ; {
			if _, err := in.Read(buf); err != nil {
				return
			}
			count.Add(datagram + 14 + 28)
		}
	}()
	ended, err := from.beside(func() {
		conn, err := net.Dial("udp", in.LocalAddr().String())
		if err != nil {
			return
		}
		defer conn.Close()
		begin, pace := time.Now(), time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for range train {
			<-pace.C                                  // so that the rate counts, beside the burst
			_, _ = conn.Write(make([]byte, datagram)) // datagrams may be lost
		}
		took = time.Since(begin)
	})
	c.check(err)
	<-ended
	for last := int64(-1); last != count.Load(); wait(c.t.Context(), 200*time.Millisecond) { // those that are in VPP
		last = count.Load()
	}
	_ = in.Close()
	<-read
	return count.Load(), took
}

// bounded fails unless a limit bounds what arrived, by its burst and its rate, and lets as much pass.
func (c *podCluster) bounded(what string, got flooding, free int64) {
	c.t.Helper()
	bound := slowBurst + got.took.Seconds()*slowRate/8
	c.t.Logf("%s: %d of %d bytes in %s, %.2f of burst and rate; without a limit %d", what, got.bytes, train*(datagram+42), got.took.Round(time.Millisecond), float64(got.bytes)/bound, free)
	if float64(got.bytes) > 1.5*bound+slowRate/8 || float64(got.bytes) < 0.8*slowBurst || free < 2*got.bytes {
		c.t.Errorf("%s: %d bytes, the limit is %.0f; without a limit %d", what, got.bytes, bound, free)
	}
}

// policers counts the policers of a node's VPP.
func (c *podCluster) policers(n *podNode) int {
	c.t.Helper()
	conn := plain(vpp.Config{Socket: n.socket()})
	defer conn.close()
	c.check(conn.wait())
	r := conn.conn.Do(c.t.Context(), vpp.Call{Dump: true, Msg: &policer.PolicerDump{}})[0]
	c.check(r.Err)
	return len(r.Details)
}
