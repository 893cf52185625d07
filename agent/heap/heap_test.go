package heap

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"github.com/contiv-agent/contiv-agent/budget"
)

func TestCgroupMemory(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"no cgroup":           {fstest.MapFS{}, 0},
		"version 2":           {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("1073741824\n")}, 1 << 30},
		"version 2, no limit": {fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")}, 0},
		"version 2, a parent has the lower one": {fstest.MapFS{
			"proc/self/cgroup": file("0::/pods/one\n"), "sys/fs/cgroup/pods/one/memory.max": file("4096\n"), "sys/fs/cgroup/pods/memory.max": file("2048\n"),
			"sys/fs/cgroup/memory.max": file("max\n"),
		}, 2048},
		"version 2, the host's path": {fstest.MapFS{"proc/self/cgroup": file("0::/../../x\n"), "sys/fs/cgroup/memory.max": file("4096\n")}, 4096},
		"version 1": {fstest.MapFS{
			"proc/self/cgroup": file("5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n"), "sys/fs/cgroup/memory/a/memory.limit_in_bytes": file("8192\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
		}, 8192},
		"version 1, no limit": {fstest.MapFS{"proc/self/cgroup": file("4:memory:/\n"), "sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n")}, 0},
		"not a number":        {fstest.MapFS{"proc/self/cgroup": file("0::/\nodd\n"), "sys/fs/cgroup/memory.max": file("lots\n")}, 0},
	} {
		if got := cgroupMemory(c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// GOMEMLIMIT wins over the cgroup's limit; both bound the limits of the node.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	root := fstest.MapFS{"proc/self/cgroup": {Data: []byte("0::/\n")}, "sys/fs/cgroup/memory.max": {Data: []byte("1073741824\n")}}
	log := slog.New(slog.DiscardHandler)
	t.Setenv("GOMEMLIMIT", "")
	if got := Limit(log, root); got != 1<<30 || debug.SetMemoryLimit(-1) != (1<<30)/100*cgroupShare {
		t.Errorf("%d of the cgroup, the collector has %d", got, debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(math.MaxInt64)
	t.Setenv("GOMEMLIMIT", "off")
	if got := Limit(log, root); got != 0 || debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Errorf("%d although GOMEMLIMIT is off, the collector has %d", got, debug.SetMemoryLimit(-1))
	}
	debug.SetMemoryLimit(1 << 29)
	t.Setenv("GOMEMLIMIT", "512MiB")
	if got := Limit(log, root); got != 1<<29 || debug.SetMemoryLimit(-1) != 1<<29 {
		t.Errorf("%d of GOMEMLIMIT, the collector has %d", got, debug.SetMemoryLimit(-1))
	}
	if got := Sizes(budget.Defaults(), 1<<29, log)[budget.Memory]; got.Node != (512-192)<<10 || got.Namespace != got.Node/2 || got.Object != budget.Defaults()[budget.Memory].Object {
		t.Errorf("512 MiB: %s", got)
	}
}

// The operations page lists each limit with its default.
func TestOperationsPageHasTheLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for d, l := range budget.Defaults() {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| `+"`--%s`"+` \|[^|]*\| %d \| %d \| %d \|`, budget.Dimension(d).Flag(), l.Object, l.Namespace, l.Node))
		if !row.Match(page) {
			t.Errorf("no row for --%s with %s", budget.Dimension(d).Flag(), l)
		}
	}
}

// FuzzCgroup: whatever the kernel's files say, the limit is the number in one of them, or none.
func FuzzCgroup(f *testing.F) {
	f.Add("0::/\n", "1073741824\n", "")
	f.Add("0::/a/b\n4:memory:/../../c\n", "max", "9223372036854771712")
	f.Add("::\n0::\n4:memory", "-1", "x")
	f.Fuzz(func(t *testing.T, groups, first, second string) {
		root := fstest.MapFS{
			"proc/self/cgroup": {Data: []byte(groups)}, "sys/fs/cgroup/memory.max": {Data: []byte(first)}, "sys/fs/cgroup/a/memory.max": {Data: []byte(second)},
			"sys/fs/cgroup/memory/memory.limit_in_bytes": {Data: []byte(second)},
		}
		one, other := readLimit(root, "sys/fs/cgroup/memory.max"), readLimit(root, "sys/fs/cgroup/a/memory.max")
		if got := cgroupMemory(root); got < 0 || got >= unlimited || got != 0 && got != one && got != other {
			t.Errorf("%q: %d", groups, got)
		}
	})
}
