package heap

import (
	"os"
	"runtime/debug"
	"sync"
)

// startGC is GOGC until the first sync is done. Most memory that a starting agent allocates stays in use: a collection
// meanwhile scans all of it, while VPP waits, and frees little. The heap may then be four times the live memory instead of
// twice; GOMEMLIMIT still holds.
const startGC = 300

// Hurry delays collections until calm is called, which may be more than once. It is for a process that runs only this agent,
// and it does not change GOGC if the environment sets it.
func Hurry() (calm func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	was := debug.SetGCPercent(startGC)
	return sync.OnceFunc(func() { debug.SetGCPercent(was) })
}
