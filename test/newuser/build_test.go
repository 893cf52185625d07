package newuser

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestBuildSaysHowFarItIs: a build that takes longer than a moment says what it builds and how far it is; errors and the exit code of go pass. A quick build
// says nothing.
func TestBuildSaysHowFarItIs(t *testing.T) {
	for _, tc := range []struct {
		name, every, build, want string
		code                     int
	}{
		{
			"slow", "1", "echo internal/cpu >&2; sleep 3; echo example.com/a >&2", `^building bin/program: without a build cache this takes minutes
(building bin/program, \d+s: [12] of at most 3 packages compiled, now (internal/cpu|example.com/a)
)+$`, 0,
		},
		{"quick", "60", "echo internal/cpu >&2", `^$`, 0},
		{"from the cache", "1", "sleep 2.5", `^$`, 0},
		{"wrong", "60", "echo 'go: downloading example.com/a v1.0.0' >&2; echo '# example.com/a' >&2; echo 'a.go:1:1: wrong' >&2; exit 3", `^go: downloading example\.com/a v1\.0\.0
# example\.com/a
a\.go:1:1: wrong
$`, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := filepath.Join(t.TempDir(), "go")
			text := "#!/bin/bash\n[ \"$*\" = 'list -deps -tags x ./program' ] && exec printf 'a\\nb\\nc\\n'\n[ \"$*\" = 'build -v -o bin/program -tags x ./program' ] || exit 9\n" + tc.build + "\n"
			if err := os.WriteFile(fake, []byte(text), 0o700); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
			cmd := exec.Command("tools/build.sh", "bin/program", "-tags", "x", "./program")
			cmd.Dir, cmd.Env = root, append(os.Environ(), "GO="+fake, "EVERY="+tc.every)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if code := cmd.ProcessState.ExitCode(); code != tc.code || err != nil && !errors.As(err, &exit) {
				t.Errorf("exit code %d, want %d (%v)", code, tc.code, err)
			}
			if !regexp.MustCompile(tc.want).Match(out) {
				t.Errorf("it says\n%swant\n%s", out, tc.want)
			}
		})
	}
}
