package kv_test

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	contivcnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	contivpolicer "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/policer"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
	linuxinterfaces "github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/iptables"
	linuxl3 "github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/abf"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/ipsec"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
)

// golden holds keys that the real ligato v3 gives. Where "ours" is set, the model is ours or the case is not among
// ligato's vectors.
var golden = []struct {
	m    proto.Message
	key  string
	ours bool
}{
	{m: &nat.Nat44Global{}, key: "config/vpp/nat/v2/nat44-global"},
	{m: &nat.Nat44Interface{Name: "tap-vpp2"}, key: "config/vpp/nat/v2/nat44-interface/tap-vpp2"},
	{m: &nat.DNat44{Label: "default/kubernetes"}, key: "config/vpp/nat/v2/dnat44/default/kubernetes"},
	{m: &nat.DNat44{Label: "a//b/../c"}, key: "config/vpp/nat/v2/dnat44/a/c"},
	{m: &nat.Nat44AddressPool{Name: "pool1", VrfId: 1, FirstIp: "10.0.0.1"}, key: "config/vpp/nat/v2/nat44-pool/pool1"},
	{m: &nat.Nat44AddressPool{VrfId: 1, FirstIp: "10.0.0.1", LastIp: "10.0.0.9"}, key: "config/vpp/nat/v2/nat44-pool/vrf/1/address/10.0.0.1-10.0.0.9"},
	{m: &nat.Nat44AddressPool{VrfId: 4294967295, FirstIp: "10.0.0.1", LastIp: "10.0.0.1"}, key: "config/vpp/nat/v2/nat44-pool/vrf/4294967295/address/10.0.0.1"},
	{m: &nat.Nat44AddressPool{FirstIp: "10.0.0.1"}, key: "config/vpp/nat/v2/nat44-pool/vrf/0/address/10.0.0.1", ours: true},
	{m: &nat.Nat44VrfTable{SrcVrfId: 1}, key: "config/vpp/nat/v2/nat44-vrf/vrfid/1"},
	{m: &nat.Nat44VrfRoute{SrcVrfId: 1, DestVrfId: 2}, key: "config/vpp/nat/v2/nat44-vrf-route/vrfid/1/destvrfid/2"},
	{m: &acl.ACL{Name: "contiv/vpp-policy-TAP1-IN"}, key: "config/vpp/acls/v2/acl/contiv/vpp-policy-TAP1-IN"},
	{m: &interfaces.Interface{Name: "GigabitEthernet0/8/0"}, key: "config/vpp/v2/interfaces/GigabitEthernet0/8/0"},
	{m: &interfaces.Span{InterfaceFrom: "a", InterfaceTo: "b"}, key: "config/vpp/v2/span/a/to/b", ours: true},
	{m: &l3.Route{VrfId: 1, DstNetwork: "10.1.2.3/24"}, key: "config/vpp/v2/route/vrf/1/dst/10.1.2.0/24"},
	{m: &l3.Route{OutgoingInterface: "vxlanBVI", DstNetwork: "10.1.0.0/16", NextHopAddr: "192.168.16.1"}, key: "config/vpp/v2/route/if/vxlanBVI/vrf/0/dst/10.1.0.0/16/gw/192.168.16.1"},
	{m: &l3.Route{DstNetwork: "2001:DB8:0::5/48", NextHopAddr: "FE80::1"}, key: "config/vpp/v2/route/vrf/0/dst/2001:db8::/48/gw/FE80::1"},
	{m: &l3.Route{DstNetwork: "nonsense"}, key: "config/vpp/v2/route/vrf/0/dst/<invalid>/0"},
	{m: &l3.Route{}, key: "config/vpp/v2/route/vrf/0/dst/<invalid>/0", ours: true},
	{m: &l3.Route{DstNetwork: "10.1.2.3"}, key: "config/vpp/v2/route/vrf/0/dst/<invalid>/0", ours: true},
	{m: &l3.Route{DstNetwork: "fe80::1%eth0/64"}, key: "config/vpp/v2/route/vrf/0/dst/<invalid>/0", ours: true},
	{m: &l3.Route{DstNetwork: "10.1.2.3/024"}, key: "config/vpp/v2/route/vrf/0/dst/10.1.2.0/24", ours: true},
	{m: &l3.Route{DstNetwork: "::ffff:10.1.2.3/120"}, key: "config/vpp/v2/route/vrf/0/dst/10.1.2.0/120", ours: true},
	{m: &l3.Route{DstNetwork: "alloc:net1/tap1"}, key: "config/vpp/v2/route/vrf/0/dst/alloc:net1/tap1", ours: true},
	{m: &l3.VrfTable{Id: 2, Protocol: l3.VrfTable_IPV6}, key: "config/vpp/v2/vrf-table/id/2/protocol/IPV6"},
	{m: &l3.ARPEntry{Interface: "tap1", IpAddress: "10.1.1.2"}, key: "config/vpp/v2/arp/tap1/10.1.1.2"},
	{m: &l3.ProxyARP{}, key: "config/vpp/v2/proxyarp-global"},
	{m: &l3.IPScanNeighbor{}, key: "config/vpp/v2/ipscanneigh-global"},
	{m: &l3.DHCPProxy{SourceIpAddress: "10.0.0.1", RxVrfId: 3}, key: "config/vpp/v2/dhcp-proxy/IPv4/rx-vrf/3"},
	{m: &l3.DHCPProxy{SourceIpAddress: "2001:db8::1"}, key: "config/vpp/v2/dhcp-proxy/IPv6/rx-vrf/0", ours: true},
	{m: &l3.L3XConnect{Interface: "a", Protocol: l3.L3XConnect_IPV6}, key: "config/vpp/v2/l3xconnect/a/protocol/IPV6", ours: true},
	{m: &l3.TeibEntry{Interface: "gre0", PeerAddr: "10.0.0.2"}, key: "config/vpp/v2/teib/gre0/peer/10.0.0.2", ours: true},
	{m: &l3.VRRPEntry{Interface: "a", VrId: 7}, key: "config/vpp/v2/vrrp/a/vrid/7", ours: true},
	{m: &l2.BridgeDomain{Name: "vxlanBD"}, key: "config/vpp/l2/v2/bridge-domain/vxlanBD"},
	{m: &l2.FIBEntry{BridgeDomain: "vxlanBD", PhysAddress: "12:2b:c0:a8:10:02"}, key: "config/vpp/l2/v2/fib/vxlanBD/mac/12:2b:c0:a8:10:02"},
	{m: &l2.XConnectPair{ReceiveInterface: "a"}, key: "config/vpp/l2/v2/xconnect/a"},
	{m: &punt.ToHost{L3Protocol: punt.L3Protocol_IPV4, L4Protocol: punt.L4Protocol_UDP, Port: 53}, key: "config/vpp/v2/tohost/l3/IPV4/l4/UDP/port/53"},
	{m: &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV4, TxInterface: "tap"}, key: "config/vpp/v2/ipredirect/l3/IPV4/tx/tap"},
	{m: &punt.Exception{Reason: "ipsec4-spi-0"}, key: "config/vpp/v2/exception/reason/ipsec4-spi-0"},
	{m: &linuxinterfaces.Interface{Name: "eth0"}, key: "config/linux/interfaces/v2/interface/eth0"},
	{m: &linuxl3.Route{DstNetwork: "0.0.0.0/0", OutgoingInterface: "eth0"}, key: "config/linux/l3/v2/route/0.0.0.0/0/eth0"},
	{m: &linuxl3.Route{DstNetwork: "10.1.2.3/24", OutgoingInterface: "eth0"}, key: "config/linux/l3/v2/route/10.1.2.0/24/eth0", ours: true},
	{m: &linuxl3.Route{DstNetwork: "nonsense", OutgoingInterface: "eth0"}, key: "config/linux/l3/v2/route/nonsense/eth0", ours: true},
	{m: &linuxl3.ARPEntry{Interface: "eth0", IpAddress: "10.1.1.1"}, key: "config/linux/l3/v2/arp/eth0/10.1.1.1"},
	{m: &iptables.RuleChain{Name: "chain"}, key: "config/linux/iptables/v2/rulechain/chain", ours: true},
	{m: &abf.ABF{Index: 7}, key: "config/vpp/abfs/v2/abf/7", ours: true},
	{m: &ipsec.SecurityAssociation{Index: 1}, key: "config/vpp/ipsec/v2/sa/1", ours: true},
	{m: &ipsec.SecurityPolicyDatabase{Index: 2}, key: "config/vpp/ipsec/v2/spd/2", ours: true},
	{m: &contivl3.RejectRoute{VrfId: 1, DstNetwork: "10.96.0.10/32"}, key: "config/contiv/vpp/v1/reject-route/vrf/1/dst/10.96.0.10/32", ours: true},
	{m: &contivacl.InterfaceACLs{Interface: "pod/a"}, key: "config/contiv/vpp/v1/interface-acls/pod/a", ours: true},
	{m: &contivacl.SCTPPorts{Interface: "pod/a"}, key: "config/contiv/vpp/v1/sctp-ports/pod/a", ours: true},
	{m: &contivcnat.Translation{Vip: &contivcnat.Endpoint{Address: "FD00:96::0a", Port: 80}, Protocol: contivcnat.Protocol_UDP}, key: "config/contiv/vpp/v1/cnat-translation/fd00:96::a/80/UDP", ours: true},
	{m: &contivcnat.Translation{Vip: &contivcnat.Endpoint{Address: "::ffff:10.96.0.10", Port: 80}}, key: "config/contiv/vpp/v1/cnat-translation/10.96.0.10/80/TCP", ours: true},
	{m: &contivcnat.Translation{Vip: &contivcnat.Endpoint{Interface: "eth/0", Family: contivcnat.Family_IPV6, Port: 80}}, key: "config/contiv/vpp/v1/cnat-translation/eth/0/IPV6/80/TCP", ours: true},
	{m: &contivcnat.Translation{}, key: "config/contiv/vpp/v1/cnat-translation/<invalid>/0/TCP", ours: true},
	{m: &contivcnat.SnatPolicy{Kind: contivcnat.SnatPolicy_KUBERNETES}, key: "config/contiv/vpp/v1/cnat-snat-policy", ours: true},
	{m: &contivcnat.Interface{Name: "tap0"}, key: "config/contiv/vpp/v1/cnat-interface/tap0", ours: true},
	{m: &contivnat.SourceRanges{Label: "default/web"}, key: "config/contiv/vpp/v1/source-ranges/default/web", ours: true},
	{m: &contivlinux.Handover{Interface: "host"}, key: "config/contiv/linux/v1/handover", ours: true},
	{m: &contivlinux.HostPort{HostAddress: "0.0.0.0", HostPort: 80}, key: "config/contiv/linux/v1/host-port/TCP/0.0.0.0/80", ours: true},
	{m: &contivlinux.HostPort{Protocol: contivlinux.HostPort_UDP, HostAddress: "::", HostPort: 53}, key: "config/contiv/linux/v1/host-port/UDP/::/53", ours: true},
	{m: &contivpolicer.Policer{Interface: "pod:a/b:1", Direction: contivpolicer.Policer_OUTPUT}, key: "config/contiv/vpp/v1/policer/pod:a/b:1/OUTPUT", ours: true},
	{m: &contivlinux.NodePorts{Interface: "host"}, key: "config/contiv/linux/v1/node-ports", ours: true},
	{m: &contivlinux.NodePort{Protocol: contivlinux.NodePort_UDP, Port: 30080}, key: "config/contiv/linux/v1/node-port/UDP/30080", ours: true},
	{m: &contivnat.Nat44Settings{Sessions: 1}, key: "config/contiv/vpp/v1/nat44-settings", ours: true},
}

func TestKeyGolden(t *testing.T) {
	for _, tc := range golden {
		if got := kv.Key(tc.m); got != tc.key {
			t.Errorf("Key(%T %v) = %q, want %q", tc.m, tc.m, got, tc.key)
		}
		if err := kv.Check(tc.key, tc.m); err != nil {
			t.Errorf("Check(%q): %v", tc.key, err)
		}
	}
}

func TestKeyUnmodelled(t *testing.T) {
	for _, m := range []proto.Message{nil, &kvscheduler.ValueStatus{Key: "x"}, &nat.DNat44_StaticMapping{}} {
		if got := kv.Key(m); got != "" {
			t.Errorf("Key(%T) = %q, want none", m, got)
		}
	}
}

func TestEveryModelHasGoldenKey(t *testing.T) {
	seen := map[string]bool{}
	for _, tc := range golden {
		model, _, ok := kv.Lookup(tc.key)
		if !ok {
			t.Errorf("Lookup(%q): no model", tc.key)
			continue
		}
		if got, want := model.New().ProtoReflect().Descriptor(), tc.m.ProtoReflect().Descriptor(); got != want {
			t.Errorf("Lookup(%q).New() is a %s, want %s", tc.key, got.FullName(), want.FullName())
		}
		seen[model.Name] = true
	}
	for _, m := range kv.Models() {
		if !seen[m.Name] {
			t.Errorf("model %s has no golden key", m.Name)
		}
	}
}

// The class, module, version and type of a model form its prefix, and prefixes do not overlap. Lookup relies on both.
func TestModels(t *testing.T) {
	models := kv.Models()
	if !slices.IsSortedFunc(models, func(a, b kv.Model) int { return cmp.Compare(a.Prefix, b.Prefix) }) {
		t.Error("models are not sorted by prefix")
	}
	names := map[string]bool{}
	for i, m := range models {
		prefix := path.Join("config", strings.ReplaceAll(m.Module, ".", "/"), m.Version, m.Type)
		if strings.TrimSuffix(m.Prefix, "/") != prefix || m.Name != m.Module+"."+m.Type {
			t.Errorf("model %+v: prefix %q does not follow from its names", m, m.Prefix)
		}
		if names[m.Name] || names[m.Proto] {
			t.Errorf("model %s or %s twice", m.Name, m.Proto)
		}
		names[m.Name], names[m.Proto] = true, true
		for j, other := range models {
			if i != j && strings.HasPrefix(other.Prefix, m.Prefix) {
				t.Errorf("prefix %q starts %q", m.Prefix, other.Prefix)
			}
		}
		if got := kv.Key(m.New()); !strings.HasPrefix(got+"/", m.Prefix) {
			t.Errorf("Key of empty %s = %q, not under %q", m.Proto, got, m.Prefix)
		}
	}
}

func TestModelNames(t *testing.T) {
	want := []string{
		"contiv.linux.handover contiv.linux.Handover",
		"contiv.linux.host-port contiv.linux.HostPort",
		"contiv.linux.node-port contiv.linux.NodePort",
		"contiv.linux.node-ports contiv.linux.NodePorts",
		"contiv.vpp.cnat-interface contiv.vpp.cnat.Interface",
		"contiv.vpp.cnat-snat-policy contiv.vpp.cnat.SnatPolicy",
		"contiv.vpp.cnat-translation contiv.vpp.cnat.Translation",
		"contiv.vpp.interface-acls contiv.vpp.acl.InterfaceACLs",
		"contiv.vpp.nat44-settings contiv.vpp.nat.Nat44Settings",
		"contiv.vpp.policer contiv.vpp.policer.Policer",
		"contiv.vpp.reject-route contiv.vpp.l3.RejectRoute",
		"contiv.vpp.sctp-ports contiv.vpp.acl.SCTPPorts",
		"contiv.vpp.source-ranges contiv.vpp.nat.SourceRanges",
		"linux.interfaces.interface ligato.linux.interfaces.Interface",
		"linux.iptables.rulechain ligato.linux.iptables.RuleChain",
		"linux.l3.arp ligato.linux.l3.ARPEntry",
		"linux.l3.route ligato.linux.l3.Route",
		"vpp.abfs.abf ligato.vpp.abf.ABF",
		"vpp.acls.acl ligato.vpp.acl.ACL",
		"vpp.arp ligato.vpp.l3.ARPEntry",
		"vpp.dhcp-proxy ligato.vpp.l3.DHCPProxy",
		"vpp.exception ligato.vpp.punt.Exception",
		"vpp.interfaces ligato.vpp.interfaces.Interface",
		"vpp.ipredirect ligato.vpp.punt.IPRedirect",
		"vpp.ipscanneigh-global ligato.vpp.l3.IPScanNeighbor",
		"vpp.ipsec.sa ligato.vpp.ipsec.SecurityAssociation",
		"vpp.ipsec.spd ligato.vpp.ipsec.SecurityPolicyDatabase",
		"vpp.l2.bridge-domain ligato.vpp.l2.BridgeDomain",
		"vpp.l2.fib ligato.vpp.l2.FIBEntry",
		"vpp.l2.xconnect ligato.vpp.l2.XConnectPair",
		"vpp.l3xconnect ligato.vpp.l3.L3XConnect",
		"vpp.nat.dnat44 ligato.vpp.nat.DNat44",
		"vpp.nat.nat44-global ligato.vpp.nat.Nat44Global",
		"vpp.nat.nat44-interface ligato.vpp.nat.Nat44Interface",
		"vpp.nat.nat44-pool ligato.vpp.nat.Nat44AddressPool",
		"vpp.nat.nat44-vrf ligato.vpp.nat.Nat44VrfTable",
		"vpp.nat.nat44-vrf-route ligato.vpp.nat.Nat44VrfRoute",
		"vpp.proxyarp-global ligato.vpp.l3.ProxyARP",
		"vpp.route ligato.vpp.l3.Route",
		"vpp.span ligato.vpp.interfaces.Span",
		"vpp.teib ligato.vpp.l3.TeibEntry",
		"vpp.tohost ligato.vpp.punt.ToHost",
		"vpp.vrf-table ligato.vpp.l3.VrfTable",
		"vpp.vrrp ligato.vpp.l3.VRRPEntry",
	}
	var got []string
	for _, m := range kv.Models() {
		got = append(got, m.Name+" "+m.Proto)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("models:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLookup(t *testing.T) {
	for _, tc := range []struct{ key, model, name string }{
		{"config/vpp/nat/v2/dnat44/default/web", "vpp.nat.dnat44", "default/web"},
		{"config/vpp/nat/v2/nat44-vrf/vrfid/1", "vpp.nat.nat44-vrf", "vrfid/1"},
		{"config/vpp/nat/v2/nat44-vrf-route/vrfid/1/destvrfid/2", "vpp.nat.nat44-vrf-route", "vrfid/1/destvrfid/2"},
		{"config/vpp/nat/v2/nat44-global", "vpp.nat.nat44-global", ""},
		{"config/vpp/nat/v2/nat44-global/", "", ""},
		{"config/vpp/nat/v2/nat44-globals", "", ""},
		{"config/vpp/nat/v2/dnat44/", "", ""},
		{"config/vpp/nat/v2/dnat44", "", ""},
		{"config/vpp/nat/v2/", "", ""},
		{"config/vpp/v2/zzz/a", "", ""},
		{"/config/vpp/nat/v2/dnat44/a", "", ""},
		{"", "", ""},
		{"zzz", "", ""},
	} {
		m, name, ok := kv.Lookup(tc.key)
		if m.Name != tc.model || name != tc.name || ok != (tc.model != "") {
			t.Errorf("Lookup(%q) = %q, %q, %v; want %q, %q", tc.key, m.Name, name, ok, tc.model, tc.name)
		}
		if ok && m.Key(name) != tc.key {
			t.Errorf("Lookup(%q): model.Key(%q) = %q", tc.key, name, m.Key(name))
		}
	}
}

func TestSCTPPortsACL(t *testing.T) {
	names := map[string]bool{}
	for _, iface := range []string{"tap1", "pod/a", "input/tap1", ""} {
		for _, input := range []bool{true, false} {
			name := kv.SCTPPortsACL(iface, input)
			if got, needs := kv.NeedsSCTPPorts(name); !needs || got != iface || names[name] {
				t.Errorf("NeedsSCTPPorts(%q) = %q, %t; want %q; known: %t", name, got, needs, iface, names[name])
			}
			names[name] = true
			if got, want := kv.SCTPFilterOf(name), kv.SCTPFilterKey(iface, input); got != want || !strings.HasPrefix(got, kv.SCTPFilterPrefix) {
				t.Errorf("SCTPFilterOf(%q) = %q, want %q", name, got, want)
			}
		}
	}
	for name, want := range map[string]bool{"sctp-ports/tap1": true, "sctp-ports": false, "web": false, "a/sctp-ports/input/tap1": false} {
		if iface, needs := kv.NeedsSCTPPorts(name); needs != want || (kv.SCTPFilterOf(name) != "") != want {
			t.Errorf("NeedsSCTPPorts(%q) = %q, %t", name, iface, needs)
		}
	}
}

func TestReferences(t *testing.T) {
	for got, want := range map[string]string{
		kv.InterfaceKey("GigabitEthernet0/8/0"): kv.Key(&interfaces.Interface{Name: "GigabitEthernet0/8/0"}),
		kv.DNat44Key("a//b/../c"):               kv.Key(&nat.DNat44{Label: "a//b/../c"}),
		kv.Nat44InterfaceKey("tap1"):            kv.Key(&nat.Nat44Interface{Name: "tap1"}),
		kv.Nat44PoolKey("pool1"):                kv.Key(&nat.Nat44AddressPool{Name: "pool1"}),
		kv.ACLKey("a/b"):                        kv.Key(&acl.ACL{Name: "a/b"}),
		kv.InterfaceACLsKey("pod/a"):            kv.Key(&contivacl.InterfaceACLs{Interface: "pod/a"}),
		kv.SCTPPortsKey("pod/a"):                kv.Key(&contivacl.SCTPPorts{Interface: "pod/a"}),
		kv.SourceRangesKey("default/web"):       kv.Key(&contivnat.SourceRanges{Label: "default/web"}),
		kv.BridgeDomainKey("bd"):                kv.Key(&l2.BridgeDomain{Name: "bd"}),
		kv.ARPKey("tap1", "10.1.1.2"):           kv.Key(&l3.ARPEntry{Interface: "tap1", IpAddress: "10.1.1.2"}),
		kv.VrfTableKey(2, l3.VrfTable_IPV6):     kv.Key(&l3.VrfTable{Id: 2, Protocol: l3.VrfTable_IPV6}),
		kv.RejectRouteKey(1, "10.9.9.9/24"):     kv.Key(&contivl3.RejectRoute{VrfId: 1, DstNetwork: "10.9.9.0/24"}),
		kv.RouteKey("tap1", 1, "10.1.2.3/24", "10.1.2.1"): kv.Key(&l3.Route{
			OutgoingInterface: "tap1", VrfId: 1, DstNetwork: "10.1.2.0/24", NextHopAddr: "10.1.2.1",
		}),
		kv.RouteKey("", 0, "0.0.0.0/0", ""): kv.Key(&l3.Route{DstNetwork: "0.0.0.0/0"}),

		kv.InterfaceAddressKey("tap1", "10.0.0.1/24"):             "vpp/interface/tap1/address/static/10.0.0.1/24",
		kv.InterfaceVrfKey("tap1", 1, false):                      "vpp/interface/tap1/vrf/1/ip-version/v4",
		kv.InterfaceVrfKey("tap1", 1, true):                       "vpp/interface/tap1/vrf/1/ip-version/v6",
		kv.InterfaceUnnumberedKey("tap1", "loop"):                 "vpp/interface/tap1/unnumbered/loop",
		kv.InterfaceKey(kv.PodInterface("default/web", "12")):     "config/vpp/v2/interfaces/pod:default/web:12",
		kv.InterfaceHasAddressKey("x"):                            "vpp/interface/x/has-IP-address",
		kv.ACLInterfaceKey("acl1", "tap1", true):                  "vpp/acl/acl1/interface/ingress/tap1",
		kv.ACLInterfaceKey("acl1", "tap1", false):                 "vpp/acl/acl1/interface/egress/tap1",
		kv.BridgeDomainInterfaceKey("bd", "if"):                   "vpp/bd/bd/interface/if",
		kv.Nat44EndpointDependentKey:                              "vpp/nat44/endpoint-dependent",
		kv.Nat44InterfaceFeatureKey("tap1", true):                 "vpp/nat44/interface/tap1/feature/in",
		kv.Nat44InterfaceFeatureKey("tap1", false):                "vpp/nat44/interface/tap1/feature/out",
		kv.Nat44AddressKey("1.2.3.4", true):                       "vpp/nat44/address/1.2.3.4/twice-nat/on",
		kv.Nat44AddressKey("1.2.3.4", false):                      "vpp/nat44/address/1.2.3.4/twice-nat/off",
		kv.Nat44TwiceNATPoolKey(0, "1.1.1.1", "1.1.1.9"):          "vpp/nat44/twiceNAT-pool/vrf/0/addresses/1.1.1.1-1.1.1.9",
		kv.Nat44TwiceNATPoolKey(4294967295, "1.1.1.1", "1.1.1.1"): "vpp/nat44/twiceNAT-pool/vrf/4294967295/addresses/1.1.1.1",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// FuzzRouteKey compares the key of a route with a literal implementation of ligato's name template.
func FuzzRouteKey(f *testing.F) {
	f.Add("", uint32(0), "10.1.2.3/24", "")
	f.Add("tap1", uint32(7), "2001:DB8::1/48", "FE80::1")
	f.Add("a/../b", uint32(1), "::ffff:1.2.3.4/96", "..")
	f.Add("if", uint32(1), "10.0.0.0/08", "/")
	f.Add(".", uint32(1), "alloc:../..", "x")
	f.Fuzz(func(t *testing.T, iface string, vrf uint32, dst, gw string) {
		name := fmt.Sprintf("vrf/%d/", vrf)
		if iface != "" {
			name = "if/" + iface + "/" + name
		}
		if _, n, err := net.ParseCIDR(dst); strings.HasPrefix(dst, "alloc:") {
			name += "dst/" + dst + "/"
		} else if err != nil {
			name += "dst/<invalid>/0/"
		} else {
			ones, _ := n.Mask.Size()
			name += fmt.Sprintf("dst/%s/%d/", n.IP, ones)
		}
		if gw != "" {
			name += "gw/" + gw
		}
		want := path.Join("config/vpp/v2/route/", name)
		got := kv.Key(&l3.Route{OutgoingInterface: iface, VrfId: vrf, DstNetwork: dst, NextHopAddr: gw})
		if got != want {
			t.Errorf("key %q, want %q", got, want)
		}
	})
}

// FuzzKeyCleaned compares cleaning with path.Join for arbitrary names.
func FuzzKeyCleaned(f *testing.F) {
	for _, label := range []string{"default/web", "a//b/../c", "", "..", "../nat44-global", "a/", "a/.", "a/..b", "./a", "...", "a/./b"} {
		f.Add(label)
	}
	f.Fuzz(func(t *testing.T, label string) {
		want := path.Join("config/vpp/nat/v2/dnat44/", label)
		if got := kv.DNat44Key(label); got != want {
			t.Errorf("DNat44Key(%q) = %q, want %q", label, got, want)
		}
		if got := kv.Key(&nat.DNat44{Label: label}); got != want {
			t.Errorf("Key of label %q = %q, want %q", label, got, want)
		}
	})
}

func BenchmarkKey(b *testing.B) {
	for _, m := range []proto.Message{
		&nat.DNat44{Label: "default/web"},
		&nat.Nat44Interface{Name: "tap-0123456789"},
		&l3.Route{VrfId: 1, DstNetwork: "10.1.2.3/32", NextHopAddr: "10.1.2.3", OutgoingInterface: "tap-0123456789"},
		&contivl3.RejectRoute{DstNetwork: "10.96.0.10/32"},
		&nat.Nat44Global{},
	} {
		b.Run(string(m.ProtoReflect().Descriptor().Name()), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				kv.Key(m)
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		kv.Lookup("config/vpp/nat/v2/dnat44/default/web")
	}
}

// A name that needs no cleaning costs one allocation, the key itself.
func TestKeyAllocates(t *testing.T) {
	for _, m := range []proto.Message{
		&nat.DNat44{Label: "default/web"},
		&nat.Nat44AddressPool{VrfId: 1, FirstIp: "10.0.0.1", LastIp: "10.0.0.9"},
		&interfaces.Interface{Name: "GigabitEthernet0/8/0"},
		&l3.Route{VrfId: 1, DstNetwork: "10.1.2.3/24"},
		&l3.Route{OutgoingInterface: "tap1", DstNetwork: "2001:DB8::5/48", NextHopAddr: "FE80::1"},
		&l3.VrfTable{Id: 2, Protocol: l3.VrfTable_IPV6},
		&l3.ARPEntry{Interface: "tap1", IpAddress: "10.1.1.2"},
		&contivl3.RejectRoute{DstNetwork: "10.96.0.10/32"},
		&acl.ACL{Name: "contiv/vpp-policy-TAP1-IN"},
	} {
		if n := testing.AllocsPerRun(10, func() { kv.Key(m) }); n > 1 {
			t.Errorf("Key(%T %v): %v allocations, want at most 1", m, m, n)
		}
	}
}

// Check refuses a key that is too long, and names it in a short error.
func TestTooLongKeyIsRefused(t *testing.T) {
	fits := strings.Repeat("a", kv.MaxKey-len(kv.InterfaceKey(""))-1)
	for _, c := range []struct {
		name string
		err  error
	}{{fits, nil}, {fits + "a", kv.ErrKeyTooLong}, {strings.Repeat("ü", 1<<20), kv.ErrKeyTooLong}} {
		m := &interfaces.Interface{Name: c.name}
		err := kv.Check(kv.Key(m), m)
		if !errors.Is(err, c.err) || err != nil && len(err.Error()) > 200 {
			t.Errorf("%d bytes: %.300v, want %v", len(c.name), err, c.err)
		}
		if err := kv.Check("config/vpp/v2/interfaces/x", m); !errors.Is(err, kv.ErrKeyMismatch) || len(err.Error()) > kv.MaxKey+200 || !utf8.ValidString(err.Error()) {
			t.Errorf("%d bytes under another key: %.300v", len(c.name), err)
		}
	}
}

func TestRestricted(t *testing.T) {
	if got, ok := kv.Restricts(kv.RestrictedLabel("default/web", "tcp:198.51.100.9:80")); got != "default/web" || !ok {
		t.Errorf("got %q, %t", got, ok)
	}
	if got, ok := kv.Restricts("restricted/web"); got != "web" || !ok { // a label that another program chose
		t.Errorf("got %q, %t", got, ok)
	}
	if got, ok := kv.Restricts("default/restricted/web"); got != "" || ok {
		t.Errorf("got %q, %t", got, ok)
	}
}
