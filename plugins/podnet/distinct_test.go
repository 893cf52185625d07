package podnet

import (
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
)

// TestOneRouteForEachAddress: Node objects that have the same addresses or ranges never make two routes to one of them, and never one past this
// node's own.
func TestOneRouteForEachAddress(t *testing.T) {
	c := twoNodes()
	c.nodes["node-3"] = &model.Node{Name: "node-3", InternalIPs: addrs("192.168.16.2", "2001:db8:16::3"), ExternalIPs: addrs("203.0.113.2", "203.0.113.3"), PodCIDRs: prefixes("10.1.3.0/24", "2001:db8:1:2::/64")}
	c.nodes["node-0"] = &model.Node{Name: "node-0", InternalIPs: addrs("192.168.16.1", "2001:db8:16::1"), PodCIDRs: prefixes("10.1.1.0/25")}
	values := c.values(&Settings{NodeName: "node-1"}, nil)
	via := map[string]string{}
	for _, m := range values {
		if r, ok := m.(*l3.Route); ok && r.GetVrfId() == 0 {
			if was := via[r.GetDstNetwork()]; was != "" {
				t.Errorf("%s leads to %s and to %s", r.GetDstNetwork(), was, r.GetOutgoingInterface())
			}
			via[r.GetDstNetwork()] = r.GetOutgoingInterface()
		}
	}
	for dst, want := range map[string]string{"192.168.16.1/32": Host, "2001:db8:16::1/128": Host, "10.1.1.0/25": "", "10.1.3.0/24": Overlay, "203.0.113.3/32": Overlay} {
		if via[dst] != want {
			t.Errorf("%s leads to %q, want %q", dst, via[dst], want)
		}
	}
	for name, want := range map[string]bool{"vxlan:192.168.16.2": true, "vxlan:2001:db8:16::3": true, "vxlan:192.168.16.1": false} {
		if _, has := values[kv.InterfaceKey(name)]; has != want {
			t.Errorf("tunnel %s: %t", name, has)
		}
	}
	if n := strings.Count(text(values), `"name":"vxlan:192.168.16.2","splitHorizonGroup"`); n != 1 {
		t.Errorf("the bridge domain has a tunnel %d times", n)
	}
}
