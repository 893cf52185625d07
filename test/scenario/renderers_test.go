package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
)

// onCnat lists, for every story, the packets with another fate if cnat serves both families: in most stories nat44 serves
// IPv4.
const onCnat = "testdata/on-cnat.golden"

// aside lists the stories that do not run with cnat, and why.
var aside = map[string]string{
	"affinity":              "asks what affinity chose, and here every choice is asked about",
	"affinity-timeout":      "asks what affinity chose, and here every choice is asked about",
	"agent-away":            "has no agent at times",
	"cut-off":               "has a VPP that refuses messages of nat44",
	"foreign":               "has foreign mappings",
	"policy-refused-by-vpp": "has a VPP that refuses messages",
	"refused":               "has a VPP that refuses messages of nat44",
	"quarantine":            "has a VPP that ends at a request of nat44",
}

// TestStoriesOnCnat runs every story with cnat only. Each packet must have the fate of the story, and the same backends, or
// be in the list of those that do not. Sources and reasons depend on the renderer.
func TestStoriesOnCnat(t *testing.T) {
	pace.NotRaced(t)
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var out strings.Builder
	asked := 0
	for _, file := range files {
		if aside[strings.TrimSuffix(filepath.Base(file), ".txtar")] != "" {
			continue
		}
		lines, n := replay(t, file)
		asked += n
		if len(lines) > 0 {
			fmt.Fprintf(&out, "%s\n%s", strings.TrimSuffix(filepath.Base(file), ".txtar"), strings.Join(lines, ""))
		}
	}
	if asked < 300 {
		t.Errorf("only %d packets were sent", asked)
	}
	want, err := os.ReadFile(onCnat)
	if *update {
		err = os.WriteFile(onCnat, []byte(out.String()), 0o600)
		want = []byte(out.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s: -want +got\n%s", onCnat, diff)
	}
}

// replay runs the commands that change a cluster and those that send packets; it returns the answers that differ.
func replay(t *testing.T, file string) (different []string, asked int) {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{dir: t.TempDir(), talks: map[string]*talk{}, faults: map[string]*faults{}}
	for _, f := range a.Files {
		path := filepath.Join(s.dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyShared(s.dir); err != nil {
		t.Fatal(err)
	}
	defer func() { s.world().Close() }()
	for line := range strings.Lines(string(a.Comment)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "!" {
			continue
		}
		var err error
		switch words[0] {
		case "agent":
			err = s.cmdAgent(nil, append(words[1:], "renderer="+string(agent.RendererCNAT)))
		case "apply":
			err = s.onCnat().cmdApply(nil, words[1:])
		case "delete":
			err = s.onCnat().cmdDelete(nil, words[1:])
		case "restart-vpp":
			err = s.cmdRestartVPP(nil, words[1:])
		case "restart-agent":
			err = s.cmdRestartAgent(nil, words[1:])
		case "advance":
			err = s.cmdAdvance(nil, words[1:])
		case "pkt":
			asked++
			var text string
			if text, err = s.differs(words[1:]); text != "" && !slices.Contains(different, text) {
				different = append(different, text)
			}
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", file, strings.TrimSpace(line), err)
		}
		if err := crashed(s.onCnat().world()); err != nil {
			t.Fatalf("%s: %s: %v", file, strings.TrimSpace(line), err)
		}
	}
	return different, asked
}

func (s *story) onCnat() *story {
	s.settings.renderer = agent.RendererCNAT
	return s
}

// differs sends one packet; "": the answer is the story's.
func (s *story) differs(args []string) (string, error) {
	q, err := question(args)
	if err != nil {
		return "", err
	}
	want, err := expect(args[3:])
	if err != nil {
		return "", err
	}
	want.sources, want.because = "", ""
	var a trace.Answer
	if a = s.onCnat().world().Answer(q); want.meets(a) {
		return "", nil
	}
	is := got(a)
	is.sources, is.because = "", ""
	return fmt.Sprintf("  %s\n    told     %s\n    on cnat  %s\n", strings.Join(args[:3], " "), want, is), nil
}
