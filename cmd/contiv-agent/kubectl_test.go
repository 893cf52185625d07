package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The settings of a running agent set the same flags in another program; defaults are not in the settings.
func TestSettings(t *testing.T) {
	cmd := newRun()
	if err := cmd.ParseFlags([]string{"--maglev", "--service-cidr", "10.97.0.0/16,10.98.0.0/16", "--no-snat=false", "--nat-sessions", "7", "--listen", ""}); err != nil {
		t.Fatal(err)
	}
	got := settings(cmd.Flags())
	want := map[string]string{"maglev": "true", "service-cidr": "10.97.0.0/16,10.98.0.0/16", "no-snat": "false", "nat-sessions": "7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	var f agentFlags
	if err := f.apply(got); err != nil {
		t.Fatal(err)
	}
	if !f.maglev || f.noSNAT || f.nat.sessions != 7 || !cmp.Equal(f.serviceCIDRs, []string{"10.97.0.0/16", "10.98.0.0/16"}) || f.renderer != "auto" {
		t.Errorf("set: %+v", f)
	}
	if err := f.apply(map[string]string{"of-another-version": "1"}); err == nil {
		t.Error("no error for an unknown setting")
	}
}

func TestWorse(t *testing.T) {
	for _, tc := range []struct{ a, b, want int }{
		{exitOK, exitOK, exitOK},
		{exitOK, exitDiffers, exitDiffers},
		{exitDiffers, exitUsage, exitUsage},
		{exitUsage, exitDiffers, exitUsage},
		{exitUsage, exitFailed, exitFailed},
		{exitFailed, exitDiffers, exitFailed},
		{exitDiffers, 137, exitFailed},
	} {
		if got := worse(tc.a, tc.b); got != tc.want {
			t.Errorf("%d, then %d: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
