// Package history keeps the latest transactions of the VPP agent in a bounded memory.
//
// Invariant: a record never changes after it is added, so that a snapshot shares it.
package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

// Record is one past transaction.
type Record struct {
	Seq           uint64 // 0: a retry, repair or recheck of the agent
	Cause         string
	Resync        event.ResyncKind
	At            time.Time
	Took          time.Duration
	Add, Mod, Del int
	Writes        int
	Err           string
	Ops           []Op // in order of execution
	Dropped       int  // number of operations dropped for lack of room
}

// Op is one past operation.
type Op struct {
	Action string // "create", "update" or "delete"
	Key    string
	Err    string // "" if it succeeded
}

// String is "create <key>", followed by a colon and the error, if any.
func (o Op) String() string {
	if o.Err != "" {
		return o.Action + " " + o.Key + ": " + o.Err
	}
	return o.Action + " " + o.Key
}

// String is one line per operation under a heading.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s txn=%d cause=%s add=%d mod=%d del=%d writes=%d took=%s", r.At.UTC().Format(time.RFC3339Nano), r.Seq, r.Cause, r.Add, r.Mod, r.Del, r.Writes, r.Took)
	if r.Resync != event.NoResync {
		fmt.Fprintf(&b, " resync=%s", r.Resync)
	}
	if r.Err != "" {
		fmt.Fprintf(&b, " err=%q", r.Err)
	}
	b.WriteByte('\n')
	for _, o := range r.Ops {
		fmt.Fprintf(&b, "    %s\n", o)
	}
	if r.Dropped > 0 {
		fmt.Fprintf(&b, "    … and %d more\n", r.Dropped)
	}
	return b.String()
}

// Rough sizes of a record and of an operation in it; keys are shared with the values.
const (
	recordSize = 192
	opSize     = 48
)

func (r *Record) size() int {
	n := recordSize + len(r.Cause) + len(r.Err) + opSize*len(r.Ops)
	for _, o := range r.Ops {
		n += len(o.Err)
	}
	return n
}

// List keeps as many of the latest records as fit. The zero value keeps none.
type List struct {
	Limit    int // bytes
	bytes    int
	records  []*Record // oldest first
	outlived int       // dropped records that records still holds in memory
}

// Records are oldest first.
func (h *List) Records() []*Record { return h.records }

// RoomForOps is the most operations kept of one transaction, so that it does not push out all others.
func (h *List) RoomForOps() int { return max((h.Limit/2-recordSize)/opSize, 0) }

// AddRecord adds a record and drops the oldest ones that no longer fit.
func (h *List) AddRecord(r *Record) {
	if h.Limit == 0 {
		return
	}
	h.records = append(h.records, r)
	h.bytes += r.size()
	drop := 0
	for h.bytes > h.Limit && drop < len(h.records) {
		h.bytes -= h.records[drop].size()
		drop++
	}
	h.records = h.records[drop:] // snapshots still use the earlier array
	if h.outlived += drop; 8*h.outlived > len(h.records) {
		h.records, h.outlived = slices.Clone(h.records), 0
	}
}
