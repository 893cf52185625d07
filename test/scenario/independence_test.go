package scenario

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed/show"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
)

// plot is the sequence of a script's changes of objects.
type plot struct {
	name     string
	settings settings
	steps    [][]event.Change
}

// plots returns the apply, delete and agent commands of every script.
func plots(t *testing.T) []plot {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var out []plot
	for _, file := range files {
		out = append(out, readPlot(t, file))
	}
	return out
}

func readPlot(t *testing.T, file string) plot {
	t.Helper()
	p := plot{name: strings.TrimSuffix(filepath.Base(file), ".txtar")}
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range a.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyShared(dir); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(a.Comment)) {
		words := strings.Fields(strings.TrimPrefix(line, "! ")) // a failed apply also has an effect
		if len(words) == 0 {
			continue
		}
		var changes []event.Change
		switch words[0] {
		case "agent":
			err = p.settings.parse(words[1:])
		case "apply":
			changes, err = puts(dir, words[1:])
		case "delete":
			changes, err = removals(dir, words[1:])
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", file, strings.TrimSpace(line), err)
		}
		if len(changes) > 0 {
			p.steps = append(p.steps, changes)
		}
	}
	return p
}

// way is one sequence of steps to the same end.
type way struct {
	name    string
	journal bool // agents keep a journal, on disk
	do      func(p plot, c *trace.Cluster) error
}

var ways = []way{
	{"reversed", false, func(p plot, c *trace.Cluster) error {
		return each(p.steps, func(step []event.Change) error {
			step = slices.Clone(step)
			slices.Reverse(step)
			return c.Apply(background(), step)
		})
	}},
	{"split", false, func(p plot, c *trace.Cluster) error {
		return each(p.steps, func(step []event.Change) error {
			return each(step, func(ch event.Change) error { return c.Apply(background(), []event.Change{ch}) })
		})
	}},
	{"squashed", false, func(p plot, c *trace.Cluster) error { return c.Apply(background(), p.end()) }},
	{"backwards", false, func(p plot, c *trace.Cluster) error {
		end := p.end()
		slices.Reverse(end)
		return each(end, func(ch event.Change) error { return c.Apply(background(), []event.Change{ch}) })
	}},
	{"twice", false, func(p plot, c *trace.Cluster) error {
		return each(p.steps, func(step []event.Change) error {
			if err := c.Apply(background(), step); err != nil {
				return err
			}
			return c.Apply(background(), step)
		})
	}},
	{"with VPP restarts", false, func(p plot, c *trace.Cluster) error {
		return each(p.steps, func(step []event.Change) error {
			if err := c.Apply(background(), step); err != nil {
				return err
			}
			return each(c.Nodes(), func(node string) error { return c.RestartVPP(background(), node) })
		})
	}},
	{"while agents are away", true, func(p plot, c *trace.Cluster) error {
		return each(p.steps, func(step []event.Change) error {
			for _, node := range c.Nodes() {
				c.StopAgent(node)
			}
			if err := c.Apply(background(), step); err != nil {
				return err
			}
			return each(c.Nodes(), func(node string) error { return c.RestartAgent(background(), node) })
		})
	}},
	{"with agent restarts", true, func(p plot, c *trace.Cluster) error {
		return each(p.steps, func(step []event.Change) error {
			if err := c.Apply(background(), step); err != nil {
				return err
			}
			return each(c.Nodes(), func(node string) error { return c.RestartAgent(background(), node) })
		})
	}},
}

var courses = flag.Int("faults", 1, "how many random courses of faults every story takes")

// allWays are the ways, including those with faults.
func allWays() []way {
	all := slices.Clone(ways)
	for seed := range *courses {
		all = append(all, way{fmt.Sprintf("with faults %d", seed+1), true, func(p plot, c *trace.Cluster) error {
			return faulty(p, c, uint64(seed+1))
		}})
	}
	return all
}

func each[T any](list []T, f func(T) error) error {
	for _, x := range list {
		if err := f(x); err != nil {
			return err
		}
	}
	return nil
}

// end returns the last change of every object, in the order of their first changes.
func (p plot) end() []event.Change {
	var out []event.Change
	at := map[model.Ref]int{}
	for _, ch := range slices.Concat(p.steps...) {
		if i, again := at[ch.Ref]; again {
			out[i] = ch
			continue
		}
		at[ch.Ref] = len(out)
		out = append(out, ch)
	}
	return out
}

// faulty makes every VPP refuse one write in ten and cut the connection at one request in a hundred, until all changes are
// sent. Sometimes an agent or a VPP restarts meanwhile.
func faulty(p plot, c *trace.Cluster, seed uint64) error {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.name)) // never fails
	random := rand.New(rand.NewPCG(h.Sum64(), seed))
	restarts := rand.New(rand.NewPCG(h.Sum64(), ^seed))
	var mu sync.Mutex // VPPs of several nodes call it concurrently
	fault := func(name string) (int32, bool) {
		mu.Lock()
		defer mu.Unlock()
		switch n := random.IntN(1000); {
		case n < 10 && name != "sockclnt_create":
			return 0, true
		case n < 110 && sim.Writes(name):
			return -1, false // VNET_API_ERROR_UNSPECIFIED
		}
		return 0, false
	}
	err := each(p.steps, func(step []event.Change) error {
		// Errors are expected; the agent repairs their effects below.
		_ = c.Apply(background(), step)
		for _, node := range c.Nodes() {
			c.Sim(node).Fail(fault)
		}
		_ = c.Advance(background(), 2*time.Second)
		for _, node := range c.Nodes() {
			switch restarts.IntN(6) {
			case 0:
				_ = c.RestartAgent(background(), node)
			case 1:
				_ = c.RestartVPP(background(), node)
			}
		}
		return nil
	})
	for _, node := range c.Nodes() {
		c.Sim(node).Fail(nil)
	}
	for range 10 { // longer than any back-off
		err = c.Advance(background(), time.Minute)
	}
	return err
}

// run runs one way and returns the final configuration of all VPPs.
func (p plot) run(t *testing.T, w way) (*trace.Cluster, string) {
	t.Helper()
	journals := ""
	if w.journal {
		journals = t.TempDir()
	}
	c := trace.NewCluster(p.settings.config(journals))
	t.Cleanup(c.Close)
	if err := errors.Join(w.do(p, c), crashed(c)); err != nil {
		t.Fatal(err)
	}
	return c, dumps(c)
}

// dumps are the states of all VPPs, without drained endpoints, which depend on the past.
func dumps(c *trace.Cluster) string {
	var b strings.Builder
	for _, node := range c.Nodes() {
		fmt.Fprintf(&b, "node %s\n%s", node, show.WithoutDrained(c.Sim(node).Dump()))
	}
	return b.String()
}

func asWritten(p plot, c *trace.Cluster) error {
	return each(p.steps, func(step []event.Change) error { return c.Apply(background(), step) })
}

// Under the race detector a story runs only some of the ways: different ones for each story.
var everyNth = pace.Every(15)

// TestPathIndependence runs every story in other ways: VPP must have the same bytes at the end, and an agent that restarts
// at any of these ends has nothing to do.
func TestPathIndependence(t *testing.T) {
	for _, p := range plots(t) {
		turn := len(p.name) // stories take different ways, if not all run
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			c, want := p.run(t, way{name: "as written", do: asWritten})
			restartWritesNothing(t, c, want)
			for i, w := range allWays() {
				if (i+turn)%everyNth != 0 {
					continue
				}
				t.Run(w.name, func(t *testing.T) {
					c, have := p.run(t, w)
					if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")); diff != "" {
						t.Errorf("differs from the story as written (-as written +%s):\n%s", w.name, diff)
					}
					restartWritesNothing(t, c, have)
				})
			}
		})
	}
}

func restartWritesNothing(t *testing.T, c *trace.Cluster, want string) {
	t.Helper()
	for _, node := range c.Nodes() {
		c.Sim(node).ClearLog()
		if err := c.RestartAgent(background(), node); err != nil {
			t.Fatal(err)
		}
		if list := written(c.Sim(node)); len(list) > 0 {
			t.Errorf("restart of the agent of %s writes:\n%s", node, strings.Join(list, "\n"))
		}
	}
	if have := dumps(c); have != want {
		t.Errorf("restart of the agents changes VPP:\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(have, "\n")))
	}
}
