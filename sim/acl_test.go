package sim

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	aclapi "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// aclRule is a rule for all ports of a protocol (0: any), of the family of its prefixes.
func aclRule(a acl_types.ACLAction, proto model.Protocol, src, dst string, port ...uint16) acl_types.ACLRule {
	r := acl_types.ACLRule{
		IsPermit: a, Proto: ip_types.IPProto(proto), SrcPrefix: toPrefix(netip.MustParsePrefix(src)), DstPrefix: toPrefix(netip.MustParsePrefix(dst)),
		SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535,
	}
	if len(port) > 0 {
		r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast = port[0], port[0]
	}
	return r
}

const (
	deny     = acl_types.ACL_ACTION_API_DENY
	permit   = acl_types.ACL_ACTION_API_PERMIT
	mirrored = acl_types.ACL_ACTION_API_PERMIT_REFLECT
	all4     = "0.0.0.0/0"
	all6     = "::/0"
)

func addACLs(tag string, rules ...acl_types.ACLRule) *aclapi.ACLAddReplace {
	return &aclapi.ACLAddReplace{ACLIndex: noIndex, Tag: tag, R: rules}
}

func lists(i uint32, in, out []uint32) *aclapi.ACLInterfaceSetACLList {
	return &aclapi.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(i), NInput: uint8(len(in)), Acls: slices.Concat(in, out)}
}

func swIfOf(v *VPP, name string) uint32 { return v.ifs.byName[name].index }

// TestACLRetvals: requests in order on one VPP with interface 1; 24.06 and 25.10 gave the same replies.
func TestACLRetvals(t *testing.T) {
	v := New(Config{})
	v.AddInterface(Interface{Name: "tap0"})
	c := dial(t, v)
	good := aclRule(permit, model.TCP, "10.0.0.0/8", all4, 80)
	bad := func(change func(*acl_types.ACLRule)) *aclapi.ACLAddReplace {
		r := good
		change(&r)
		return addACLs("bad", good, r)
	}
	for i, s := range []struct {
		m  api.Message
		rv int32
	}{
		{addACLs("zero", good), 0},
		{addACLs("one"), 0},
		{addACLs("two", good), 0},
		{addACLs(strings.Repeat("t", 63)), 0},
		{addACLs(strings.Repeat("t", 64)), -7},
		{&aclapi.ACLAddReplace{ACLIndex: 9, Tag: strings.Repeat("t", 64)}, -7}, // checked before its existence
		{&aclapi.ACLAddReplace{ACLIndex: 9}, -6},
		{bad(func(r *acl_types.ACLRule) {
			r.SrcPrefix.Len = 7
			r.SrcPrefix.Address.Un.SetIP4(ip_types.IP4Address{10, 1})
		}), -57},
		{bad(func(r *acl_types.ACLRule) { r.SrcPrefix.Len = 33 }), -57},
		{bad(func(r *acl_types.ACLRule) { r.DstPrefix.Address.Un.SetIP4(ip_types.IP4Address{10, 1}) }), -58},
		{bad(func(r *acl_types.ACLRule) { r.DstPrefix = toPrefix(netip.MustParsePrefix(all6)) }), -57},
		{bad(func(r *acl_types.ACLRule) { r.DstportOrIcmpcodeFirst = 81 }), -8},
		{lists(7, nil, nil), -2},
		{lists(1, []uint32{0, 8}, nil), -6},
		{lists(1, []uint32{0, 1}, []uint32{0}), 0},
		{lists(1, []uint32{1}, []uint32{2, 2}), 1}, // nothing changes
		{&aclapi.ACLDel{ACLIndex: 0}, -142},
		{lists(1, []uint32{1, 1}, []uint32{2}), 1}, // the output list has changed
		{&aclapi.ACLDel{ACLIndex: 2}, -143},
		{&aclapi.ACLDel{ACLIndex: 9}, -6},
		{&aclapi.ACLInterfaceAddDel{SwIfIndex: 9, IsAdd: true, ACLIndex: 0}, -2},
		{&aclapi.ACLInterfaceAddDel{SwIfIndex: 1, IsAdd: true, IsInput: true, ACLIndex: 0}, -142},
		{&aclapi.ACLInterfaceAddDel{SwIfIndex: 1, IsAdd: true, ACLIndex: 2}, -143},
		{&aclapi.ACLInterfaceAddDel{SwIfIndex: 1, IsAdd: true, ACLIndex: 9}, -6},
		{&aclapi.ACLInterfaceAddDel{SwIfIndex: 1, IsInput: true, ACLIndex: 3}, -6},
		{&aclapi.ACLInterfaceAddDel{SwIfIndex: 1, IsAdd: true, IsInput: true, ACLIndex: 3}, 0},
		{&aclapi.ACLInterfaceAddDel{SwIfIndex: 1, IsInput: true, ACLIndex: 0}, 0}, // 3 takes its place
		{&aclapi.ACLInterfaceSetEtypeWhitelist{SwIfIndex: 9}, -2},
		{&aclapi.ACLStatsIntfCountersEnable{Enable: true}, 0},
		{&aclapi.MacipACLInterfaceAddDel{SwIfIndex: 1, IsAdd: true, ACLIndex: 0}, -6},
	} {
		if rv := c.retval(s.m); rv != s.rv {
			t.Errorf("%d: %s %+v: retval %d, want %d", i, s.m.GetMessageName(), s.m, rv, s.rv)
		}
	}
	d := dump[*aclapi.ACLInterfaceListDetails](c, &aclapi.ACLInterfaceListDump{SwIfIndex: 1})
	if len(d) != 1 || d[0].NInput != 2 || !slices.Equal(d[0].Acls, []uint32{3, 1, 2}) {
		t.Errorf("lists are %+v", d)
	}
	c.must(&aclapi.ACLDel{ACLIndex: 0})
	if r := call1[*aclapi.ACLAddReplaceReply](c, addACLs("next")); r.ACLIndex != 0 {
		t.Errorf("the slot freed last is not taken first, but %d", r.ACLIndex)
	}
}

// policed returns node with pod-b isolated except for TCP port 80 from pod-a, and with free egress.
func policed(t *testing.T, cfg Config) (*VPP, *client) {
	t.Helper()
	v := node(t, cfg)
	six(t, v)
	c := dial(t, v)
	c.must(
		addACLs("ingress", aclRule(mirrored, model.TCP, "10.1.1.2/32", all4, 80), aclRule(mirrored, model.TCP, "fd00:1::2/128", all6, 80)),
		addACLs("egress", aclRule(mirrored, 0, all4, all4), aclRule(mirrored, 0, all6, all6)),
		lists(swIfOf(v, "pod-b"), []uint32{1}, []uint32{0}),
	)
	return v, c
}

func TestACLHops(t *testing.T) {
	v, c := policed(t, Config{})
	last := func(in, text string) (string, *ACLMatch) {
		t.Helper()
		p, err := packet.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		fate := v.Send(in, p)
		for _, h := range fate.Hops {
			if h.ACL != nil {
				if h.ACL.Permit != (len(fate.Out) > 0) {
					t.Errorf("%s: permit is %v, but %d packets left", text, h.ACL.Permit, len(fate.Out))
				}
				return h.String(), h.ACL
			}
		}
		return "", nil
	}
	for _, s := range []struct {
		name, in, pkt, hop string
		want               *ACLMatch
	}{
		{
			"allowed", "pod-a", "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [S]", "acl-plugin-out-ip4-fa: acl 0 (ingress) rule 0 permit+reflect, new session",
			&ACLMatch{Interface: "pod-b", Output: true, Tag: "ingress", Permit: true},
		},
		{
			"its reply", "pod-b", "tcp 10.1.1.3:80 -> 10.1.1.2:4000 [SA]", "acl-plugin-in-ip4-fa: session of acl 0 (ingress) rule 0 permit+reflect",
			&ACLMatch{Interface: "pod-b", Output: true, Tag: "ingress", Session: true, Permit: true},
		},
		{
			"another port", "pod-a", "tcp 10.1.1.2:4000 -> 10.1.1.3:81 [S]", "acl-plugin-out-ip4-fa: drop: no rule of 1 acls matches",
			&ACLMatch{Interface: "pod-b", Output: true, Place: -1, Rule: -1},
		},
		{
			"IPv6", "pod-a", "tcp [fd00:1::2]:4000 -> [fd00:1::3]:80 [S]", "acl-plugin-out-ip6-fa: acl 0 (ingress) rule 1 permit+reflect, new session",
			&ACLMatch{Interface: "pod-b", Output: true, Tag: "ingress", Rule: 1, Permit: true},
		},
		{
			"to the router", "pod-b", "icmp 10.1.1.3 -> 10.1.1.1 echo-request id 7", "acl-plugin-in-ip4-fa: acl 0 (egress) rule 0 permit+reflect, new session",
			&ACLMatch{Interface: "pod-b", Tag: "egress", Permit: true},
		},
		{"no list", "pod-a", "udp 10.1.1.2:1 -> 8.8.8.8:53", "", nil},
	} {
		hop, m := last(s.in, s.pkt)
		if diff := cmp.Diff(s.want, m); hop != s.hop || diff != "" {
			t.Errorf("%s: got %s want %s %s", s.name, hop, s.hop, diff)
		}
	}
	c.must(&aclapi.ACLAddReplace{ACLIndex: 0, Tag: "ingress-2", R: []acl_types.ACLRule{aclRule(deny, 0, all4, all4)}})
	if hop, m := last("pod-a", "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [A]"); hop != "acl-plugin-out-ip4-fa: drop: acl 0 (ingress-2) rule 0 deny" || m.Session {
		t.Errorf("after the policy was revoked: %s", hop)
	}
}

func TestOwnPacketsMeetOutputLists(t *testing.T) {
	v, c := policed(t, Config{})
	c.must(lists(swIfOf(v, "pod-b"), nil, []uint32{0}), addACLs("nothing"), lists(swIfOf(v, "pod-a"), nil, []uint32{2}))
	for in, pkt := range map[string]string{
		"pod-b": "icmp 10.1.1.3 -> 10.1.1.1 echo-request id 7", "pod-a": "udp 10.1.1.2:1 -> 8.8.8.8:53 ttl 1",
	} {
		if got := send(t, v, in, pkt); !strings.HasPrefix(got, "dropped: acl-plugin-out-ip4-fa: drop: no rule") {
			t.Errorf("%s: got %s, want the answer dropped", pkt, got)
		}
	}
}

func TestReclassification(t *testing.T) {
	for _, keep := range []bool{false, true} {
		v, c := policed(t, Config{NoReclassify: keep})
		const request, reply = "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [A]", "tcp 10.1.1.3:80 -> 10.1.1.2:4000 [A]"
		first := send(t, v, "pod-a", request)
		c.must(&aclapi.ACLAddReplace{ACLIndex: 0, Tag: "closed"})
		c.must(&aclapi.ACLAddReplace{ACLIndex: 1, Tag: "closed"})
		if got := send(t, v, "pod-b", reply); strings.HasPrefix(got, "dropped") {
			t.Errorf("keep %v: the reply is %s", keep, got)
		}
		if got := send(t, v, "pod-a", request); (got == first) != keep {
			t.Errorf("keep %v: the old flow is %s", keep, got)
		}
		if got := send(t, v, "pod-b", reply); strings.HasPrefix(got, "dropped") == keep {
			t.Errorf("keep %v: after that the reply is %s", keep, got)
		}
		want := "Reclassify sessions: 1\n"
		if keep {
			want = "Reclassify sessions: 0\n"
		}
		if r := call1[*vlib.CliInbandReply](c, &vlib.CliInband{Cmd: "show acl-plugin sessions"}); !strings.Contains(r.Reply, want) {
			t.Errorf("keep %v: show acl-plugin sessions says %s", keep, r.Reply)
		}
	}
}

func TestACLSettings(t *testing.T) {
	v, c := policed(t, Config{})
	cli := func(cmd string) { c.must(&vlib.CliInband{Cmd: cmd}) }
	cli("set acl-plugin reclassify-sessions 0")
	cli("set acl-plugin session timeout udp idle 5")
	send(t, v, "pod-b", "udp 10.1.1.3:1 -> 8.8.8.8:53")
	if got := v.ACLSessions(); !slices.Equal(got, []string{"pod-b input udp 10.1.1.3:1 -> 8.8.8.8:53 by acl 0 (egress) rule 0"}) {
		t.Errorf("sessions are %q", got)
	}
	v.Advance(5 * time.Second)
	if got := v.ACLSessions(); len(got) != 0 {
		t.Errorf("after the timeout sessions are %q", got)
	}
	send(t, v, "pod-b", "udp 10.1.1.3:1 -> 8.8.8.8:53")
	cli("clear acl-plugin sessions")
	if got := v.ACLSessions(); len(got) != 0 {
		t.Errorf("cleared sessions are %q", got)
	}
	c.must(&aclapi.ACLStatsIntfCountersEnable{Enable: true})
	send(t, v, "pod-b", "udp 10.1.1.3:1 -> 8.8.8.8:53")
	send(t, v, "pod-b", "udp 10.1.1.3:1 -> 8.8.8.8:53") // of the session
	if got := v.ACLHits("egress"); !slices.Equal(got, []uint64{1, 0}) {
		t.Errorf("hits are %d", got)
	}
	c.must(&aclapi.ACLPluginUseHashLookupSet{})
	if call1[*aclapi.ACLPluginUseHashLookupGetReply](c, &aclapi.ACLPluginUseHashLookupGet{}).Enable {
		t.Error("hash lookup is still on")
	}
	if rv := c.retval(&vlib.CliInband{Cmd: "set acl-plugin nonsense 1"}); rv == 0 {
		t.Error("nonsense is understood")
	}
	cli("set acl-plugin session table max-entries 7")
	if n := call1[*aclapi.ACLPluginGetConnTableMaxEntriesReply](c, &aclapi.ACLPluginGetConnTableMaxEntries{}).ConnTableMaxEntries; n != 7 {
		t.Errorf("room for %d sessions", n)
	}
	if r := call1[*vlib.CliInbandReply](c, &vlib.CliInband{Cmd: "show acl-plugin acl"}).Reply; !strings.Contains(r,
		"acl-index 0 count 2 tag {ingress}\n          0: ipv4 permit+reflect src 10.1.1.2/32 dst 0.0.0.0/0 proto 6 sport 0-65535 dport 80\n") {
		t.Errorf("show acl-plugin acl says\n%s", r)
	}
}

// TestACLState: ACLs in Dump and Log, and after Restart and Fail.
func TestACLState(t *testing.T) {
	v, c := policed(t, Config{})
	const want = `acl "egress"
  permit+reflect 0.0.0.0/0 -> 0.0.0.0/0
  permit+reflect ::/0 -> ::/0
acl "ingress"
  permit+reflect TCP 10.1.1.2/32 -> 0.0.0.0/0 dport 80
  permit+reflect TCP fd00:1::2/128 -> ::/0 dport 80
acl-list pod-b input "egress"
acl-list pod-b output "ingress"
`
	if got := v.Dump(); !strings.HasSuffix(got, want) {
		t.Errorf("dump ends with\n%s", got)
	}
	v.ClearLog()
	v.Fail(func(name string) (int32, bool) { return map[string]int32{"acl_del": -42}[name], false })
	c.retval(&aclapi.ACLDel{ACLIndex: 0})
	v.Fail(nil)
	c.must(&aclapi.ACLAddReplace{ACLIndex: 0, Tag: "new", R: []acl_types.ACLRule{aclRule(deny, 0, all4, all4)}}, lists(swIfOf(v, "pod-b"), []uint32{0, 1}, []uint32{1}))
	log := texts(v.Log(), Record.String)
	if diff := cmp.Diff([]string{
		`acl_del acl="ingress" => -42`,
		`acl_add_replace tag="new" rules=1 content=2668cd5f replaces="ingress"`,
		`acl_interface_set_acl_list sw_if_index=pod-b input=["new" "egress"] output=["egress"]`,
	}, log); diff != "" {
		t.Errorf("log: (-want +got)\n%s", diff)
	}
	v.Restart()
	if got := v.Dump(); strings.Contains(got, "acl") {
		t.Errorf("after a restart the dump is\n%s", got)
	}
	if got := send(t, v, "pod-a", "tcp 10.1.1.2:4000 -> 10.1.1.3:81 [S]"); strings.HasPrefix(got, "dropped") {
		t.Errorf("after a restart: %s", got)
	}
}

func TestACLSessionsAreDynamic(t *testing.T) {
	v, _ := policed(t, Config{})
	m := v.Snapshot()
	send(t, v, "pod-a", "tcp 10.1.1.2:4000 -> 10.1.1.3:80 [S]")
	if len(v.ACLSessions()) != 1 {
		t.Fatal("no session")
	}
	v.Restore(m)
	if got := v.ACLSessions(); len(got) != 0 {
		t.Errorf("after Restore sessions are %q", got)
	}
}

// TestPrefixBugGoesWithTheVersion: 24.06 lets no address of fd00:1::2/127 pass.
func TestPrefixBugGoesWithTheVersion(t *testing.T) {
	for version, passes := range map[string]bool{"": false, "24.10-release": false, "25.02": false, "25.06-release": true, "25.10": true, "26.06~rc1": true, "master": true} {
		v, c := policed(t, Config{Version: version})
		c.must(&aclapi.ACLAddReplace{ACLIndex: 0, Tag: "odd", R: []acl_types.ACLRule{aclRule(permit, 0, "fd00:1::2/127", all6)}})
		got := send(t, v, "pod-a", "tcp [fd00:1::2]:4000 -> [fd00:1::3]:80 [S]")
		if strings.HasPrefix(got, "pod-b") != passes {
			t.Errorf("%q: got %s, want it to pass: %v", version, got, passes)
		}
	}
}

// TestIPv6Local: forwarding, errors, VPP's own addresses, discovery.
func TestIPv6Local(t *testing.T) {
	v := node(t, Config{})
	six(t, v)
	v.AddInterface(Interface{Name: "tap7", Addresses: prefixes("fd00:7::1/64")})
	addRoute(t, v, "fd00:96::/64", Path{Type: PathUnreach})
	addRoute(t, v, "fd00:97::/64", Path{Type: PathProhibit})
	for _, c := range []struct{ name, in, pkt, want string }{
		{"pod to pod", "pod-a", "udp [fd00:1::2]:1 -> [fd00:1::3]:2", "pod-b udp [fd00:1::2]:1 -> [fd00:1::3]:2"},
		{"default route", "pod-a", "udp [fd00:1::2]:1 -> [2001:db8::1]:2", "uplink udp [fd00:1::2]:1 -> [2001:db8::1]:2"},
		{
			"no route", "tap7", "udp [fd00:7::2]:1 -> [fd00:96::1]:2",
			"icmp-error tap7 icmpv6 fd00:7::1 -> fd00:7::2 type 1 code 0 about (udp [fd00:7::2]:1 -> [fd00:96::1]:2)",
		},
		{
			"prohibited", "tap7", "udp [fd00:7::2]:1 -> [fd00:97::1]:2",
			"icmp-error tap7 icmpv6 fd00:7::1 -> fd00:7::2 type 1 code 1 about (udp [fd00:7::2]:1 -> [fd00:97::1]:2)",
		},
		{
			"hop limit", "tap7", "udp [fd00:7::2]:1 -> [fd00:1::3]:2 ttl 1",
			"icmp-error tap7 icmpv6 fd00:7::1 -> fd00:7::2 type 3 code 0 about (udp [fd00:7::2]:1 -> [fd00:1::3]:2)",
		},
		{
			"an unnumbered interface cannot complain", "pod-a", "udp [fd00:1::2]:1 -> [fd00:96::1]:2",
			"dropped: ip6-icmp-error: drop: icmp-error no route, but pod-a has no address to complain from",
		},
		{"ping VPP", "tap7", "icmpv6 fd00:7::2 -> fd00:7::1 echo-request id 7", "answered tap7 icmpv6 fd00:7::1 -> fd00:7::2 echo-reply id 7"},
		{"ICMP means ICMPv6", "tap7", "icmp fd00:7::2 -> fd00:7::1 echo-request id 7", "answered tap7 icmpv6 fd00:7::1 -> fd00:7::2 echo-reply id 7"},
		{
			"udp to VPP", "tap7", "udp [fd00:7::2]:1 -> [fd00:7::1]:2",
			"icmp-error tap7 icmpv6 fd00:7::1 -> fd00:7::2 type 1 code 4 about (udp [fd00:7::2]:1 -> [fd00:7::1]:2)",
		},
		{"solicitation", "tap7", "icmpv6 fd00:7::2 -> fd00:7::1 type 135 code 0 ttl 255", "answered tap7 icmpv6 fd00:7::1 -> fd00:7::2 type 136 code 0"},
		{"from far away", "tap7", "icmpv6 fd00:7::2 -> fd00:7::1 type 135 code 0", "dropped: icmp6-input: drop: a hop limit of 64: it is not from this link"},
		{
			"from another link", "tap7", "icmpv6 fd00:1::2 -> fd00:7::1 type 135 code 0 ttl 255",
			"dropped: icmp6-neighbor-solicitation: drop: fd00:1::2 is not on this link",
		},
		{"advertisement", "tap7", "icmpv6 fd00:7::2 -> fd00:7::1 type 136 code 0 ttl 255", "dropped: icmp6-input: drop: type 136 is VPP's own business"},
		{"to the group", "tap7", "icmpv6 fd00:7::2 -> ff02::1:ff00:1 type 135 code 0 ttl 255", "answered tap7 icmpv6 fd00:7::1 -> fd00:7::2 type 136 code 0"},
		{
			"another group", "tap7", "icmpv6 fd00:7::2 -> ff02::1:ff00:9 type 135 code 0 ttl 255",
			"dropped: icmp6-neighbor-solicitation: drop: no interface here has this address",
		},
		{"other multicast", "tap7", "udp [fd00:7::2]:1 -> [ff02::fb]:5353", "dropped: ip6-mfib-forward-lookup: drop: no multicast route to ff02::fb"},
	} {
		if got := send(t, v, c.in, c.pkt); got != c.want {
			t.Errorf("%s: got %s want %s", c.name, got, c.want)
		}
	}
}
