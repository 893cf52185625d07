package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// The parts of VPP's configuration with one owner each: see kinds.
const (
	ownsServices = "services"
	ownsPolicies = "policies"
)

// owns returns the parts that this agent owns.
func (c *Config) owns() []string {
	switch {
	case c.Driver != nil:
		return []string{ownsServices}
	case c.Felix != nil && c.NoServices:
		return []string{ownsPolicies}
	}
	return []string{ownsServices, ownsPolicies} // also without policies: the agent removes lists of an earlier run
}

// clientName is the agent's name in VPP's list of clients: agents that own the same parts have the same name.
func (c *Config) clientName() string {
	if parts := c.owns(); len(parts) == 1 {
		return vpp.DefaultClientName + "/" + parts[0]
	}
	return vpp.DefaultClientName
}

func (c *Config) lock() *vpp.Lock { return lockAt(c.Lock, c.NodeName, c.owns()) }

// lockAt returns the lock of parts of VPP; nil: none.
func lockAt(path, node string, parts []string) *vpp.Lock {
	if path == "" {
		return nil
	}
	l := &vpp.Lock{Owner: vpp.Owner{PID: os.Getpid(), Node: node, Command: command()}}
	for _, part := range parts {
		l.Paths = append(l.Paths, lockFile(path, part))
	}
	return l
}

func lockFile(path, part string) string { return path + "-" + part }

// command returns the program and its subcommand: "contiv-agent run".
func command() string {
	name := filepath.Base(os.Args[0])
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		name += " " + os.Args[1]
	}
	return name
}

// LockFiles returns the files of the lock at a path, by the part of VPP that each locks.
func LockFiles(path string) map[string]string {
	out := map[string]string{}
	if path != "" {
		for _, part := range []string{ownsServices, ownsPolicies} {
			out[part] = lockFile(path, part)
		}
	}
	return out
}

// rivalsEvery is the period in which the agent lists VPP's clients.
const rivalsEvery = 30 * time.Second

// neighbours looks for agents that do not see this agent's lock, because they have another folder at the same path, or no
// lock. VPP lists its clients by name. VPP may list an ended agent for a moment, so only two looks in a row find a rival.
func (a *Agent) neighbours(ctx context.Context) error {
	tick := time.NewTicker(rivalsEvery)
	defer tick.Stop()
	before := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		before = a.lookForRivals(ctx, before)
	}
}

// lookForRivals looks once. before is the result of the previous look, found the result of this one.
func (a *Agent) lookForRivals(ctx context.Context, before bool) (found bool) {
	ctx, cancel := context.WithTimeout(ctx, rivalsEvery/2)
	defer cancel()
	names, err := descriptor.ClientNames(a.conn.Do(ctx, descriptor.Clients())[0])
	if err != nil {
		return before
	}
	why := rival(names, a.cfg.clientName())
	if why != "" && !before {
		return true
	}
	if was := a.rivals.Swap(&why); (was == nil || *was != why) && (was != nil || why != "") {
		a.log.Warn("another agent programs VPP", "rival", why)
		a.changes.happened()
	}
	return why != ""
}

// rival returns the client that programs the same part as the client of that name, which is one of names; "": none.
func rival(names []string, self string) string {
	whole := func(name string) bool { return name == vpp.DefaultClientName }
	at := slices.Index(names, self)
	if at < 0 {
		return "" // VPP truncated the name, or does not list clients
	}
	for i, name := range names {
		if i != at && isAgent(name) && (whole(name) || whole(self) || name == self) {
			return fmt.Sprintf("another agent, which does not see this agent's lock, is connected to this VPP: each reverts the other's changes (VPP's client %q; "+
				"end one, or give both the same folder at --vpp-lock)", name)
		}
	}
	return ""
}

// isAgent reports whether the client of VPP with that name is an agent.
func isAgent(name string) bool {
	return name == vpp.DefaultClientName || strings.HasPrefix(name, vpp.DefaultClientName+"/")
}
