package agent

import (
	"os"
	"runtime/debug"
	"sync"
)

// startGC is GOGC until the first sync is done. What an agent makes while it starts it holds for long: a collection in the
// midst of it goes through everything, with VPP waiting, and finds little to free. The heap may be four times what lives
// instead of twice, for as long as that takes; GOMEMLIMIT still holds.
const startGC = 300

// hurry puts collections off until calm is called, which may be more than once. It is for a process that is this agent's,
// and leaves alone what its environment says.
func hurry() (calm func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	was := debug.SetGCPercent(startGC)
	return sync.OnceFunc(func() { debug.SetGCPercent(was) })
}
