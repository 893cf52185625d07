package model

import (
	"net/netip"
	"testing"
)

func TestRuleText(t *testing.T) {
	net := netip.MustParsePrefix
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{Rule{}, "allow"},
		{Rule{Action: ActionDeny, IPVersion: 6, Protocol: RuleProtocol{Number: 58}, ICMP: &ICMPMatch{Type: 128, HasCode: true}}, "deny ipv6 58 type 128/0"},
		{Rule{Action: ActionPass, NotProtocol: RuleProtocol{Name: "icmp"}, NotICMP: &ICMPMatch{Type: 8}}, "next-tier not icmp not type 8"},
		{Rule{
			Protocol:    RuleProtocol{Name: "tcp"},
			Source:      Peer{Nets: []netip.Prefix{net("10.0.0.0/8"), net("11.0.0.0/8")}, NotNets: []netip.Prefix{net("10.1.0.0/16")}},
			Destination: Peer{Ports: []PortMatch{{First: 80, Last: 80}, {First: 1, Last: 9}, {Name: "http"}}},
		}, "allow tcp from 10.0.0.0/8,11.0.0.0/8 not 10.1.0.0/16 to ports 80,1-9,http"},
		{Rule{
			Source:      Peer{Selector: "a == 'b'", NotSelector: "has(c)", NotPorts: []PortMatch{{First: 1, Last: 1}}},
			Destination: Peer{Service: ServiceID{Namespace: "prod", Name: "web"}}, HTTP: &HTTPMatch{},
		}, "allow from {a == 'b'} not {has(c)} not ports 1 to service prod/web http"},
	} {
		if got := c.rule.String(); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
