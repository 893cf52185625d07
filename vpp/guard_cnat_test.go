package vpp

import (
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	featureapi "go.fd.io/govpp/binapi/feature"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/ip_types"

	cnat26 "github.com/contiv-agent/contiv-agent/vpp/binapi/cnat"
)

// translationOf translates TCP port 80 of fd00:96::1 to one endpoint.
func translationOf(change func(*cnat.CnatTranslation)) api.Message {
	endpoint := func(text string, port uint16) cnat.CnatEndpoint {
		return cnat.CnatEndpoint{Addr: prefix(text + "/128").Address, SwIfIndex: noInterface, IfAf: ip_types.ADDRESS_IP6, Port: port}
	}
	t := cnat.CnatTranslation{Vip: endpoint("fd00:96::1", 80), IPProto: protoTCP, IsRealIP: 1}
	t.Paths = []cnat.CnatEndpointTuple{{DstEp: endpoint("fd00:1::2", 8080), SrcEp: cnat.CnatEndpoint{SwIfIndex: noInterface}}}
	change(&t)
	return &cnat.CnatTranslationUpdate{Translation: t}
}

// sctpTranslation translates SCTP in IPv4, without a new source.
func sctpTranslation(change func(*cnat.CnatTranslation)) api.Message {
	return translationOf(func(t *cnat.CnatTranslation) {
		t.IPProto, t.Vip.Addr, t.Paths[0].DstEp.Addr = protoSCTP, prefix("10.96.0.1/32").Address, prefix("10.1.1.2/32").Address
		change(t)
	})
}

func snatAddress(last byte) api.Message {
	m := &cnat.CnatSetSnatAddresses{SwIfIndex: noInterface}
	m.SnatIP6[15] = last
	return m
}

func cnatFeature(on bool, at interfaceIndex, name string) api.Message {
	return &featureapi.FeatureEnableDisable{SwIfIndex: at, Enable: on, ArcName: "ip6-unicast", FeatureName: name}
}

var (
	plainTranslation = translationOf(func(*cnat.CnatTranslation) {})
	newerCnat        = step{&cnat26.CnatSnatAddressesDump{}, true}
)

var cnatCases = []guardCase{
	{"", "translation", nil, plainTranslation},
	{"", "the same again", []step{made(plainTranslation)}, plainTranslation},
	{"cnat-no-paths", "", nil, translationOf(func(t *cnat.CnatTranslation) { t.Paths = nil })},
	{"cnat-local0", "frontend", nil, translationOf(func(t *cnat.CnatTranslation) { t.Vip.SwIfIndex = 0 })},
	{"cnat-local0", "destination", nil, translationOf(func(t *cnat.CnatTranslation) { t.Paths[0].DstEp.SwIfIndex = 0 })},
	{"cnat-local0", "source", nil, translationOf(func(t *cnat.CnatTranslation) { t.Paths[0].SrcEp.SwIfIndex = 0 })},
	{"", "address of an interface", nil, translationOf(func(t *cnat.CnatTranslation) { t.Vip.SwIfIndex = 3 })},
	{"cnat-sctp6", "", nil, translationOf(func(t *cnat.CnatTranslation) { t.IPProto = protoSCTP })},
	{"cnat-sctp6", "of an interface", nil, translationOf(func(t *cnat.CnatTranslation) { t.IPProto, t.Vip.SwIfIndex = protoSCTP, 3 })},
	{"", "SCTP in IPv4", nil, translationOf(func(t *cnat.CnatTranslation) { t.IPProto, t.Vip.Addr = protoSCTP, prefix("10.96.0.1/32").Address })},
	{"cnat-sctp-source", "", nil, sctpTranslation(func(t *cnat.CnatTranslation) { t.Paths[0].SrcEp.Addr = prefix("10.1.1.254/32").Address })},
	{"cnat-sctp-source", "of the last path", nil, sctpTranslation(func(t *cnat.CnatTranslation) {
		t.Paths = append(t.Paths, t.Paths[0])
		t.Paths[1].SrcEp.Addr = prefix("10.1.1.254/32").Address
	})},
	{"cnat-sctp-source", "of an interface", nil, sctpTranslation(func(t *cnat.CnatTranslation) { t.Paths[0].SrcEp.SwIfIndex = 3 })},
	{"cnat-sctp-source", "a port", nil, sctpTranslation(func(t *cnat.CnatTranslation) { t.Paths[0].SrcEp.Port = 99 })},
	{"", "none, as of IPv6", nil, sctpTranslation(func(t *cnat.CnatTranslation) {
		t.Paths[0].SrcEp.IfAf, t.Paths[0].SrcEp.Addr.Af = ip_types.ADDRESS_IP6, ip_types.ADDRESS_IP6
	})},
	{"", "another source for TCP", nil, translationOf(func(t *cnat.CnatTranslation) { t.Paths[0].SrcEp.Addr = prefix("fd00:1::99/128").Address })},
	{"cnat-real", "another port", []step{made(plainTranslation)}, translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP, t.Vip.Port = 0, 81 })},
	{"cnat-real", "the same", []step{made(plainTranslation)}, translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP = 0 })},
	{"", "another address", []step{made(plainTranslation)}, translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP, t.Vip.Addr = 0, prefix("fd00:96::2/128").Address })},
	{"", "VPP refused the first", []step{{plainTranslation, false}}, translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP = 0 })},
	{"cnat-real", "VPP refused the last", []step{made(plainTranslation), {plainTranslation, false}}, translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP = 0 })},
	{"", "all are gone", []step{made(plainTranslation), {&cnat.CnatTranslationDump{}, true}}, translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP = 0 })},
	{"cnat-cover", "frontend", []step{made(ipRoute(true, 0, "fd00:96::/112", via5))}, plainTranslation},
	{"cnat-cover", "endpoint", []step{made(ipRoute(true, 0, "fd00:1::/64", via5))}, plainTranslation},
	{"", "not a real frontend", []step{made(ipRoute(true, 0, "fd00:96::/112", via5))}, translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP = 0 })},
	{"", "routes of their own", []step{
		made(ipRoute(true, 0, "fd00::/16", via5)), made(ipRoute(true, 0, "fd00:96::1/128", via5)), made(ipRoute(true, 0, "fd00:1::2/128", on(3))),
	}, plainTranslation},
	{"route-cnat", "a covering route comes", []step{made(plainTranslation)}, ipRoute(true, 0, "fd00:96::/112", via5)},
	{"route-cnat", "it covers the endpoint", []step{made(plainTranslation)}, ipRoute(true, 0, "fd00:1::/64", via5)},
	{"route-cnat", "the saving route goes", []step{
		made(ipRoute(true, 0, "fd00:96::/112", via5)), made(ipRoute(true, 0, "fd00:96::1/128", via5)), made(plainTranslation),
	}, ipRoute(false, 0, "fd00:96::1/128")},
	{"", "the translation has gone", []step{
		made(ipRoute(true, 0, "fd00:96::/112", via5)), made(ipRoute(true, 0, "fd00:96::1/128", via5)), made(plainTranslation), {&cnat.CnatTranslationDump{}, true},
	}, ipRoute(false, 0, "fd00:96::1/128")},
	{"", "a route of its own comes", []step{made(plainTranslation)}, ipRoute(true, 0, "fd00:96::1/128", via5)},
	{"", "elsewhere", []step{made(plainTranslation)}, ipRoute(true, 0, "fd00:97::/112", via5)},
	{"cnat-fixed", "load balancing", []step{made(plainTranslation)}, translationOf(func(t *cnat.CnatTranslation) { t.LbType = cnat.CNAT_LB_TYPE_MAGLEV })},
	{"cnat-fixed", "flow hash", []step{made(plainTranslation)}, translationOf(func(t *cnat.CnatTranslation) { t.FlowHashConfig = 1 })},
	{"", "other paths", []step{made(plainTranslation)}, translationOf(func(t *cnat.CnatTranslation) { t.Paths = append(t.Paths, t.Paths...) })},
	{"cnat-purge", "", nil, &cnat.CnatSessionPurge{}},
	{"cnat-address-first", "", nil, snatAddress(1)},
	{"", "none", nil, snatAddress(0)},
	{"", "policy first", []step{made(&cnat.CnatSetSnatPolicy{Policy: cnat.CNAT_POLICY_K8S})}, snatAddress(1)},
	{"", "VPP 26.06 wants it first", []step{newerCnat}, snatAddress(1)},
	{"cnat-policy-first", "", []step{newerCnat}, &cnat26.CnatSetSnatPolicy{}},
	{"cnat-policy-first", "prefix", []step{newerCnat}, &cnat.CnatSnatPolicyAddDelExcludePfx{}},
	{"cnat-policy-first", "the address went", []step{newerCnat, made(snatAddress(1)), made(snatAddress(0))}, &cnat26.CnatSetSnatPolicy{}},
	{"", "address first", []step{newerCnat, made(snatAddress(1))}, &cnat26.CnatSetSnatPolicy{}},
	{"", "prefix before the address", nil, &cnat.CnatSnatPolicyAddDelExcludePfx{}},
	{"cnat-feature-first", "", []step{newerCnat}, cnatFeature(true, 3, "cnat-lookup-ip6")},
	{"", "VPP 24.06 is ready", nil, cnatFeature(true, 3, "cnat-input-ip6")},
	{"", "there is a translation", []step{newerCnat, made(plainTranslation)}, cnatFeature(true, 3, "cnat-lookup-ip6")},
	{"cnat-feature-first", "a translation was refused", []step{newerCnat, {plainTranslation, false}}, cnatFeature(true, 3, "cnat-lookup-ip6")},
	{"", "there is an address", []step{newerCnat, made(snatAddress(1))}, cnatFeature(true, 3, "cnat-lookup-ip6")},
	{"", "there was one", []step{newerCnat, made(snatAddress(1)), made(snatAddress(0))}, cnatFeature(true, 3, "cnat-lookup-ip6")},
	{"", "off", []step{newerCnat}, cnatFeature(false, 3, "cnat-lookup-ip6")},
	{"", "not of cnat, first", []step{newerCnat}, cnatFeature(true, 3, "gso-ip6")},
	{"cnat-feature-twice", "", []step{made(cnatFeature(true, 3, "cnat-input-ip6"))}, cnatFeature(true, 3, "cnat-input-ip6")},
	{"", "another node", []step{made(cnatFeature(true, 3, "cnat-input-ip6"))}, cnatFeature(true, 3, "cnat-output-ip6")},
	{"", "another interface", []step{made(cnatFeature(true, 3, "cnat-input-ip6"))}, cnatFeature(true, 4, "cnat-input-ip6")},
	{"", "it went", []step{made(cnatFeature(true, 3, "cnat-input-ip6")), made(cnatFeature(false, 3, "cnat-input-ip6"))}, cnatFeature(true, 3, "cnat-input-ip6")},
	{"", "VPP refused it", []step{{cnatFeature(true, 3, "cnat-input-ip6"), false}}, cnatFeature(true, 3, "cnat-input-ip6")},
	{"", "not of cnat", []step{made(cnatFeature(true, 3, "gso-ip6"))}, cnatFeature(true, 3, "gso-ip6")},
}

// A deletion has VPP's id of the translation only, and a dump shows no is_real_ip: the guard remembers both from creation.
func TestGuardKnowsTranslations(t *testing.T) {
	g := NewGuard()
	update := plainTranslation.(*cnat.CnatTranslationUpdate)
	let := func(what string, msg api.Message, reply Reply) {
		t.Helper()
		if err := g.Check(msg); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		g.Observe(msg, reply)
	}
	exclusive := translationOf(func(t *cnat.CnatTranslation) { t.IsRealIP, t.Vip.Port = 0, 81 })
	maglev := translationOf(func(t *cnat.CnatTranslation) { t.LbType = cnat.CNAT_LB_TYPE_MAGLEV })
	details := &cnat.CnatTranslationDetails{Translation: update.Translation}
	details.Translation.ID, details.Translation.IsRealIP = 7, 0
	dumped := Reply{Details: []api.Message{details}}

	let("dump", &cnat.CnatTranslationDump{}, dumped)
	let("real or not is not known", exclusive, Reply{Msg: &cnat.CnatTranslationUpdateReply{ID: 8}})
	let("delete", &cnat.CnatTranslationDel{ID: 8}, Reply{})
	if g.Check(maglev) == nil {
		t.Error("a dump shows how paths are chosen")
	}
	let("delete", &cnat.CnatTranslationDel{ID: 7}, Reply{})
	let("make", update, Reply{Msg: &cnat.CnatTranslationUpdateReply{ID: 7}})
	let("dump", &cnat.CnatTranslationDump{}, dumped)
	if g.Check(exclusive) == nil {
		t.Error("the dump made it forget what was made")
	}
	let("delete another", &cnat.CnatTranslationDel{ID: 9}, Reply{})
	if g.Check(exclusive) == nil {
		t.Error("another one was deleted")
	}
	far := translationOf(func(t *cnat.CnatTranslation) { t.Paths[0].DstEp.Addr = prefix("fd00:2::2/128").Address })
	near := ipRoute(true, 0, "fd00:1::/64", via5)
	if g.Check(near) == nil {
		t.Error("a route may cover the endpoint")
	}
	if err := g.Check(far); err != nil {
		t.Fatal(err)
	}
	if g.Check(near) == nil {
		t.Error("a route may cover the endpoint that VPP has until it answers")
	}
	g.Observe(far, Reply{Msg: &cnat.CnatTranslationUpdateReply{ID: 7}})
	if err := g.Check(near); err != nil {
		t.Error(err)
	}
	g.Reset()
	let("another VPP", exclusive, Reply{})
}

// A feature is deleted with its interface, whose index the next interface gets.
func TestGuardForgetsFeaturesOfDeletedInterface(t *testing.T) {
	g := NewGuard()
	on := cnatFeature(true, 3, "cnat-input-ip6")
	if err := g.Check(on); err != nil {
		t.Fatal(err)
	}
	g.Event(&interfaces.SwInterfaceEvent{SwIfIndex: 4, Deleted: true})
	if g.Check(on) == nil {
		t.Error("another interface went")
	}
	g.Event(&interfaces.SwInterfaceEvent{SwIfIndex: 3, Deleted: true})
	if err := g.Check(on); err != nil {
		t.Error(err)
	}
}

// If VPP was configured before the connection, dumps show that it has its session tables.
func TestGuardLearnsFromDumpsThatCnatHasTables(t *testing.T) {
	details := &cnat.CnatTranslationDetails{Translation: plainTranslation.(*cnat.CnatTranslationUpdate).Translation}
	for _, tc := range []struct {
		ask     api.Message
		details api.Message
	}{{&cnat.CnatTranslationDump{}, details}, {&cnat26.CnatSnatAddressesDump{}, &cnat26.CnatSnatAddressesDetails{}}} {
		g, on := NewGuard(), cnatFeature(true, 3, "cnat-lookup-ip6")
		g.Observe(&cnat26.CnatSnatAddressesDump{}, Reply{})
		g.Observe(tc.ask, Reply{})
		if g.Check(on) == nil {
			t.Errorf("%s: nothing was shown", tc.ask.GetMessageName())
		}
		g.Observe(tc.ask, Reply{Details: []api.Message{tc.details}})
		if err := g.Check(on); err != nil {
			t.Error(err)
		}
		g.Reset()
		g.Observe(&cnat26.CnatSnatAddressesDump{}, Reply{})
		if g.Check(on) == nil {
			t.Error("another VPP")
		}
	}
}
