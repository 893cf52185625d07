package vppagent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// TestJournalLines: an entry recorded before its request is confirmed after success, once; a change is recorded.
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
	if got := lines(); len(got) != 2 || strings.Contains(got[0], "PROHIBIT") || !strings.HasPrefix(got[1], "= ") {
		t.Errorf("one value made: %q", got)
	}
	l.allConfigured(l.put(&contivl3.RejectRoute{DstNetwork: route.DstNetwork, Action: contivl3.RejectRoute_PROHIBIT}))
	if got := lines(); len(got) != 3 || !strings.Contains(got[2], "PROHIBIT") {
		t.Errorf("and changed: %q", got)
	}
	l.allConfigured(l.resync())
	if got := lines(); len(got) != 3 {
		t.Errorf("and found again: %q", got)
	}
}
