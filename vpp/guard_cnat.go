package vpp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	featureapi "go.fd.io/govpp/binapi/feature"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	cnat26 "github.com/contiv-agent/contiv-agent/vpp/binapi/cnat"
)

const protoSCTP = 132

// cnatShadow is what this connection has learnt of VPP's cnat. Its rules permit what depends on unknown state, since VPP
// shows little.
type cnatShadow struct {
	newer   bool // its API is 1.0.0 (VPP 26.06)
	policy  bool // the SNAT policy was set
	address bool // a SNAT address exists
	begun   bool // VPP has made its session tables: a translation or SNAT address was sent or dumped
	made    map[cnatKey]cnatMade
	ids     map[uint32]cnatKey
	nodes   map[cnatPlace]bool
	// tracked counts, per address, the translations for which VPP resolves a path: those with the address as endpoint, or
	// as a real frontend.
	tracked map[netip.Addr]int
	// real counts, per address, the translations that were made as real ones, and those that were not.
	real map[cnatAddress][2]int
}

// cnatAddress is an address, or an interface with a family.
type cnatAddress struct {
	addr ip_types.Address
	swIf interface_types.InterfaceIndex
}

// cnatKey identifies a translation, as VPP does.
type cnatKey struct {
	cnatAddress
	port  uint16
	proto ip_types.IPProto
}

// cnatMade is what VPP took from the message that made a translation. For a dumped translation real and hash are unknown.
type cnatMade struct {
	lb    cnat.CnatLbType
	hash  ip.IPFlowHashConfigV2
	real  bool
	shown bool // by a dump
	acked bool

	tracks []netip.Addr
}

// cnatPlace is a feature node on an interface.
type cnatPlace struct {
	swIf interface_types.InterfaceIndex
	node string
}

func cnatAddressOf(e cnat.CnatEndpoint) cnatAddress {
	if e.SwIfIndex == noInterface {
		return cnatAddress{e.Addr, noInterface}
	}
	return cnatAddress{ip_types.Address{Af: e.IfAf}, e.SwIfIndex}
}

func cnatOf(t *cnat.CnatTranslation) (cnatKey, cnatMade) {
	made := cnatMade{lb: t.LbType, hash: t.FlowHashConfig, real: t.IsRealIP != 0}
	if t.Vip.SwIfIndex == noInterface { // a dump does not say whether it is real: assume the worse
		made.tracks = append(made.tracks, addrOf(t.Vip.Addr))
	}
	for _, p := range t.Paths {
		if p.DstEp.SwIfIndex == noInterface {
			made.tracks = append(made.tracks, addrOf(p.DstEp.Addr))
		}
	}
	return cnatKey{cnatAddressOf(t.Vip), t.Vip.Port, t.IPProto}, made
}

func addrOf(a ip_types.Address) netip.Addr {
	if a.Af == ip_types.ADDRESS_IP6 {
		return netip.AddrFrom16(a.Un.GetIP6())
	}
	return netip.AddrFrom4(a.Un.GetIP4())
}

// sent records an outstanding write. VPP refuses hardly any; if it does, see answered.
func (s *cnatShadow) sent(msg api.Message) {
	switch m := msg.(type) {
	case *cnat.CnatTranslationUpdate:
		key, made := cnatOf(&m.Translation)
		if was, known := s.made[key]; known { // fixed fields stay; the old paths count until VPP has answered
			tracks := append(made.tracks, was.tracks...)
			made = was
			made.tracks = tracks
		}
		s.make(key, made)
	case *cnat.CnatSetSnatPolicy, *cnat26.CnatSetSnatPolicy:
		s.policy = true
	case *cnat.CnatSetSnatAddresses:
		s.address = m.SnatIP4 != ip_types.IP4Address{} || m.SnatIP6 != ip_types.IP6Address{} || m.SwIfIndex != noInterface
	case *cnat26.CnatSetSnatAddressesV2:
		s.address = m.SnatIP4 != ip_types.IP4Address{} || m.SnatIP6 != ip_types.IP6Address{} || m.SwIfIndex != noInterface
	case *featureapi.FeatureEnableDisable:
		if s.nodes == nil {
			s.nodes = map[cnatPlace]bool{}
		}
		s.nodes[cnatPlace{m.SwIfIndex, m.FeatureName}] = m.Enable
	}
}

// answered records the answer to a permitted message.
func (s *cnatShadow) answered(msg api.Message, reply Reply) {
	ok := reply.Err == nil
	switch m := msg.(type) {
	case *cnat26.CnatSnatAddressesDump:
		s.newer, s.begun = ok, s.begun || len(reply.Details) > 0
	case *cnat.CnatSetSnatAddresses, *cnat26.CnatSetSnatAddressesV2: // also if it is refused
		_, refused := errors.AsType[*Retval](reply.Err)
		s.begun = s.begun || ok || refused
	case *cnat.CnatTranslationUpdate:
		key, made := cnatOf(&m.Translation)
		s.begun = s.begun || ok
		if !ok && !s.made[key].acked {
			s.dropKey(key)
		} else if ok {
			s.named(key, made, reply)
		}
	case *cnat.CnatTranslationDel:
		if ok {
			s.dropKey(s.ids[m.ID])
			delete(s.ids, m.ID)
		}
	case *cnat.CnatTranslationDump:
		if ok {
			s.dumped(reply.Details)
		}
	case *cnat.CnatGetSnatAddresses:
		if r, is := reply.Msg.(*cnat.CnatGetSnatAddressesReply); ok && is {
			s.address = r.SnatIP4 != ip_types.IP4Address{} || r.SnatIP6 != ip_types.IP6Address{}
		}
	case *featureapi.FeatureEnableDisable:
		if !ok {
			delete(s.nodes, cnatPlace{m.SwIfIndex, m.FeatureName})
		}
	}
}

// named records VPP's id of a translation, which deletions use.
func (s *cnatShadow) named(key cnatKey, made cnatMade, reply Reply) {
	if was, known := s.made[key]; known {
		tracks := made.tracks
		made = was
		made.tracks = tracks
	}
	made.acked = true
	s.make(key, made)
	if r, is := reply.Msg.(*cnat.CnatTranslationUpdateReply); is {
		s.ids[r.ID] = key
	}
}

func (s *cnatShadow) make(key cnatKey, made cnatMade) {
	if s.made == nil {
		s.made, s.ids, s.tracked, s.real = map[cnatKey]cnatMade{}, map[uint32]cnatKey{}, map[netip.Addr]int{}, map[cnatAddress][2]int{}
	}
	s.dropKey(key)
	s.made[key] = made
	s.countReal(key, made, 1)
	for _, a := range made.tracks {
		s.tracked[a]++
	}
}

// countReal does not count dumped translations: whether they are real is unknown.
func (s *cnatShadow) countReal(key cnatKey, made cnatMade, by int) {
	if made.shown {
		return
	}
	n := s.real[key.cnatAddress]
	if made.real {
		n[1] += by
	} else {
		n[0] += by
	}
	if s.real[key.cnatAddress] = n; n == [2]int{} {
		delete(s.real, key.cnatAddress)
	}
}

func (s *cnatShadow) dropKey(key cnatKey) {
	if made, known := s.made[key]; known {
		s.countReal(key, made, -1)
	}
	for _, a := range s.made[key].tracks {
		if s.tracked[a]--; s.tracked[a] == 0 {
			delete(s.tracked, a)
		}
	}
	delete(s.made, key)
}

func (s *cnatShadow) dumped(details []api.Message) {
	old := s.made
	s.made, s.begun = nil, s.begun || len(details) > 0
	s.make(cnatKey{}, cnatMade{})
	s.dropKey(cnatKey{})
	for _, d := range details {
		m, ok := d.(*cnat.CnatTranslationDetails)
		if !ok {
			continue
		}
		key, made := cnatOf(&m.Translation)
		if was, known := old[key]; known && was.lb == made.lb {
			was.tracks = made.tracks
			made = was
		} else {
			made.shown, made.acked = true, true
		}
		s.make(key, made)
		s.ids[m.Translation.ID] = key
	}
}

// gone forgets the features of a deleted interface.
func (s *cnatShadow) gone(m *interfaces.SwInterfaceEvent) {
	for p := range s.nodes {
		if p.swIf == m.SwIfIndex {
			delete(s.nodes, p)
		}
	}
}

const (
	coverSource = "fib_entry_src_rr.c fib_entry_src_rr_resolve_via_connected, VPP 24.06"
	coverHarm   = "an endpoint, or a real frontend, that resolves by a drop, unreachable or prohibited route: SIGSEGV"
)

func cnatRules() []Rule {
	update := func(name, source, harm string, stateful bool, judge func(g *Guard, t *cnat.CnatTranslation) string) Rule {
		return Rule{
			Name: name, Messages: []string{"cnat_translation_update"}, Source: source, Harm: harm, Stateful: stateful,
			judge: func(g *Guard, msg api.Message) string {
				return judge(g, &msg.(*cnat.CnatTranslationUpdate).Translation)
			},
		}
	}
	return []Rule{
		update("cnat-no-paths", "cnat_translation.c cnat_translation_update (vec_validate of n_paths-1), VPP 24.06", "VPP aborts", false,
			func(_ *Guard, t *cnat.CnatTranslation) string {
				return when(len(t.Paths) == 0, "no paths: delete the translation instead")
			}),
		update("cnat-local0", "cnat_api.c cnat_endpoint_decode, VPP 24.06",
			"an endpoint of interface 0 is local0's address, which it never has: the path is never used, or the source is lost", false, judgeLocal0),
		update("cnat-sctp6", "cnat_node.h cnat_session_make_key (no SCTP in IPv6), VPP 24.06", "accepted, and matches no packet", false,
			func(_ *Guard, t *cnat.CnatTranslation) string {
				return when(t.IPProto == protoSCTP && (t.Vip.SwIfIndex == noInterface && t.Vip.Addr.Af == ip_types.ADDRESS_IP6 || t.Vip.SwIfIndex != noInterface && t.Vip.IfAf == ip_types.ADDRESS_IP6), "SCTP in IPv6")
			}),
		update("cnat-sctp-source", "ip4-cnat-tx, which translates an ICMP error that quotes such a packet, VPP 24.06 (executed)",
			"an ICMP error from any host about such a flow, as after a TTL of 1, makes VPP loop for ever", false,
			func(_ *Guard, t *cnat.CnatTranslation) string {
				for i, p := range t.Paths {
					if t.IPProto == protoSCTP && p.SrcEp != (cnat.CnatEndpoint{SwIfIndex: noInterface, IfAf: p.SrcEp.IfAf, Addr: ip_types.Address{Af: p.SrcEp.Addr.Af}}) {
						return fmt.Sprintf("path %d sets a source for SCTP", i)
					}
				}
				return ""
			}),
		update("cnat-real", "cnat_client.c cnat_client_add, VPP 24.06",
			"is_real_ip of all but the first translation of an address is ignored: other ports are dropped, or reach what they should not", true, judgeReal),
		update("cnat-cover", coverSource, coverHarm, true, judgeCover),
		{
			Name: "route-cnat", Messages: []string{"ip_route_add_del", "ip_route_add_del_v2"}, Stateful: true,
			Source: coverSource, Harm: coverHarm, judge: judgeCovering,
		},
		update("cnat-fixed", "cnat_translation.c cnat_translation_update, VPP 24.06",
			"lb_type and flow_hash_config of a translation that exists are ignored without an error", true, judgeFixed),
		{
			Name: "cnat-purge", Messages: []string{"cnat_session_purge"},
			Source: "cnat_session.c cnat_session_purge, VPP 24.06", Harm: "deletes all translations beside all sessions",
			judge: func(g *Guard, _ api.Message) string {
				if g.AllowDisable {
					return ""
				}
				return "would delete all translations"
			},
		},
		{
			Name: "cnat-address-first", Messages: []string{"cnat_set_snat_addresses", "cnat_set_snat_addresses_v2"}, Stateful: true,
			Source: "cnat_snat_policy.c cnat_snat_init, VPP 24.06",
			Harm:   "VPP's initial policy NONE means all: every outgoing flow gets another source, also between pods",
			judge:  judgeAddressFirst,
		},
		{
			Name: "cnat-policy-first", Stateful: true,
			Messages: []string{"cnat_set_snat_policy", "cnat_snat_policy_add_del_exclude_pfx"},
			Source:   "cnat_snat_policy.c cnat_set_snat_policy (no default entry), VPP 26.06; VPP 24.06 has one",
			Harm:     "VPP has no policy before it has an address, and crashes on a policy message",
			judge: func(g *Guard, _ api.Message) string {
				return when(g.cnat.newer && !g.cnat.address, "no SNAT address is known: set one, or dump them")
			},
		},
		stateful("cnat-feature-first", "cnat_types.c cnat_lazy_init, VPP 26.06 (executed); VPP 24.06 does not need it",
			"before the first translation or SNAT address VPP has no session tables: the first packet crashes it",
			func(g *Guard, m *featureapi.FeatureEnableDisable) string {
				return when(m.Enable && g.cnat.newer && !g.cnat.begun && strings.HasPrefix(m.FeatureName, "cnat-"), "no translation and no SNAT address exists yet")
			}),
		stateful("cnat-feature-twice", "feature.c vnet_feature_enable_disable_with_index, VPP 24.06",
			"a node is on the arc as often as it was enabled: packets are translated twice, and disabling it once leaves it there",
			func(g *Guard, m *featureapi.FeatureEnableDisable) string {
				on := g.cnat.nodes[cnatPlace{m.SwIfIndex, m.FeatureName}]
				return when(m.Enable && on && strings.HasPrefix(m.FeatureName, "cnat-"), "%s is on already", m.FeatureName)
			}),
	}
}

// judgeCover refuses a translation whose tracked addresses VPP would resolve by a route that forwards nothing.
func judgeCover(g *Guard, t *cnat.CnatTranslation) string {
	_, made := cnatOf(t)
	for i, a := range made.tracks {
		if i == 0 && t.Vip.SwIfIndex == noInterface && !made.real {
			continue
		}
		if p, ok := cover(g.routes.expectedState, a); ok {
			return fmt.Sprintf("%s would resolve by %s, which forwards nothing: add a separate route to it", a, p)
		}
	}
	return ""
}

// judgeCovering is judgeCover for a route that is added later, or for the removal of the route that covered the address
// harmlessly.
func judgeCovering(g *Guard, msg api.Message) string {
	k, c, _ := routeOp(msg)
	if k.table != 0 || len(g.cnat.tracked) == 0 || c.add && c.route.special == 0 {
		return ""
	}
	after := c.applyTo(g.routes.expectedState(k))
	get := func(o routeKey) fibRoute {
		if o == k {
			return after
		}
		return g.routes.expectedState(o)
	}
	deadly := func(a netip.Addr) string {
		if p, ok := cover(get, a); ok {
			return fmt.Sprintf("%s, which cnat resolves, would resolve by %s, which forwards nothing", a, p)
		}
		return ""
	}
	if k.prefix.IsSingleIP() {
		if g.cnat.tracked[k.prefix.Addr()] > 0 {
			return deadly(k.prefix.Addr())
		}
		return ""
	}
	for a := range g.cnat.tracked {
		if k.prefix.Contains(a) {
			if why := deadly(a); why != "" {
				return why
			}
		}
	}
	return ""
}

func judgeLocal0(_ *Guard, t *cnat.CnatTranslation) string {
	if t.Vip.SwIfIndex == 0 {
		return "the frontend names interface 0"
	}
	for i, p := range t.Paths {
		if p.DstEp.SwIfIndex == 0 || p.SrcEp.SwIfIndex == 0 {
			return fmt.Sprintf("path %d names interface 0", i)
		}
	}
	return ""
}

func judgeReal(g *Guard, t *cnat.CnatTranslation) string {
	key, made := cnatOf(t)
	others := g.cnat.real[key.cnatAddress]
	return when(made.real && others[0] > 0 || !made.real && others[1] > 0, "another translation of the address was made with is_real_ip %t: delete all of them first", !made.real)
}

func judgeFixed(g *Guard, t *cnat.CnatTranslation) string {
	key, made := cnatOf(t)
	was, known := g.cnat.made[key]
	switch {
	case !known:
	case was.lb != made.lb:
		return "the translation exists with another lb_type: delete it first"
	case !was.shown && was.hash != made.hash:
		return "the translation exists with another flow_hash_config: delete it first"
	}
	return ""
}

func judgeAddressFirst(g *Guard, msg api.Message) string {
	m, ok := msg.(*cnat.CnatSetSnatAddresses)
	if !ok { // the second version: VPP 26.06 takes the address first
		return ""
	}
	if m.SnatIP4 == (ip_types.IP4Address{}) && m.SnatIP6 == (ip_types.IP6Address{}) && m.SwIfIndex == noInterface || g.cnat.policy || g.cnat.newer {
		return ""
	}
	return "the SNAT policy is not set: send cnat_set_snat_policy first"
}
