package acl

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/contiv-agent/contiv-agent/proto/felix"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
	"github.com/contiv-agent/contiv-agent/test/page"
)

// lineOf returns a rule in short form.
func lineOf(r *vppacl.ACL_Rule, l *line) string {
	text := fmt.Sprintf("%s %s -> %s", strings.ToLower(r.GetAction().String()), l.src, l.dst)
	if l.proto != 0 {
		text += fmt.Sprintf(" proto %d", l.proto)
	}
	if r.GetIpRule().GetTcp().GetTcpFlagsMask() != 0 {
		text += " SYN"
	}
	if l.s != [2]uint16{0, 65535} {
		text += fmt.Sprintf(" sport %d-%d", l.s[0], l.s[1])
	}
	if l.d != [2]uint16{0, 65535} {
		text += fmt.Sprintf(" dport %d-%d", l.d[0], l.d[1])
	}
	return text
}

// describe returns the lists of a book with the causes of their rules.
func describe(r *Renderer, b *book, iface string) string {
	var out strings.Builder
	for _, output := range []bool{false, true} {
		list, word := b.lists[iface].GetInput(), "input"
		if output {
			list, word = b.lists[iface].GetOutput(), "output"
		}
		fmt.Fprintf(&out, "%s %s\n", iface, word)
		for place, name := range list {
			if name == table.StaticIn || name == table.StaticOut {
				fmt.Fprintf(&out, "  %s: ICMP errors, neighbour discovery\n", name)
				continue
			}
			if strings.HasPrefix(name, table.SourceFirst) {
				c, _ := r.Cause(iface, output, place, 0)
				fmt.Fprintf(&out, "  %s: %d rules that deny all but the pod's own addresses: %s\n", table.SourceFirst[:len(table.SourceFirst)-1], len(b.lines[name]), because(c))
				continue
			}
			for rule := range b.lines[name] {
				l := &b.lines[name][rule]
				c, _ := r.Cause(iface, output, place, rule)
				fmt.Fprintf(&out, "  %-80s %s\n", lineOf(b.acls[name].GetRules()[rule], l), because(c))
			}
		}
	}
	return out.String()
}

func because(c dataplane.Cause) string {
	switch c.Kind {
	case dataplane.CauseRule:
		return fmt.Sprintf("%s/%s rule %d", c.Tier, c.Policy, c.Rule)
	case dataplane.CauseProfileRule:
		return fmt.Sprintf("%s rule %d", c.Profile, c.Rule)
	case dataplane.CauseEndOfTier:
		return "end of tier " + c.Tier
	case dataplane.CauseStatic:
		return c.Text
	case dataplane.CauseSource:
		return "source check"
	case dataplane.CauseDown:
		return "down"
	case dataplane.CauseIsolated:
		return "isolated"
	}
	return "no match"
}

// The example of the page is the actual output.
func TestREADME(t *testing.T) {
	b := newBook()
	r := New(Config{}, b)
	r.SetNode(dataplane.Node{
		View4: dataplane.PreDNAT, View6: dataplane.PostDNAT, Interfaces: map[netip.Addr]string{netip.MustParseAddr("10.1.1.2"): "tap-web"},
		Uplink: "eth0", Overlay: "vxlan0", Host: "tap0", Addrs: addrs("192.168.16.1"), HostAddrs: addrs("169.254.1.2"), Hairpin: addrs("10.1.1.254"),
	})
	for _, text := range strings.Split(strings.TrimSpace(page.Example(t, "textproto")), "\n\n") {
		m := &felix.ToDataplane{}
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		r.OnUpdate(m)
	}
	for r.Apply() {
	}
	got := describe(r, b, "tap-web")
	if diff := cmp.Diff(page.Example(t, "text"), got); diff != "" {
		t.Errorf("-page +got\n%s\n%s", diff, got)
	}
}
