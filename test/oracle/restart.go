package oracle

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/trace"
)

// RestartWritesNothing starts the agent of every node again: an unchanged world costs no write.
func RestartWritesNothing(t testing.TB, seed uint64, c *trace.Cluster) {
	t.Helper()
	for _, name := range c.Nodes() {
		v := c.Sim(name)
		before := v.Dump()
		v.ClearLog()
		if err := c.RestartAgent(context.Background(), name); err != nil {
			t.Errorf("seed %d: restart of the agent of %s: %v", seed, name, err)
			continue
		}
		if n := v.Writes(); n != 0 {
			t.Errorf("seed %d: a restarted agent wrote %d messages on %s: %v", seed, n, name, v.Log())
		}
		if diff := cmp.Diff(before, v.Dump()); diff != "" {
			t.Errorf("seed %d: restart changed VPP of %s (-before +after):\n%s", seed, name, diff)
		}
	}
}
