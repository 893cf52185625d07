package kube

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// inNamespace is the environment variable of a test process within a network namespace, which has no network to build
// programs.
const inNamespace = "CONTIV_KUBE_SCRATCH"

// TestMain builds the programs. Benchmarks then run in a separate network namespace, where a kube-proxy changes no foreign
// rules.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if scratch := os.Getenv(inNamespace); scratch != "" {
		cache, err := cached()
		if err == nil {
			err = loopbackUp()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "FAIL:", err)
			return 1
		}
		built = at(cache, scratch)
		return m.Run()
	}
	scratch, err := os.MkdirTemp("", "contiv-kube-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	defer os.RemoveAll(scratch)
	if err := build(context.Background(), os.Stdout, scratch, "cluster", "kube-proxy"); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	if benchmarking() {
		return again(scratch)
	}
	return m.Run()
}
