package scenario

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/trace"
)

var update = flag.Bool("update", false, "rewrite the files that scripts compare with")

// shared is the folder of manifests that every script can use.
const shared = "testdata/shared"

func TestScenarios(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata", Setup: setup, Cmds: commands(), UpdateScripts: *update, RequireUniqueNames: true,
	})
}

// story is the state of one script while it runs.
type story struct {
	dir      string
	journals string // folder of the agents' journals
	settings settings
	cluster  *trace.Cluster // nil before the first command that uses it
	talks    map[string]*talk
	faults   map[string]*faults
	protections
}

type storyKey struct{}

func setup(env *testscript.Env) error {
	s := &story{dir: env.WorkDir, journals: filepath.Join(env.WorkDir, ".journals"), talks: map[string]*talk{}, faults: map[string]*faults{}}
	env.Values[storyKey{}] = s
	env.Defer(func() {
		if s.cluster != nil {
			s.cluster.Close()
		}
	})
	return errors.Join(os.Mkdir(s.journals, 0o700), copyShared(env.WorkDir))
}

// examples are folders that scripts may apply, as examples/<name>.
var examples = []string{"broken", "guestbook"}

// copyShared copies the shared manifests into a script's folder, except for names that the script has.
func copyShared(to string) error {
	for _, name := range examples {
		if err := os.CopyFS(filepath.Join(to, "examples", name), os.DirFS(filepath.Join("../../examples", name))); err != nil {
			return err
		}
	}
	files, err := os.ReadDir(shared)
	if err != nil {
		return err
	}
	for _, f := range files {
		dst := filepath.Join(to, f.Name())
		if _, err := os.Stat(dst); err == nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(shared, f.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(dst, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

type command = func(ts *testscript.TestScript, neg bool, args []string)

func commands() map[string]command {
	cmds := map[string]command{}
	for name, run := range map[string]func(*story, *testscript.TestScript, []string) error{
		"agent": (*story).cmdAgent, "apply": (*story).cmdApply, "delete": (*story).cmdDelete,
		"dump": (*story).cmdDump, "pkt": (*story).cmdPkt, "trace": (*story).cmdTrace,
		"connect": (*story).cmdConnect, "still": (*story).cmdStill,
		"fail": (*story).cmdFail, "restart-vpp": (*story).cmdRestartVPP, "restart-agent": (*story).cmdRestartAgent, "stop-agent": (*story).cmdStopAgent,
		"advance": (*story).cmdAdvance, "clear-log": (*story).cmdClearLog, "writes": (*story).cmdWrites,
		"log": (*story).cmdLog, "foreign": (*story).cmdForeign, "status": (*story).cmdStatus, "health": (*story).cmdHealth,
		"held": (*story).cmdHeld, "release": (*story).cmdRelease, "lethal": (*story).cmdLethal,
	} {
		cmds[name] = wrap(name, run)
	}
	return cmds
}

// wrap adds the common parts of all commands: "!" means that an error is expected, and no VPP may have crashed.
func wrap(name string, run func(*story, *testscript.TestScript, []string) error) command {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		s := ts.Value(storyKey{}).(*story)
		err := run(s, ts, args)
		if died := crashed(s.world()); died != nil {
			ts.Fatalf("%s: %v", name, died)
		}
		switch {
		case err != nil && !neg:
			ts.Fatalf("%s: %s", name, s.short(err.Error()))
		case err == nil && neg:
			ts.Fatalf("%s: succeeded, an error was expected", name)
		}
	}
}

// crashed returns the VPPs that have died, with the reason.
func crashed(c *trace.Cluster) error {
	var errs []error
	for _, node := range c.Nodes() {
		if err := c.Sim(node).Crashed(); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", node, err))
		}
	}
	return errors.Join(errs...)
}

// world returns the cluster, made with the current settings.
func (s *story) world() *trace.Cluster {
	if s.cluster == nil {
		s.cluster = trace.NewCluster(s.config(s.journals))
	}
	return s.cluster
}

// short removes the path of the script's folder.
func (s *story) short(text string) string {
	return strings.ReplaceAll(text, s.dir+string(filepath.Separator), "")
}

// patience is how long one operation may take: an agent whose VPP has died waits without end.
const patience = 30 * time.Second

// background is the context of one operation.
func background() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	time.AfterFunc(patience, cancel)
	return ctx
}
