package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	passed = "ok  \texample.com/m/a\t0.1s\n"
	check  = "seed 1\nThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 \"((kEpochLast)) != (0)\" (0x0, 0x0) (tid=7)\nFAIL\texample.com/m/b\t3.1s\n"
	race   = "WARNING: DATA RACE\n--- FAIL: TestRace (0.00s)\nFAIL\nFAIL\texample.com/m/c\t1s\n"
)

// TestRaceRunsAgain: a package that a failed check of the race detector ended runs once more, and only if nothing else failed.
func TestRaceRunsAgain(t *testing.T) {
	for _, k := range []struct {
		name          string
		first, second string // what go test prints; it fails if that has FAIL
		code, runs    int
		last          string
	}{
		{"passes", passed, "", 0, 1, "ok  \texample.com/m/a\t0.1s"},
		{"the detector", passed + check + "FAIL\n", passed, 0, 2, "passed, but the race detector itself failed once in example.com/m/b"},
		{"the detector twice", check + passed + "FAIL\n", check, 1, 2, "FAIL\texample.com/m/b\t3.1s"},
		{"then a race", check + "FAIL\n", race, 1, 2, "FAIL\texample.com/m/c\t1s"},
		{"a race", passed + race + "FAIL\n", "", 1, 1, "FAIL"},
		{"the detector and a race", check + race + "FAIL\n", "", 1, 1, "FAIL"},
		{"the detector after a failed test", strings.Replace(check, "seed 1", "--- FAIL: TestB (0.00s)", 1) + "FAIL\n", "", 1, 1, "FAIL"},
		{"a panic in a package", check + "panic: no\n\nFAIL\texample.com/m/d\t1s\nFAIL\n", "", 1, 1, "FAIL"},
		{"does not build, after the detector", check + "FAIL\texample.com/m/d [build failed]\nFAIL\n", "", 1, 1, "FAIL"},
		{"does not build", "FAIL\texample.com/m/d [build failed]\n" + check + "FAIL\n", "", 1, 1, "FAIL"},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{
				"1": k.first, "2": k.second,
				"go": "#!/bin/bash\ncd " + dir + "\necho \"$*\" >>calls\nout=$(wc -l <calls)\ncat $out\n! grep -q FAIL $out\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil { //nolint:gosec // a program
					t.Fatal(err)
				}
			}
			cmd := exec.Command("tools/race.sh", "-p", "4", "./a", "./b")
			cmd.Dir, cmd.Env = "../../..", append(os.Environ(), "GO="+filepath.Join(dir, "go"))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if code := cmd.ProcessState.ExitCode(); code != k.code || err != nil && !errors.As(err, &exit) {
				t.Errorf("exit code %d, want %d (%v)\n%s", code, k.code, err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if last := lines[len(lines)-1]; last != k.last {
				t.Errorf("ends with %q, want %q", last, k.last)
			}
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			want := []string{"test -race -p 4 ./a ./b\n", "test -race -p 4 example.com/m/b\n"}[:k.runs]
			if err != nil || string(calls) != strings.Join(want, "") {
				t.Errorf("calls %q, want %q (%v)", calls, want, err)
			}
		})
	}
}
