package pace

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
)

type clock struct {
	now    time.Time
	groups []int
	slow   time.Duration
}

func (c *clock) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	c.groups = append(c.groups, len(calls))
	c.now = c.now.Add(time.Duration(len(calls)) * c.slow)
	return make([]vpp.Reply, len(calls))
}

func (c *clock) pacer() *Pacer {
	return &Pacer{Caller: c, Now: func() time.Time { return c.now }, Stall: 3 * time.Millisecond, Pause: func(_ context.Context, d time.Duration) { c.now = c.now.Add(d) }}
}

// TestGroups: a group takes Stall at most, and requests that may take longer together are in different groups.
func TestGroups(t *testing.T) {
	for _, tc := range []struct {
		name     string
		estimate func(i int) Estimate
		slow     time.Duration
		want     string
	}{
		{"known", func(int) Estimate { return Estimate{Cost: time.Millisecond, Known: true} }, time.Millisecond, "[3 3 2]"},
		{"longer than Stall", func(int) Estimate { return Estimate{Cost: 4 * time.Millisecond, Known: true} }, 4 * time.Millisecond, "[1 1 1 1 1 1 1 1]"},
		{"unknown, and quick", func(int) Estimate { return Estimate{Cost: time.Millisecond / 5} }, time.Millisecond / 5, "[1 1 3 3]"},
		{"apart by pairs", func(i int) Estimate { return Estimate{Cost: time.Microsecond, Known: true, Apart: uint64(1 + i%2)} }, time.Microsecond, "[2 2 2 2]"},
		{"apart, of which one is slow", func(i int) Estimate { return Estimate{Cost: time.Millisecond, Known: true, Apart: uint64(1 + i)} }, 4 * time.Millisecond, "[3 1 1 1 1 1]"},
	} {
		c := &clock{now: time.Unix(1e6, 0), slow: tc.slow}
		var costs []Estimate
		for i := range 8 {
			costs = append(costs, tc.estimate(i))
		}
		c.pacer().Do(t.Context(), make([]vpp.Call, 8), costs)
		if got := fmt.Sprint(c.groups); got != tc.want {
			t.Errorf("%s: groups of %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestJoinedCallsAreInOneGroup: VPP forwards nothing between a joined call and the next, so no pause comes there.
func TestJoinedCallsAreInOneGroup(t *testing.T) {
	c := &clock{now: time.Unix(1e6, 0), slow: time.Millisecond}
	calls, costs := make([]vpp.Call, 9), make([]Estimate, 9)
	for i := range calls {
		calls[i].Joined = i%2 == 0 && i < 8
		costs[i] = Estimate{Cost: time.Millisecond, Known: true}
		if i%2 == 1 {
			costs[i].Apart = 1
		}
	}
	c.pacer().Do(t.Context(), calls, costs)
	if got := fmt.Sprint(c.groups); got != "[2 2 2 3]" {
		t.Errorf("groups of %s", got)
	}
}

// TestBalance: requests count for the balance as long as they took, and pauses against it. So a small request behind a large one adds its own time only.
func TestBalance(t *testing.T) {
	c := &clock{now: time.Unix(1e6, 0), slow: 2 * time.Millisecond}
	p := c.pacer()
	cost := Estimate{Cost: 2 * time.Millisecond, Known: true}
	p.Do(t.Context(), make([]vpp.Call, 1), []Estimate{cost})
	before, began := p.Balance, c.now
	p.Do(t.Context(), make([]vpp.Call, 1), []Estimate{cost})
	took := c.now.Sub(began)
	if before != 2*time.Millisecond || took != 4*time.Millisecond || took+p.Balance-before != 4*time.Millisecond {
		t.Errorf("balance %s after the first request, %s after the second, which took %s", before, p.Balance, took)
	}
}
