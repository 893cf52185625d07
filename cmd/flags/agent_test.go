package flags

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
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
