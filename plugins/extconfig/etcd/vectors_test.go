package etcd

import (
	"os"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/keyed"
)

// TestVectors: what ligato's agents store is taken, under v3's key.
func TestVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		stored, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		value, want, other := strings.Cut(rest, " => ")
		if !other {
			want = stored
		}
		key, msg, err := decode(stored, []byte(value))
		if err != nil || key != want {
			t.Errorf("%s %s: key %q, %v", stored, value, key, err)
			continue
		}
		if again, same, err := decode(key, []byte(format(msg))); err != nil || again != key || !keyed.Equal(msg, same) {
			t.Errorf("%s: written again: %s %v, %v", stored, again, same, err)
		}
		n++
	}
	if n < 30 {
		t.Errorf("only %d vectors", n)
	}
}
