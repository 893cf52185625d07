// Package page turns a page of a room (README.md) into its examples, for tests that execute them. Invariant: the result is
// the text of the page, unchanged.
package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Example returns the first block in a language under the heading EXAMPLES of the page in the test's folder.
func Example(t testing.TB, language string) string {
	t.Helper()
	text, err := example(".", language)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// File returns a temporary file of the test with Example.
func File(t testing.TB, language string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "example."+language)
	if err := os.WriteFile(file, []byte(Example(t, language)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func example(folder, language string) (string, error) {
	page, err := os.ReadFile(folder + "/README.md")
	if err != nil {
		return "", err
	}
	_, examples, _ := strings.Cut(string(page), "\n## EXAMPLES\n")
	_, rest, found := strings.Cut(examples, "```"+language+"\n")
	body, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		return "", fmt.Errorf("%s/README.md: no block of %s among its examples", folder, language)
	}
	return body, nil
}
