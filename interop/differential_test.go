package interop

import (
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calc/mirror"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
)

var (
	cases = flag.Int("cases", 5000, "random clusters to compare")
	seed  = flag.Uint64("seed", 0, "the first seed; 0 takes one from the clock")
)

// TestDifferential makes random changes to a cluster in the real graph and in ours, and compares the state of a data plane
// after each flush.
func TestDifferential(t *testing.T) {
	first := firstSeed()
	t.Logf("seeds %d to %d; one of them again: -seed N -cases 1", first, first+uint64(*cases)-1)
	var next, places atomic.Uint64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !t.Failed() {
				i := next.Add(1) - 1
				if i >= uint64(*cases) {
					return
				}
				n, err := compare(first + i)
				if err != nil {
					t.Errorf("seed %d: %v", first+i, err)
				}
				places.Add(uint64(n))
			}
		})
	}
	wg.Wait()
	t.Logf("%d places compared", places.Load())
}

func firstSeed() uint64 {
	if *seed != 0 {
		return *seed
	}
	return uint64(time.Now().UnixNano())
}

// compare walks through one random cluster and returns at how many places both agreed.
func compare(seed uint64) (places int, err error) {
	w := newWorld(seed)
	cfg := calc.Config{Node: node, NodeResources: w.chance(70), WorkloadRoutes: w.chance(30)}
	f, g := NewFelix(cfg, true, true), calc.New(cfg)
	ours := func(c Change) error { c.Ours(g); return nil }
	if w.chance(50) { // ours reads what the datastore would hold
		ours = reader(g)
	}
	theirs, mine := mirror.New(), mirror.New()
	now := map[string]Change{}
	var path []string
	steps := 5 + w.IntN(60)
	sync := w.IntN(steps)
	for i := range steps {
		c := w.change()
		path, now[c.Key] = append(path, c.String()), c
		f.Update(c.Felix)
		if err := ours(c); err != nil {
			return places, err
		}
		if i == sync {
			path = append(path, "in sync")
			f.InSync()
			g.InSync()
		}
		if !w.chance(40) && i != steps-1 {
			continue
		}
		path = append(path, "flush")
		f.Flush()
		stream, err := f.Take()
		if err != nil {
			return places, err
		}
		theirs.Apply(stream, false)
		mine.Apply(g.Flush(), true)
		if len(mine.Problems) > 0 {
			return places, fmt.Errorf("after %s: %v", strings.Join(path, ", "), mine.Problems)
		}
		if i < sync {
			continue // Felix sends some policies, profiles and sets before in-sync, ours none
		}
		if diff := cmp.Diff(theirs.Dump(), mine.Dump()); diff != "" {
			again, err := resent(cfg, now)
			if err != nil {
				return places, err
			}
			// Felix's message about a route depends on the order: it does not evaluate routes again when a block around them
			// is added or removed. Ours must equal the messages of a Felix that gets the block first.
			if left := cmp.Diff(again, mine.Dump()); left != "" || !onlyRoutes(theirs.Dump(), again) {
				return places, fmt.Errorf("after %s (-Felix +calc):\n%s", strings.Join(path, ", "), diff)
			}
		}
		places++
	}
	return places, nil
}

// reader gives changes to a graph by way of the datastore's keys and values.
func reader(g *calc.Graph) func(Change) error {
	feed := datastore.NewFeed(g)
	return func(c Change) error {
		entries, err := c.Entries()
		if err != nil {
			return err
		}
		for _, e := range entries {
			var value []byte
			if !e.Deleted {
				value = []byte(e.Value)
			}
			u, err := datastore.Decode(e.Key, value)
			if err != nil {
				return fmt.Errorf("%s = %s: %w", e.Key, e.Value, err)
			}
			feed.Apply(u)
		}
		return nil
	}
}

// resent returns the messages of a Felix that gets only the final state, the wide prefixes first.
func resent(cfg calc.Config, now map[string]Change) ([]string, error) {
	f, m := NewFelix(cfg, true, true), mirror.New()
	width := func(c Change) int {
		kind, _, _ := strings.Cut(c.Key, " ")
		return -slices.Index([]string{"address", "node", "block", "pool"}, kind)
	}
	for _, c := range slices.SortedFunc(maps.Values(now), func(a, b Change) int { return width(a) - width(b) }) {
		f.Update(c.Felix)
	}
	f.InSync()
	f.Flush()
	stream, err := f.Take()
	if err != nil {
		return nil, err
	}
	m.Apply(stream, false)
	return m.Dump(), nil
}

// onlyRoutes reports that two dumps differ in routes alone.
func onlyRoutes(a, b []string) bool {
	others := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return strings.HasPrefix(s, "Route ") })
	}
	return slices.Equal(others(a), others(b))
}
