package vpp

import (
	"fmt"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
)

// redirects is the shadow of punt redirects, and the families whose redirects are all known.
type redirects struct {
	on    shadow[redirectPlace, present, present]
	known [2]bool
}

// redirectPlace is a family and a receiving interface; noRx: any interface.
type redirectPlace struct {
	af ip_types.AddressFamily
	rx uint32
}

const noRx = ^uint32(0)

// present means that the redirect exists; as a change, the new value.
type present bool

func (p present) nothing() bool           { return !bool(p) }
func (p present) applyTo(present) present { return p }

func redirectOf(p ip.PuntRedirectV2) redirectPlace {
	if p.RxSwIfIndex == 0 { // VPP stores the one for any interface under local0
		p.RxSwIfIndex = ^p.RxSwIfIndex
	}
	return redirectPlace{p.Af, uint32(p.RxSwIfIndex)}
}

func (r *redirects) dumped(m *ip.IPPuntRedirectV2Dump, details []api.Message) {
	if m.Af > ip_types.ADDRESS_IP6 || uint32(m.SwIfIndex) != noRx {
		return
	}
	found := map[redirectPlace]present{}
	for k, c := range r.on.cells { // the other family stays
		if k.af != m.Af && bool(c.acked) {
			found[k] = true
		}
	}
	for _, d := range details {
		if p, ok := d.(*ip.IPPuntRedirectV2Details); ok {
			found[redirectOf(p.Punt)] = true
		}
	}
	r.on.replace(func(present) bool { return true }, found)
	r.known[m.Af] = true
}

func (r *redirects) judge(m *ip.AddDelIPPuntRedirectV2) string {
	k := redirectOf(m.Punt)
	has := bool(r.on.expectedState(k))
	switch {
	case k.af > ip_types.ADDRESS_IP6:
		return fmt.Sprintf("address family %d", k.af)
	case k.rx != noRx && k.rx > maxIndex:
		return fmt.Sprintf("interface %d", k.rx)
	case m.IsAdd && len(m.Punt.Paths) == 0:
		return "the redirect has no path"
	case !r.known[k.af]:
		return "VPP's redirects are not known: dump them first"
	case m.IsAdd && has:
		return "the redirect exists already"
	case !m.IsAdd && !has:
		return absent
	}
	return ""
}

func puntRules() []Rule {
	return []Rule{{
		Name: "punt-redirect", Messages: []string{"add_del_ip_punt_redirect_v2"}, Stateful: true,
		Source: "ip4_punt_drop.c ip4_punt_redirect_add_paths, ip4_punt_redirect_del (they count, and look at nothing), VPP 24.06",
		Harm:   "a redirect added or removed twice makes VPP's count wrong: other redirects end, or later ones do not take effect",
		judge: func(g *Guard, msg api.Message) string {
			return g.redirects.judge(msg.(*ip.AddDelIPPuntRedirectV2))
		},
		hinges: func(g *Guard, msg api.Message) bool {
			_, ops := g.redirects.on.flying(redirectOf(msg.(*ip.AddDelIPPuntRedirectV2).Punt))
			return len(ops) > 0
		},
	}, stateless("punt-redirect-v1", "ip_api.c vl_api_ip_punt_redirect_t_handler, VPP 24.06", "as add_del_ip_punt_redirect_v2, which replaces it",
		func(*ip.IPPuntRedirect) string { return "use add_del_ip_punt_redirect_v2" })}
}
