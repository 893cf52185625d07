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
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

const source = "test"

// node is one node with a victim's pods and a tenant's.
type node struct {
	t       *testing.T
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

func config(vpp func(context.Context) (net.Conn, error), limits budget.Limits) agent.Config {
	return agent.Config{
		NodeName: "node-1", Dial: vpp, Sources: map[string]agent.Source{source: agent.Fed{}}, Override: cni.Located(), Limits: limits,
	}
}

func newNode(t *testing.T, limits budget.Limits) *node {
	v := sim.New(sim.Config{Seed: 1, PuntLocal: true, LogLimit: 1})
	t.Cleanup(v.Close)
	n := &node{t: t, vpp: v, port: 80}
	before := world()
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

func put(o model.Object) event.Change { return event.Change{Ref: o.Ref(), Object: o} }

// world is the node, its namespaces and their pods.
func world() []event.Change {
	out := []event.Change{
		put(&model.Node{
			Name: "node-1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}, InternalIPs: []netip.Addr{netip.MustParseAddr("192.168.16.1")},
		}),
		put(&model.Namespace{Name: "victim"}), put(&model.Namespace{Name: evil}),
	}
	pod := func(ns, name string, last int, label string) {
		out = append(out, put(&model.Pod{
			ID: model.PodID{Namespace: ns, Name: name}, NodeName: "node-1", IPs: []netip.Addr{podIP(last)}, Labels: map[string]string{"n": label},
		}))
	}
	pod("victim", "server", 2, "server")
	pod("victim", "client", 3, "client")
	pod("victim", "other", 4, "other")
	for i := range pods {
		pod(evil, fmt.Sprintf("pod-%d", i), 10+i, fmt.Sprint(i))
	}
	return out
}

func podIP(last int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 1, byte(last)}) }

// policy is the victim's: its client reaches its server at a port.
func (n *node) policy(port uint16) event.Change {
	n.port = port
	return put(&model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "victim", Name: "server"}, Tier: model.TierDefault, Order: model.OrderKubernetes(),
		Namespace: "victim", Selector: model.LabelNamespace + " == 'victim' && n == 'server'", Ingress: true,
		InboundRules: []model.Rule{{
			Action: model.ActionAllow, Protocol: model.RuleProtocol{Name: "tcp"},
			Source:      model.Peer{Selector: model.LabelNamespace + " == 'victim' && n == 'client'"},
			Destination: model.Peer{Ports: []model.PortMatch{{First: port, Last: port}}},
		}},
	})
}

// passes tells whether a connection can be opened.
func (n *node) passes(from string, src, dst netip.Addr, port uint16) bool {
	fate := n.vpp.Send(from, packet.NewTCP(netip.AddrPortFrom(src, 40000+port%1000), netip.AddrPortFrom(dst, port)))
	return len(fate.Out) > 0 && strings.HasPrefix(fate.Out[0].Interface, "pod-")
}

// verdicts says what is wrong with what the victim's pods may do; "": nothing.
func (n *node) verdicts() string {
	server := podIP(2)
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
		if got := n.passes(c.from, podIP(c.last), server, c.port); got != c.want {
			return fmt.Sprintf("%s to port %d: passes %v, want %v", c.from, c.port, got, c.want)
		}
	}
	return ""
}
