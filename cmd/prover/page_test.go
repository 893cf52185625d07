package prover

import (
	"os"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
)

// TestPageShowsWhatTheCommandPrints executes the examples of docs/verify.md about manifests.
func TestPageShowsWhatTheCommandPrints(t *testing.T) {
	text, err := os.ReadFile("../../docs/verify.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	looser := loosened(t)
	for _, args := range [][]string{{"--manifests", looser, "--assert", assertions}, {"--diff", guestbook, looser}} {
		printed, code := proved(t, args...)
		if args[0] == "--manifests" {
			printed = printed[:strings.Index(printed, "6 assertions:")]
		}
		if code != exit.Differs || !strings.Contains(page, "\n"+printed) {
			t.Errorf("docs/verify.md does not have the output of %v:\n%s", args, printed)
		}
	}
	_, file, found := strings.Cut(page, "```yaml\n")
	file, _, _ = strings.Cut(file, "```")
	list, err := ask.Read("docs/verify.md", []byte(file))
	if !found || err != nil || len(list) != 2 {
		t.Errorf("the file of docs/verify.md: %v, %v", list, err)
	}
	sides := 0
	_, table, _ := strings.Cut(page, "## Sides\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for line := range strings.Lines(table) {
		cell, is := strings.CutPrefix(line, "| `")
		if !is {
			continue
		}
		side, _, _ := strings.Cut(cell, "`")
		sides++
		if _, err := ask.ParseSide(side); err != nil {
			t.Errorf("docs/verify.md, %s: %v", side, err)
		}
	}
	if sides != 9 {
		t.Errorf("docs/verify.md has %d sides", sides)
	}
}
