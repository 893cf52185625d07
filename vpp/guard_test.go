package vpp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/abf"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/cnat"
	featureapi "go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/span"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/binapi/vxlan"
	"pgregory.net/rapid"
)

const o2i = nat_types.NAT_IS_OUT2IN_ONLY

// lb is an LB mapping of 10.96.0.1:80/tcp with locals of these weights.
func lb(weights ...uint8) *nat44_ed.Nat44AddDelLbStaticMapping {
	m := &nat44_ed.Nat44AddDelLbStaticMapping{
		IsAdd: true, Flags: o2i, ExternalAddr: ip_types.IP4Address{10, 96, 0, 1}, ExternalPort: 80, Protocol: protoTCP,
	}
	for i, w := range weights {
		m.Locals = append(m.Locals, backend(i, w))
	}
	return m
}

func backend(i int, weight uint8) nat44_ed.Nat44LbAddrPort {
	return nat44_ed.Nat44LbAddrPort{Addr: ip_types.IP4Address{10, 1, byte(i >> 8), byte(i)}, Port: 8080, Probability: weight}
}

func with[M any](m *M, change func(*M)) *M { change(m); return m }

func lbWith(change func(*nat44_ed.Nat44AddDelLbStaticMapping)) api.Message {
	return with(lb(1, 1), change)
}

func deleteLB(flags nat_types.NatConfigFlags) api.Message {
	return lbWith(func(m *nat44_ed.Nat44AddDelLbStaticMapping) { m.IsAdd, m.Flags, m.Locals = false, flags, nil })
}

func addLocal(i int, weight uint8) api.Message { return changeLocal(true, i, weight) }
func delLocal(i int) api.Message               { return changeLocal(false, i, 0) }

func changeLocal(add bool, i int, weight uint8) api.Message {
	return &nat44_ed.Nat44LbStaticMappingAddDelLocal{
		IsAdd: add, ExternalAddr: ip_types.IP4Address{10, 96, 0, 1}, ExternalPort: 80, Protocol: protoTCP, Local: backend(i, weight),
	}
}

func single(add bool, flags nat_types.NatConfigFlags, proto uint8, port uint16) *nat44_ed.Nat44AddDelStaticMappingV2 {
	return &nat44_ed.Nat44AddDelStaticMappingV2{
		IsAdd: add, Flags: flags, ExternalIPAddress: ip_types.IP4Address{10, 96, 0, 1}, ExternalPort: port, Protocol: proto,
		ExternalSwIfIndex: ^interfaceIndex(0),
	}
}

func identity(add bool, flags nat_types.NatConfigFlags, proto uint8, port uint16) *nat44_ed.Nat44AddDelIdentityMapping {
	return &nat44_ed.Nat44AddDelIdentityMapping{
		IsAdd: add, Flags: flags, IPAddress: ip_types.IP4Address{10, 96, 0, 1}, Port: port, Protocol: proto, SwIfIndex: ^interfaceIndex(0),
	}
}

func feature(add bool, index interfaceIndex, flags nat_types.NatConfigFlags) api.Message {
	return &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: add, SwIfIndex: index, Flags: flags}
}

func output(add bool, index interfaceIndex) api.Message {
	return &nat44_ed.Nat44EdAddDelOutputInterface{IsAdd: add, SwIfIndex: index}
}

func many(n int, weight uint8) []uint8 { return slices.Repeat([]uint8{weight}, n) }

func aclOf(change func(*acl_types.ACLRule)) api.Message {
	r := acl_types.ACLRule{
		IsPermit: 1, SrcPrefix: prefix("10.0.0.0/8"), DstPrefix: prefix("10.1.0.0/16"), Proto: protoTCP,
		SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeFirst: 80, DstportOrIcmpcodeLast: 80,
	}
	change(&r)
	return &acl.ACLAddReplace{ACLIndex: ^uint32(0), R: []acl_types.ACLRule{r}}
}

func oddIPv6(r *acl_types.ACLRule) { r.SrcPrefix, r.DstPrefix = prefix("::/0"), prefix("fd00::/108") }

func TestReleasedBefore(t *testing.T) {
	for version, want := range map[string]bool{
		"v24.06-release": true, "25.02-rc0~1": true, "v25.06-release": false, "v25.10-release": false, "26.02": false, "sim": false, "": false,
	} {
		if got := releasedBefore(version, 25, 6); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}

func prefix(s string) ip_types.Prefix {
	p, err := ip_types.ParsePrefix(s)
	if err != nil {
		panic(err)
	}
	return p
}

func ipRoute(add bool, table uint32, to string, paths ...fib_types.FibPath) api.Message {
	return &ip.IPRouteAddDel{IsAdd: add, Route: ip.IPRoute{TableID: table, Prefix: prefix(to), Paths: paths}}
}

// via5 is a path that answers unreachable.
var via5 = fib_types.FibPath{Type: fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH, SwIfIndex: ^uint32(0)}

func on(swIfIndex uint32) fib_types.FibPath { return fib_types.FibPath{SwIfIndex: swIfIndex} }

func bareHop(addr string) fib_types.FibPath { return onHop(^uint32(0), addr) }

func onHop(swIfIndex uint32, addr string) fib_types.FibPath {
	p := on(swIfIndex)
	p.Nh.Address = prefix(addr + "/32").Address.Un
	return p
}

var longestTag, tooLongTag = strings.Repeat("t", 63), strings.Repeat("t", 64)

// step is a permitted message and VPP's answer.
type step struct {
	msg api.Message
	ok  bool
}

type guardCase struct {
	rule    string // the rule that must refuse; "": permitted
	name    string
	history []step
	msg     api.Message
}

var (
	lbsDumped  = step{&nat44_ed.Nat44LbStaticMappingDump{}, true} // of a VPP without any
	twoWorkers = step{&nat44_ed.NatWorkerDump{}, true}            // answered with two workers
	of2406     = step{&vpe.ShowVersion{}, true}                   // answered with 24.06
	enabled    = step{&nat44_ed.Nat44EdPluginEnableDisable{Enable: true}, true}
)

func made(msg api.Message) step { return step{msg, true} }

// underNode gives interface 3 the role inside and the node of both roles.
var underNode = []step{made(feature(true, 3, nat_types.NAT_IS_INSIDE)), made(bothNode(true, 3))}

func bothNode(on bool, at interface_types.InterfaceIndex) api.Message {
	return &featureapi.FeatureEnableDisable{SwIfIndex: at, Enable: on, ArcName: "ip4-unicast", FeatureName: "nat44-ed-classify"}
}

var guardCases = []guardCase{
	{"", "two weight-0 pads and a backend", nil, lb(0, 0, 1)},
	{"", "255 locals of weight 1", nil, lb(many(255, 1)...)},
	{"", "weights up to 255", nil, lb(127, 128)},
	{"", "longest tag", nil, lbWith(func(m *nat44_ed.Nat44AddDelLbStaticMapping) { m.Tag = longestTag })},
	{"lb-few-locals", "none", nil, lb()},
	{"lb-few-locals", "one", nil, lb(1)},
	{"lb-many-locals", "256", nil, lb(many(256, 0)...)},
	{"lb-weight-zero", "all zero", nil, lb(0, 0)},
	{"lb-weight-sum", "256 = 0 mod 256", nil, lb(128, 128)},
	{"lb-weight-sum", "260", nil, lb(100, 100, 60)},
	{"lb-out2in-only", "none", nil, lbWith(func(m *nat44_ed.Nat44AddDelLbStaticMapping) { m.Flags = nat_types.NAT_IS_SELF_TWICE_NAT })},
	{"lb-weightless-workers", "pads", []step{twoWorkers}, lb(0, 0, 1)},
	{"lb-weightless-workers", "pad added", []step{twoWorkers, made(lb(1, 1))}, addLocal(9, 0)},
	{"", "weights with workers", []step{twoWorkers, made(lb(1, 1))}, addLocal(9, 1)},
	{"lb-delete-flags", "unknown mapping", nil, deleteLB(0)},
	{"lb-delete-flags", "known mapping", []step{made(lb(1, 1))}, deleteLB(0)},
	{"", "delete with flags", []step{made(lb(1, 1))}, deleteLB(o2i)},
	{"", "delete of unknown mapping", nil, deleteLB(o2i)},

	{"local-unknown-mapping", "nothing seen", nil, addLocal(9, 1)},
	{"local-unknown-mapping", "removal, nothing seen", nil, delLocal(9)},
	{"local-unknown-mapping", "made, but VPP refused", []step{{lb(1, 1), false}}, addLocal(9, 1)},
	{"", "absent for sure: VPP says so", []step{lbsDumped}, addLocal(9, 1)},
	{"", "absent for sure: just enabled", []step{enabled}, addLocal(9, 1)},
	{"", "known", []step{made(lb(1, 1))}, addLocal(9, 1)},
	{"local-many", "256th", []step{made(lb(append(many(253, 1), 0, 0)...))}, addLocal(999, 0)},
	{"", "255th", []step{made(lb(append(many(252, 1), 0, 0)...))}, addLocal(999, 1)},
	{"local-many", "two on their way", []step{made(lb(append(many(252, 1), 0)...)), made(addLocal(800, 0)), made(addLocal(801, 0))}, addLocal(802, 0)},
	{"", "removed before", []step{made(lb(many(255, 1)...)), made(delLocal(3))}, addLocal(999, 1)},
	{"local-many", "removal refused", []step{made(lb(append(many(254, 1), 0)...)), {delLocal(3), false}}, addLocal(999, 0)},
	{"local-weight-sum", "256", []step{made(lb(200, 55))}, addLocal(9, 1)},
	{"", "255", []step{made(lb(200, 54))}, addLocal(9, 1)},
	{"local-few", "of two", []step{made(lb(1, 1))}, delLocal(0)},
	{"", "of three", []step{made(lb(1, 1, 1))}, delLocal(0)},
	{"", "absent one of two: VPP says so", []step{made(lb(1, 1))}, delLocal(7)},
	{"local-weight-zero", "last that weighs", []step{made(lb(0, 0, 1))}, delLocal(2)},
	{"", "last but one that weighs", []step{made(lb(0, 0, 1, 1))}, delLocal(2)},
	{"local-weight-zero", "both, one after the other", []step{made(lb(0, 0, 1, 1)), made(delLocal(3))}, delLocal(2)},

	{"mapping-protocol", "SCTP", nil, lbWith(func(m *nat44_ed.Nat44AddDelLbStaticMapping) { m.Protocol = 132 })},
	{"mapping-protocol", "single SCTP", nil, single(true, o2i, 132, 80)},
	{"", "address-only has no protocol", nil, single(true, nat_types.NAT_IS_ADDR_ONLY, 0, 0)},
	{"mapping-icmp", "with port", nil, single(true, o2i, protoICMP, 8)},
	{"mapping-icmp", "identity", nil, identity(true, 0, protoICMP, 8)},
	{"mapping-twice-both", "LB", nil, lbWith(func(m *nat44_ed.Nat44AddDelLbStaticMapping) {
		m.Flags |= nat_types.NAT_IS_TWICE_NAT | nat_types.NAT_IS_SELF_TWICE_NAT
	})},
	{"mapping-twice-address", "address-only", nil, single(true, nat_types.NAT_IS_ADDR_ONLY|nat_types.NAT_IS_TWICE_NAT, 0, 0)},
	{"mapping-twice-address", "identity", nil, identity(true, nat_types.NAT_IS_SELF_TWICE_NAT, protoUDP, 4789)},
	{"mapping-tag", "64 bytes", nil, lbWith(func(m *nat44_ed.Nat44AddDelLbStaticMapping) { m.Tag = tooLongTag })},
	{"mapping-tag", "identity", nil, with(identity(true, 0, protoUDP, 4789), func(m *nat44_ed.Nat44AddDelIdentityMapping) { m.Tag = tooLongTag })},
	{"mapping-delete-kind", "LB through single", []step{made(lb(1, 1))}, single(false, o2i, protoTCP, 80)},
	{"mapping-delete-kind", "LB through identity", []step{made(lb(1, 1))}, identity(false, 0, protoTCP, 80)},
	{"mapping-delete-kind", "identity through single", []step{made(identity(true, 0, protoUDP, 4789))}, single(false, 0, protoUDP, 4789)},
	{"mapping-delete-kind", "unknown", nil, single(false, o2i, protoTCP, 80)},
	{"", "single through single", []step{made(single(true, o2i, protoTCP, 80))}, single(false, o2i, protoTCP, 80)},
	{"", "no LB for sure", []step{lbsDumped}, single(false, o2i, protoTCP, 80)},
	{"", "LB is gone", []step{made(lb(1, 1)), made(deleteLB(o2i))}, single(false, o2i, protoTCP, 80)},

	{"role-not-set", "nothing seen", nil, feature(false, 3, nat_types.NAT_IS_INSIDE)},
	{"role-not-set", "other role", []step{made(feature(true, 3, nat_types.NAT_IS_INSIDE))}, feature(false, 3, nat_types.NAT_IS_OUTSIDE)},
	{"role-not-set", "twice", []step{made(feature(true, 3, 0)), made(feature(false, 3, 0))}, feature(false, 3, 0)},
	{"role-not-set", "VPP refused to set it", []step{{feature(true, 3, 0), false}}, feature(false, 3, 0)},
	{"role-not-set", "disabled and enabled since", []step{made(feature(true, 3, 0)), enabled}, feature(false, 3, 0)},
	{"", "set", []step{made(feature(true, 3, nat_types.NAT_IS_INSIDE)), made(feature(true, 3, 0))}, feature(false, 3, 0)},
	{"", "removal was refused", []step{made(feature(true, 3, 0)), {feature(false, 3, 0), false}}, feature(false, 3, 0)},
	{"role-both", "one message", nil, feature(true, 3, nat_types.NAT_IS_INSIDE|nat_types.NAT_IS_OUTSIDE)},
	{"role-on-output", "", []step{made(output(true, 3))}, feature(true, 3, 0)},
	{"", "another interface", []step{made(output(true, 4))}, feature(true, 3, 0)},
	{"node-without-role", "nothing seen", nil, bothNode(true, 3)},
	{"node-without-role", "outside alone", []step{made(feature(true, 3, 0))}, bothNode(true, 3)},
	{"", "inside", []step{made(feature(true, 3, nat_types.NAT_IS_INSIDE))}, bothNode(true, 3)},
	{"", "removal without a role", nil, bothNode(false, 3)},
	{"role-under-node", "role removed", underNode, feature(false, 3, nat_types.NAT_IS_INSIDE)},
	{"role-under-node", "second role", underNode, feature(true, 3, 0)},
	{"", "the node of both roles, put back", []step{
		made(feature(true, 3, nat_types.NAT_IS_INSIDE)), made(feature(true, 3, 0)), made(bothNode(true, 3)), made(feature(false, 3, 0)),
	}, feature(false, 3, nat_types.NAT_IS_INSIDE)},
	{"", "node removed", append(underNode, made(bothNode(false, 3))), feature(false, 3, nat_types.NAT_IS_INSIDE)},
	{"", "node refused", append(underNode[:1:1], step{bothNode(true, 3), false}), feature(false, 3, nat_types.NAT_IS_INSIDE)},
	{"", "same role again", underNode, feature(true, 3, nat_types.NAT_IS_INSIDE)},
	{"output-on-role", "", []step{made(feature(true, 3, 0))}, output(true, 3)},
	{"", "role is gone", []step{made(feature(true, 3, 0)), made(feature(false, 3, 0))}, output(true, 3)},

	{"route-special-table", "unreachable", nil, ipRoute(true, 5, "10.96.0.0/16", via5)},
	{"route-special-table", "drop, v2", nil, &ip.IPRouteAddDelV2{IsAdd: true, Route: ip.IPRouteV2{TableID: 5, Paths: []fib_types.FibPath{{Type: 2}}}}},
	{"", "table 0", nil, ipRoute(true, 0, "10.96.0.0/16", via5)},
	{"", "deletion", nil, ipRoute(false, 5, "10.96.0.0/16", via5)},
	{"", "local in another table", nil, ipRoute(true, 5, "10.96.0.0/16", fib_types.FibPath{Type: 1})},
	{"route-next-hop", "next hop last", []step{made(ipRoute(true, 0, "10.96.0.0/16", via5))}, ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1"))},
	{"route-next-hop", "next hop first", []step{made(ipRoute(true, 7, "10.7.0.0/16", bareHop("10.96.0.1")))}, ipRoute(true, 0, "10.96.0.0/16", via5)},
	{"route-next-hop", "saving route goes", []step{
		made(ipRoute(true, 0, "10.96.0.0/16", via5)), made(ipRoute(true, 0, "10.96.0.0/24", on(3))), made(ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1"))),
	}, ipRoute(false, 0, "10.96.0.0/24")},
	{"", "more specific route", []step{
		made(ipRoute(true, 0, "10.96.0.0/16", via5)), made(ipRoute(true, 0, "10.96.0.0/24", on(3))),
	}, ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1"))},
	{"", "with an interface", []step{made(ipRoute(true, 0, "10.96.0.0/16", via5))}, ipRoute(true, 0, "10.7.0.0/16", onHop(3, "10.96.0.1"))},
	{"", "elsewhere", []step{made(ipRoute(true, 0, "10.96.0.0/16", via5))}, ipRoute(true, 0, "10.7.0.0/16", bareHop("10.97.0.1"))},
	{"", "refusal is gone", []step{made(ipRoute(true, 0, "10.96.0.0/16", via5)), made(ipRoute(false, 0, "10.96.0.0/16", via5))}, ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1"))},
	{"", "VPP refused it", []step{{ipRoute(true, 0, "10.96.0.0/16", via5), false}}, ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1"))},

	{"nat-disable", "", nil, &nat44_ed.Nat44EdPluginEnableDisable{}},
	{"", "enable", nil, &nat44_ed.Nat44EdPluginEnableDisable{Enable: true}},
	{"nat-vrf-dump-v1", "", nil, &nat44_ed.Nat44EdVrfTablesDump{}},
	{"", "v2", nil, &nat44_ed.Nat44EdVrfTablesV2Dump{}},
	{"cli-nat", "session limit", nil, &vlib.CliInband{Cmd: "set nat44 session limit 1000"}},
	{"cli-nat", "abbreviated, second line", nil, &vlib.CliInband{Cmd: "show version\n  set  nat44 sess lim 1000"}},
	{"cli-nat", "disable", nil, &vlib.CliInband{Cmd: "nat44 plugin disable"}},
	{"", "show", nil, &vlib.CliInband{Cmd: "show nat44 sessions"}},
	{"interface-tag", "", nil, &interfaces.SwInterfaceTagAddDel{IsAdd: true, Tag: tooLongTag}},
	{"", "longest interface tag", nil, &interfaces.SwInterfaceTagAddDel{IsAdd: true, Tag: longestTag}},

	{"acl-list-length", "256", nil, &acl.ACLInterfaceSetACLList{Acls: make([]uint32, 256)}},
	{"acl-list-length", "more input than all", nil, &acl.ACLInterfaceSetACLList{NInput: 2, Acls: []uint32{1}}},
	{"acl-list-length", "count", nil, &acl.ACLInterfaceSetACLList{Count: 2, Acls: []uint32{1}}},
	{"acl-list-duplicate", "input", nil, &acl.ACLInterfaceSetACLList{NInput: 2, Acls: []uint32{1, 1}}},
	{"acl-list-duplicate", "output", nil, &acl.ACLInterfaceSetACLList{NInput: 1, Acls: []uint32{1, 2, 3, 2}}},
	{"", "one ACL in both directions", nil, &acl.ACLInterfaceSetACLList{NInput: 1, Acls: []uint32{1, 1}}},
	{"acl-count", "", nil, &acl.ACLAddReplace{Count: 1}},
	{"acl-count", "macip", nil, &acl.MacipACLAdd{Count: 1}},
	{"acl-tag", "", nil, &acl.ACLAddReplace{Tag: tooLongTag}},
	{"acl-tag", "macip", nil, &acl.MacipACLAddReplace{Tag: tooLongTag}},
	{"", "empty ACL", nil, &acl.ACLAddReplace{Tag: longestTag}},
	{"", "good rule", nil, aclOf(func(*acl_types.ACLRule) {})},
	{"acl-prefix", "host bits", nil, aclOf(func(r *acl_types.ACLRule) {
		r.SrcPrefix = ip_types.Prefix{Address: prefix("10.0.0.1/32").Address, Len: 8}
	})},
	{"acl-prefix", "family", nil, aclOf(func(r *acl_types.ACLRule) { r.DstPrefix = prefix("fd00::/8") })},
	{"acl-prefix", "length", nil, aclOf(func(r *acl_types.ACLRule) { r.DstPrefix.Len = 33 })},
	{"acl-prefix", "no family", nil, aclOf(func(r *acl_types.ACLRule) { r.SrcPrefix.Address.Af, r.DstPrefix.Address.Af = 7, 7 })},
	{"acl-range", "source", nil, aclOf(func(r *acl_types.ACLRule) { r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast = 2, 1 })},
	{"acl-range", "destination", nil, aclOf(func(r *acl_types.ACLRule) { r.DstportOrIcmpcodeFirst = 81 })},
	{"acl-range", "ICMP type", nil, aclOf(func(r *acl_types.ACLRule) {
		r.Proto, r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast = protoICMP, 256, 256
	})},
	{"", "any ICMP", nil, aclOf(func(r *acl_types.ACLRule) {
		r.Proto, r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast = protoICMP, 0, 65535
	})},
	{"", "part of a byte, VPP not known", nil, aclOf(oddIPv6)},
	{"acl-ip6-bits", "", []step{of2406}, aclOf(oddIPv6)},
	{"", "whole bytes", []step{of2406}, aclOf(func(r *acl_types.ACLRule) { r.SrcPrefix, r.DstPrefix = prefix("fd00::/8"), prefix("::/0") })},
	{"", "part of a byte of IPv4", []step{of2406}, aclOf(func(r *acl_types.ACLRule) { r.SrcPrefix = prefix("10.0.0.0/9") })},
	{"acl-action", "", nil, aclOf(func(r *acl_types.ACLRule) { r.IsPermit = 3 })},
	{"acl-range", "any protocol with ports", nil, aclOf(func(r *acl_types.ACLRule) { r.Proto = 0 })},
	{"bridge-tag", "", nil, &l2.BridgeDomainAddDelV2{IsAdd: true, BdID: 1, BdTag: tooLongTag}},
	{"", "longest tag", nil, &l2.BridgeDomainAddDelV2{IsAdd: true, BdID: 1, BdTag: longestTag}},
	{"bridge-zero", "", nil, &l2.SwInterfaceSetL2Bridge{Enable: true}},
	{"bridge-zero", "above", nil, &l2.SwInterfaceSetL2Bridge{Enable: true, BdID: maxBridge + 1}},
	{"", "highest", nil, &l2.SwInterfaceSetL2Bridge{Enable: true, BdID: maxBridge}},
	{"", "out of it", nil, &l2.SwInterfaceSetL2Bridge{}},
	{"vxlan-vni", "", nil, &vxlan.VxlanAddDelTunnelV3{IsAdd: true, Vni: maxVNI + 1}},
	{"", "highest VNI", nil, &vxlan.VxlanAddDelTunnelV3{IsAdd: true, Vni: maxVNI}},
	{"span-index", "from", nil, &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: maxIndex + 1, SwIfIndexTo: 1}},
	{"span-index", "to", nil, &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: ^interfaceIndex(0), State: 1}},
	{"", "all mirrors of an interface end", nil, &span.SwInterfaceSpanEnableDisable{SwIfIndexFrom: 1, SwIfIndexTo: ^interfaceIndex(0)}},
	{"xconnect-self", "", nil, &l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: 1, TxSwIfIndex: 1, Enable: true}},
	{"", "end of it", nil, &l2.SwInterfaceSetL2Xconnect{}},
	{"policer-twice", "input", []step{{&policer.PolicerInput{Name: "a", SwIfIndex: 1, Apply: true}, true}}, &policer.PolicerInput{Name: "a", SwIfIndex: 1, Apply: true}},
	{"policer-twice", "output", []step{{&policer.PolicerOutput{Name: "a", SwIfIndex: 1, Apply: true}, true}}, &policer.PolicerOutput{Name: "b", SwIfIndex: 1, Apply: true}},
	{"", "the other direction", []step{{&policer.PolicerInput{Name: "a", SwIfIndex: 1, Apply: true}, true}}, &policer.PolicerOutput{Name: "a", SwIfIndex: 1, Apply: true}},
	{"", "after a refusal", []step{{&policer.PolicerInput{Name: "a", SwIfIndex: 1, Apply: true}, false}}, &policer.PolicerInput{Name: "a", SwIfIndex: 1, Apply: true}},
	{"", "after its removal", []step{{&policer.PolicerInput{Name: "a", SwIfIndex: 1, Apply: true}, true}, {&policer.PolicerInput{Name: "a", SwIfIndex: 1}, true}}, &policer.PolicerInput{Name: "a", SwIfIndex: 1, Apply: true}},
	{"policer-applied", "", []step{{&policer.PolicerOutput{Name: "a", SwIfIndex: 1, Apply: true}, true}}, &policer.PolicerAddDel{Name: "a"}},
	{"policer-applied", "long name", nil, &policer.PolicerAddDel{IsAdd: true, Name: tooLongTag}},
	{"", "longest name", nil, &policer.PolicerAddDel{IsAdd: true, Name: longestTag}},
	{"", "another policer", []step{{&policer.PolicerOutput{Name: "a", SwIfIndex: 1, Apply: true}, true}}, &policer.PolicerAddDel{Name: "b"}},
	{"", "taken off", []step{{&policer.PolicerOutput{Name: "a", SwIfIndex: 1, Apply: true}, true}, {&policer.PolicerOutput{Name: "a", SwIfIndex: 1}, true}}, &policer.PolicerAddDel{Name: "a"}},
	{"abf-policy", "nothing is known", nil, abfPolicyOf(true, 1)},
	{"abf-policy", "only half is known", []step{{&abf.AbfPolicyDump{}, true}}, abfPolicyOf(true, 1)},
	{"", "policy", abfKnown(), abfPolicyOf(true, 1)},
	{"abf-policy", "the same path", abfKnown(abfPolicyOf(true, 1, 2)), abfPolicyOf(true, 3, 2)},
	{"abf-policy", "a path twice", abfKnown(), abfPolicyOf(true, 1, 1)},
	{"", "another path", abfKnown(abfPolicyOf(true, 1)), abfPolicyOf(true, 2)},
	{"", "a path that went", abfKnown(abfPolicyOf(true, 1, 2), abfPolicyOf(false, 2)), abfPolicyOf(true, 2)},
	{"abf-policy", "the last path, attached", abfKnown(abfPolicyOf(true, 1), abfAt(true, 4, false)), abfPolicyOf(false, 1)},
	{"", "the last but one, attached", abfKnown(abfPolicyOf(true, 1, 2), abfAt(true, 4, false)), abfPolicyOf(false, 1)},
	{"", "the last path, detached", abfKnown(abfPolicyOf(true, 1), abfAt(true, 4, true), abfAt(false, 4, true)), abfPolicyOf(false, 1)},
	{"abf-attach", "nothing is known", nil, abfAt(true, 4, false)},
	{"abf-attach", "no policy", abfKnown(), abfAt(true, 4, false)},
	{"abf-attach", "a policy that went", abfKnown(abfPolicyOf(true, 1), abfPolicyOf(false, 1)), abfAt(true, 4, false)},
	{"abf-attach", "the other family", abfKnown(abfPolicyOf(true, 1), abfAt(true, 4, false)), abfAt(false, 4, true)},
	{"abf-attach", "no such interface", abfKnown(abfPolicyOf(true, 1)), abfAt(true, maxIndex+1, false)},
	{"", "what is not attached", abfKnown(abfPolicyOf(true, 1)), abfAt(false, 4, true)},
	{"punt-redirect", "nothing is known", nil, redirect(true, 0, 3)},
	{"punt-redirect", "the other family is known", []step{{redirectDump(1), true}}, redirect(true, 0, 3)},
	{"", "redirect", []step{{redirectDump(0), true}}, redirect(true, 0, 3)},
	{"", "local0 and all are one", []step{{redirectDump(0), true}, {redirect(true, 0, 0), true}}, redirect(false, 0, ^interfaceIndex(0))},
	{"punt-redirect", "twice", []step{{redirectDump(0), true}, {redirect(true, 0, 3), true}}, redirect(true, 0, 3)},
	{"", "refused before", []step{{redirectDump(0), true}, {redirect(true, 0, 3), false}}, redirect(true, 0, 3)},
	{"punt-redirect", "not there", []step{{redirectDump(0), true}}, redirect(false, 0, 3)},
	{"punt-redirect", "to nowhere", []step{{redirectDump(0), true}}, &ip.AddDelIPPuntRedirectV2{IsAdd: true}},
	{"punt-redirect", "no such interface", []step{{redirectDump(0), true}}, redirect(true, 0, maxIndex+1)},
	{"punt-redirect", "no such family", nil, redirect(true, 2, 3)},
	{"punt-redirect-v1", "", nil, &ip.IPPuntRedirect{}},
}

func redirectDump(af ip_types.AddressFamily) api.Message {
	return &ip.IPPuntRedirectV2Dump{SwIfIndex: ^interfaceIndex(0), Af: af}
}

func redirect(add bool, af ip_types.AddressFamily, rx interfaceIndex) api.Message {
	return &ip.AddDelIPPuntRedirectV2{IsAdd: add, Punt: ip.PuntRedirectV2{RxSwIfIndex: rx, Af: af, Paths: []fib_types.FibPath{{SwIfIndex: 1}}}}
}

// abfKnown is a history: the dump of an empty ABF, then acknowledged messages.
func abfKnown(done ...api.Message) []step {
	out := []step{{&abf.AbfPolicyDump{}, true}, {&abf.AbfItfAttachDump{}, true}}
	for _, m := range done {
		out = append(out, step{m, true})
	}
	return out
}

// abfPolicyOf is policy 9 with a path by each interface; other fields do not distinguish paths.
func abfPolicyOf(add bool, ifs ...uint32) api.Message {
	m := &abf.AbfPolicyAddDel{IsAdd: add, Policy: abf.AbfPolicy{PolicyID: 9}}
	for i, n := range ifs {
		m.Policy.Paths = append(m.Policy.Paths, fib_types.FibPath{SwIfIndex: n, Weight: uint8(i), Preference: uint8(len(ifs))})
	}
	return m
}

func abfAt(add bool, at interfaceIndex, v6 bool) api.Message {
	return &abf.AbfItfAttachAddDel{IsAdd: add, Attach: abf.AbfItfAttach{PolicyID: 9, SwIfIndex: at, IsIPv6: v6}}
}

func allCases() []guardCase { return slices.Concat(guardCases, cnatCases, classifyCases) }

func TestGuard(t *testing.T) {
	for _, c := range allCases() {
		t.Run(c.rule+"/"+c.name, func(t *testing.T) {
			for _, acked := range []bool{true, false} { // history answered or outstanding
				g := NewGuard()
				if play(t, g, c.history, acked) {
					check(t, g, c)
				}
			}
		})
	}
}

// play sends history; false: it makes no sense without answers.
func play(t *testing.T, g *Guard, history []step, acked bool) bool {
	t.Helper()
	for _, s := range history {
		_, _, plain := mappingOp(s.msg)
		switch s.msg.(type) {
		case *nat44_ed.Nat44InterfaceAddDelFeature, *nat44_ed.Nat44EdAddDelOutputInterface, *ip.IPRouteAddDel:
		default:
			if !plain && !acked {
				return false // a dump or an enable has no effect before its answer
			}
		}
		if !s.ok && !acked {
			return false
		}
		err := g.Check(s.msg)
		if waits(err) && !acked {
			return false
		}
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		if !acked {
			continue
		}
		reply := Reply{Msg: classifyAnswer(s.msg)}
		if _, ok := s.msg.(*vpe.ShowVersion); ok {
			reply.Msg = &vpe.ShowVersionReply{Version: "v24.06-release"}
		}
		if _, ok := s.msg.(*nat44_ed.NatWorkerDump); ok {
			reply.Details = []api.Message{&nat44_ed.NatWorkerDetails{}, &nat44_ed.NatWorkerDetails{}}
		}
		if !s.ok {
			reply.Err = &Retval{Message: s.msg.GetMessageName(), Code: -81}
		}
		g.Observe(s.msg, reply)
	}
	return true
}

func check(t *testing.T, g *Guard, c guardCase) {
	t.Helper()
	err := g.Check(c.msg)
	var ge *GuardError
	switch {
	case waits(err) && len(c.history) > 0: // see TestGuardWaitsForAnswers
	case c.rule == "" && err != nil:
		t.Errorf("refused: %v", err)
	case c.rule != "" && err == nil:
		t.Errorf("let out, want %s", c.rule)
	case c.rule != "" && (!errors.As(err, &ge) || ge.Rule != c.rule):
		t.Errorf("%v, want rule %s", err, c.rule)
	}
}

// TestEveryRuleHasACase: every rule has a case that it refuses, and complete documentation.
func TestEveryRuleHasACase(t *testing.T) {
	cases := map[string]bool{}
	for _, c := range allCases() {
		cases[c.rule] = true
	}
	seen := map[string]bool{}
	for _, r := range NewGuard().Rules() {
		if !cases[r.Name] {
			t.Errorf("rule %s has no case", r.Name)
		}
		if seen[r.Name] {
			t.Errorf("rule %s twice", r.Name)
		}
		seen[r.Name] = true
		if r.hinges != nil && !r.Stateful {
			t.Errorf("rule %s waits for answers, so it is stateful", r.Name)
		}
		if r.Harm == "" || len(r.Messages) == 0 || !strings.Contains(r.Source, "VPP 24.06") {
			t.Errorf("rule %s: %+v", r.Name, r)
		}
		for _, m := range r.Messages {
			if len(newRegistryOnce.byName[m]) == 0 {
				t.Errorf("rule %s: no message %s", r.Name, m)
			}
		}
	}
}

// TestStatefulVerdicts: the error of a refused message says whether a retry may pass.
func TestStatefulVerdicts(t *testing.T) {
	for _, c := range allCases() {
		if c.rule == "" {
			continue
		}
		g := NewGuard()
		play(t, g, c.history, true)
		var ge *GuardError
		if !errors.As(g.Check(c.msg), &ge) {
			t.Fatalf("%s/%s: not refused", c.rule, c.name)
		}
		// A message that some history permits, or that needs one to be refused, has a stateful verdict.
		needed := NewGuard().Check(c.msg)
		var fresh *GuardError
		if other := !errors.As(needed, &fresh) || fresh.Rule != ge.Rule; other && !ge.Stateful {
			t.Errorf("%s/%s: refused only after its history, but not stateful", c.rule, c.name)
		}
	}
	for rule, want := range map[string]bool{"lb-weight-sum": false, "acl-prefix": false, "local-unknown-mapping": true, "role-not-set": true} {
		for _, r := range NewGuard().Rules() {
			if r.Name == rule && r.Stateful != want {
				t.Errorf("rule %s: stateful %t", rule, r.Stateful)
			}
		}
	}
}

func TestGuardAllowsDisableOnRequest(t *testing.T) {
	g := &Guard{AllowDisable: true}
	for _, m := range []api.Message{&nat44_ed.Nat44EdPluginEnableDisable{}, &vlib.CliInband{Cmd: "nat44 plugin disable"}, &cnat.CnatSessionPurge{}} {
		if err := g.Check(m); err != nil {
			t.Error(err)
		}
	}
}

func TestGuardForgetsAtReset(t *testing.T) {
	g := NewGuard()
	play(t, g, []step{made(lb(1, 1)), lbsDumped, made(feature(true, 3, 0))}, true)
	g.Reset()
	check(t, g, guardCase{rule: "local-unknown-mapping", msg: addLocal(9, 1)})
	check(t, g, guardCase{rule: "role-not-set", msg: feature(false, 3, 0)})
}

func TestGuardLearnsFromDumps(t *testing.T) {
	g := NewGuard()
	m := lb(append(many(253, 1), 0, 0)...)
	g.Observe(&nat44_ed.Nat44LbStaticMappingDump{}, Reply{Details: []api.Message{&nat44_ed.Nat44LbStaticMappingDetails{
		ExternalAddr: m.ExternalAddr, ExternalPort: m.ExternalPort, Protocol: m.Protocol, Flags: m.Flags, Locals: m.Locals,
	}}})
	g.Observe(&nat44_ed.Nat44InterfaceDump{}, Reply{Details: []api.Message{
		&nat44_ed.Nat44InterfaceDetails{SwIfIndex: 3, Flags: nat_types.NAT_IS_INSIDE | nat_types.NAT_IS_OUTSIDE},
	}})
	g.Observe(&nat44_ed.Nat44EdOutputInterfaceGet{}, Reply{Details: []api.Message{&nat44_ed.Nat44EdOutputInterfaceDetails{SwIfIndex: 4}}})
	check(t, g, guardCase{rule: "local-many", msg: addLocal(999, 0)})
	check(t, g, guardCase{rule: "mapping-delete-kind", msg: single(false, o2i, protoTCP, 80)})
	check(t, g, guardCase{msg: single(false, o2i, protoTCP, 81)})
	check(t, g, guardCase{msg: feature(false, 3, nat_types.NAT_IS_INSIDE)})
	check(t, g, guardCase{rule: "role-on-output", msg: feature(true, 4, 0)})

	g.Observe(&ip.IPRouteV2Dump{}, Reply{Details: []api.Message{
		&ip.IPRouteV2Details{Route: ip.IPRouteV2{Prefix: prefix("0.0.0.0/0"), Paths: []fib_types.FibPath{{Type: 2}}}}, // VPP's own
		&ip.IPRouteV2Details{Route: ip.IPRouteV2{Prefix: prefix("10.96.0.0/16"), Paths: []fib_types.FibPath{via5}}},
	}})
	check(t, g, guardCase{rule: "route-next-hop", msg: ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1"))})
	check(t, g, guardCase{msg: ipRoute(true, 0, "10.7.0.0/16", bareHop("10.97.0.1"))})
	g.Observe(ipRoute(true, 0, "10.7.0.0/16", bareHop("10.97.0.1")), Reply{})
	g.Observe(&ip.IPRouteV2Dump{}, Reply{})
	check(t, g, guardCase{msg: ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1"))})

	// The next dump shows the mapping gone, and the interface deleted.
	g.Observe(&nat44_ed.Nat44LbStaticMappingDump{}, Reply{})
	g.Event(&interfaces.SwInterfaceEvent{SwIfIndex: 4, Deleted: true})
	check(t, g, guardCase{msg: single(false, o2i, protoTCP, 80)})
	check(t, g, guardCase{msg: feature(true, 4, 0)})
}

// TestGuardTrustsVPPOverItsShadow: the guard does not take another owner's mapping for absent.
func TestGuardTrustsVPPOverItsShadow(t *testing.T) {
	g := NewGuard()
	play(t, g, []step{lbsDumped, {lb(1, 1), false}}, true)
	check(t, g, guardCase{rule: "local-unknown-mapping", msg: addLocal(9, 1)})
	g.Observe(&nat44_ed.Nat44LbStaticMappingDump{}, Reply{})
	check(t, g, guardCase{msg: addLocal(9, 1)})
}

// TestGuardWaitsForAnswers: a message that is harmless only if the one before succeeds is not sent before its answer.
func TestGuardWaitsForAnswers(t *testing.T) {
	for _, c := range []struct {
		name    string
		acked   []step
		flying  []api.Message
		msg     api.Message
		waits   bool
		refused string // after the outstanding one failed
	}{
		{"replace the only backend", []step{made(lb(0, 0, 1))}, []api.Message{addLocal(9, 1)}, delLocal(2), true, "local-weight-zero"},
		{"replace one of two", []step{made(lb(0, 0, 1, 1))}, []api.Message{addLocal(9, 1)}, delLocal(2), false, ""},
		{"replace in a full mapping", []step{made(lb(many(255, 1)...))}, []api.Message{delLocal(2)}, addLocal(999, 1), true, "local-many"},
		{"fill a mapping", []step{made(lb(many(200, 1)...))}, []api.Message{addLocal(900, 1), addLocal(901, 1)}, addLocal(902, 1), false, ""},
		{"grow one just made", []step{lbsDumped}, []api.Message{lb(1, 1)}, addLocal(9, 1), false, ""},
		{"grow one just made, nothing dumped", nil, []api.Message{lb(1, 1)}, addLocal(9, 1), true, "local-unknown-mapping"},
		{"next hop by a route just sent", []step{made(ipRoute(true, 0, "10.96.0.0/16", via5))}, []api.Message{ipRoute(true, 0, "10.96.0.0/24", on(3))}, ipRoute(true, 0, "10.7.0.0/16", bareHop("10.96.0.1")), true, "route-next-hop"},
		{"many refusals beside a next hop", []step{made(ipRoute(true, 0, "10.7.0.0/16", bareHop("10.95.0.1")))}, []api.Message{ipRoute(true, 0, "10.96.0.1/32", via5)}, ipRoute(true, 0, "10.96.0.2/32", via5), false, ""},
		{"unset a role just set", nil, []api.Message{feature(true, 3, 0)}, feature(false, 3, 0), true, "role-not-set"},
		{"single in place of LB", []step{made(lb(1, 1))}, []api.Message{deleteLB(o2i)}, single(false, o2i, protoTCP, 80), true, "mapping-delete-kind"},
		{"delete a table another is led away from", attachedShown(made(newTable(5))), []api.Message{lead(7, 6)}, dropTable(5), true, "classify-in-use"},
		{"delete a table that is taken off", attachedShown(), []api.Message{inTable(false, 2, 4, noTable)}, dropTable(4), true, "classify-in-use"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, ok := range []bool{true, false} {
				g := NewGuard()
				play(t, g, c.acked, true)
				for _, m := range c.flying {
					if err := g.Check(m); err != nil {
						t.Fatal(err)
					}
				}
				if err := g.Check(c.msg); waits(err) != c.waits || !c.waits && err != nil {
					t.Fatalf("%v, want wait %t", err, c.waits)
				}
				if !c.waits {
					continue
				}
				for _, m := range c.flying {
					g.Observe(m, Reply{Err: map[bool]error{false: &Retval{Code: -1}}[ok]})
				}
				check(t, g, guardCase{rule: map[bool]string{false: c.refused}[ok], msg: c.msg})
			}
		})
	}
}

// TestShadowEqualsVPP: for any sequence of writes and any delay of answers, the shadow without outstanding messages equals
// VPP's state, and VPP never reaches a state that crashes it.
func TestShadowEqualsVPP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, v := NewGuard(), &tinyVPP{}
		g.Observe(&nat44_ed.Nat44LbStaticMappingDump{}, Reply{})
		var flight []api.Message
		answer := func() {
			g.Observe(flight[0], Reply{Err: v.take(flight[0])})
			flight = flight[1:]
			if err := v.alive(); err != nil {
				t.Fatal(err)
			}
		}
		faults := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		v.fault = func() bool { return faults.IntN(8) == 0 }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			msg := drawWorld(t)
			err := g.Check(msg)
			for waits(err) { // as Do does
				answer()
				err = g.Check(msg)
			}
			if err == nil {
				flight = append(flight, msg)
			}
			for len(flight) > 0 && rapid.Bool().Draw(t, "answer") {
				answer()
			}
		}
		for len(flight) > 0 {
			answer()
		}
		got := g.mappings.expectedState(mappingKey{[4]byte{10, 96, 0, 1}, 80, protoTCP})
		if !got.doubt && !slices.Equal(got.locals, v.locals()) {
			t.Fatalf("shadow %v, vpp %v", got.locals, v.locals())
		}
	})
}

func waits(err error) bool {
	var ge *GuardError
	return errors.As(err, &ge) && ge.outstanding
}

func drawWorld(t *rapid.T) api.Message {
	weights := rapid.SliceOfN(rapid.SampledFrom([]uint8{0, 1, 60, 120}), 0, 4).Draw(t, "weights")
	i := rapid.IntRange(0, 4).Draw(t, "local")
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		return lb(weights...)
	case 1:
		return deleteLB(o2i)
	case 2, 3:
		return addLocal(i, rapid.SampledFrom([]uint8{0, 1, 100}).Draw(t, "weight"))
	}
	return delLocal(i)
}

// tinyVPP is VPP 24.06's LB mapping of one key. With a fault it refuses a valid message, without effect.
type tinyVPP struct {
	exists bool
	pool   []*local // nil: a free slot
	free   []int    // slots; VPP uses the last one next
	fault  func() bool
}

func (v *tinyVPP) locals() (out []local) {
	for _, l := range slices.DeleteFunc(slices.Clone(v.pool), func(l *local) bool { return l == nil }) {
		out = append(out, *l)
	}
	return out
}

func (v *tinyVPP) insert(l local) {
	if len(v.free) == 0 {
		v.pool, v.free = append(v.pool, nil), []int{len(v.pool)}
	}
	v.pool[v.free[len(v.free)-1]], v.free = &l, v.free[:len(v.free)-1]
}

func (v *tinyVPP) take(msg api.Message) error {
	refuse := func(code api.VPPApiError) error { return &Retval{msg.GetMessageName(), int32(code)} }
	if v.fault() {
		return refuse(api.UNSPECIFIED)
	}
	switch m := msg.(type) {
	case *nat44_ed.Nat44AddDelLbStaticMapping:
		switch {
		case m.IsAdd && v.exists:
			return refuse(api.VALUE_EXIST)
		case !m.IsAdd && !v.exists:
			return refuse(api.NO_SUCH_ENTRY)
		}
		v.exists, v.pool, v.free = m.IsAdd, nil, nil
		for _, l := range localsOf(m.Locals) {
			v.insert(l)
		}
	case *nat44_ed.Nat44LbStaticMappingAddDelLocal:
		l := localOf(m.Local)
		at := slices.IndexFunc(v.pool, func(o *local) bool { return o != nil && o.addr == l.addr })
		switch {
		case !v.exists || !m.IsAdd && at < 0:
			return refuse(api.NO_SUCH_ENTRY)
		case m.IsAdd && at >= 0:
			return refuse(api.VALUE_EXIST)
		case !m.IsAdd && len(v.locals()) < 3:
			return refuse(api.UNSPECIFIED)
		case m.IsAdd:
			v.insert(l)
		default:
			v.pool[at], v.free = nil, append(v.free, at)
		}
	}
	return nil
}

func (v *tinyVPP) alive() error {
	if w := (mapping{locals: v.locals()}).weight(); v.exists && w == 0 || w > 255 {
		return fmt.Errorf("vpp dies at the next packet: weights %v", v.locals())
	}
	return nil
}
