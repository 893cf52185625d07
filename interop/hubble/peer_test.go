package hubble

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var built sync.Map // name → func() (string, error), once each

// cilium builds a program of Cilium's, unmodified, or the one of peers/filters, and returns its path. It stays in the user's cache for as long
// as its sources and versions are the same: the first build takes minutes of processor time.
func cilium(t testing.TB, name string) string {
	t.Helper()
	path := map[string]string{
		"hubble": "github.com/cilium/cilium/hubble", "hubble-relay": "github.com/cilium/cilium/hubble-relay", "filters": "./filters",
	}[name]
	build, _ := built.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		hash := sha256.New()
		for _, source := range []string{"go.mod", "go.sum", "filters/main.go"} {
			b, err := os.ReadFile(filepath.Join("peers", source))
			if err != nil {
				return "", err
			}
			_, _ = hash.Write(b) // a hash returns no error
		}
		file := filepath.Join(cache, "contiv-agent", "hubble", fmt.Sprintf("%x", hash.Sum(nil)[:8]), name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		half := file + fmt.Sprint(os.Getpid()) // a build that is interrupted leaves no program
		cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-ldflags=-s -w", "-o", half, path)
		cmd.Dir, cmd.Env = "peers", append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false", "CGO_ENABLED=0")
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
		cost := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		fmt.Printf("built %s in %s, %s of processor time\n", name, time.Since(began).Round(time.Second), cost.Round(time.Second))
		return file, os.Rename(half, file)
	}))
	file, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// run runs a program to its end, without the configuration of the user, and returns its output.
func run(t testing.TB, stdin string, program string, args ...string) (stdout string, err error) {
	t.Helper()
	cilium(t, program) // a build takes longer than a run may
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, t, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	if failed := (&exec.ExitError{}); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

func command(ctx context.Context, t testing.TB, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cilium(t, program), args...)
	own := func(v string) bool {
		return strings.HasPrefix(v, "HUBBLE_") || strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "XDG_")
	}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), own), "HOME="+t.TempDir())
	return cmd
}
