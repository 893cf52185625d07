//go:build nodes

package kube

import (
	"context"
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
	"kubelet": {"kubelet", "k8s.io/kubernetes/cmd/kubelet", []string{"-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + version +
		" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"}, nil},
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
	for name, p := range nodePrograms {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		if name == "runc" {
			if err := exec.Command("pkg-config", "--exists", "libseccomp").Run(); err != nil {
				t.Skipf("runc needs gcc, pkg-config and libseccomp-dev to be built: %v", err)
			}
		}
		b := &building{say: os.Stdout, dir: filepath.Join("peers", p.module), file: file, path: p.path, flags: append([]string{"-trimpath"}, p.flags...), env: p.env}
		if err := b.run(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
