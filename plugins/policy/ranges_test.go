package policy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
)

// The driver receives the pods' ranges while host endpoints exist: their policies depend on the interface by which a packet leaves.
func TestRangesOfPods(t *testing.T) {
	p, r := newTest()
	node := func(name string, ranges ...string) *model.Node {
		n := &model.Node{Name: name}
		for _, text := range ranges {
			n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(text))
		}
		return n
	}
	host := &model.HostEndpoint{ID: model.HostEndpointID{Node: "node-1", Name: "uplink"}, Interface: "eth0", Labels: map[string]string{"host": "yes"}}
	exit := web(func(p *model.Policy) {
		p.ID = model.PolicyID{Kind: model.KindGlobalNetworkPolicy, Name: "exit"}
		p.Namespace, p.Selector, p.Ingress, p.Egress, p.ApplyOnForward = "", "host == 'yes'", false, true, true
	})
	check := func(near, far string) {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
		text := func(list []netip.Prefix) (out string) {
			for _, n := range list {
				out += " " + n.String()
			}
			return out
		}
		if text(r.node.Near) != near || text(r.node.Far) != far {
			t.Errorf("near%s, far%s; want near%s, far%s", text(r.node.Near), text(r.node.Far), near, far)
		}
	}
	apply(p, node("node-1", "10.1.1.0/24"), node("node-2", "10.1.2.0/24", "fd00:2::/64"), exit)
	check("", "")
	apply(p, host)
	check(" 10.1.1.0/24", " 10.1.2.0/24 fd00:2::/64")
	apply(p, node("node-3", "10.1.0.0/24"))
	check(" 10.1.1.0/24", " 10.1.0.0/24 10.1.2.0/24 fd00:2::/64")
	apply(p, node("node-2", "10.1.2.0/25"))
	check(" 10.1.1.0/24", " 10.1.0.0/24 10.1.2.0/25")
	remove(p, node("node-2"))
	check(" 10.1.1.0/24", " 10.1.0.0/24")
	if slices.Contains(r.calls, "resync") {
		t.Errorf("calls %v", r.calls)
	}
	remove(p, exit, host)
	check("", "")
}
