package release

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostBytes is the size that no program of a release may exceed.
const mostBytes = 60_000_000

// TestWholeRelease makes the release of this repository's commit twice, in two folders.
func TestWholeRelease(t *testing.T) {
	if os.Getenv("CONTIV_RELEASE") == "" {
		t.Skip("it compiles the programs for two architectures: CONTIV_RELEASE=1")
	}
	made := [2]map[string][]byte{}
	revision := ""
	for i := range made {
		clone := filepath.Join(t.TempDir(), fmt.Sprint("clone", i))
		run(t, "..", "git", "clone", "-q", ".", clone)
		revision = strings.TrimSpace(run(t, clone, "git", "rev-parse", "HEAD"))
		run(t, clone, "go", "run", "./release/make", "-version", "v0.0.0-test.1")
		files, err := filepath.Glob(filepath.Join(clone, "dist", "*"))
		if err != nil {
			t.Fatal(err)
		}
		made[i] = map[string][]byte{}
		for _, file := range files {
			if made[i][filepath.Base(file)], err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if sums := made[0][Checksums]; len(sums) == 0 || !bytes.Equal(sums, made[1][Checksums]) {
		t.Errorf("two folders, two releases:\n%s\n%s", sums, made[1][Checksums])
	}
	for _, arch := range []string{"amd64", "arm64"} {
		in := contents(t, unzipped(t, made[0]["contiv-agent_v0.0.0-test.1_linux_"+arch+".tar.gz"]))
		for _, name := range []string{agentProgram, cniProgram} {
			isSmallAndStatic(t, arch+" "+name, in[name])
		}
		var bill struct{ Components []any }
		if err := json.Unmarshal(made[0]["contiv-agent_v0.0.0-test.1_linux_"+arch+".cdx.json"], &bill); err != nil || len(bill.Components) < 10 {
			t.Errorf("%s: a bill of %d modules: %v", arch, len(bill.Components), err)
		}
		if arch != "amd64" {
			continue
		}
		agent := filepath.Join(t.TempDir(), agentProgram)
		if err := os.WriteFile(agent, []byte(in[agentProgram]), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		if said := run(t, ".", agent, "version"); !strings.Contains(said, "contiv-agent v0.0.0-test.1 (commit "+revision[:12]+" of ") {
			t.Errorf("version: %s", said)
		}
	}
}

func run(t *testing.T, dir string, words ...string) string {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return string(out)
}

// isSmallAndStatic: the program needs no library and no loader, and has no symbols and no path of this machine.
func isSmallAndStatic(t *testing.T, name, program string) {
	t.Helper()
	f, err := elf.NewFile(strings.NewReader(program))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s needs a loader", name)
		}
	}
	for _, section := range []string{".symtab", ".debug_info", ".zdebug_info"} {
		if f.Section(section) != nil {
			t.Errorf("%s is not stripped: %s", name, section)
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(wd), os.TempDir() + "/Test"} {
		if strings.Contains(program, path) {
			t.Errorf("%s has the path %s of this machine", name, path)
		}
	}
	if t.Logf("%s: %.1f MB", name, float64(len(program))/1e6); len(program) > mostBytes {
		t.Errorf("%s: %d bytes, at most %d", name, len(program), mostBytes)
	}
}
