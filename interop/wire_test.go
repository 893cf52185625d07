package interop

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	ours "github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	messages "github.com/contiv-agent/contiv-agent/proto/felix"
)

var streams = flag.Int("streams", 300, "random clusters to compare over the wire")

// calcProgram is a calculation graph behind its standard input.
type calcProgram struct {
	*Process
	// flushed returns the messages up to the end of a flush.
	flushed func() ([]*messages.ToDataplane, error)
	mirror  *mirror.Mirror
}

func calcArgs(cfg ours.Config) []string {
	source := "CalicoIPAM"
	if cfg.WorkloadRoutes {
		source = "WorkloadIPs"
	}
	return []string{"--hostname", cfg.Node, fmt.Sprint("--use-node-resources=", cfg.NodeResources), "--route-source", source}
}

// felixCalc is the real graph, parsing what the datastore holds, and writing the frames Felix writes to its driver.
func felixCalc(t *testing.T, cfg ours.Config) *calcProgram {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	cmd := exec.Command(peer(t, "calc"), append(calcArgs(cfg), "-frames")...)
	cmd.Stdout = w
	c := &calcProgram{Process: start(t, "felix's calc", cmd), mirror: mirror.New()}
	_ = w.Close() // the process has its own
	frames := felix.NewReader(r, 0)
	c.flushed = func() (out []*messages.ToDataplane, err error) {
		for {
			raw, err := frames.Next()
			if err != nil || len(raw) == 0 {
				return out, err
			}
			m := &messages.ToDataplane{}
			if err := proto.Unmarshal(raw, m); err != nil {
				return nil, err
			}
			out = append(out, m)
		}
	}
	return c
}

// ourCalc is `contiv-agent calc`.
func ourCalc(t *testing.T, cfg ours.Config) *calcProgram {
	t.Helper()
	cmd := exec.Command(product(t), append([]string{"calc"}, calcArgs(cfg)...)...)
	c := &calcProgram{Process: start(t, "contiv-agent calc", cmd), mirror: mirror.New()}
	c.flushed = func() (out []*messages.ToDataplane, err error) {
		for {
			line := c.Line()
			if line == `{"flushed":true}` {
				return out, nil
			}
			m := &messages.ToDataplane{}
			if err := protojson.Unmarshal([]byte(line), m); err != nil {
				return nil, fmt.Errorf("%s: %w", line, err)
			}
			out = append(out, m)
		}
	}
	return c
}

// flush brings the mirror up to date.
func (c *calcProgram) flush(strict bool) error {
	c.Send(`{"flush":true}`)
	list, err := c.flushed()
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	c.mirror.Apply(list, strict)
	if len(c.mirror.Problems) > 0 && strict {
		return fmt.Errorf("%s: %v", c.Name, c.mirror.Problems)
	}
	return nil
}

// end closes the input and returns the program's result.
func (c *calcProgram) end() error {
	c.CloseInput()
	if err := c.Wait(); err != nil {
		return fmt.Errorf("%s, at the end of its input: %w", c.Name, err)
	}
	return nil
}

// TestStreamsOverTheWire is TestDifferential by way of two programs: entries as the datastore holds them go to the real graph
// and to `contiv-agent calc`, and come back as the frames of the one and the lines of the other.
func TestStreamsOverTheWire(t *testing.T) {
	first := firstSeed()
	t.Logf("seeds %d to %d; one of them again: -seed N -streams 1", first, first+uint64(*streams)-1)
	peer(t, "calc")
	product(t)
	var next, places atomic.Uint64
	t.Cleanup(func() { t.Logf("%d places compared", places.Load()) })
	for lane := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
			t.Parallel()
			for i := next.Add(1) - 1; i < uint64(*streams) && !t.Failed(); i = next.Add(1) - 1 {
				n, err := overTheWire(t, first+i)
				if err != nil {
					t.Errorf("seed %d: %v", first+i, err)
				}
				places.Add(uint64(n))
			}
		})
	}
}

func overTheWire(t *testing.T, seed uint64) (places int, err error) {
	w := newWorld(seed)
	cfg := ours.Config{Node: node, NodeResources: w.chance(70), WorkloadRoutes: w.chance(30)}
	theirs, mine := felixCalc(t, cfg), ourCalc(t, cfg)
	now := map[string]Change{}
	var path []string
	steps := 5 + w.IntN(60)
	sync := w.IntN(steps)
	for i := range steps {
		c := w.change()
		path, now[c.Key] = append(path, c.String()), c
		entries, err := c.Entries()
		if err != nil {
			return places, err
		}
		for _, e := range entries {
			line, err := json.Marshal(e)
			if err != nil {
				return places, err
			}
			theirs.Send("%s", line)
			mine.Send("%s", line)
		}
		if i == sync {
			path = append(path, "in sync")
			theirs.Send(`{"status":"in-sync"}`)
			mine.Send(`{"status":"in-sync"}`)
		}
		if !w.chance(40) && i != steps-1 {
			continue
		}
		path = append(path, "flush")
		if err := errors.Join(theirs.flush(false), mine.flush(true)); err != nil {
			return places, fmt.Errorf("after %s: %w", strings.Join(path, ", "), err)
		}
		if i < sync {
			continue
		}
		if theirs.mirror.InSyncs != 1 || mine.mirror.InSyncs != 1 {
			return places, fmt.Errorf("after %s: Felix says in sync %d times, calc %d", strings.Join(path, ", "), theirs.mirror.InSyncs, mine.mirror.InSyncs)
		}
		if diff := cmp.Diff(theirs.mirror.Dump(), mine.mirror.Dump()); diff != "" {
			again, err := resent(cfg, now)
			if err != nil {
				return places, err
			}
			if left := cmp.Diff(again, mine.mirror.Dump()); left != "" || !onlyRoutes(theirs.mirror.Dump(), again) {
				return places, fmt.Errorf("after %s (-Felix +calc):\n%s", strings.Join(path, ", "), diff)
			}
		}
		places++
	}
	return places, errors.Join(theirs.end(), mine.end())
}
