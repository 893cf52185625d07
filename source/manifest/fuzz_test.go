package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParse reads arbitrary files. Reading never panics, each reported line is a line of the file, each piece has a unique
// name or an error, and reading twice gives the same result.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"../../examples/guestbook/*.yaml", "../../examples/broken/*.*"} {
		files, _ := filepath.Glob(pattern)
		for _, name := range files {
			if data, err := os.ReadFile(name); err == nil && len(data) < 8192 {
				f.Add(data, strings.HasSuffix(name, ".json"))
			}
		}
	}
	f.Add([]byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: [], ingress: [{from: [{}]}]}\n"), false)
	f.Add([]byte("apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: a}\nspec: {selector: x ==, ingress: [{action: Deny}]}\n"), false)
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: &a b, labels: {<<: *a}}}]"), false)
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		name := "f.yaml"
		if isJSON {
			name = "f.json"
		}
		p := parse(name, data, true)
		lines := strings.Count(string(data), "\n") + 1
		for _, e := range p.entries {
			if e.object == nil && e.err == nil {
				t.Fatalf("entry %+v", e)
			}
			if e.err == nil {
				continue
			}
			err, ok := e.err.(*Error)
			if !ok || err.File != name || err.Line < 1 || err.Line > lines || err.Text == "" {
				t.Fatalf("error %#v in a file of %d lines", e.err, lines)
			}
		}
		if a, b := strings.Join(say(p), "\n"), strings.Join(say(parse(name, data, true)), "\n"); a != b {
			t.Fatalf("read twice:\n%s\n%s", a, b)
		}
	})
}
