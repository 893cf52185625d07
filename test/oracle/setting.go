package oracle

import (
	"os"
	"strconv"
	"testing"
)

// Setting is the number in an environment variable, or otherwise if it is not set: how many cases, which seed.
func Setting(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}
