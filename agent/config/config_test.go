package config

import (
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func TestConfigErrorsAreComplete(t *testing.T) {
	cfg := Config{VPPAgent: vppagent.Config{Recheck: -1}, NATTable: nattable.Config{Every: -1, PodShare: 101}}
	cfg.Services.Renderer.NAT44.Sessions = 1
	err := cfg.Validate()
	for _, want := range []string{"node name", "vpp socket", "recheck", "count sessions", "sessions 1", "share of NAT sessions"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no word about %s in: %v", want, err)
		}
	}
}

// Policies from objects without Services would leave every pod closed: no processor finds the interfaces of pods.
func TestPoliciesOfObjectsNeedServices(t *testing.T) {
	const word = "policies from objects need the interfaces of pods"
	driver := felix.NewSupervisor(felix.SupervisorConfig{})
	for _, c := range []struct {
		name     string
		policies Policies
		refused  bool // without Services
	}{
		{"of objects", Policies{}, true},
		{"of objects, unknown pods open", Policies{AllowUnknown: true}, true},
		{"of objects, by a driver", Policies{Driver: driver}, true},
		{"none", Policies{Off: true}, false},
		{"of a Felix", Policies{Felix: &attachment.Felix{}}, false},
	} {
		for _, off := range []bool{true, false} {
			cfg := Config{NodeName: "node-1", Policies: c.policies, Services: Services{Off: off}}
			if err := cfg.Validate(); strings.Contains(err.Error(), word) != (c.refused && off) { // there is no socket, so there is an error
				t.Errorf("policies %s, Services off %t: %v", c.name, off, err)
			}
		}
	}
}

// The parts that an agent owns follow from its configuration.
func TestOwns(t *testing.T) {
	driver := felix.NewSupervisor(felix.SupervisorConfig{})
	for _, c := range []struct {
		cfg  Config
		want owner.Share
	}{
		{Config{}, owner.All},
		{Config{Policies: Policies{Off: true}}, owner.All},
		{Config{Policies: Policies{Driver: driver}}, owner.Services},
		{Config{Policies: Policies{Felix: &attachment.Felix{}}, Services: Services{Off: true}}, owner.Policies},
		{Config{Policies: Policies{Felix: &attachment.Felix{}}}, owner.All},
	} {
		if got := c.cfg.Share(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.cfg, got, c.want)
		}
	}
}

// Only an agent that opens interfaces of pods closes unknown ones. An agent that writes no access lists enforces no source ranges.
func TestWhoEnforces(t *testing.T) {
	driver := felix.NewSupervisor(felix.SupervisorConfig{})
	for _, c := range []struct {
		name   string
		cfg    Config
		closes bool
		why    string
	}{
		{"by itself", Config{}, true, ""},
		{"unknown ones are open", Config{Policies: Policies{AllowUnknown: true}}, false, ""},
		{"no policies", Config{Policies: Policies{Off: true}}, false, nat44.PoliciesOff},
		{"a driver", Config{Policies: Policies{Driver: driver}}, false, nat44.ListsOfDriver},
		{"under a Felix", Config{Policies: Policies{Felix: &attachment.Felix{}}}, true, ""},
	} {
		if got, why := c.cfg.DeniesUnknown(), c.cfg.NoSourceRanges(); got != c.closes || why != c.why {
			t.Errorf("%s: closes %t, no source ranges because %q", c.name, got, why)
		}
	}
}
