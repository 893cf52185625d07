package hostile

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp"
)

const source = "test"

// node is one node with a victim's pods and a tenant's.
type node struct {
	t       testing.TB
	vpp     *sim.VPP
	agent   *agent.Stepper
	written atomic.Int64 // bytes sent to VPP
	port    uint16       // that the victim's policy lets in
}

// counted counts what is sent.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.Conn.Write(b)
}

func config(dial func(context.Context) (net.Conn, error), limits budget.Limits) agent.Config {
	return agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: dial}, Sources: map[string]agent.Source{source: agent.Fed{}}, Override: cni.Located(), Limits: limits,
	}
}

func newNode(t *testing.T, limits budget.Limits) *node { return newNodeOn(t, limits, oldVPP) }

// newNodeOn has a VPP of that version.
func newNodeOn(t testing.TB, limits budget.Limits, version string) *node {
	v := sim.New(sim.Config{Seed: 1, PuntLocal: true, LogLimit: 1, Version: version})
	t.Cleanup(v.Close)
	n := &node{t: t, vpp: v, port: 80}
	before := World()
	if err := cni.New(v, "node-1").Apply(before); err != nil {
		t.Fatal(err)
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		c, err := v.Dial(ctx)
		return counted{c, &n.written}, err
	}
	a, err := agent.NewStepper(t.Context(), config(dial, limits))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	n.agent = a
	n.feed(append(before, n.policy(80)))
	return n
}

func (n *node) feed(changes []event.Change) {
	n.t.Helper()
	err := n.agent.Feed(context.Background(), &event.Update{Source: source, Changes: changes}, &event.SyncStatus{Source: source, Status: event.InSync})
	if err != nil {
		n.t.Fatal(err)
	}
}

// policy is the victim's, with another port from now on.
func (n *node) policy(port uint16) event.Change {
	n.port = port
	return Policy(port)
}

// passes reports whether a connection can be opened.
func (n *node) passes(from string, src, dst netip.Addr, port uint16) bool {
	fate := n.vpp.Send(from, packet.NewTCP(netip.AddrPortFrom(src, 40000+port%1000), netip.AddrPortFrom(dst, port)))
	return len(fate.Out) > 0 && strings.HasPrefix(fate.Out[0].Interface, "pod-")
}

// verdicts says what is wrong with what the victim's pods may do; "": nothing.
func (n *node) verdicts() string {
	server := PodIP(2)
	for _, c := range []struct {
		from string
		last int
		port uint16
		want bool
	}{
		{"pod-victim/client", 3, n.port, true},
		{"pod-victim/client", 3, n.port + 1, false},
		{"pod-victim/other", 4, n.port, false},
		{"pod-evil/pod-0", 10, n.port, false},
	} {
		if got := n.passes(c.from, PodIP(c.last), server, c.port); got != c.want {
			return fmt.Sprintf("%s to port %d: passes %v, want %v", c.from, c.port, got, c.want)
		}
	}
	return ""
}
