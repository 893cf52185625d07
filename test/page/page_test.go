package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExample(t *testing.T) {
	dir := t.TempDir()
	text := strings.Join([]string{
		"# x", "```yaml", "above: it", "```", "## EXAMPLES", "", "```yaml", "first: 1", "", "second: 2", "```", "```yaml", "another: one", "```", "```text", "open",
	}, "\n")
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := example(dir, "yaml"); got != "first: 1\n\nsecond: 2\n" || err != nil {
		t.Errorf("yaml: %q, %v", got, err)
	}
	for _, language := range []string{"text", "textproto"} {
		if got, err := example(dir, language); err == nil {
			t.Errorf("%s: %q", language, got)
		}
	}
	if _, err := example(filepath.Join(dir, "none"), "yaml"); err == nil {
		t.Error("no page, and no error")
	}
}
