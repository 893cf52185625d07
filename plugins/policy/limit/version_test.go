package limit

import (
	"testing"
)

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"": true, "24.06-release": true, "25.02-rc0~1-gabc": true, "25.06-release": false, "25.06": false, "v25.10.0-4-g1": false,
		"26.02": false, "unknown": true, "25": true,
	} {
		if got := MatchesBytes(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
