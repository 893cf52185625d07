package agent

import (
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/renderer/cnat"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// Never do two renderers serve one family, and what access lists see follows from who does.
func TestServiceRenderers(t *testing.T) {
	for _, tc := range []struct {
		cfg      Config
		want     []string // renderers
		v4, v6   bool     // cnat's families
		postDNAT bool
	}{
		{Config{}, []string{"nat44", "cnat"}, false, true, false},
		{Config{ServiceRenderer: RendererAuto}, []string{"nat44", "cnat"}, false, true, false},
		{Config{ServiceRenderer: RendererNAT44}, []string{"nat44"}, false, false, false},
		{Config{ServiceRenderer: RendererCNAT}, []string{"cnat"}, true, true, true},
		{Config{ServiceRenderer: RendererCNAT, NoServices: true}, nil, true, true, false},
		{Config{NoServices: true, PostDNAT: true}, nil, false, true, true},
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
		c, _ := tc.cfg.cnatConfig()
		if !slices.Equal(got, tc.want) || c.IPv4 != tc.v4 || c.IPv6 != tc.v6 || tc.cfg.postDNAT4() != tc.postDNAT {
			t.Errorf("%q: %v, cnat IPv4 %t IPv6 %t, post-DNAT %t", tc.cfg.ServiceRenderer, got, c.IPv4, c.IPv6, tc.cfg.postDNAT4())
		}
	}
	if ServiceRenderer("magic").validate() == nil || RendererAuto.validate() != nil {
		t.Error("what can serve Services")
	}
}
