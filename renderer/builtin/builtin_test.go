package builtin

import (
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// sink records which owners have values and which notes were made.
type sink struct {
	values map[string]int
	notes  []string
}

func (s *sink) Set(owner string, values map[string]proto.Message, notes []model.Note) {
	s.values[owner] = len(values)
	for _, n := range notes {
		if strings.HasPrefix(n.Reason, "address ") { // the others are about the node, which is unknown here
			s.notes = append(s.notes, n.Reason)
		}
	}
}

// Each family of a dual-stack Service is served by one renderer, or refused by one.
func TestEachFamilyHasOneRenderer(t *testing.T) {
	svc := renderer.NewContivService()
	svc.ID = model.ServiceID{Namespace: "default", Name: "web"}
	svc.ClusterIPs = renderer.NewIPAddresses(net.ParseIP("10.96.0.10"), net.ParseIP("fd00:96::10"))
	svc.Ports["http"] = &renderer.ServicePort{Protocol: renderer.TCP, Port: 80}
	svc.Backends["http"] = []*renderer.ServiceBackend{{IP: net.ParseIP("10.1.1.2"), Port: 80}, {IP: net.ParseIP("fd00:1:1::2"), Port: 80}}
	const refused = "address fd00:96::10 is not served: nat44 has no IPv6"
	for choice, want := range map[Choice]struct {
		owners []string
		notes  []string
	}{
		"":    {[]string{"cnat/service/default/web", "nat44/service/default/web"}, nil},
		Auto:  {[]string{"cnat/service/default/web", "nat44/service/default/web"}, nil},
		NAT44: {[]string{"nat44/service/default/web"}, []string{refused}},
		CNAT:  {[]string{"cnat/service/default/web"}, nil},
	} {
		s := &sink{values: map[string]int{}}
		state := renderer.NewResyncEventData()
		state.Services = []*renderer.ContivService{svc}
		for _, r := range New(Config{Choice: choice}, s) {
			if err := r.Resync(state); err != nil {
				t.Fatal(err)
			}
		}
		var owners []string
		for owner, n := range s.values {
			if n > 0 && owner != "nat44/node" && owner != "cnat/node" {
				owners = append(owners, owner)
			}
		}
		slices.Sort(owners)
		if !slices.Equal(owners, want.owners) || !slices.Equal(s.notes, want.notes) {
			t.Errorf("%q: owners %v, notes %q", choice, owners, s.notes)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Choice{"", Auto, NAT44, CNAT} {
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	if Choice("magic").Validate() == nil {
		t.Error("an unknown renderer is accepted")
	}
}
