package vppagent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestJournalLines: an entry recorded before its request is not recorded again after success, but a change is.
func TestJournalLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	l := newLab(t, vppagent.Config{Journal: path})
	lines := func() []string {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(data)), "\n")[1:]
	}
	route := &contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"}
	l.allConfigured(l.put(route))
	if got := lines(); len(got) != 1 || strings.Contains(got[0], "PROHIBIT") {
		t.Errorf("one value made: %q", got)
	}
	l.allConfigured(l.put(&contivl3.RejectRoute{DstNetwork: route.DstNetwork, Action: contivl3.RejectRoute_PROHIBIT}))
	if got := lines(); len(got) != 2 || !strings.Contains(got[1], "PROHIBIT") {
		t.Errorf("and changed: %q", got)
	}
	l.allConfigured(l.resync())
	if got := lines(); len(got) != 2 {
		t.Errorf("and found again: %q", got)
	}
}
