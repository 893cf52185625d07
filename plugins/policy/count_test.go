package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// VPP's counts are added up by the rules of policies, each count once and none of another policy.
func TestDescribeCounted(t *testing.T) {
	p, r := newTest()
	apply(p, pod("web", "10.1.1.2"), web(func(p *model.Policy) {
		p.Egress = true
		p.InboundRules = append(p.InboundRules, model.Rule{Action: model.ActionPass}, model.Rule{Action: model.ActionDeny})
		p.OutboundRules = []model.Rule{{Action: model.ActionAllow}}
	}))
	_ = p.Flush()
	rule := func(n int, change ...func(*dataplane.Cause)) dataplane.Cause {
		c := dataplane.Cause{Kind: dataplane.CauseRule, Endpoint: "prod/web", Tier: "default", Policy: "prod/knp.default.web", Rule: n}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	out := [][]dataplane.Cause{
		{
			rule(0), rule(2), rule(0),
			rule(0, func(c *dataplane.Cause) { c.Endpoint = "prod/other" }), rule(0, func(c *dataplane.Cause) { c.Kind = dataplane.CauseEndOfTier }),
			rule(0, func(c *dataplane.Cause) { c.Host = true }), rule(0, func(c *dataplane.Cause) { c.Policy = "prod/knp.default.else" }),
		},
		{rule(0), rule(2)},
	}
	r.cause = func(iface string, output bool, place, n int) (dataplane.Cause, bool) {
		switch {
		case iface != "tap1" && iface != "tap2" || place >= len(out) || n >= len(out[place]):
			return dataplane.Cause{}, false
		case !output:
			return rule(0, func(c *dataplane.Cause) { c.Egress = true }), place == 0 && n == 0
		}
		return out[place][n], true
	}
	counts := func(packets ...uint64) (hits []Hits) {
		for _, n := range packets {
			hits = append(hits, Hits{Packets: n, Bytes: 10 * n})
		}
		return hits
	}
	d, ok := p.DescribeCounted(model.PodID{Namespace: "prod", Name: "web"}, []Counted{
		{ID: 7, Interface: "tap1", Output: true, Rules: counts(1, 2, 4, 8, 16, 32, 64, 128)},
		{ID: 9, Interface: "tap1", Output: true, Place: 1, Rules: counts(256, 0)},
		{ID: 7, Interface: "tap2", Output: true, Rules: counts(1, 2, 4, 8)}, // the same list for another address
		{ID: 7, Interface: "tap1", Rules: counts(512)},                      // the same list, with other counts
		{ID: 3, Interface: "tap3", Rules: counts(1024)},
	})
	if !ok || len(d.Ingress) != 1 || len(d.Egress) != 1 {
		t.Fatalf("%+v, %t", d, ok)
	}
	var got []*Hits
	for _, rule := range append(d.Ingress[0].Policies[0].Rules, d.Egress[0].Policies[0].Rules...) {
		got = append(got, rule.Hits)
	}
	if diff := cmp.Diff([]*Hits{{261, 2610}, nil, {2, 20}, {512, 5120}}, got); diff != "" {
		t.Errorf("hits (-want +got):\n%s", diff)
	}
	d, _ = p.Describe(model.PodID{Namespace: "prod", Name: "web"})
	if h := d.Ingress[0].Policies[0].Rules[0].Hits; h != nil {
		t.Errorf("not counted, and %v", h)
	}
	if _, ok := p.DescribeCounted(model.PodID{Namespace: "prod", Name: "nobody"}, nil); ok {
		t.Error("nobody is described")
	}
}
