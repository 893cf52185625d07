package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cpu is the processor time a process has used in all its threads, and that of its children that have ended: kube-proxy does much of its
// work in nft. Threads count to the nanosecond (schedstat), children by ticks of 10 ms (stat(5): cutime, cstime).
func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	var sum time.Duration
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, thread := range threads {
		b, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended; Go keeps its threads, so what it did is next to nothing
		}
		ran, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ran)
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, behind, _ := strings.Cut(string(b), ") ") // the name may have anything in it
	for _, field := range strings.Fields(behind)[13:15] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum
}

// resident is the memory a process has resident, in MB of 10⁶ bytes: now, and at most so far.
func resident(t testing.TB, pid int) (now, most float64) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			continue
		}
		switch name {
		case "VmRSS":
			now = kb * 1024 / 1e6
		case "VmHWM":
			most = kb * 1024 / 1e6
		}
	}
	return now, most
}
