// Package heap bounds and paces Go's heap of a process that runs an agent: a memory limit from the cgroup, and rarer collections during
// the first sync.
//
// Invariant: an environment that sets GOMEMLIMIT or GOGC wins.
package heap

import (
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/budget"
)

// cgroupShare is the share of a cgroup's memory, in percent, that Go's heap may take before the collector limits it. The
// rest is for memory that the runtime does not count (kernel buffers, the binary).
const cgroupShare = 90

// Limit sets Go's memory limit from the process's cgroup, unless GOMEMLIMIT is set, and returns the limit in bytes; 0:
// no limit.
func Limit(log *slog.Logger, root fs.FS) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		if most := debug.SetMemoryLimit(-1); most < math.MaxInt64 {
			return most
		}
		return 0
	}
	most := cgroupMemory(root)
	if most > 0 {
		debug.SetMemoryLimit(most / 100 * cgroupShare)
		log.Info("memory", "cgroup", most, "GOMEMLIMIT", most/100*cgroupShare)
	}
	return most
}

// Sizes returns the limits of the node, lowered to the memory of the process, in bytes.
func Sizes(was budget.Limits, memory int64, log *slog.Logger) budget.Limits {
	now := was.Within(memory)
	for d := range budget.Dimensions {
		if now[d] != was[d] {
			log.Info("limit lowered to fit the memory", "flag", d.Flag(), "from", was[d].String(), "to", now[d].String())
		}
	}
	return now
}

// cgroupMemory returns the lowest memory limit of the process's cgroup and its parents, in bytes, version 2 or 1; 0: no
// limit. root is the file system with /proc and /sys.
func cgroupMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	lowest := int64(0)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		parts := strings.SplitN(line, ":", 3) // number, controllers, path
		if len(parts) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[1] == "memory":
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[0] != "0" || parts[1] != "":
			continue
		}
		for at := path.Join("/", parts[2]); ; at = path.Dir(at) { // in a container the path may be the host's: then the root is ours
			if n := readLimit(root, path.Join(base, at, file)); n > 0 && (lowest == 0 || n < lowest) {
				lowest = n
			}
			if at == "/" {
				break
			}
		}
	}
	return lowest
}

// unlimited is the least value that means "no limit" in version 1.
const unlimited = 1 << 60

func readLimit(root fs.FS, file string) int64 {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 || n >= unlimited {
		return 0
	}
	return n
}
