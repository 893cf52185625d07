package policy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// TestFrontendsAreSentAtOnce: the processor sends frontends at once. The driver ensures that a pod may send to a new service only
// when VPP translates it, and requests another call for that.
func TestFrontendsAreSentAtOnce(t *testing.T) {
	p, r := newTest()
	apply(p, pod("web", "10.1.1.2"), web(func(p *model.Policy) { p.Egress = true }))
	flush := func() {
		if err := p.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	s := renderer.NewContivService()
	s.ID, s.ClusterIPs = model.ServiceID{Namespace: "prod", Name: "db"}, renderer.IPAddressesOf(addr("10.96.0.9"))
	if err := p.Translations().AddService(s); err != nil {
		t.Fatal(err)
	}
	flush()
	if !slices.Contains(r.node.Frontends, netip.MustParsePrefix("10.96.0.9/32")) || p.Again() {
		t.Errorf("frontends %v, again %v", r.node.Frontends, p.Again())
	}
}
