package kube

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// mode is one in which kube-proxy programs the kernel.
type mode struct {
	name    string
	env     []string
	witness witness
	flush   func() // removes everything from the kernel
}

func nftables(t testing.TB) mode {
	t.Helper()
	return mode{name: "nftables", witness: newKernel(t), flush: func() {
		if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
			t.Fatalf("nft: %v %s (kube-proxy's nftables mode needs it, and nf_tables in the kernel)", err, out)
		}
	}}
}

// restore stands in the place of iptables-restore: it keeps the rules that it gets in a file, which ends with .done when the kernel has them.
const restore = `#!/bin/sh
rules=$(mktemp "%[1]s/XXXXXXXX") && cat >"$rules" && %[2]s "$@" <"$rules"
code=$?
mv "$rules" "$rules.done"
exit $code
`

// iptables is kube-proxy's oldest mode, with the kernel's legacy tables. The benchmark is skipped on a machine without its programs.
func iptables(t testing.TB) mode {
	t.Helper()
	programs, rules := t.TempDir(), t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, verb := range []string{"", "-save", "-restore"} {
			real, err := exec.LookPath(family + "-legacy" + verb)
			if err != nil {
				t.Skipf("%v (Debian's package iptables)", err)
			}
			link := filepath.Join(programs, family+verb)
			if verb == "-restore" && family == "iptables" {
				err = os.WriteFile(link, fmt.Appendf(nil, restore, rules, real), 0o700) //nolint:gosec // a program
			} else {
				err = os.Symlink(real, link)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	flush := func() {
		for _, family := range []string{"iptables-legacy", "ip6tables-legacy"} {
			for _, table := range []string{"nat", "filter", "mangle"} {
				for _, how := range []string{"-F", "-X"} {
					if out, err := exec.Command(family, "-t", table, how).CombinedOutput(); err != nil {
						t.Fatalf("%s -t %s %s: %v %s", family, table, how, err, out)
					}
				}
			}
		}
	}
	env := []string{"PATH=" + programs + string(os.PathListSeparator) + os.Getenv("PATH")}
	return mode{name: "iptables", env: env, witness: newRestores(t, rules), flush: flush}
}

// restores looks into the rules that iptables-restore has given to the kernel. It looks once per millisecond, so it sees a change up to that
// much and the end of a shell too late.
type restores struct {
	dir     string
	expects chan awaited
}

type awaited struct {
	address []byte
	seen    chan time.Time
}

func newRestores(t testing.TB, dir string) *restores {
	r := &restores{dir: dir, expects: make(chan awaited)}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		r.look(stop)
	}()
	t.Cleanup(func() { close(stop); <-ended })
	return r
}

func (r *restores) look(stop <-chan struct{}) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var want awaited
	for {
		select {
		case <-stop:
			return
		case want = <-r.expects:
		case <-tick.C:
			now := time.Now()
			done, err := filepath.Glob(filepath.Join(r.dir, "*.done"))
			if err != nil {
				continue // it is a constant pattern
			}
			for _, path := range done {
				rules, err := os.ReadFile(path)
				if err == nil && want.seen != nil && bytes.Contains(rules, want.address) {
					want.seen <- now
					want.seen = nil
				}
				_ = os.Remove(path) // the folder is removed later
			}
		}
	}
}

// expect implements witness. A Service's chain is replaced in the same restore that brings the new endpoint's chain.
func (r *restores) expect(came, _ netip.Addr) <-chan time.Time {
	seen := make(chan time.Time, 1)
	r.expects <- awaited{fmt.Appendf(nil, "--to-destination %s:", came), seen}
	return seen
}
