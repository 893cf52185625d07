package nat44

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/renderer"
)

func nodeText(n renderer.NodeState, cfg Config) []string {
	ifs := renderer.NewInterfaces("eth0", "vxlan0", "tap0", "tap1")
	values, notes := Node(n, ifs, renderer.NewInterfaces("vxlan0", "tap0", "tap2"), cfg)
	var out []string
	for _, key := range values.Keys() {
		out = append(out, kv.Format(key, values[key]))
	}
	return append(out, lines(nil, notes)...)
}

// Rule B13: forwarding is on, or everything but services is dropped. Rule B12: every interface is inside and outside.
// The uplink has the output feature alone: VPP refuses both on one interface.
func TestB12B13NodeWithSNAT(t *testing.T) {
	want := []string{
		`config/contiv/vpp/v1/nat44-settings {"sessions":131072,"udp":60,"tcpEstablished":7440,"tcpTransitory":120,"icmp":30,"keepSize":true}`,
		`config/contiv/vpp/v1/reject-route/vrf/0/dst/10.1.1.0/24 {"dstNetwork":"10.1.1.0/24","action":"DROP","lastResort":true}`,
		`config/contiv/vpp/v1/reject-route/vrf/0/dst/10.96.0.0/16 {"dstNetwork":"10.96.0.0/16","action":"DROP"}`,
		`config/contiv/vpp/v1/reject-route/vrf/0/dst/192.0.2.0/24 {"dstNetwork":"192.0.2.0/24","action":"DROP"}`,
		`config/vpp/nat/v2/dnat44/identities {"label":"identities","idMappings":[{"ipAddress":"192.168.16.1","port":4789,"protocol":"UDP"}]}`,
		`config/vpp/nat/v2/nat44-global {"forwarding":true}`,
		`config/vpp/nat/v2/nat44-interface/eth0 {"name":"eth0","outputFeature":true}`,
		`config/vpp/nat/v2/nat44-interface/tap0 {"name":"tap0","natInside":true,"natOutside":true}`,
		`config/vpp/nat/v2/nat44-interface/tap1 {"name":"tap1","natInside":true,"natOutside":true}`,
		`config/vpp/nat/v2/nat44-interface/tap2 {"name":"tap2","natInside":true,"natOutside":true}`,
		`config/vpp/nat/v2/nat44-interface/vxlan0 {"name":"vxlan0","natInside":true,"natOutside":true}`,
		`config/vpp/nat/v2/nat44-pool/vrf/4294967295/address/10.1.1.254 {"vrfId":4294967295,"firstIp":"10.1.1.254","twiceNat":true}`,
		`config/vpp/nat/v2/nat44-pool/vrf/4294967295/address/192.168.16.1 {"vrfId":4294967295,"firstIp":"192.168.16.1"}`,
		`config/vpp/v2/route/vrf/0/dst/10.1.1.254/32/gw/203.0.113.254 {"dstNetwork":"10.1.1.254/32","nextHopAddr":"203.0.113.254","preference":255}`,
	}
	if diff := cmp.Diff(want, nodeText(node(), Config{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestSNATOff(t *testing.T) {
	const kept = "Node node-1: pods keep their addresses outside the cluster: "
	for name, tc := range map[string]struct {
		change func(*renderer.NodeState, *Config)
		note   string
	}{
		"by configuration":           {func(_ *renderer.NodeState, c *Config) { c.DisableSNAT = true }, ""},
		"no uplink":                  {func(n *renderer.NodeState, _ *Config) { n.Uplink = "" }, kept + "VPP has no known uplink (refused false)"},
		"the uplink is the kernel's": {func(n *renderer.NodeState, _ *Config) { n.Uplink, n.ByHost = "", true }, ""},
		"no overlay": {func(n *renderer.NodeState, _ *Config) { n.Overlay = "" }, kept +
			"pods of other nodes are behind the uplink eth0 as well, and nat44 cannot tell them from the rest (refused false)"},
		"no address": {func(n *renderer.NodeState, _ *Config) { n.UplinkIPs, n.IPs = nil, nil }, kept + "neither the uplink eth0 nor the node has an IPv4 address (refused false)"},
	} {
		t.Run(name, func(t *testing.T) {
			n, cfg := node(), Config{}
			tc.change(&n, &cfg)
			got := nodeText(n, cfg)
			if !slices.Contains(got, `config/vpp/nat/v2/nat44-interface/eth0 {"name":"eth0","natInside":true,"natOutside":true}`) {
				t.Error("the uplink is not inside and outside")
			}
			for _, line := range got {
				if strings.Contains(line, "outputFeature") || strings.Contains(line, "lastResort") || strings.Contains(line, "identities") || strings.Contains(line, "192.168.16.1") {
					t.Errorf("left of SNAT: %s", line)
				}
			}
			last := got[len(got)-1]
			if !strings.HasPrefix(last, "Node ") {
				last = ""
			}
			if last != tc.note {
				t.Errorf("note = %q, want %q", last, tc.note)
			}
		})
	}
}

// A range that also contains another node's pods, such as blocks of addresses, is not dropped.
func TestSharedRangeIsNotDropped(t *testing.T) {
	n := node()
	n.Remote = append(n.Remote, renderer.RemoteNode{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.64/26")}})
	if got := strings.Join(nodeText(n, Config{}), "\n"); strings.Contains(got, "lastResort") {
		t.Error(got)
	}
}

func TestSNATAddressIsOnTheUplink(t *testing.T) {
	n := node()
	n.IPs = []netip.Addr{netip.MustParseAddr("10.9.9.9"), thisNode} // VPP does not have the first one
	if got, _ := snat(n, Config{}); got != thisNode {
		t.Errorf("SNAT address = %s, want the node's address that the uplink has", got)
	}
	n.UplinkIPs = []netip.Prefix{netip.MustParsePrefix("169.254.1.1/32")}
	if got, _ := snat(n, Config{}); got != netip.MustParseAddr("10.9.9.9") {
		t.Errorf("SNAT address = %s, want the node's first: the uplink has none to show", got)
	}
	n = node()
	n.IPs = nil
	if got, _ := snat(n, Config{}); got != thisNode {
		t.Errorf("SNAT address = %s, want the uplink's", got)
	}
}

func TestConfigReachesValues(t *testing.T) {
	cfg := Config{VXLANPort: 8472, Sessions: 1 << 20, TimeoutUDP: 30, TimeoutTCPEstablished: 3600, TimeoutTCPTransitory: 100, TimeoutICMP: 10}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(nodeText(node(), cfg), "\n")
	for _, want := range []string{
		`"port":8472`, `nat44-settings {"sessions":1048576,"udp":30,"tcpEstablished":3600,"tcpTransitory":100,"icmp":10,"keepSize":true}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
}

func TestConfigValidateJoinsProblems(t *testing.T) {
	err := Config{Sessions: 5, TimeoutICMP: 1 << 31}.Validate()
	if err == nil || !strings.Contains(err.Error(), "sessions 5") || !strings.Contains(err.Error(), "ICMP timeout") {
		t.Errorf("Validate() = %v, want both problems", err)
	}
	if err := (Config{Sessions: maxSessions + 1}).Validate(); err == nil || !strings.Contains(err.Error(), "sessions 16777217: must be 0 or 1024 to 16777216") {
		t.Errorf("Validate() = %v, want the bounds", err)
	}
	if err := (Config{Sessions: maxSessions, TimeoutUDP: MaxTimeout}).Validate(); err != nil {
		t.Errorf("the largest values: %v", err)
	}
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("zero value: %v", err)
	}
}
