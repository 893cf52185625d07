package cnat

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	binapi "go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/vpp"
	binapi26 "github.com/contiv-agent/contiv-agent/vpp/binapi/cnat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// snatText is the output of VPP 24.06 and 25.10, with its line ends.
const snatText = "Source NAT\r\n  ip4: 0.0.0.0;0\r\n  ip6: fd00:1::99;0\r\n\r\nExcluded prefixes:\r\n  Hash table 'snat prefixes'\r\n" +
	"[536]: heap offset 23967936, len 1, refcnt 1, linear 0\r\n    0: fd00:1::/64\r\n[804]: heap offset 23968064, len 1, refcnt 1, linear 0\r\n" +
	"    0: 10.1.0.0/16\r\n    2 active elements 2 active buckets\r\n    1 free lists\r\n       [len 1] 0 free elts\r\n" +
	"    0 linear search buckets\r\n    heap: 1 chunk(s) allocated\r\n          bytes: used 128k, scrap 119.75k\r\n\r\n\r\n" +
	"Included v4 interfaces:\r\n\r\nIncluded v6 interfaces:\r\n  loop0\r\n\r\nk8s pod interfaces:\r\n  loop0\r\n  DELETED\r\n\r\nk8s host interfaces:\r\n  tap0\r\n"

func TestSnatShown(t *testing.T) {
	d := descriptor.NewDump([]descriptor.Request{{ID: idSnatShown}}, []vpp.Reply{{Msg: &vlib.CliInbandReply{Reply: snatText}}})
	s, err := shownSnat(d)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.excluded); got != "[10.1.0.0/16 fd00:1::/64]" {
		t.Errorf("excluded %s", got)
	}
	for n, want := range []string{"", "loop0", "loop0", "tap0"} {
		for _, name := range []string{"loop0", "tap0"} {
			if s.tables[n][name] != (name == want) {
				t.Errorf("table %d: %v, want %q", n, s.tables[n], want)
			}
		}
	}
	if s, err := shownSnat(descriptor.NewDump([]descriptor.Request{{ID: idSnatShown}}, []vpp.Reply{{Err: vpp.ErrDisconnected}})); !errors.Is(err, vpp.ErrDisconnected) {
		t.Errorf("nothing was shown, and %v read, %v", s, err)
	}
}

// VPP 26.06 prints which end of a packet a prefix is about, and nothing without a policy: the texts are its output.
func TestSnatShownByTheNewerAPI(t *testing.T) {
	text := strings.NewReplacer("fd00:1::/64\r", "fd00:1::/64 dst\r", "10.1.0.0/16\r", "10.1.0.0/16 dst\r", "ip4: 0.0.0.0;0", "ip4: local0 (ip4);0").Replace(snatText)
	s, err := shownSnat(descriptor.NewDump([]descriptor.Request{{ID: idSnatShown}}, []vpp.Reply{{Msg: &vlib.CliInbandReply{Reply: text}}}))
	if got := fmt.Sprint(s.excluded); err != nil || got != "[10.1.0.0/16 fd00:1::/64]" {
		t.Errorf("excluded %s: %v", got, err)
	}
	if !s.tables[2]["loop0"] || s.tables[0]["loop0"] {
		t.Errorf("tables %v", s.tables)
	}
	none := []vpp.Reply{
		{Msg: &binapi.CnatGetSnatAddressesReply{}, Err: &vpp.Retval{Message: "cnat_get_snat_addresses_reply", Code: int32(api.FEATURE_DISABLED)}},
		{Msg: &vlib.CliInbandReply{Retval: -1, Reply: "show cnat snat-policy: no default snat policy\r\n"}, Err: &vpp.Retval{Message: "cli_inband_reply", Code: -1}},
		{},
	}
	w := descriptor.NewWorld(descriptor.Options{}, nil)
	d := descriptor.NewDump(snatDumps(w, nil), none)
	if found, err := retrieveSnatPolicy(w, d, nobody{}); err != nil || len(found) > 0 {
		t.Errorf("no policy: %v %v", found, err)
	}
	if s, err := shownSnat(d); err != nil || fmt.Sprint(s) != fmt.Sprint(snatShown{}) {
		t.Errorf("no policy: %v %v", s, err)
	}
	none[2].Err = &vpp.MissingError{Message: "cnat_snat_addresses_dump"}
	if _, err := retrieveSnatPolicy(w, descriptor.NewDump(snatDumps(w, nil), none), nobody{}); err == nil {
		t.Error("an older VPP refuses to tell its addresses")
	}
	none[1].Msg.(*vlib.CliInbandReply).Reply = "show: unknown input"
	if _, err := shownSnat(descriptor.NewDump(snatDumps(w, nil), none)); err == nil {
		t.Error("VPP refused to show it")
	}
}

func names(ops []descriptor.Op) (out []string) {
	for _, op := range ops {
		text := strings.TrimPrefix(op.Call.Msg.GetMessageName(), "cnat_") + " " + op.Call.Msg.GetCrcString()
		if m, ok := op.Call.Msg.(*feature.FeatureEnableDisable); ok {
			text = fmt.Sprintf("%s/%s %t", m.ArcName, m.FeatureName, m.Enable)
		}
		out = append(out, text)
		if op.Next != nil {
			out = append(out, names(op.Next)...)
		}
		if op.Then != nil {
			out = append(out, names(op.Then(vpp.Reply{}))...)
		}
	}
	return out
}

// In VPP 26.06 an address is set first, its removal removes all the rest, and a separate message sets the kind.
func TestSnatOfTheNewerAPI(t *testing.T) {
	policy := &snatPolicy{kind: cnat.SnatPolicy_KUBERNETES, v6: netip.MustParseAddr("fd00::1"), excluded: []netip.Prefix{netip.MustParsePrefix("fd00::/8")}}
	addresses := "set_snat_addresses " + (&binapi.CnatSetSnatAddresses{}).GetCrcString()
	table := "snat_policy_add_del_if " + (&binapi.CnatSnatPolicyAddDelIf{}).GetCrcString()
	prefix := "snat_policy_add_del_exclude_pfx " + (&binapi.CnatSnatPolicyAddDelExcludePfx{}).GetCrcString()
	old := "set_snat_policy " + (&binapi.CnatSetSnatPolicy{}).GetCrcString()
	unrouted := "set_snat_addresses_v2 " + (&binapi26.CnatSetSnatAddressesV2{}).GetCrcString()
	newer := "set_snat_policy " + (&binapi26.CnatSetSnatPolicy{}).GetCrcString()
	for _, tc := range []struct {
		newer     bool
		add, drop []string
	}{
		{false, []string{prefix, old, addresses}, []string{addresses, prefix, old}},
		{true, []string{unrouted, table, prefix, newer}, []string{unrouted, addresses}},
	} {
		w := descriptor.NewWorld(descriptor.Options{}, nil)
		factsOf(w).newer = tc.newer
		if got := names(changeSnat(w, &snatPolicy{}, policy)); !slices.Equal(got, tc.add) {
			t.Errorf("newer %t: made by %q, want %q", tc.newer, got, tc.add)
		}
		ops := dropSnat(w, policy)
		if got := names(ops); !slices.Equal(got, tc.drop) {
			t.Errorf("newer %t: dropped by %q, want %q", tc.newer, got, tc.drop)
		}
		switch m := ops[0].Call.Msg.(type) {
		case *binapi26.CnatSetSnatAddressesV2: // set again before it is dropped, and never with a route
			if !tc.newer || netip.AddrFrom16(m.SnatIP6) != policy.v6 || m.Flags != binapi26.CNAT_SNAT_POLICY_F_NO_CLIENT {
				t.Errorf("newer %t: dropping begins with %+v", tc.newer, m)
			}
		case *binapi.CnatSetSnatAddresses:
			if tc.newer || netip.AddrFrom16(m.SnatIP6) == policy.v6 {
				t.Errorf("newer %t: dropping begins with %+v", tc.newer, m)
			}
		}

	}
}

// VPP 26.06 keeps an address that a message does not have, so the policy ends and begins again when it has one address less, and then interfaces join their
// tables again.
func TestSnatAddressEndsInTheNewerAPI(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")
	both := &snatPolicy{kind: cnat.SnatPolicy_KUBERNETES, v4: v4, v6: v6, excluded: []netip.Prefix{netip.MustParsePrefix("fd00::/8")}}
	one, borrowed := *both, *both
	one.v4, borrowed.iface = netip.Addr{}, true
	again := []string{"has fd00::1", "has", "has fd00::1", "0 in 0", "exclude", "3 in 1", "3 in 2", "4 in 3", "kind"}
	for _, tc := range []struct {
		name       string
		newer      bool
		have, want *snatPolicy
		ops        []string
	}{
		{"24.06, an address ends", false, both, &one, []string{"kind", "has fd00::1"}},
		{"an address ends", true, both, &one, append([]string{"has 192.0.2.1 fd00::1"}, again[1:]...)},
		{"addresses of an interface end", true, &borrowed, both, []string{"has 192.0.2.1 fd00::1", "has", "has 192.0.2.1 fd00::1", "0 in 0", "exclude", "3 in 1", "3 in 2", "4 in 3", "kind"}},
		{"an address begins", true, &one, both, []string{"has 192.0.2.1 fd00::1", "0 in 0", "kind"}},
		{"made", true, &snatPolicy{kind: unknown}, &one, again[2:]},
	} {
		w := descriptor.NewWorld(descriptor.Options{}, nil)
		w.SetInterfaces([]*descriptor.Iface{{Index: 3, VPPName: "tap0", Name: "tap0"}, {Index: 4, VPPName: "tap1", Name: "tap1"}})
		w.Having = func(string) []any {
			return []any{
				&cnatInterface{name: "tap1", tables: [cnatTables]bool{3: true}}, &cnatInterface{name: "gone", tables: [cnatTables]bool{true}},
				&cnatInterface{name: "tap0", tables: [cnatTables]bool{1: true, 2: true}},
			}
		}
		factsOf(w).newer = tc.newer
		if got := changes(changeSnat(w, tc.have, tc.want)); !slices.Equal(got, tc.ops) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.ops)
		}
	}
}

// changes are the requests about a policy in turn, in words.
func changes(ops []descriptor.Op) (out []string) {
	has := func(v4 [4]byte, v6 [16]byte) string {
		text := "has"
		for _, a := range []netip.Addr{netip.AddrFrom4(v4), netip.AddrFrom16(v6)} {
			if !a.IsUnspecified() {
				text += " " + a.String()
			}
		}
		return text
	}
	for _, op := range ops {
		switch m := op.Call.Msg.(type) {
		case *binapi.CnatSetSnatAddresses:
			out = append(out, has(m.SnatIP4, m.SnatIP6))
		case *binapi26.CnatSetSnatAddressesV2:
			out = append(out, has(m.SnatIP4, m.SnatIP6))
		case *binapi.CnatSnatPolicyAddDelIf:
			out = append(out, fmt.Sprintf("%d in %d", m.SwIfIndex, m.Table))
		case *binapi.CnatSnatPolicyAddDelExcludePfx:
			out = append(out, "exclude")
		default:
			out = append(out, "kind")
		}
		out = append(out, changes(op.Next)...)
	}
	return out
}

// the desired state is empty.
type nobody struct{}

func (nobody) Wanted(string) any            { return nil }
func (nobody) Each(func(string, any, bool)) {}

// VPP's knowledge of a message of the newer API shows which API it has.
func TestWhichCnat(t *testing.T) {
	for _, newer := range []bool{true, false} {
		w := descriptor.NewWorld(descriptor.Options{}, nil)
		factsOf(w).newer = !newer
		replies := []vpp.Reply{{Msg: &binapi.CnatGetSnatAddressesReply{SwIfIndex: ^interface_types.InterfaceIndex(0)}}, {Msg: &vlib.CliInbandReply{}}, {}}
		if !newer {
			replies[2].Err = &vpp.MissingError{Message: "cnat_snat_addresses_dump"}
		}
		if _, err := retrieveSnatPolicy(w, descriptor.NewDump(snatDumps(w, nil), replies), nobody{}); err != nil || factsOf(w).newer != newer {
			t.Errorf("newer %t, want %t: %v", factsOf(w).newer, newer, err)
		}
	}
}

// VPP aborts on SCTP with another source, and does not translate SCTP in IPv6.
func TestSCTPIsRefused(t *testing.T) {
	m := &cnat.Translation{
		Vip: &cnat.Endpoint{Address: "10.96.0.10", Port: 80}, Protocol: cnat.Protocol_SCTP,
		Paths: []*cnat.Path{{Destination: &cnat.Endpoint{Address: "10.1.1.2", Port: 80}}, {Destination: &cnat.Endpoint{Address: "10.1.1.3", Port: 80}}},
	}
	if _, err := compileTranslation("", m); err != nil {
		t.Error(err)
	}
	m.Paths[1].Source = &cnat.Endpoint{Address: "10.1.1.254"}
	if _, err := compileTranslation("", m); err == nil || !strings.HasPrefix(err.Error(), "paths[1].source: not with SCTP") {
		t.Errorf("another source: %v", err)
	}
	m.Paths[1].Source = &cnat.Endpoint{Interface: "uplink"}
	if _, err := compileTranslation("", m); err == nil {
		t.Error("an interface's address as source")
	}
	m.Vip.Address = "2001:db8:96::10"
	if _, err := compileTranslation("", m); err == nil || !strings.Contains(err.Error(), "in IPv4 only") {
		t.Errorf("IPv6: %v", err)
	}
}

// Features of VPP 26.06 come in pairs, and its tables with a policy.
func TestInterfaceOfTheNewerAPI(t *testing.T) {
	var policy any
	w := descriptor.NewWorld(descriptor.Options{}, func(key string) any {
		if key == kv.SnatPolicyKey {
			return policy
		}
		return nil
	})
	w.SetInterfaces([]*descriptor.Iface{{Index: 3, VPPName: "tap0", Name: "tap0"}})
	i := &cnatInterface{name: "tap0", nodes: [cnatNodes]uint8{0, 0, 1, 1}}
	features := func(what string, ops []descriptor.Op, err error, tables int, want ...string) {
		t.Helper()
		got := slices.DeleteFunc(names(ops), func(s string) bool { return strings.HasPrefix(s, "snat_policy_add_del_if") })
		if err != nil || !slices.Equal(got, want) || len(ops)-len(got) != tables {
			t.Errorf("%s: %q and %d tables: %v", what, got, len(ops)-len(got), err)
		}
	}
	ops, err := createCnatInterface(w, i)
	features("24.06", ops, err, 4, "ip6-unicast/cnat-input-ip6 true", "ip6-output/cnat-output-ip6 true")
	factsOf(w).newer = true
	all := []string{
		"ip6-unicast/cnat-lookup-ip6 true", "ip6-output/cnat-writeback-ip6 true", "ip6-unicast/cnat-input-ip6 true", "ip6-output/cnat-output-ip6 true",
	}
	gone := []string{
		"ip6-unicast/cnat-input-ip6 false", "ip6-output/cnat-output-ip6 false", "ip6-unicast/cnat-lookup-ip6 false", "ip6-output/cnat-writeback-ip6 false",
	}
	ops, err = createCnatInterface(w, i)
	features("26.06 without a policy", ops, err, 0, all...)
	policy = &snatPolicy{}
	ops, err = createCnatInterface(w, i)
	features("26.06", ops, err, 4, all...)
	there, torn := *i, *i
	there.newer, torn.newer = there.nodes, [newerNodes]uint8{0, 0, 1, 0}
	for what, have := range map[string]*cnatInterface{"found": &there, "put": i} {
		ops, err = changeCnatInterface(w, have, &cnatInterface{name: "tap0"})
		features("26.06, gone as "+what, ops, err, 0, gone...)
		ops, err = changeCnatInterface(w, have, &cnatInterface{name: "tap0", nodes: i.nodes, tables: [cnatTables]bool{true}})
		features("26.06, another table, "+what, ops, err, 1)
	}
	ops, err = changeCnatInterface(w, &torn, i)
	features("26.06, in pieces", ops, err, 0, "ip6-output/cnat-writeback-ip6 true")
}
