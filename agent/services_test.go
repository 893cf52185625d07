package agent

import (
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/builtin"
	"github.com/contiv-agent/contiv-agent/renderer/cnat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// A family never has two renderers. The view of access lists follows from the renderer.
func TestServiceRenderers(t *testing.T) {
	none, v4, both := renderer.Families{}, renderer.Families{IPv4: true}, renderer.Families{IPv4: true, IPv6: true}
	for _, tc := range []struct {
		cfg      Config
		want     []string // renderers
		served   renderer.Families
		postDNAT bool
	}{
		{Config{}, []string{"nat44", "cnat"}, both, false},
		{Config{Services: config.ServedBy(RendererAuto)}, []string{"nat44", "cnat"}, both, false},
		{Config{Services: config.ServedBy(RendererNAT44)}, []string{"nat44"}, v4, false},
		{Config{Services: config.ServedBy(RendererCNAT)}, []string{"cnat"}, both, true},
		{Config{Services: config.Services{Renderer: builtin.Config{Choice: RendererCNAT}, Off: true}}, nil, none, false},
		{Config{Services: config.Services{Off: true}, Policies: config.Policies{PostDNAT: true}}, nil, none, true},
	} {
		p := &parts{cfg: tc.cfg, values: controller.NewValues()}
		var got []string
		for _, r := range p.serviceRenderers() {
			switch r.(type) {
			case *nat44.Renderer:
				got = append(got, "nat44")
			case *cnat.Renderer:
				got = append(got, "cnat")
			}
		}
		if !slices.Equal(got, tc.want) || tc.cfg.ServedFamilies() != tc.served || tc.cfg.PostDNAT4() != tc.postDNAT {
			t.Errorf("%q: %v, families %+v, post-DNAT %t", tc.cfg.Services.Renderer.Choice, got, tc.cfg.ServedFamilies(), tc.cfg.PostDNAT4())
		}
	}
}
