//go:build nodes

package kube

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// nodePrograms is the folder of kubelet, containerd with its shim and ctr, and runc.
var nodePrograms = map[string]struct {
	module, path string
	flags, env   []string
}{
	"kubelet":                 {"kubelet", "k8s.io/kubernetes/cmd/kubelet", []string{stamped}, nil},
	"containerd":              {"containerd", "github.com/containerd/containerd/v2/cmd/containerd", []string{"-ldflags=-s -w"}, nil},
	"containerd-shim-runc-v2": {"containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", []string{"-ldflags=-s -w"}, nil},
	"ctr":                     {"containerd", "github.com/containerd/containerd/v2/cmd/ctr", []string{"-ldflags=-s -w"}, nil},
	"runc":                    {"runc", "github.com/opencontainers/runc", []string{"-ldflags=-s -w", "-tags=seccomp"}, []string{"CGO_ENABLED=1"}},
}

// buildNodePrograms builds those that the user's cache does not have, and returns their folder.
func buildNodePrograms(t *testing.T) string {
	t.Helper()
	dir, err := cacheOf("nodes", "peers", "kubelet/go.mod", "kubelet/go.sum", "containerd/go.mod", "containerd/go.sum", "runc/go.mod", "runc/go.sum")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "runc")); err != nil {
		_, noCompiler := exec.LookPath("gcc")
		if err := errors.Join(noCompiler, exec.Command("pkg-config", "--exists", "libseccomp").Run()); err != nil {
			t.Skipf("runc needs gcc, pkg-config and libseccomp-dev to be built: %v", err)
		}
	}
	for name, p := range nodePrograms {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		b := &building{say: os.Stdout, dir: filepath.Join("peers", p.module), file: file, path: p.path, flags: p.flags, env: p.env}
		if err := b.run(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// suitePrograms are Kubernetes' tests, and ginkgo, which runs several of them at once.
var suitePrograms = map[string]string{"e2e.test": ".", "ginkgo": "github.com/onsi/ginkgo/v2/ginkgo"}

// suiteDir is where they are kept.
func suiteDir(t *testing.T) string {
	t.Helper()
	dir, err := cacheOf("e2e-"+version, "e2e", "go.mod", "go.sum", "main.go")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// buildSuite builds those that the user's cache does not have, and returns their folder.
func buildSuite(t *testing.T) string {
	t.Helper()
	dir := suiteDir(t)
	for name, path := range suitePrograms {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		b := &building{say: os.Stdout, dir: "e2e", file: file, path: path, flags: []string{"-tags", "grpcnotrace", stamped}}
		if err := b.run(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
