package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// inNamespace is the environment variable of a test process within separate network and mount namespaces, which has no network to build
// programs.
const inNamespace = "CONTIV_KUBE_SCRATCH"

// TestMain builds the programs. Benchmarks then run in separate namespaces, where a kube-proxy changes no foreign rules.
func TestMain(m *testing.M) {
	Part()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if scratch := os.Getenv(inNamespace); scratch != "" {
		cache, err := cached()
		if err == nil {
			err = netns.LoopbackUp()
		}
		if err == nil {
			err = netns.SeparateMounts()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "FAIL:", err)
			return 1
		}
		built = at(cache, scratch, scratch)
		return m.Run()
	}
	scratch, err := os.MkdirTemp("", "contiv-kube-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	defer os.RemoveAll(scratch)
	cache, err := cached()
	if err == nil {
		err = errors.Join(buildPeers(context.Background(), os.Stdout, cache, "cluster", "kube-proxy", "agnhost"), buildOwn(context.Background(), os.Stdout, scratch))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	built = at(cache, scratch, scratch)
	if benchmarking() {
		if err := again(scratch, os.Args[1:]...); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL:", err)
			return 1
		}
		return 0
	}
	return m.Run()
}

// goBuild builds a program of another module.
func goBuild(ctx context.Context, say io.Writer, dir, file, path, ldflags string, env ...string) error {
	b := &building{say: say, dir: dir, file: file, path: path, flags: []string{ldflags}, env: env}
	return b.run(ctx)
}
