package policy

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// A pod whose egress is governed may send to a new service when VPP translates it, and not to an old one from the moment on at
// which VPP ceases to.
func TestFrontendsOpenLast(t *testing.T) {
	p, r := newTest()
	api := p.Translations()
	svc := func(ip string) *renderer.ContivService {
		s := renderer.NewContivService()
		s.ID, s.ClusterIPs = model.ServiceID{Namespace: "prod", Name: ip}, renderer.IPAddressesOf(addr(ip))
		return s
	}
	step := func(again bool, frontends ...string) {
		t.Helper()
		if err := p.Flush(); err != nil {
			t.Error(err)
		}
		var got []string
		for _, f := range r.node.Frontends {
			got = append(got, f.Addr().String())
		}
		if !slices.Equal(got, frontends) || p.Again() != again {
			t.Errorf("frontends %v, again %v, want %v, %v", got, p.Again(), frontends, again)
		}
	}
	tell := func(errs ...error) {
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	apply(p, pod("web", "10.1.1.2"))
	tell(api.AddService(svc("10.96.0.1")))
	step(false, "10.96.0.1") // the first sync is one transaction
	tell(api.AddService(svc("10.96.0.2")))
	step(false, "10.96.0.1", "10.96.0.2") // no policy speaks of egress
	apply(p, web(func(p *model.Policy) { p.Egress = true }))
	tell(api.AddService(svc("10.96.0.3")), api.DeleteService(svc("10.96.0.1"), nil))
	step(true, "10.96.0.2")
	tell(api.AddService(svc("10.96.0.4")), api.DeleteService(svc("10.96.0.2"), nil))
	step(true, "10.96.0.3")
	step(false, "10.96.0.3", "10.96.0.4")
	step(false, "10.96.0.3", "10.96.0.4")
	tell(api.AddService(svc("10.96.0.5")))
	step(true, "10.96.0.3", "10.96.0.4")
	if err := p.Resync(); err != nil || p.Again() || !slices.Contains(r.node.Frontends, netip.MustParsePrefix("10.96.0.5/32")) {
		t.Errorf("a resync leaves something for later: %v, %v", err, r.node.Frontends)
	}
}
