package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// equalsFresh waits until an agent started now, on an empty VPP, has made the same of it as this one, which has lived through everything.
func (n *node) equalsFresh(t testing.TB, c *cluster) {
	t.Helper()
	fresh := newNode(t, c, n.name, n.flags...)
	eventually(t, n.name+" is as a fresh one", func() error {
		if diff := cmp.Diff(kept(fresh), kept(n)); diff != "" {
			return fmt.Errorf("differs (-fresh +as it is):\n%s", diff)
		}
		return nil
	}, n.agent, fresh.agent)
}

// kept is what the VPP of a node is configured with, line by line. Its source NAT policy keeps interfaces that are no more, and
// nobody can name them.
func kept(n *node) []string {
	return slices.DeleteFunc(strings.Split(n.sim.Dump(), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "cnat snat-policy ") && strings.Contains(line, " deleted:")
	})
}
