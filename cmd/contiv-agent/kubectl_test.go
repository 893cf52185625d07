package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What a running agent tells of its flags sets those of another program alike; defaults are not told.
func TestSettings(t *testing.T) {
	cmd := newRun()
	if err := cmd.ParseFlags([]string{"--maglev", "--service-cidr", "10.97.0.0/16,10.98.0.0/16", "--no-snat=false", "--nat-sessions", "7", "--listen", ""}); err != nil {
		t.Fatal(err)
	}
	told := settings(cmd.Flags())
	want := map[string]string{"maglev": "true", "service-cidr": "10.97.0.0/16,10.98.0.0/16", "no-snat": "false", "nat-sessions": "7"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	var f agentFlags
	if err := f.set(told); err != nil {
		t.Fatal(err)
	}
	if !f.maglev || f.noSNAT || f.nat.sessions != 7 || !cmp.Equal(f.serviceCIDRs, []string{"10.97.0.0/16", "10.98.0.0/16"}) || f.renderer != "auto" {
		t.Errorf("set: %+v", f)
	}
	if err := f.set(map[string]string{"of-another-version": "1"}); err == nil {
		t.Error("a setting that is not known is taken for nothing")
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
