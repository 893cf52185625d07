package calc

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calc/cidr"
	"github.com/contiv-agent/contiv-agent/model"
)

func TestMemberText(t *testing.T) {
	for _, c := range []struct {
		net   string
		proto model.Protocol
		want  []string
	}{
		{"10.65.1.7/32", 0, []string{"10.65.1.7/32"}},
		{"10.65.1.7/24", 0, []string{"10.65.1.0/24"}},
		{"::ffff:10.65.1.7/128", 0, []string{"10.65.1.7/32"}},
		{"::ffff:10.65.1.7/120", 0, []string{"10.65.1.0/24"}},
		{"0.0.0.0/0", 0, []string{"0.0.0.0/1", "128.0.0.0/1"}},
		{"::/0", 0, []string{"::/1", "8000::/1"}},
		{"2001:db8::1/64", 0, []string{"2001:db8::/64"}},
		{"10.0.0.1/32", model.TCP, []string{"10.0.0.1,tcp:80"}},
		{"10.0.0.1/32", model.UDP, []string{"10.0.0.1,udp:80"}},
		{"fd00::1/128", model.SCTP, []string{"fd00::1,sctp:80"}},
	} {
		s, ports := &ipset{}, []model.NamedPort(nil)
		if c.proto != 0 {
			s.port, s.proto = "http", c.proto
			ports = []model.NamedPort{{Name: "http", Protocol: c.proto, Port: 80}, {Name: "http", Protocol: c.proto, Port: 80}}
		}
		var list []member
		content := contentOf([]netip.Prefix{netip.MustParsePrefix(c.net), {}}, ports)
		content.each(s, func(m member) {
			list = append(list, m)
			if !content.contains(s, m) {
				t.Errorf("%s does not add %s", c.net, m)
			}
		})
		if diff := cmp.Diff(c.want, textsOf(list)); diff != "" {
			t.Errorf("%s %s:\n%s", c.net, c.proto, diff)
		}
	}
}

func TestAdditionAndRemovalCancelOut(t *testing.T) {
	m := member{CIDR: cidr.Host(netip.MustParseAddr("10.0.0.1"))}
	for _, c := range []struct {
		changes []bool
		want    map[member]bool
	}{
		{[]bool{true}, map[member]bool{m: true}},
		{[]bool{true, false}, map[member]bool{}},
		{[]bool{false, true}, map[member]bool{}},
		{[]bool{false, true, false}, map[member]bool{m: false}},
	} {
		s := &ipset{}
		for _, added := range c.changes {
			s.changeMember(m, added)
		}
		if len(s.delta) != len(c.want) || s.delta[m] != c.want[m] {
			t.Errorf("%v leaves %v", c.changes, s.delta)
		}
	}
}
