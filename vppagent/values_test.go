package vppagent_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// The page on values lists every model once, on the right side.
func TestPageOnValues(t *testing.T) {
	page, err := os.ReadFile("../docs/values.md")
	if err != nil {
		t.Fatal(err)
	}
	done, kept, ok := strings.Cut(string(page), "## Kept, and not put into VPP")
	if !ok {
		t.Fatal("no section on what is kept alone")
	}
	kinds := slices.Concat(all.All(), linux.All(), nodeports.All())
	for _, m := range kv.Models() {
		key := m.Key("x")
		implemented := slices.ContainsFunc(kinds, func(d *descriptor.Descriptor) bool { return d.Has(key) })
		row := "\n| `" + m.Name + "` |"
		if n := strings.Count(done, row); (n == 1) != implemented || n > 1 {
			t.Errorf("%s: implemented %t, %d rows among those that are", m.Name, implemented, n)
		}
		if n := strings.Count(kept, row); (n == 1) == implemented || n > 1 {
			t.Errorf("%s: implemented %t, %d rows among those that are not", m.Name, implemented, n)
		}
	}
	if rows := strings.Count(string(page), "\n| `"); rows != len(kv.Models()) {
		t.Errorf("%d rows for %d models", rows, len(kv.Models()))
	}
}
