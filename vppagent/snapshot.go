package vppagent

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent/history"
)

// Snapshot is the state of all values at one moment. It does not change.
type Snapshot struct {
	Connected bool // VPP is reachable, and the fields below are its known state
	Foreign   []string
	// Reclassify is whether VPP evaluates established flows again when access lists change.
	Reclassify Reclassify
	History    []*history.Record // oldest first
	// Drift is the last drift of each key since the agent started, sorted by key; at most 1,000.
	Drift []Drifted
	pages []*page
	count [16]int // of values, by state
}

// Drifted is the time and the kind of a key's last drift.
type Drifted struct {
	event.Drift
	Last time.Time
}

// Status is the state of one value.
type Status struct {
	Key   string
	State event.State
	Err   string        // "" if none
	Wait  []string      // pending: the keys that it waits for
	Value proto.Message // desired state; nil for derived values and for values under removal. Do not change it
	Since time.Time     // of the state
}

// Count is the number of values in a state.
func (s *Snapshot) Count(state event.State) int { return s.count[state] }

// Values returns all values, sorted by key.
func (s *Snapshot) Values() []Status {
	var out []Status
	for _, p := range s.pages {
		for _, v := range p {
			if v != nil {
				out = append(out, *v)
			}
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// Snapshot returns the latest state without waiting.
func (a *Agent) Snapshot() *Snapshot { return a.snapshot.Load() }

const pageSize = 64

type page [pageSize]*Status

// board has the statuses in pages, so that a snapshot shares unchanged pages with the one before.
type board struct {
	pages []*page
	fresh map[int]bool // pages copied since the last snapshot
	free  []int
	next  int
	count [16]int
}

func (b *board) setStatus(v *value, now time.Time) {
	s := &Status{Key: v.key, State: v.state, Err: v.err, Wait: v.missing, Value: v.msg, Since: now}
	if v.slot < 0 {
		if n := len(b.free); n > 0 {
			v.slot, b.free = b.free[n-1], b.free[:n-1]
		} else {
			v.slot, b.next = b.next, b.next+1
		}
	}
	p := b.page(v.slot / pageSize)
	if old := p[v.slot%pageSize]; old != nil {
		b.count[old.State]--
		if old.State == s.State {
			s.Since = old.Since
		}
	}
	b.count[s.State]++
	p[v.slot%pageSize] = s
}

func (b *board) removeStatus(v *value) {
	if v.slot < 0 {
		return
	}
	p := b.page(v.slot / pageSize)
	b.count[p[v.slot%pageSize].State]--
	p[v.slot%pageSize] = nil
	b.free = append(b.free, v.slot)
	v.slot = -1
}

// page returns a page that no snapshot shares.
func (b *board) page(n int) *page {
	for len(b.pages) <= n {
		b.pages = append(b.pages, &page{})
	}
	if !b.fresh[n] {
		if b.fresh == nil {
			b.fresh = map[int]bool{}
		}
		b.fresh[n] = true
		p := *b.pages[n]
		b.pages[n] = &p
	}
	return b.pages[n]
}

func (a *Agent) publishSnapshot() {
	clear(a.board.fresh)
	a.snapshot.Store(&Snapshot{
		Connected: !a.stale && a.away() == nil, Foreign: a.foreign(), Reclassify: a.reclassify, History: a.history.Records(),
		Drift: a.check.shown, pages: slices.Clone(a.board.pages), count: a.board.count,
	})
}
