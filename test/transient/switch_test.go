package transient_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// switchPolicies restrict the egress of client and jailed, beside closedNode's ingress of db. A second Service leads to db.
const switchPolicies = `
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: client, namespace: prod}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{protocol: UDP, port: 53}]
  - to: [{podSelector: {matchLabels: {app: db}}}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: jailed, namespace: prod}
spec:
  podSelector: {matchLabels: {app: jailed}}
  policyTypes: [Egress, Ingress]
  egress: [{to: [{podSelector: {matchLabels: {app: db}}}]}]
---
apiVersion: v1
kind: Service
metadata: {name: admin, namespace: prod}
spec: {clusterIP: 10.96.0.11, clusterIPs: [10.96.0.11], type: ClusterIP, ports: [{port: 6379, protocol: UDP, targetPort: 6379}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: admin-1, namespace: prod, labels: {kubernetes.io/service-name: admin}}
addressType: IPv4
ports: [{port: 6379, protocol: UDP}]
endpoints: [{addresses: [10.1.1.2], nodeName: node-1}]
`

// crossing is a flow that policies allow or deny under either renderer: one that lives on, and a new one after each message.
type crossing struct {
	from    string
	src     netip.Addr
	dst     netip.AddrPort
	allowed bool
}

func crossings() []crossing {
	at, pod := netip.MustParseAddrPort, netip.MustParseAddr
	return []crossing{
		{"client", pod("10.1.1.3"), at("10.1.1.2:6379"), true},
		{"client", pod("10.1.1.3"), at("10.96.0.10:53"), true},
		{"client", pod("10.1.1.3"), at("10.96.0.11:6379"), true},
		{"client", pod("10.1.1.3"), at("10.1.1.5:9000"), false}, // its egress
		{"evil", pod("10.1.1.4"), at("10.1.1.5:9000"), true},
		{"evil", pod("10.1.1.4"), at("10.96.0.10:53"), true},
		{"evil", pod("10.1.1.4"), at("10.96.0.11:6379"), false}, // ingress of db
		{"evil", pod("10.1.1.4"), at("10.1.1.2:6379"), false},
		{"web", pod("10.1.1.5"), at("10.96.0.10:53"), true}, // itself
		{"jailed", pod("10.1.1.6"), at("10.96.0.10:53"), false},
		{"jailed", pod("10.1.1.6"), at("10.1.1.5:53"), false},
		{"jailed", pod("10.1.1.6"), at("10.96.0.11:6379"), false}, // ingress of db
		{"db", pod("10.1.1.2"), at("10.96.0.10:53"), true},
	}
}

// answered sends a datagram and its answer. It returns the source with which the datagram arrived (invalid: it did not), and whether the answer did.
func (c *closing) answered(f *crossing, port uint16) (from netip.Addr, answered bool) {
	in := "pod-prod/" + f.from
	out, ok := c.pass(in, packet.NewUDP(netip.AddrPortFrom(f.src, port), f.dst))
	if !ok || out.Origin != sim.Forwarded {
		return netip.Addr{}, false
	}
	p := out.Packet
	back, ok := c.pass(out.Interface, packet.NewUDP(netip.AddrPortFrom(p.Dst, p.DstPort), netip.AddrPortFrom(p.Src, p.SrcPort)))
	q := back.Packet
	return p.Src, ok && back.Interface == in && q.Src == f.dst.Addr() && q.SrcPort == f.dst.Port() && q.DstPort == port
}

// TestRendererSwitch: an agent starts with another service renderer. After every message allowed flows are answered, new ones and those that live on, and
// denied flows do not arrive. One exception (ADR 32): from nat44 to cnat, Services pause between the end of NAT44 on the interfaces and cnat's translation.
func TestRendererSwitch(t *testing.T) {
	renderers := []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT}
	for i, from := range renderers {
		t.Run(fmt.Sprintf("%s to %s", from, renderers[1-i]), func(t *testing.T) { rendererSwitch(t, from, renderers[1-i]) })
	}
}

func rendererSwitch(t *testing.T, from, to agent.ServiceRenderer) {
	c := newClosing(t, from)
	c.cfg.VPPAgent.Journal = filepath.Join(t.TempDir(), "journal") // of NAT44 on interfaces, which has no tag
	pods := closedPod("db", 2) + closedPod("client", 3) + closedPod("evil", 4) + closedPod("web", 5) + closedPod("jailed", 6)
	objects := c.load(closedNode + switchPolicies + pods)
	c.plumb(objects)
	c.start()
	c.feed(objects...)
	flows, messages, port := crossings(), 0, uint16(40000)
	silent := make([]int, len(flows))
	look := func(when string) {
		port++
		for i := range flows {
			f := &flows[i]
			for _, p := range [2]uint16{4000 + uint16(i), port} {
				src, answered := c.answered(f, p)
				if src.IsValid() && !f.allowed {
					t.Errorf("%s: %s -> %s arrives as %s from port %d", when, f.from, f.dst, src, p)
				}
				if f.allowed && !answered {
					silent[i]++
				}
			}
		}
	}
	look("before")
	c.agent.Close()
	c.cfg.Services = config.ServedBy(to)
	c.vpp.After(func(r sim.Record) {
		messages++
		look(fmt.Sprintf("after message %d, %s", messages, r.String()))
	})
	c.start()
	c.feed(objects...)
	c.vpp.After(nil)
	before := slices.Clone(silent)
	look("afterwards")
	if !slices.Equal(before, silent) {
		t.Error("not all allowed flows are answered afterwards")
	}

	for i, n := range silent {
		if toService := flows[i].dst.Addr().As4()[1] == 96; n > 0 && (to != agent.RendererCNAT || !toService) {
			t.Errorf("%s -> %s: no answer %d times in %d messages", flows[i].from, flows[i].dst, n, messages)
		}
	}
	if messages == 0 {
		t.Error("the switch took no message")
	}
	t.Logf("%d messages; the Service that pauses for longest misses %d of %d datagrams", messages, slices.Max(silent), 2*messages)
}
