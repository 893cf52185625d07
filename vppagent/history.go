package vppagent

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
	Ops           []OpRecord // in order of execution
	Dropped       int        // number of operations dropped for lack of room
}

// OpRecord is one past operation.
type OpRecord struct {
	Action Action
	Key    string
	Err    string // "" if it succeeded
}

// String is "create <key>", followed by a colon and the error, if any.
func (o OpRecord) String() string {
	if o.Err != "" {
		return o.Action.String() + " " + o.Key + ": " + o.Err
	}
	return o.Action.String() + " " + o.Key
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
	opSize     = 40
)

func (r *Record) size() int {
	n := recordSize + len(r.Cause) + len(r.Err) + opSize*len(r.Ops)
	for _, o := range r.Ops {
		n += len(o.Err)
	}
	return n
}

// history keeps as many of the latest records as fit.
type history struct {
	limit, bytes int
	records      []*Record // oldest first; a record never changes after it is added
	outlived     int       // dropped records that records still holds in memory
}

// roomForOps is the most operations kept of one transaction, so that it does not push out all others.
func (h *history) roomForOps() int { return max((h.limit/2-recordSize)/opSize, 0) }

func (h *history) addRecord(r *Record) {
	if h.limit == 0 {
		return
	}
	h.records = append(h.records, r)
	h.bytes += r.size()
	drop := 0
	for h.bytes > h.limit && drop < len(h.records) {
		h.bytes -= h.records[drop].size()
		drop++
	}
	h.records = h.records[drop:] // snapshots still use the earlier array
	if h.outlived += drop; 8*h.outlived > len(h.records) {
		h.records, h.outlived = slices.Clone(h.records), 0
	}
}

// record adds an execution to the history, unless it did nothing.
func (a *Agent) record(began time.Time, c *event.Committed, x *execution) {
	if len(x.done)+x.over == 0 && c.Err == nil && c.Resync == event.NoResync {
		return
	}
	r := &Record{
		Seq: c.Seq, Cause: c.Cause, Resync: c.Resync, At: began, Took: c.Took, Add: c.Add, Mod: c.Mod, Del: c.Del, Writes: c.Writes,
		Ops: slices.Clone(x.done), Dropped: x.over,
	}
	if c.Err != nil {
		r.Err = c.Err.Error()
	}
	a.history.addRecord(r)
}

// noteStep records the result of a step for the history.
func (x *execution) noteStep(s Step) {
	if len(x.done) == x.a.history.roomForOps() {
		x.over++
		return
	}
	op := OpRecord{Action: s.Action, Key: s.Key}
	if s.v.plan.err != nil {
		op.Err = s.v.plan.err.Error()
	}
	x.done = append(x.done, op)
}
