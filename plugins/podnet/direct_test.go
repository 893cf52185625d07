package podnet

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
)

var onEth1 = Direct{Link: "eth1", MAC: "02:00:00:00:00:01"}

// onOneLink is a cluster whose nodes have an uplink to one link each; node-3 is on another, and node-4 has none.
func onOneLink() *cluster {
	c := twoNodes()
	c.nodes["node-1"].Uplink = "192.168.17.1/24, 2001:db8:17::1/64"
	c.nodes["node-2"].Uplink = "192.168.17.2/24,2001:db8:17::2/64"
	c.nodes["node-3"] = &model.Node{Name: "node-3", InternalIPs: addrs("192.168.16.3"), PodCIDRs: prefixes("10.1.3.0/24"), Uplink: "192.168.18.3/24"}
	c.nodes["node-4"] = &model.Node{Name: "node-4", InternalIPs: addrs("192.168.16.4"), PodCIDRs: prefixes("10.1.4.0/24"), Uplink: "192.168.17.4"}
	return c
}

func TestDirect(t *testing.T) {
	kinds := slices.Concat(all.All(), linux.All())
	for name, d := range map[string]Direct{Uplink: onEth1, "GigabitEthernet0/8/0": {Interface: "GigabitEthernet0/8/0"}} {
		values := onOneLink().values(&Settings{NodeName: "node-1", Direct: d}, nil)
		routes := map[string]string{}
		for key, m := range values {
			if i := slices.IndexFunc(kinds, func(k *descriptor.Descriptor) bool { return k.Has(key) }); i < 0 {
				t.Errorf("%s has no descriptor", key)
			} else if _, err := kinds[i].Compile(key, m); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			if r, ok := m.(*l3.Route); ok {
				routes[r.GetDstNetwork()] = r.GetOutgoingInterface() + " " + r.GetNextHopAddr()
			}
			if strings.Contains(kv.Format(key, m), "vxlan") || strings.Contains(key, Overlay) || strings.Contains(key, underlay) {
				t.Errorf("of a tunnel: %s", kv.Format(key, m))
			}
		}
		for dst, want := range map[string]string{
			"10.1.2.0/24": name + " 192.168.17.2", "2001:db8:1:2::/64": name + " 2001:db8:17::2", "192.168.16.2/32": name + " 192.168.17.2",
			"10.1.3.0/24": "", "10.1.4.0/24": "", "0.0.0.0/0": "host 10.1.1.1",
		} {
			if routes[dst] != want {
				t.Errorf("%s: route %q, want %q", dst, routes[dst], want)
			}
		}
		if _, made := values[kv.InterfaceKey(name)]; made != (name == Uplink) {
			t.Errorf("%s: interface made: %t", name, made)
		}
		if given := strings.Contains(text(values), `"vppDevices":["eth1"]`); given != (name == Uplink) {
			t.Errorf("%s: the kernel gives eth1 away: %t", name, given)
		}
	}
}

func TestDirectSettings(t *testing.T) {
	for _, d := range []Direct{{Link: "eth1"}, {MAC: "02:00:00:00:00:01"}, {Link: "eth1", MAC: "02:00:00:00:00:01", Interface: "a"}} {
		if err := (&Settings{NodeName: "n", Direct: d}).Validate(); err == nil {
			t.Errorf("%+v is valid", d)
		}
	}
	s := Settings{NodeName: "n", Direct: onEth1, MTU: 9000}
	if err := s.Validate(); err != nil || s.PodMTU(true) != 9000 {
		t.Errorf("%v, MTU %d", err, s.PodMTU(true))
	}
	c := onOneLink()
	for uplink, want := range map[string]string{
		"192.168.17.1/24,2001:db8:17::1/64": "",
		"192.168.17.1/24":                   "no address of the family of pod CIDR 2001:db8:1:1::/64",
		"":                                  "no address of the family of pod CIDR 10.1.1.0/24",
		"192.168.17.1":                      `"192.168.17.1" is not an address with the length`,
		"192.168.17.1/32":                   "is not an address with the length",
	} {
		own := *c.nodes["node-1"]
		own.Uplink = uplink
		if got := onEth1.incomplete(&own); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", uplink, got, want)
		}
	}
}
