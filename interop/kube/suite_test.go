package kube

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// suiteModule has the conformance suite; conformance/go.mod says which version of it.
const suiteModule = "sigs.k8s.io/network-policy-api"

// suite is the program network-policy-api tests conformance with, and the definitions of the kinds it is about.
type suite struct{ program, definitions string }

// newSuite builds it, unless the user's cache has it.
func newSuite(t *testing.T) suite {
	t.Helper()
	dir, err := cacheOf("conformance", "conformance", "go.mod", "go.sum")
	if err != nil {
		t.Fatal(err)
	}
	s := suite{program: filepath.Join(dir, "suite"), definitions: filepath.Join(dir, "definitions.yaml")}
	if _, err := os.Stat(s.program); err == nil {
		return s
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	began, half := time.Now(), fmt.Sprintf("%s.%d", s.program, os.Getpid())
	defer os.Remove(half)
	inConformance(t, "test", "-c", "-tags", "grpcnotrace", "-ldflags=-s -w", "-o", half, suiteModule+"/conformance")
	module := inConformance(t, "list", "-m", "-f", "{{.Dir}}", suiteModule)
	// The experimental channel has all of the standard one, and nodes as peers.
	definitions, err := os.ReadFile(filepath.Join(module, "config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.definitions, definitions, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(half, s.program); err != nil {
		t.Fatal(err)
	}
	t.Logf("built the conformance suite in %s", time.Since(began).Round(time.Second/10))
	return s
}

// inConformance runs go in the suite's module of ours, and returns what it says, without the end of the line.
func inConformance(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = "conformance", &stderr
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}
