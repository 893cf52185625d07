package acl

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/acl_types"
	"google.golang.org/protobuf/encoding/protojson"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// parseRule parses a rule in JSON, as users write it.
func parseRule(t *testing.T, text string) *acl.ACL_Rule {
	t.Helper()
	m := &acl.ACL_Rule{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func TestCompileRule(t *testing.T) {
	for _, tc := range []struct{ name, rule, want string }{
		{"any", `{"action":"PERMIT","ipRule":{}}`, "permit 0.0.0.0/0 > 0.0.0.0/0 proto 0 0-65535 0-65535; permit ::/0 > ::/0 proto 0 0-65535 0-65535"},
		{"any of a protocol", `{"ipRule":{"ip":{"protocol":132}}}`, "deny 0.0.0.0/0 > 0.0.0.0/0 proto 132 0-0 0-0; deny ::/0 > ::/0 proto 132 0-0 0-0"},
		{"one side", `{"action":"REFLECT","ipRule":{"ip":{"sourceNetwork":"2001:db8::/32"}}}`, "reflect 2001:db8::/32 > ::/0 proto 0 0-65535 0-65535"},
		{"other side", `{"ipRule":{"ip":{"destinationNetwork":"10.0.0.0/8","protocol":47}}}`, "deny 0.0.0.0/0 > 10.0.0.0/8 proto 47 0-0 0-0"},
		{
			"tcp", `{"action":"REFLECT","ipRule":{"ip":{"destinationNetwork":"10.0.0.1/32"},"tcp":{"sourcePortRange":{"upperPort":65535},"destinationPortRange":{"lowerPort":80,"upperPort":81},"tcpFlagsMask":18,"tcpFlagsValue":2}}}`,
			"reflect 0.0.0.0/0 > 10.0.0.1/32 proto 6 0-65535 80-81 flags 2/18",
		},
		{"udp, ports unset are port 0", `{"ipRule":{"ip":{"sourceNetwork":"10.0.0.1/32","protocol":17},"udp":{}}}`, "deny 10.0.0.1/32 > 0.0.0.0/0 proto 17 0-0 0-0"},
		{"icmp", `{"action":"PERMIT","ipRule":{"icmp":{"icmpTypeRange":{"first":3,"last":4},"icmpCodeRange":{"last":255}}}}`, "permit 0.0.0.0/0 > 0.0.0.0/0 proto 1 3-4 0-255"},
		{"icmpv6", `{"action":"PERMIT","ipRule":{"icmp":{"icmpv6":true,"icmpTypeRange":{"first":135,"last":136},"icmpCodeRange":{"last":255}}}}`, "permit ::/0 > ::/0 proto 58 135-136 0-255"},

		{"nothing", `{}`, "!ip_rule: missing"},
		{"macip", `{"macipRule":{"sourceAddress":"10.0.0.1"}}`, "!macip_rule: not supported"},
		{"action", `{"action":7,"ipRule":{}}`, "!action: unknown 7"},
		{"host bits", `{"ipRule":{"ip":{"sourceNetwork":"10.0.0.1/24"}}}`, "!ip_rule.ip.source_network: 10.0.0.1/24 has bits set beyond its length; meant is perhaps 10.0.0.0/24"},
		{"no length", `{"ipRule":{"ip":{"destinationNetwork":"10.0.0.1"}}}`, `!ip_rule.ip.destination_network: "10.0.0.1" is not`},
		{"mapped", `{"ipRule":{"ip":{"sourceNetwork":"::ffff:10.0.0.0/104"}}}`, "!ip_rule.ip.source_network"},
		{"families", `{"ipRule":{"ip":{"sourceNetwork":"10.0.0.0/8","destinationNetwork":"2001:db8::/32"}}}`, "!ip_rule.ip.source_network: 10.0.0.0/8 and 2001:db8::/32"},
		{"icmpv6 of IPv4", `{"ipRule":{"ip":{"sourceNetwork":"10.0.0.0/8"},"icmp":{"icmpv6":true}}}`, "!ip_rule.icmp.icmpv6: does not go with 10.0.0.0/8"},
		{"icmp of IPv6", `{"ipRule":{"ip":{"destinationNetwork":"2001:db8::/32"},"icmp":{}}}`, "!ip_rule.icmp.icmpv6: does not go with 2001:db8::/32"},
		{"ports", `{"ipRule":{"tcp":{"destinationPortRange":{"lowerPort":81,"upperPort":80}}}}`, "!ip_rule.tcp.destination_port_range: begins with 81 and ends with 80"},
		{"upper port left out", `{"ipRule":{"udp":{"sourcePortRange":{"lowerPort":53}}}}`, "!ip_rule.udp.source_port_range: begins with 53 and ends with 0"},
		{"port too high", `{"ipRule":{"tcp":{"sourcePortRange":{"upperPort":65536}}}}`, "!ip_rule.tcp.source_port_range: 65536 is above 65535"},
		{"icmp type", `{"ipRule":{"icmp":{"icmpTypeRange":{"last":256}}}}`, "!ip_rule.icmp.icmp_type_range: 256 is above 255"},
		{"icmp code", `{"ipRule":{"icmp":{"icmpCodeRange":{"first":2,"last":1}}}}`, "!ip_rule.icmp.icmp_code_range: begins with 2"},
		{"flags", `{"ipRule":{"tcp":{"tcpFlagsMask":2,"tcpFlagsValue":18}}}`, "!ip_rule.tcp.tcp_flags_value: 0x12"},
		{"flag mask", `{"ipRule":{"tcp":{"tcpFlagsMask":256}}}`, "!ip_rule.tcp.tcp_flags_mask: 256"},
		{"protocol", `{"ipRule":{"ip":{"protocol":256}}}`, "!ip_rule.ip.protocol: 256 is above 255"},
		{"protocol and udp", `{"ipRule":{"ip":{"protocol":132},"udp":{}}}`, "!ip_rule.ip.protocol: 132, but what is given beside it is for 17"},
		{"tcp and udp", `{"ipRule":{"tcp":{},"udp":{}}}`, "!ip_rule.icmp: at most one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rules, err := new(compiler).appendRule(nil, parseRule(t, tc.rule))
			got := rulesText(rules)
			if err != nil {
				got = "!" + err.Error()
			}
			if got != tc.want && (err == nil || !strings.HasPrefix(got, tc.want)) {
				t.Fatalf("got  %s\nwant %s", got, tc.want)
			}
			for i := range rules { // Message is the inverse
				back, err := new(compiler).appendRule(nil, ruleMessage(&rules[i]))
				if err != nil || len(back) != 1 || back[0] != rules[i] {
					t.Errorf("%s and back: %s %v", rulesText(rules[i:i+1]), rulesText(back), err)
				}
			}
		})
	}
}

func rulesText(rules []acl_types.ACLRule) string {
	var out []string
	for i := range rules {
		r := &rules[i]
		text := []string{"deny", "permit", "reflect"}[r.IsPermit] + " " + descriptor.FromPrefix(r.SrcPrefix).String() + " > " + descriptor.FromPrefix(r.DstPrefix).String() +
			" proto " + strconv.FormatUint(uint64(r.Proto), 10) + " " + strconv.FormatUint(uint64(r.SrcportOrIcmptypeFirst), 10) + "-" + strconv.FormatUint(uint64(r.SrcportOrIcmptypeLast), 10) +
			" " + strconv.FormatUint(uint64(r.DstportOrIcmpcodeFirst), 10) + "-" + strconv.FormatUint(uint64(r.DstportOrIcmpcodeLast), 10)
		if r.TCPFlagsMask != 0 {
			text += " flags " + strconv.FormatUint(uint64(r.TCPFlagsValue), 10) + "/" + strconv.FormatUint(uint64(r.TCPFlagsMask), 10)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func TestCompileACL(t *testing.T) {
	for _, tc := range []struct {
		m    *acl.ACL
		want string // of the error; "" if there is none
	}{
		{&acl.ACL{Name: "a"}, ""},
		{&acl.ACL{}, "name: empty"},
		{&acl.ACL{Name: "a", Rules: []*acl.ACL_Rule{{IpRule: &acl.ACL_Rule_IpRule{}}, {}}}, "rules[1].ip_rule: missing"},
		{&acl.ACL{Name: "a", Interfaces: &acl.ACL_Interfaces{Ingress: []string{"x", "y", "x"}}}, `interfaces.ingress: "x" twice`},
		{&acl.ACL{Name: "a", Interfaces: &acl.ACL_Interfaces{Egress: []string{""}}}, "interfaces.egress: an empty name"},
	} {
		_, err := compileACL(kv.Key(tc.m), tc.m)
		if err == nil && tc.want != "" || err != nil && err.Error() != tc.want {
			t.Errorf("%v: %v, want %q", tc.m, err, tc.want)
		}
	}
	// The tag fits VPP, contains the name if it is as long as names of policies, and depends on the rules only.
	tag := func(name string, rules ...*acl.ACL_Rule) string {
		l, err := compileACL("", &acl.ACL{Name: name, Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		if len(l.tag) > descriptor.MaxTag {
			t.Errorf("tag %q is longer than VPP keeps", l.tag)
		}
		return l.tag
	}
	name := strings.Repeat("n", 40)
	if got := tag(name); !strings.HasSuffix(got, ":"+name) {
		t.Errorf("tag %q does not tell the name", got)
	}
	long := tag(strings.Repeat("n", 300))
	if long == tag(strings.Repeat("n", 301)) || long != tag(strings.Repeat("n", 300)) {
		t.Errorf("tag %q of a long name", long)
	}
	all := &acl.ACL_Rule{IpRule: &acl.ACL_Rule_IpRule{}}
	if tag("a") == tag("a", all) || tag("a", all) == tag("a", all, all) {
		t.Error("the tag does not follow the rules")
	}
}

// TestWays: the result of wayOf for a change holds for every packet, regardless of the rules before and behind.
func TestWays(t *testing.T) {
	said := map[ways]int{}
	rapid.Check(t, func(r *rapid.T) {
		draw := func(label string, n int) (out []acl_types.ACLRule) {
			for range rapid.IntRange(0, n).Draw(r, label) {
				out = append(out, drawRule(r))
			}
			return out
		}
		have := draw("have", 4)
		want := slices.Clone(have)
		for range rapid.IntRange(0, 3).Draw(r, "edits") {
			i := rapid.IntRange(0, len(want)).Draw(r, "at")
			if rapid.Bool().Draw(r, "insert") || i == len(want) {
				want = slices.Insert(want, i, drawRule(r))
			} else {
				want = slices.Delete(want, i, i+1)
			}
		}
		front, back := draw("front", 2), draw("back", 2)
		way := wayOf(have, want, false)
		said[way]++
		for port := range uint16(4) {
			before := verdict(slices.Concat(front, have, back), port)
			after := verdict(slices.Concat(front, want, back), port)
			if way&gains != 0 && before > after || way&loses != 0 && before < after {
				r.Fatalf("%d: port %d from %d to %d\nfrom %s\nto   %s", way, port, before, after, rulesText(have), rulesText(want))
			}
		}
	})
	for _, w := range []ways{0, gains, loses, same} {
		if said[w] == 0 && !testing.Short() { // fewer checks may have none
			t.Errorf("%d was never said", w)
		}
	}
}

// TestWaysOfAlike: where permissions that make no session are alike all later rules in what makes sessions, they hide none that do.
func TestWaysOfAlike(t *testing.T) {
	said := map[ways]int{}
	check := func(r *rapid.T) {
		draw := func(label string, n int) (out []acl_types.ACLRule) {
			for range rapid.IntRange(0, n).Draw(r, label) {
				out = append(out, drawGroup(r)...)
			}
			return out
		}
		have := draw("have", 3)
		want := slices.Clone(have)
		for range rapid.IntRange(0, 3).Draw(r, "edits") {
			i := rapid.IntRange(0, len(want)).Draw(r, "at")
			if rapid.Bool().Draw(r, "insert") || i == len(want) {
				want = slices.Insert(want, i, drawGroup(r)...)
			} else {
				want = slices.Delete(want, i, i+1)
			}
		}
		front, back := draw("front", 1), draw("back", 1)
		lists := map[string][2]*accessList{
			"front": {{rules: front}, {rules: front}}, "changes": {{rules: have}, {rules: want}}, "back": {{rules: back}, {rules: back}},
		}
		keys := []string{"front", "changes", "back"}
		if !contents(func(k string) (h, w *accessList) { return lists[k][0], lists[k][1] }).agree(keys, keys) {
			return
		}
		way := wayOf(have, want, true)
		said[way]++
		for _, p := range alikePackets {
			before, after := p.verdict(slices.Concat(front, have, back)), p.verdict(slices.Concat(front, want, back))
			if way&gains != 0 && before > after || way&loses != 0 && before < after {
				r.Fatalf("%d: %+v from %d to %d\nfront %s\nfrom  %s\nto    %s\nback  %s", way, p, before, after, rulesText(front), rulesText(have), rulesText(want), rulesText(back))
			}
		}
	}
	for range 30 { // relevant packets are rare
		rapid.Check(t, check)
	}
	for _, w := range []ways{0, gains, loses, same} {
		if said[w] == 0 {
			t.Errorf("%d was never said", w)
		}
	}
}

// alikePacket is TCP or UDP to a port, with its sender.
type alikePacket struct {
	proto, flags, source uint8
	port                 uint16
}

var alikePackets = func() (out []alikePacket) {
	for source := range uint8(2) {
		for port := range uint16(4) {
			out = append(out, alikePacket{descriptor.ProtoTCP, tcpSYN, source, port}, alikePacket{descriptor.ProtoTCP, tcpACK, source, port}, alikePacket{descriptor.ProtoUDP, 0, source, port}, alikePacket{132, 0, source, port})
		}
	}
	return out
}()

// verdict equals that of packets without flags.
func (p alikePacket) verdict(rules []acl_types.ACLRule) int {
	from := netip.AddrFrom4([4]byte{10, 0, 0, p.source})
	for i := range rules {
		r := &rules[i]
		ports := p.proto == 132 || r.DstportOrIcmpcodeFirst <= p.port && p.port <= r.DstportOrIcmpcodeLast
		if descriptor.FromPrefix(r.SrcPrefix).Contains(from) && ports && (r.Proto == 0 || uint8(r.Proto) == p.proto && p.flags&r.TCPFlagsMask == r.TCPFlagsValue) {
			return int(r.IsPermit)
		}
	}
	return 0
}

// drawGroup is a few rules for one source, mostly as renderers write them: answers are for port 2 and above.
func drawGroup(r *rapid.T) []acl_types.ACLRule {
	one := drawRule(r)
	one.SrcPrefix = descriptor.ToPrefix(rapid.SampledFrom([]netip.Prefix{any4(), netip.MustParsePrefix("10.0.0.0/32"), netip.MustParsePrefix("10.0.0.1/32")}).Draw(r, "source"))
	one.DstPrefix = descriptor.ToPrefix(any4())
	switch rapid.IntRange(0, 5).Draw(r, "kind") {
	case 0:
		return []acl_types.ACLRule{one}
	case 1:
		one.IsPermit = acl_types.ACL_ACTION_API_DENY
		return []acl_types.ACLRule{one}
	case 2: // a rule that matches some of the packets, and one behind it that matches the rest
		one.TCPFlagsMask, one.TCPFlagsValue = tcpACK, tcpACK
		rest := one
		rest.TCPFlagsMask, rest.TCPFlagsValue = 0, 0
		rest.IsPermit = acl_types.ACLAction(rapid.IntRange(0, 2).Draw(r, "rest"))
		return []acl_types.ACLRule{one, rest}
	}
	one.IsPermit, one.Proto = acl_types.ACL_ACTION_API_PERMIT_REFLECT, 0
	one.DstportOrIcmpcodeFirst, one.DstportOrIcmpcodeLast = 0, maxPort
	answers := one
	answers.IsPermit, answers.Proto, answers.DstportOrIcmpcodeFirst = acl_types.ACL_ACTION_API_PERMIT, descriptor.ProtoTCP, 2
	syn, udp := answers, answers
	syn.IsPermit, syn.TCPFlagsMask, syn.TCPFlagsValue = acl_types.ACL_ACTION_API_PERMIT_REFLECT, tcpSYN|tcpACK, tcpSYN
	udp.Proto = descriptor.ProtoUDP
	return []acl_types.ACLRule{syn, answers, udp, one}
}

func drawRule(r *rapid.T) acl_types.ACLRule {
	port := uint16(rapid.IntRange(0, 3).Draw(r, "port"))
	return acl_types.ACLRule{
		IsPermit:  acl_types.ACLAction(rapid.IntRange(0, 2).Draw(r, "action")),
		SrcPrefix: descriptor.ToPrefix(any4()), DstPrefix: descriptor.ToPrefix(netip.MustParsePrefix("10.0.0.0/8")), Proto: descriptor.ProtoTCP,
		SrcportOrIcmptypeLast: maxPort, DstportOrIcmpcodeFirst: port, DstportOrIcmpcodeLast: port + uint16(rapid.IntRange(0, 1).Draw(r, "more")),
	}
}

// verdict is 0 if a packet is dropped, 1 if it passes, 2 if its answer passes, too.
func verdict(rules []acl_types.ACLRule, port uint16) int {
	for i := range rules {
		if r := &rules[i]; r.DstportOrIcmpcodeFirst <= port && port <= r.DstportOrIcmpcodeLast {
			return int(r.IsPermit)
		}
	}
	return 0
}

// TestCompiledACLsPassTheGuard: the guard passes every ACL that compiles, and Message is the inverse of Compile.
func TestCompiledACLsPassTheGuard(t *testing.T) {
	compiled := 0
	rapid.Check(t, func(r *rapid.T) {
		pick := func(label string, from ...uint32) uint32 { return rapid.SampledFrom(from).Draw(r, label) }
		network := func(label string) string {
			return rapid.SampledFrom([]string{"", "", "10.0.0.0/8", "10.0.0.1/32", "10.0.0.1/8", "0.0.0.0/0", "2001:db8::/32", "2001:db8::1/128", "::/0", "::1/64", "x", "10.0.0.0/33"}).Draw(r, label)
		}
		ports := func(label string) *acl.ACL_Rule_IpRule_PortRange {
			return &acl.ACL_Rule_IpRule_PortRange{LowerPort: pick(label, 0, 0, 80), UpperPort: pick(label, 0, 80, 65535, 65535, 70000)}
		}
		codes := func(label string) *acl.ACL_Rule_IpRule_Icmp_Range {
			return &acl.ACL_Rule_IpRule_Icmp_Range{First: pick(label, 0, 0, 3), Last: pick(label, 0, 3, 255, 255, 256)}
		}
		m := &acl.ACL{Name: rapid.StringN(1, 70, 100).Draw(r, "name")}
		for range rapid.IntRange(0, 3).Draw(r, "rules") {
			ip := &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{
				SourceNetwork: network("src"), DestinationNetwork: network("dst"), Protocol: pick("protocol", 0, 0, 0, 1, 6, 17, 58, 132, 300),
			}}
			switch pick("layer 4", 0, 1, 2, 3) {
			case 1:
				ip.Tcp = &acl.ACL_Rule_IpRule_Tcp{
					SourcePortRange: ports("src"), DestinationPortRange: ports("dst"), TcpFlagsMask: pick("mask", 0, 2, 18, 300), TcpFlagsValue: pick("value", 0, 0, 2),
				}
			case 2:
				ip.Udp = &acl.ACL_Rule_IpRule_Udp{SourcePortRange: ports("src"), DestinationPortRange: ports("dst")}
			case 3:
				ip.Icmp = &acl.ACL_Rule_IpRule_Icmp{Icmpv6: rapid.Bool().Draw(r, "v6"), IcmpTypeRange: codes("type"), IcmpCodeRange: codes("code")}
			}
			m.Rules = append(m.Rules, &acl.ACL_Rule{Action: acl.ACL_Rule_Action(pick("action", 0, 1, 2, 2, 3)), IpRule: ip})
		}
		l, err := compileACL(kv.Key(m), m)
		if err != nil {
			return
		}
		compiled++
		if err := vpp.NewGuard().Check(l.write(descriptor.None).Msg); err != nil {
			r.Fatalf("%v: %v", m, err)
		}
		again, err := compileACL(l.key, l.message())
		if err != nil || !sameRules(l, again) {
			r.Fatalf("%v and back: %v\n%s\n%s", m, err, rulesText(l.rules), rulesText(again.rules))
		}
	})
	if compiled < 10 && !testing.Short() { // of fewer checks
		t.Errorf("only %d compiled", compiled)
	}
}

// The rules of an ACL do not depend on those before them.
func TestRulesAreCompiledOneByOne(t *testing.T) {
	m := &acl.ACL{Name: "a"}
	for _, src := range []string{"10.1.1.1/32", "10.1.1.2/32", "", "fd00::1/128", "10.1.1.2/32"} {
		for _, dst := range []string{"", "10.1.1.3/32", "10.1.1.4/32", "fd00::2/128"} {
			r := &acl.ACL_Rule{IpRule: &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{SourceNetwork: src, DestinationNetwork: dst}}}
			if _, err := new(compiler).appendRule(nil, r); err == nil {
				m.Rules = append(m.Rules, r)
			}
		}
	}
	var want []acl_types.ACLRule
	for _, r := range m.Rules {
		want, _ = new(compiler).appendRule(want, r)
	}
	l, err := compileACL("key", m)
	if err != nil || len(want) < 12 {
		t.Fatal(len(want), err)
	}
	if !slices.Equal(l.rules, want) {
		t.Errorf("%v, want %v", l.rules, want)
	}
	m.Rules[3].IpRule.Ip.SourceNetwork = "10.1.1.1"
	if _, err := compileACL("key", m); err == nil {
		t.Error("a wrong network after a right one: no error")
	}
}
