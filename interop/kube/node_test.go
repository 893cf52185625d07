package kube

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// equalsFresh waits until an agent started now, on an empty VPP, has made the same of it as this one, which has lived through everything.
func (n *node) equalsFresh(t testing.TB, c *cluster) {
	t.Helper()
	fresh := newNode(t, c, n.name)
	eventually(t, n.name+" is as a fresh one", func() error {
		if diff := cmp.Diff(strings.Split(fresh.sim.Dump(), "\n"), strings.Split(n.sim.Dump(), "\n")); diff != "" {
			return fmt.Errorf("differs (-fresh +as it is):\n%s", diff)
		}
		return nil
	}, n.agent, fresh.agent)
}
