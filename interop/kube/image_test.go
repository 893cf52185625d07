package kube

import (
	"debug/elf"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestImage asks whether the program can be all an image has: the Dockerfile puts nothing else into it, and builds it without C, as it was
// built for these tests; then it needs no loader and no library.
func TestImage(t *testing.T) {
	text, err := os.ReadFile(deploy + "/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var stages []string // instructions of each, a line each
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", "")) {
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case word == "" || strings.HasPrefix(word, "#") || word == "ARG" && len(stages) == 0: // what FROM may name
		case word == "FROM":
			stages = append(stages, line)
		default:
			stages[len(stages)-1] += line
		}
	}
	if len(stages) != 2 || !strings.Contains(stages[0], "RUN CGO_ENABLED=0 go build ") || !strings.Contains(stages[0], " ./cmd/contiv-agent") {
		t.Fatalf("%q", stages)
	}
	last := strings.Split(strings.TrimSpace(stages[1]), "\n")
	want := []string{"FROM scratch", "COPY --from=build /out/ /usr/local/bin/", "COPY --from=build /sbom/ /usr/share/sbom/", "ENV PATH=/usr/local/bin", `ENTRYPOINT ["contiv-agent"]`}
	for _, name := range []string{"contiv-agent", "contiv-felix-driver", "kubectl-contiv"} {
		if !strings.Contains(stages[0], "/out/"+name) {
			t.Errorf("nothing in the image is called %s: %q", name, stages[0])
		}
	}
	if !slices.Equal(last, want) {
		t.Errorf("the image is %q, not %q", last, want)
	}
	file, err := elf.Open(built.agent)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if loader := slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }); err != nil || loader || len(libraries) > 0 {
		t.Errorf("the program is not static: a loader: %v; libraries %q (%v)", loader, libraries, err)
	}
}
