package etcd

import (
	"os"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
)

// TestVectors: the source accepts the values that ligato's agents store, under v3's key.
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
		if again, same, err := decode(key, []byte(format(msg))); err != nil || again != key || !kv.Equal(msg, same) {
			t.Errorf("%s: written again: %s %v, %v", stored, again, same, err)
		}
		n++
	}
	if n < 30 {
		t.Errorf("only %d vectors", n)
	}
}

// TestExamples: the source accepts the examples of the documentation pages.
func TestExamples(t *testing.T) {
	for _, page := range []string{"../README.md", "../../../docs/start.md"} {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(raw)) {
			_, put, found := strings.Cut(line, " put /vnf-agent/node-1/")
			if !found {
				continue
			}
			key, value, _ := strings.Cut(strings.TrimSpace(put), " ")
			if got, _, err := decode(key, []byte(strings.Trim(value, "'"))); err != nil || got != key {
				t.Errorf("%s: %s: %s, %v", page, put, got, err)
			}
			n++
		}
		if n == 0 {
			t.Errorf("%s: no example", page)
		}
	}
}
