package cnat

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/renderer"
)

func TestNode(t *testing.T) {
	frontends, backends := renderer.NewInterfaces("eth0", "vxlan0", "tap0", "pod1"), renderer.NewInterfaces("vxlan0", "pod1")
	const policy6 = `cnat-snat-policy {"kind":"KUBERNETES","ipv6Address":"fd00:16::1","excludedPrefixes":` +
		`["fd00:1:1::/64","fd00:1:2::/64","fd00:16::1/128","fd00:16::2/128","fd00:96::/112"]}`
	const discard6 = `reject-route/vrf/0/dst/100::4/128 {"dstNetwork":"100::4/128","action":"DROP"}`
	for _, tc := range []struct {
		name   string
		cfg    Config
		change func(*renderer.NodeState)
		want   []string
	}{
		{"IPv6", v6, nil, []string{
			`cnat-interface/eth0 {"name":"eth0","ipv6":true}`,
			`cnat-interface/pod1 {"name":"pod1","ipv6":true,"includeIpv6":true,"pod":true}`,
			`cnat-interface/tap0 {"name":"tap0","ipv6":true,"host":true}`,
			`cnat-interface/vxlan0 {"name":"vxlan0","ipv6":true}`,
			policy6, discard6, last6,
		}},
		{"both", both, nil, []string{
			`cnat-interface/eth0 {"name":"eth0","ipv4":true,"ipv6":true}`,
			`cnat-interface/pod1 {"name":"pod1","ipv4":true,"ipv6":true,"includeIpv4":true,"includeIpv6":true,"pod":true}`,
			`cnat-interface/tap0 {"name":"tap0","ipv4":true,"ipv6":true,"host":true}`,
			`cnat-interface/vxlan0 {"name":"vxlan0","ipv4":true,"ipv6":true}`,
			`cnat-snat-policy {"kind":"KUBERNETES","ipv4Address":"192.168.16.1","ipv6Address":"fd00:16::1","excludedPrefixes":` +
				`["10.1.1.0/24","10.1.2.0/24","10.96.0.0/16","192.168.16.1/32","192.168.16.2/32",` +
				`"fd00:1:1::/64","fd00:1:2::/64","fd00:16::1/128","fd00:16::2/128","fd00:96::/112"]}`,
			last4, discard6, discard4, last6,
		}},
		{"pods keep their addresses", Config{Families: renderer.Families{IPv6: true}, DisableSNAT: true}, nil, []string{
			`cnat-interface/eth0 {"name":"eth0","ipv6":true}`, `cnat-interface/pod1 {"name":"pod1","ipv6":true,"pod":true}`,
			`cnat-interface/tap0 {"name":"tap0","ipv6":true,"host":true}`, `cnat-interface/vxlan0 {"name":"vxlan0","ipv6":true}`,
			policy6, discard6, last6,
		}},
		{"no address", v6, func(n *renderer.NodeState) { n.IPs, n.UplinkIPs = nil, n.UplinkIPs[:1] }, []string{
			`cnat-interface/eth0 {"name":"eth0","ipv6":true}`, `cnat-interface/pod1 {"name":"pod1","ipv6":true}`,
			`cnat-interface/tap0 {"name":"tap0","ipv6":true}`, `cnat-interface/vxlan0 {"name":"vxlan0","ipv6":true}`,
			discard6,
			"Node node-1: pods keep their addresses outside the cluster, and cannot reach themselves through services: the node has no IPv6 address (refused false)",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := node()
			if tc.change != nil {
				tc.change(&n)
			}
			if diff := cmp.Diff(tc.want, lines(Node(n, nodeIPs, frontends, backends, tc.cfg))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

const (
	last4 = `reject-route/vrf/0/dst/10.1.1.0/24 {"dstNetwork":"10.1.1.0/24","action":"DROP","lastResort":true}`
	last6 = `reject-route/vrf/0/dst/fd00:1:1::/64 {"dstNetwork":"fd00:1:1::/64","action":"DROP","lastResort":true}`
)

const discard4 = `reject-route/vrf/0/dst/192.0.2.4/32 {"dstNetwork":"192.0.2.4/32","action":"DROP"}`

func TestSource(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ips    []string
		uplink []string
		want   string
	}{
		{"the node's, on the uplink", []string{"fd00::9", "fd00:16::1"}, []string{"fd00:16::5/64", "fd00:16::1/64"}, "fd00:16::1"},
		{"the uplink's", []string{"fd00::9"}, []string{"fe80::1/64", "fd00:16::5/64"}, "fd00:16::5"},
		{"the node's", []string{"192.168.16.1", "fd00::9"}, []string{"fe80::1/64"}, "fd00::9"},
		{"none", []string{"192.168.16.1"}, []string{"192.168.16.1/24"}, "invalid IP"},
	} {
		var n renderer.NodeState
		for _, a := range tc.ips {
			n.IPs = append(n.IPs, netip.MustParseAddr(a))
		}
		for _, p := range tc.uplink {
			n.UplinkIPs = append(n.UplinkIPs, netip.MustParsePrefix(p))
		}
		if got := sourceOf(n, netip.Addr.Is6).String(); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestConfig(t *testing.T) {
	if (Config{}).Validate() == nil || v6.Validate() != nil {
		t.Error("a renderer that serves no family is a mistake, and no other is")
	}
}
