package pace

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
)

type clock struct {
	now    time.Time
	groups []int
	slow   time.Duration
	pauses int
}

func (c *clock) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	c.groups = append(c.groups, len(calls))
	c.now = c.now.Add(time.Duration(len(calls)) * c.slow)
	return make([]vpp.Reply, len(calls))
}

func (c *clock) pacer() *Pacer {
	return &Pacer{Caller: c, Now: func() time.Time { return c.now }, Stall: 3 * time.Millisecond, Pause: func(_ context.Context, d time.Duration) { c.now, c.pauses = c.now.Add(d), c.pauses+1 }}
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

// TestLightRequestsHaveNoPauses: VPP forwards between requests of which it serves little at once, whether or not the agent pauses. Their groups are
// bounded, so that the pacer compares its estimates with the measured time.
func TestLightRequestsHaveNoPauses(t *testing.T) {
	const us = time.Microsecond
	small := func(int) Estimate { return Estimate{Name: "small", Cost: 10 * us, Size: 100, Known: true} }     // 4,096 bytes take 410 µs
	dense := func(int) Estimate { return Estimate{Name: "dense", Cost: 10 * us, Size: 20, Known: true} }      // 2 ms
	long := func(int) Estimate { return Estimate{Name: "long", Cost: 1600 * us, Size: 1 << 20, Known: true} } // one takes more than half of Stall
	for _, tc := range []struct {
		name     string
		estimate func(i int) Estimate
		slow     time.Duration
		want     string
		pauses   int
	}{
		{name: "light", estimate: small, slow: us, want: "[2401 2401 198]"},
		{name: "dense", estimate: dense, slow: 10 * us, want: "[300 300 300 300 300 300 300 300 300 300 300 300 300 300 300 300 200]", pauses: 16},
		{name: "long", estimate: long, slow: 1600 * us, want: fmt.Sprint(groupsOf(1, 5000)), pauses: 4999},
		{name: "of no known size", estimate: func(int) Estimate { return Estimate{Cost: 10 * us, Known: true} }, slow: 10 * us, want: fmt.Sprint(groupsOf(300, 5000)), pauses: 16},
		{name: "apart", estimate: func(i int) Estimate { e := small(i); e.Apart = 1; return e }, slow: us, want: fmt.Sprint(groupsOf(1, 5000)), pauses: 13},
		// VPP takes 8 times as long as estimated: after the first group, the requests are no longer light.
		{name: "slower than estimated", estimate: small, slow: 80 * us, want: fmt.Sprint(append([]int{2401}, groupsOf(75, 2599)...)), pauses: 34},
	} {
		c := &clock{now: time.Unix(1e6, 0), slow: tc.slow}
		costs := make([]Estimate, 5000)
		for i := range costs {
			costs[i] = tc.estimate(i)
		}
		c.pacer().Do(t.Context(), make([]vpp.Call, len(costs)), costs)
		if got := fmt.Sprint(c.groups); got != tc.want || c.pauses != tc.pauses {
			t.Errorf("%s: %d pauses and groups of %s, want %d and %s", tc.name, c.pauses, got, tc.pauses, tc.want)
		}
	}
}

// groupsOf are the groups of all calls.
func groupsOf(size, all int) (out []int) {
	for ; all > 0; all -= size {
		out = append(out, min(size, all))
	}
	return out
}

// TestLightRequestsWaitForThePause: the pause that follows from other requests comes before light ones, if these are not few. Light requests are in
// a separate group, which ends behind no joined call.
func TestLightRequestsWaitForThePause(t *testing.T) {
	const pause = 0
	c := &clock{now: time.Unix(1e6, 0), slow: 10 * time.Microsecond}
	p := c.pacer()
	p.Pause = func(_ context.Context, d time.Duration) { c.now, c.groups = c.now.Add(d), append(c.groups, pause) }
	small := Estimate{Name: "small", Cost: 10 * time.Microsecond, Size: 200, Known: true}
	large := Estimate{Name: "large", Cost: 3 * time.Millisecond, Size: 200, Known: true}
	costs := slices.Concat([]Estimate{small, small, small, large}, slices.Repeat([]Estimate{small}, 100), []Estimate{large, small})
	calls := make([]vpp.Call, len(costs))
	calls[2].Joined = true
	p.Do(t.Context(), calls, costs)
	if got, want := c.groups, []int{2, 2, pause, 100, 1, 1}; !slices.Equal(got, want) {
		t.Errorf("groups %d, want %d; %d is a pause", got, want, pause)
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
