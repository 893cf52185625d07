package flags

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The settings of a running agent set the same flags in another program; defaults are not in the settings.
func TestSettings(t *testing.T) {
	var parsed Agent
	cmd := &cobra.Command{}
	parsed.AddFlags(cmd)
	cmd.Flags().String("listen", "", "")
	if err := cmd.ParseFlags([]string{"--maglev", "--service-cidr", "10.97.0.0/16,10.98.0.0/16", "--no-snat=false", "--nat-sessions", "7", "--listen", ""}); err != nil {
		t.Fatal(err)
	}
	got := Settings(cmd.Flags())
	want := map[string]string{"maglev": "true", "service-cidr": "10.97.0.0/16,10.98.0.0/16", "no-snat": "false", "nat-sessions": "7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	var f Agent
	if err := f.Apply(got); err != nil {
		t.Fatal(err)
	}
	if !f.renderers.maglev || f.renderers.noSNAT || f.nat.sessions != 7 || !cmp.Equal(f.services.serviceCIDRs, []string{"10.97.0.0/16", "10.98.0.0/16"}) || f.renderers.choice != "auto" {
		t.Errorf("set: %+v", f)
	}
	if err := f.Apply(map[string]string{"of-another-version": "1"}); err == nil {
		t.Error("no error for an unknown setting")
	}
}

// An agent whose packets leave by the host gives NAT44 no address; cnat is not concerned.
func TestOutByHost(t *testing.T) {
	for _, byHost := range []bool{false, true} {
		var f Agent
		f.AddFlags(&cobra.Command{})
		if byHost {
			f.OutByHost()
		}
		cfg, err := f.Config()
		if err != nil || cfg.Services.Renderer.NAT44.DisableSNAT != byHost || cfg.Services.Renderer.CNAT.DisableSNAT {
			t.Errorf("%t: %+v, %v", byHost, cfg.Services.Renderer, err)
		}
	}
}

// TestFlagsAreInGroups: each flag that commands share is in a group, an inner group wins, and flags without one come first.
func TestFlagsAreInGroups(t *testing.T) {
	cmd := &cobra.Command{Use: "x", Run: func(*cobra.Command, []string) {}}
	new(Agent).AddFlags(cmd)
	Group(cmd.Flags(), ForSources, func() { new(Sources).AddFlags(cmd) })
	cmd.Flags().Bool("once", false, "once")
	got := map[string]string{}
	var order []string
	for _, s := range Sections(cmd.Flags()) {
		order = append(order, s.Title)
		s.Flags.VisitAll(func(f *pflag.Flag) { got[f.Name] = s.Title })
	}
	if want := []string{"Flags", "Flags for sources", "Flags for VPP", "Flags for Services", "Flags for policies", "Flags for limits", "Flags for " + ForReports}; !slices.Equal(order, want) {
		t.Errorf("%q, want %q", order, want)
	}
	for name, want := range map[string]string{"once": "Flags", "manifests": "Flags for sources", "lease-namespace": "Flags for " + ForReports, "service-renderer": "Flags for Services", "uplink": "Flags for VPP"} {
		if got[name] != want {
			t.Errorf("--%s is in %q, want %q", name, got[name], want)
		}
	}
	for _, name := range AgentNames() {
		if got[name] == "" || got[name] == "Flags" {
			t.Errorf("--%s is in no group", name)
		}
	}
	var help strings.Builder
	GroupUsage(cmd)
	cmd.SetOut(&help)
	if err := cmd.Usage(); err != nil || !strings.Contains(help.String(), "\nFlags for sources:\n      --api-server string") || strings.Count(help.String(), "--uplink ") != 1 {
		t.Errorf("%v\n%s", err, help.String())
	}
	if plain := (&cobra.Command{Use: "y"}); Sections(plain.Flags()) != nil {
		t.Error("a command without groups has sections")
	}
}
