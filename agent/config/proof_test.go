package config

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
)

// The settings of the proof are those of the agent.
func TestProofSettings(t *testing.T) {
	given, host := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for name, c := range map[string]struct {
		change             func(*Config)
		policies, services string
	}{
		"all":         {func(*Config) {}, "", ""},
		"no policies": {func(c *Config) { c.Policies.Off = true }, "this agent enforces none", ""},
		"no services": {func(c *Config) { c.Services.Off = true }, "", "this agent serves none"},
	} {
		cfg := Config{NodeName: "node-1"}
		cfg.Services.ProxyName, cfg.Services.Renderer.NAT44.LocalEndpointWeight, cfg.Services.KeepTerminating = "mine", 3, true
		cfg.Override.HostIPs = []netip.Addr{given}
		c.change(&cfg)
		got := cfg.Proof(&event.Located{HostIPs: []netip.Addr{host}})
		if got.NoPolicies != c.policies || got.NoServices != c.services || got.Node != "node-1" || !slices.Equal(got.HostAddresses, []netip.Addr{given, host}) || got.Services.ProxyName != "mine" || got.Services.LocalWeight != 3 || !got.Services.KeepTerminating {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
