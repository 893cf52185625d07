package owner

import (
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/cnat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/sctp"
)

func TestRival(t *testing.T) {
	const all, services, policies = "contiv-agent", "contiv-agent/services", "contiv-agent/policies"
	for _, c := range []struct {
		self  string
		names []string
		rival bool
	}{
		{all, []string{all}, false},
		{all, []string{all, "vpp_papi", "contiv-cleanup", "contiv-agentx"}, false},
		{all, []string{all, all}, true},
		{all, []string{services, all}, true},
		{services, []string{services, policies}, false},
		{services, []string{services, services}, true},
		{policies, []string{policies, all}, true},
		{all, nil, false},
	} {
		if why := rival(c.names, c.self); (why != "") != c.rival {
			t.Errorf("%s among %v: %q", c.self, c.names, why)
		}
	}
}

// The name and the lock of an agent follow from the parts that it owns.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		share Share
		parts []string
		name  string
	}{
		{All, []string{services, policies}, vpp.DefaultClientName},
		{Services, []string{services}, "contiv-agent/services"},
		{Policies, []string{policies}, "contiv-agent/policies"},
	} {
		if got := c.share.Parts(); !slices.Equal(got, c.parts) || c.share.ClientName() != c.name {
			t.Errorf("%v %s, want %v %s", got, c.share.ClientName(), c.parts, c.name)
		}
		if c.share.Lock("", "node-1") != nil {
			t.Error("a lock without a path")
		}
		if l := c.share.Lock("/run/x", "node-1"); len(l.Paths) != len(c.parts) || l.Owner.Node != "node-1" {
			t.Errorf("lock %+v", l)
		}
	}
}

func TestKindsOfTwoAgents(t *testing.T) {
	names := func(s Share) (out []string) {
		for _, d := range s.Kinds() {
			out = append(out, d.Name)
		}
		return out
	}
	over := names(Services)
	under := names(Policies)
	for _, name := range []string{acl.ACL().Name, acl.DenyACL().Name, acl.InterfaceACLs().Name, sctp.Ports().Name, sctp.Filter().Name} {
		if slices.Contains(over, name) || !slices.Contains(under, name) {
			t.Errorf("%s: of the agent over a driver %t, of the driver %t", name, slices.Contains(over, name), slices.Contains(under, name))
		}
	}
	for _, name := range []string{nat.DNat44().Name, l3.RejectRoute().Name, nat.Nat44Global().Name, cnat.CnatTranslation().Name} {
		if !slices.Contains(over, name) || slices.Contains(under, name) {
			t.Errorf("%s: of the agent over a driver %t, of the driver %t", name, slices.Contains(over, name), slices.Contains(under, name))
		}
	}
	if got := All.Kinds(); got != nil {
		t.Errorf("an agent alone has but %d kinds", len(got))
	}
}
