package calc_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/model"
)

// TestNodeMessagesStepByStep adds nodes step by step and compares the data plane's state after each step.
func TestNodeMessagesStepByStep(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("dead:beef:1::2")
	g := calc.New(calc.Config{Node: self, NodeResources: true})
	m := mirror.New()
	g.InSync()
	for _, c := range []struct {
		name string
		do   func()
		want []string // expected changes: -removed, +added
	}{
		{"nothing", func() {}, []string{"+Config =>", "+Encapsulation =>"}},
		{"tunnel address alone", func() { g.SetHostConfig("remotehostname", "IPv4VXLANTunnelAddr", "10.0.1.0") }, nil},
		{"node", func() { g.SetHost("remotehostname", &model.Host{IPv4: v4, Net4: netip.PrefixFrom(v4, 24)}) }, []string{
			`+HostMetadataV4V6 remotehostname => hostname:"remotehostname" ipv4_addr:"192.168.0.2/24"`,
			`+Route 192.168.0.2/32 => dst:"192.168.0.2/32" dst_node_name:"remotehostname" dst_node_ip:"192.168.0.2" types:REMOTE_HOST`,
			`+VXLANTunnelEndpoint remotehostname => node:"remotehostname" mac:"66:3e:ca:a4:db:65" ipv4_addr:"10.0.1.0" parent_device_ip:"192.168.0.2"`,
		}},
		{"MAC", func() { g.SetHostConfig("remotehostname", "VXLANTunnelMACAddr", "66:74:c5:72:3f:01") }, []string{
			`-VXLANTunnelEndpoint remotehostname => node:"remotehostname" mac:"66:3e:ca:a4:db:65" ipv4_addr:"10.0.1.0" parent_device_ip:"192.168.0.2"`,
			`+VXLANTunnelEndpoint remotehostname => node:"remotehostname" mac:"66:74:c5:72:3f:01" ipv4_addr:"10.0.1.0" parent_device_ip:"192.168.0.2"`,
		}},
		{"tunnel address removed", func() { g.SetHostConfig("remotehostname", "IPv4VXLANTunnelAddr", "") }, []string{
			`-VXLANTunnelEndpoint remotehostname => node:"remotehostname" mac:"66:74:c5:72:3f:01" ipv4_addr:"10.0.1.0" parent_device_ip:"192.168.0.2"`,
		}},
		{"node without mask, with IPv6, number and labels", func() {
			g.SetHost("remotehostname", &model.Host{IPv6: v6, ASNumber: "64512", Labels: map[string]string{"a": "b"}})
		}, []string{
			`-HostMetadataV4V6 remotehostname => hostname:"remotehostname" ipv4_addr:"192.168.0.2/24"`,
			`-Route 192.168.0.2/32 => dst:"192.168.0.2/32" dst_node_name:"remotehostname" dst_node_ip:"192.168.0.2" types:REMOTE_HOST`,
			`+HostMetadataV4V6 remotehostname => hostname:"remotehostname" asnumber:"64512" labels:{key:"a" value:"b"}`,
			`+HostMetadataV6 remotehostname => hostname:"remotehostname" ipv6_addr:"dead:beef:1::2"`,
			`+Route dead:beef:1::2/128 => dst:"dead:beef:1::2/128" dst_node_name:"remotehostname" dst_node_ip:"dead:beef:1::2" types:REMOTE_HOST`,
		}},
		{"node removed", func() { g.SetHost("remotehostname", nil) }, []string{
			`-HostMetadataV4V6 remotehostname => hostname:"remotehostname" asnumber:"64512" labels:{key:"a" value:"b"}`,
			`-HostMetadataV6 remotehostname => hostname:"remotehostname" ipv6_addr:"dead:beef:1::2"`,
			`-Route dead:beef:1::2/128 => dst:"dead:beef:1::2/128" dst_node_name:"remotehostname" dst_node_ip:"dead:beef:1::2" types:REMOTE_HOST`,
		}},
		{"WireGuard", func() {
			g.SetWireguard("x", &model.Wireguard{PublicKey: "k4", PublicKeyV6: "k6", IPv4: v4, IPv6: v6})
		}, []string{
			`+WireguardEndpoint x => hostname:"x" public_key:"k4" interface_ipv4_addr:"192.168.0.2"`,
			`+WireguardEndpointV6 x => hostname:"x" public_key_v6:"k6" interface_ipv6_addr:"dead:beef:1::2"`,
		}},
		{"WireGuard for IPv6 alone", func() { g.SetWireguard("x", &model.Wireguard{PublicKeyV6: "k6", IPv6: v6}) }, []string{
			`-WireguardEndpoint x => hostname:"x" public_key:"k4" interface_ipv4_addr:"192.168.0.2"`,
		}},
		{"WireGuard off", func() { g.SetWireguard("x", nil) }, []string{
			`-WireguardEndpointV6 x => hostname:"x" public_key_v6:"k6" interface_ipv6_addr:"dead:beef:1::2"`,
		}},
		{"address without a node", func() { g.SetHostIP("x", v4) }, []string{`+HostMetadata x => hostname:"x" ipv4_addr:"192.168.0.2"`}},
		{"address removed", func() { g.SetHostIP("x", netip.Addr{}) }, []string{`-HostMetadata x => hostname:"x" ipv4_addr:"192.168.0.2"`}},
		{"another node's parameter", func() { g.SetHostConfig("x", "LogSeverity", "debug") }, nil},
		{"parameters", func() { g.SetConfig("A", "1"); g.SetConfig("VXLANEnabled", "true") }, []string{
			"-Config =>", "-Encapsulation =>", `+Config => config:{key:"A" value:"1"} config:{key:"VXLANEnabled" value:"true"}`,
			"+Encapsulation => vxlan_enabled:true",
		}},
		{"this node's win", func() { g.SetHostConfig(self, "A", "2"); g.SetConfig("VXLANEnabled", "") }, []string{
			`-Config => config:{key:"A" value:"1"} config:{key:"VXLANEnabled" value:"true"}`, "-Encapsulation => vxlan_enabled:true",
			`+Config => config:{key:"A" value:"2"}`, "+Encapsulation =>",
		}},
		{"IPIP pool", func() {
			g.SetPool("p", &model.Pool{CIDR: netip.MustParsePrefix("10.0.0.0/16"), IPIPMode: "always", Masquerade: true})
		}, []string{
			"-Encapsulation =>", "+Encapsulation => ipip_enabled:true",
			`+IPAMPool p => id:"p" pool:{cidr:"10.0.0.0/16" masquerade:true ipip_mode:"always"}`,
			`+Route 10.0.0.0/16 => ip_pool_type:IPIP dst:"10.0.0.0/16" nat_outgoing:true`,
		}},
	} {
		before := spaced(m.Dump())
		c.do()
		m.Apply(g.Flush(), true)
		m.Check(t, c.name)
		after := spaced(m.Dump())
		var got []string
		for _, line := range without(before, after) {
			got = append(got, "-"+line)
		}
		for _, line := range without(after, before) {
			got = append(got, "+"+line)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// spaced replaces runs of spaces, which the text format varies on purpose, by single ones.
func spaced(lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, strings.Join(strings.Fields(l), " "))
	}
	return out
}

func without(list, others []string) (out []string) {
	known := map[string]bool{}
	for _, o := range others {
		known[o] = true
	}
	for _, l := range list {
		if !known[l] {
			out = append(out, l)
		}
	}
	return out
}
