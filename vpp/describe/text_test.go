package describe

import (
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/nat44_ed"
)

func routeTo(prefix string, paths ...fib_types.FibPath) *ip.IPRouteAddDel {
	p, err := ip_types.ParsePrefix(prefix)
	if err != nil {
		panic(err)
	}
	return &ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{Prefix: p, NPaths: uint8(len(paths)), Paths: paths}}
}

func nextTo(addr string) fib_types.FibPathNh {
	a, err := ip_types.ParseAddress(addr)
	if err != nil {
		panic(err)
	}
	return fib_types.FibPathNh{Address: a.Un}
}

func TestText(t *testing.T) {
	names := func(i uint32) string { return map[uint32]string{1: "tap1"}[i] }
	none := interface_types.InterfaceIndex(noIndex)
	for _, tc := range []struct {
		msg  api.Message
		want string
	}{
		{&memclnt.ControlPing{}, "control_ping"},
		{
			&nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: true, Flags: 32, SwIfIndex: 1},
			"nat44_interface_add_del_feature is_add=true flags=NAT_IS_INSIDE sw_if_index=tap1",
		},
		{
			&nat44_ed.Nat44AddDelStaticMappingV2{IsAdd: true, ExternalSwIfIndex: none, Tag: "t\x00\x00"},
			"nat44_add_del_static_mapping_v2 is_add=true tag=t",
		},
		{
			&nat44_ed.Nat44AddDelLbStaticMapping{ExternalPort: 80, LocalNum: 1, Locals: []nat44_ed.Nat44LbAddrPort{{Addr: [4]byte{10, 1, 1, 2}, Port: 8080, Probability: 1}}},
			"nat44_add_del_lb_static_mapping external_port=80 locals=[{addr=10.1.1.2 port=8080 probability=1}]",
		},
		{routeTo("10.0.0.0/8", fib_types.FibPath{SwIfIndex: noIndex, Type: 5, Weight: 1}), "ip_route_add_del is_add=true route={prefix=10.0.0.0/8 paths=[{icmp-unreach}]}"},
		{routeTo("10.0.0.0/8", fib_types.FibPath{SwIfIndex: noIndex, Type: 9}), "ip_route_add_del is_add=true route={prefix=10.0.0.0/8 paths=[{path-type-9}]}"},
		{routeTo("10.0.0.1/32", fib_types.FibPath{SwIfIndex: 1, Nh: nextTo("10.0.0.1"), Weight: 2}), "ip_route_add_del is_add=true route={prefix=10.0.0.1/32 paths=[{via 10.0.0.1 tap1 weight 2}]}"},
		{
			routeTo("fd00::/64", fib_types.FibPath{SwIfIndex: noIndex, Proto: 1, Nh: nextTo("fd00::1"), TableID: 7, Preference: 3}),
			"ip_route_add_del is_add=true route={prefix=fd00::/64 paths=[{via fd00::1 table 7 preference 3}]}",
		},
		{routeTo("10.0.0.0/8", fib_types.FibPath{SwIfIndex: noIndex}), "ip_route_add_del is_add=true route={prefix=10.0.0.0/8 paths=[{via table 0}]}"},
		{routeTo("10.0.0.1/32", fib_types.FibPath{SwIfIndex: 1, Type: 1}), "ip_route_add_del is_add=true route={prefix=10.0.0.1/32 paths=[{local tap1}]}"},
		{
			&acl.ACLAddReplace{ACLIndex: 3, Tag: "t", R: []acl_types.ACLRule{
				{IsPermit: 2, Proto: 6, SrcPrefix: prefix("10.0.0.0/8"), DstPrefix: prefix("10.1.1.2/32"), SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeFirst: 80, DstportOrIcmpcodeLast: 80, TCPFlagsMask: 18, TCPFlagsValue: 2},
				{IsPermit: 1, Proto: 58, SrcPrefix: prefix("::/0"), DstPrefix: prefix("::/0"), SrcportOrIcmptypeFirst: 133, SrcportOrIcmptypeLast: 136, DstportOrIcmpcodeLast: 255},
				{SrcPrefix: prefix("0.0.0.0/0"), DstPrefix: prefix("0.0.0.0/0"), SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535},
			}},
			"acl_add_replace acl_index=3 tag=t r=[{permit+reflect tcp 10.0.0.0/8 -> 10.1.1.2/32 dport 80 flags 0x02/0x12} " +
				"{permit icmp6 ::/0 -> ::/0 type 133-136 code 0-255} {deny 0.0.0.0/0 -> 0.0.0.0/0}]",
		},
		{
			&acl.ACLInterfaceSetACLList{SwIfIndex: 1, NInput: 1, Acls: make([]uint32, 70)},
			"acl_interface_set_acl_list sw_if_index=tap1 n_input=1 acls=[" + strings.Repeat("0 ", 64) + "… and 6 more]",
		},
	} {
		if got := Request(tc.msg, names); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	if got, want := Request(&nat44_ed.Nat44EdAddDelOutputInterface{SwIfIndex: 4}, nil), "nat44_ed_add_del_output_interface sw_if_index=4"; got != want {
		t.Errorf("without names: %s, want %s", got, want)
	}
}

func prefix(s string) ip_types.Prefix {
	p, err := ip_types.ParsePrefix(s)
	if err != nil {
		panic(err)
	}
	return p
}
