package policy

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// The addresses of this node's pods are its ranges. If another node has a pod in a range, they are the addresses of the local pods
// instead.
func TestOwnRanges(t *testing.T) {
	p, r := newTest()
	node := func(ranges ...string) *model.Node {
		n := &model.Node{Name: "node-1"}
		for _, text := range ranges {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(text))
		}
		return n
	}
	p.Located(located("10.1.1.2", "tap1", "10.9.0.5", "tap2"))
	borrowed := pod("far", "10.1.1.9", func(p *model.Pod) { p.NodeName = "node-2" })
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"no range", func() { apply(p, pod("web", "10.1.1.2")) }, "[10.1.1.2/32]"},
		{"a range", func() { apply(p, node("10.1.1.0/24", "fd00:1::/64")) }, "[10.1.1.0/24 fd00:1::/64]"},
		{"a pod in no range", func() { apply(p, pod("out", "10.9.0.5")) }, "[10.1.1.0/24 10.9.0.5/32 fd00:1::/64]"},
		{"another node's pod in the range", func() { apply(p, borrowed) }, "[10.1.1.2/32 10.9.0.5/32 fd00:1::/64]"},
		{"the range moves", func() { apply(p, node("10.1.3.0/24")) }, "[10.1.1.2/32 10.1.3.0/24 10.9.0.5/32]"},
		{"and back", func() { apply(p, node("10.1.1.0/24")) }, "[10.1.1.2/32 10.9.0.5/32]"},
		{"that pod is gone", func() { remove(p, borrowed) }, "[10.1.1.0/24 10.9.0.5/32]"},
		{"it is here", func() { apply(p, pod("far", "10.1.1.9")) }, "[10.1.1.0/24 10.9.0.5/32]"},
		{"the Node is gone", func() { remove(p, node()) }, "[10.1.1.2/32 10.9.0.5/32]"},
	} {
		step.do()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.node.Own); got != step.want {
			t.Errorf("%s: %s, not %s", step.what, got, step.want)
		}
	}
}

// Addresses of other nodes count where NAT uses them for other sources, unless the configuration trusts them.
func TestPeers(t *testing.T) {
	other := func(ips ...netip.Addr) *model.Node { return &model.Node{Name: "node-2", InternalIPs: ips} }
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{View6: dataplane.PostDNAT}, "[192.168.16.2]"},
		{Config{View4: dataplane.PostDNAT, View6: dataplane.PostDNAT}, "[]"},
		{Config{View6: dataplane.PostDNAT, TrustNodeAddresses: true}, "[]"},
	} {
		c.cfg.NodeName = "node-1"
		r := &recorder{}
		p := New(c.cfg, r)
		apply(p, &model.Node{Name: "node-1", InternalIPs: []netip.Addr{addr("192.168.16.1")}}, other(addr("192.168.16.2"), addr("fd00:16::2")))
		_ = p.Flush()
		if got := fmt.Sprint(r.node.Peers); got != c.want {
			t.Errorf("%+v: %s, not %s", c.cfg, got, c.want)
		}
		remove(p, other())
		_ = p.Flush()
		if len(r.node.Peers) > 0 {
			t.Errorf("%+v: %s are left", c.cfg, r.node.Peers)
		}
	}
	p, r := newStreamTest()
	p.Dataplane(said(t, streamWeb))
	p.Located(located())
	_ = p.Flush()
	if got := fmt.Sprint(r.node.Peers); got != "[192.168.16.2]" {
		t.Errorf("under a Felix: %s", got)
	}
}

// Under a Felix they are its blocks, unless another node has borrowed an address of one.
func TestOwnBlocks(t *testing.T) {
	p, r := newStreamTest()
	p.Dataplane(said(t, streamWeb))
	p.Located(located())
	for _, step := range []struct{ text, want string }{
		{"", "[10.1.1.0/26]"},
		{`route_update { types: REMOTE_WORKLOAD dst: "10.1.1.9/32" }`, "[]"},
		{`route_remove { dst: "10.1.1.9/32" }`, "[10.1.1.0/26]"},
		{`route_update { types: LOCAL_WORKLOAD dst: "10.1.1.3/32" }`, "[10.1.1.0/26]"},
		{`route_remove { dst: "10.1.1.0/26" }`, "[]"},
	} {
		if step.text != "" {
			p.Dataplane(said(t, step.text))
		}
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(r.node.Own); got != step.want {
			t.Errorf("%q: %s, not %s", step.text, got, step.want)
		}
	}
	// With Services the node's pod CIDR is known, as without a Felix.
	node := renderer.NodeState{Name: "node-1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}}
	if err := p.Translations().(renderer.NodeRenderer).UpdateNode(node); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(r.node.Own); got != "[10.1.1.0/24]" {
		t.Errorf("with Services: %s", got)
	}
}
