package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/cnitest"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// pluginPoints are where the plugin is killed by itself, and steps where the agent kills the plugin or dies.
var pluginPoints = []string{
	"agent add", "add failed", "print", "ipam ADD", "ipam ADD done", "agent delete", "record", "recorded", "found", "release", "ipam DEL", "ipam DEL done",
}

func steps() (out []string) {
	for _, part := range cnitest.Parts() {
		out = append(out, "add "+part, "delete "+part)
	}
	return append(out, "add end", "check", "status", "collect")
}

// chaos is a host with one fault at a time.
type chaos struct {
	*host
	t      *testing.T
	random *rand.Rand
	log    []string

	mu    sync.Mutex
	step  string // at which fault happens; "": none
	fault func() error
	hit   map[string]bool // points and steps at which something was killed
}

func (c *chaos) note(format string, args ...any) { c.log = append(c.log, fmt.Sprintf(format, args...)) }

// before is World.Before.
func (c *chaos) before(_ context.Context, step string, _ protocol.Attachment) error {
	c.mu.Lock()
	fault := c.fault
	if step != c.step {
		fault = nil
	} else {
		c.step = "" // once
		c.hit[step] = true
	}
	c.mu.Unlock()
	if fault == nil {
		return nil
	}
	return fault()
}

func (c *chaos) killPlugin() {
	if p := c.plugin.Load(); p != nil {
		_ = p.Kill()
	}
}

// arm chooses the next fault, or none, and returns where the plugin kills itself. No list of steps: all.
func (c *chaos) arm(list ...string) (killAt string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step, c.fault = "", nil
	if list == nil {
		list = steps()
	}
	step := list[c.random.IntN(len(list))]
	switch c.random.IntN(8) {
	case 0, 1:
		killAt = pluginPoints[c.random.IntN(len(pluginPoints))]
		c.note("  the plugin is killed at %q", killAt)
		return killAt
	case 2:
		c.step, c.fault = step, func() error { c.killPlugin(); return nil }
		c.note("  the plugin is killed at %q", step)
	case 3:
		c.step, c.fault = step, func() error { c.killAgent(); return nil }
		c.note("  the agent is killed at %q", step)
	case 4:
		c.step, c.fault = step, func() error { c.killAgent(); c.killPlugin(); return nil }
		c.note("  both are killed at %q", step)
	case 5:
		c.step, c.fault = step, func() error { return errors.New("VPP refused") }
		c.note("  %q fails", step)
	case 6:
		c.step, c.fault = step, func() error { panic("index out of range") }
		c.note("  %q panics", step)
	}
	return ""
}

// maybe restarts the agent, or kills it between calls.
func (c *chaos) maybe() {
	switch c.random.IntN(4) {
	case 0:
		c.killAgent()
		c.note("  the agent is killed")
	case 1, 2:
		c.restart()
	}
}

func (c *chaos) restart() {
	c.killAgent()
	c.startAgent(c.t)
	c.note("  a new agent")
}

// gc is a runtime that names the pods that run.
func (c *chaos) gc(running []string, killAt string) error {
	var valid []string
	for _, id := range running {
		valid = append(valid, fmt.Sprintf(`{"containerID": %q, "ifname": "eth0"}`, id))
	}
	_, err := c.run(c.t, call{verb: "GC", killAt: killAt, more: `, "cni.dev/valid-attachments": [` + strings.Join(valid, ",") + `]`})
	c.note("GC of all but %v: %v", running, err)
	return err
}

// other is a call of another verb, which changes nothing for the pods that run.
func (c *chaos) other(running []string) {
	verb := c.random.IntN(3)
	killAt := c.arm([]string{"collect", "status", "check"}[verb])
	switch verb {
	case 0:
		_ = c.gc(running, killAt)
	case 1:
		_, err := c.run(c.t, call{verb: "STATUS", killAt: killAt})
		c.note("STATUS: %v", err)
	case 2:
		if len(running) > 0 {
			id := running[c.random.IntN(len(running))]
			_, err := c.run(c.t, call{verb: "CHECK", id: id, netns: "/run/netns/" + id, killAt: killAt, more: fmt.Sprintf(
				`, "prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/%s"}], "ips": []}`, id)})
			c.note("CHECK %s: %v", id, err)
		}
	}
}

// connect is a runtime that starts a pod: it takes a refused ADD back at once. It reports whether the pod runs.
func (c *chaos) connect(id string) bool {
	c.maybe()
	killAt := c.arm()
	_, err := c.add(c.t, call{id: id, killAt: killAt, args: podArgs})
	c.note("ADD %s: %v", id, err)
	if err != nil {
		c.remove(id)
	}
	return err == nil
}

// remove is a runtime that ends a pod: it repeats the DEL until it succeeds, and sends two more without the namespace.
func (c *chaos) remove(id string) {
	for try := 0; ; try++ {
		killAt := ""
		if c.maybe(); try < 4 {
			killAt = c.arm()
		}
		_, err := c.run(c.t, call{verb: "DEL", id: id, netns: "/run/netns/" + id, args: podArgs, killAt: killAt})
		c.note("DEL %s: %v", id, err)
		if err == nil {
			break
		}
		if try > 20 {
			c.t.Fatalf("the DEL never succeeds:\n%s", strings.Join(c.log, "\n"))
		}
	}
	c.RemoveSandbox("/run/netns/"+id, attachment(id))
	for range c.random.IntN(3) {
		killAt := c.arm()
		_, err := c.run(c.t, call{verb: "DEL", id: id, args: podArgs, killAt: killAt})
		c.note("DEL %s again: %v", id, err)
	}
}

// runSeed is the life of a few pods. Afterwards exactly those that run have anything.
func runSeed(t *testing.T, seed uint64, hit map[string]bool) {
	random := rand.New(rand.NewPCG(seed, 18))
	c := &chaos{host: newHost(t, random.IntN(2) == 0), t: t, random: random, hit: hit}
	c.Before = c.before
	c.startAgent(t)
	var running []string
	lost := false
	for i := range 4 {
		if id := fmt.Sprint("c", i); c.connect(id) {
			running = append(running, id)
		}
		if random.IntN(2) == 0 {
			c.other(running)
		}
		if len(running) > 0 && random.IntN(2) == 0 {
			at := random.IntN(len(running))
			if random.IntN(6) == 0 { // the runtime crashes, and its DEL is lost
				c.RemoveSandbox("/run/netns/"+running[at], attachment(running[at]))
				c.note("lost the DEL of %s", running[at])
				lost = true
			} else {
				c.remove(running[at])
			}
			running = slices.Delete(running, at, at+1)
		}
	}
	c.mu.Lock()
	c.step = ""
	c.mu.Unlock()
	c.restart()
	if _, err := c.add(t, call{id: "last", patience: 20 * time.Second}); err != nil { // a node that serves, after everything
		t.Fatalf("the node is broken: %v\n%s", err, strings.Join(c.log, "\n"))
	}
	running = append(running, "last")
	c.settled(t)
	if lost {
		if err := c.gc(running, ""); err != nil {
			t.Fatalf("GC: %v", err)
		}
	}
	c.compare(running)
}

// compare checks that the pods that run have everything, and nobody else has anything.
func (c *chaos) compare(running []string) {
	c.t.Helper()
	left := c.Left()
	files, _ := filepath.Glob(c.dir + "/addresses/*")
	problem := ""
	for _, id := range running {
		if !c.Complete(attachment(id)) {
			problem += id + " runs and lacks parts; "
		}
	}
	if len(left) != len(running) {
		problem += fmt.Sprintf("%d have parts; ", len(left))
	}
	if want := len(running); c.ipam != "" && len(files) != want {
		problem += fmt.Sprintf("%d addresses of the IPAM plugin; ", len(files))
	}
	if c.Open() > 0 {
		problem += "a pod could be reached without its lists; "
	}
	if problem != "" {
		c.t.Errorf("%srunning %v, left %q, %v\n%s", problem, running, left, files, strings.Join(c.log, "\n"))
	}
}

// TestKilled kills plugin, agent or both at any step of ADD and DEL, fails and panics there, loses DELs, and lets the runtime repeat its
// calls. CONTIV_CASES sets the number of seeds, CONTIV_SEED the first.
func TestKilled(t *testing.T) {
	cases, first := pace.Fewer(40, 8), uint64(1)
	if n, err := strconv.Atoi(os.Getenv("CONTIV_CASES")); err == nil {
		cases = n
	}
	if n, err := strconv.ParseUint(os.Getenv("CONTIV_SEED"), 10, 64); err == nil {
		first = n
	}
	hit := map[string]bool{}
	for seed := first; seed < first+uint64(cases); seed++ { //nolint:gosec // a count
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runSeed(t, seed, hit) })
		if t.Failed() {
			return
		}
	}
	if cases < 40 {
		return
	}
	for _, step := range steps() {
		if !hit[step] {
			t.Errorf("nothing happened at %q: the seeds do not cover it", step)
		}
	}
}
