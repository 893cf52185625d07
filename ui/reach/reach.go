// Package reach turns objects into two answers about policies: what they allow between namespaces, and what other policies would change.
//
//	objects ─ intent.Read ─▶ never? always? for each pair of namespaces ─▶ Matrix
//	objects, policies to try ─ change.Compare ─▶ connections that open and close
//
// Invariant: the package changes nothing; a cell is All or None only if that covers every header of a new connection.
package reach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// MostNamespaces bounds the rows of a Matrix.
const MostNamespaces = 60

// Outside is the row and the column of addresses outside the cluster.
const Outside = "outside"

// Answer says which new connections policies allow.
type Answer string

// The answers.
const (
	All     Answer = "all"
	Some    Answer = "some"
	None    Answer = "none"
	Unknown Answer = "unknown"
)

// Cell is the answer for one row and one column.
type Cell struct {
	Answer Answer
	// Why is the reason for Unknown.
	Why string
	// Allowed is a connection that policies allow, Denied one that they deny; nil: there is none.
	Allowed, Denied *intent.Example
}

// Matrix has a row for each sender and a column for each receiver: namespaces with pods, and the outside.
type Matrix struct {
	Names []string
	// Cells has a row for each of the first Names, for all of them if the matrix is whole.
	Cells [][]Cell
	// More counts the namespaces that have no row.
	More          int
	Pods, Classes int
	Took          time.Duration // of the rows, without pauses between them
}

// Work is a matrix under calculation, row by row.
type Work struct {
	matrix  Matrix
	cluster *intent.Cluster
	now     func() time.Time
}

// Begin returns the work on the matrix of objects. No row is calculated yet.
func Begin(objects []model.Object, now func() time.Time) *Work {
	begin := now()
	c := intent.Read(objects)
	w := &Work{matrix: Matrix{Names: []string{Outside}, Pods: len(c.Full.Pods), Classes: len(c.Classes)}, cluster: c, now: now}
	names := map[string]bool{}
	for _, k := range c.Classes {
		for i := range k.Members {
			names[k.Members[i].ID.Namespace] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	if len(sorted) > MostNamespaces {
		w.matrix.More = len(sorted) - MostNamespaces
		sorted = sorted[:MostNamespaces]
	}
	w.matrix.Names = append(w.matrix.Names, sorted...)
	w.matrix.Took = now().Sub(begin)
	return w
}

// Row calculates the next row, if one is missing. The only error is ctx's; the row is missing then.
func (w *Work) Row(ctx context.Context) error {
	m := &w.matrix
	if m.Whole() {
		return nil
	}
	begin, from := w.now(), sideOf(m.Names[len(m.Cells)])
	row := make([]Cell, 0, len(m.Names))
	for _, to := range m.Names {
		if err := ctx.Err(); err != nil {
			return err
		}
		row = append(row, cellOf(w.cluster, from, sideOf(to)))
	}
	m.Cells = append(m.Cells, row)
	m.Took += w.now().Sub(begin)
	return nil
}

// Matrix returns the matrix with the rows that are calculated. Later rows do not change it.
func (w *Work) Matrix() *Matrix {
	m := w.matrix
	return &m
}

// Whole reports that no row is missing.
func (m *Matrix) Whole() bool { return len(m.Cells) == len(m.Names) }

// Of returns the whole matrix of objects. The only error is ctx's.
func Of(ctx context.Context, objects []model.Object, now func() time.Time) (*Matrix, error) {
	w := Begin(objects, now)
	for !w.matrix.Whole() {
		if err := w.Row(ctx); err != nil {
			return nil, err
		}
	}
	return w.Matrix(), nil
}

func sideOf(name string) ask.Side {
	if name == Outside {
		return ask.Side{Text: Outside, Form: ask.Outside}
	}
	return ask.Side{Text: "ns:" + name, Form: ask.Namespace, Namespace: name}
}

func cellOf(c *intent.Cluster, from, to ask.Side) Cell {
	if from.Form == ask.Outside && to.Form == ask.Outside {
		return Cell{Answer: Unknown, Why: "such packets do not pass the cluster"}
	}
	r := c.Check([]ask.Assertion{{Kind: ask.Never, From: from, To: to}, {Kind: ask.Always, From: from, To: to}}).Results
	never, always := &r[0], &r[1]
	cell := Cell{Answer: Some, Allowed: never.Example, Denied: always.Example}
	switch {
	case never.Verdict == intent.Undecided:
		cell.Answer, cell.Why = Unknown, never.Why
	case never.Verdict == intent.Holds:
		cell.Answer = None
	case always.Verdict == intent.Holds:
		cell.Answer = All
	case always.Verdict == intent.Undecided:
		cell.Why = always.Why
	}
	return cell
}

// Trial is what policies would change.
type Trial struct {
	// Policies are those that were tried: "NetworkPolicy prod/web", and whether each is new.
	Policies []Tried
	*change.Report
	// Refused are the reasons why documents, or parts of policies, are not understood.
	Refused []string
}

// Tried is one policy of a Trial.
type Tried struct {
	Name string
	New  bool // false: it replaces one
}

// ErrNoPolicy means that a text has no policy.
var ErrNoPolicy = errors.New("the text has no policy: want YAML or JSON of a NetworkPolicy, or another kind of policy")

// Try returns what changes if policies are created or replaced. Objects of other kinds are refused.
func Try(objects []model.Object, changes []event.Change) (*Trial, error) {
	t := &Trial{}
	after := slices.Clone(objects)
	for _, ch := range changes {
		if ch.Err != nil {
			t.Refused = append(t.Refused, ch.Err.Error())
		}
		if ch.Object == nil {
			continue
		}
		if !policy.IsPolicy(ch.Ref.Kind) {
			t.Refused = append(t.Refused, fmt.Sprintf("%s: is no policy; it is ignored", ch.Ref))
			continue
		}
		at := slices.IndexFunc(after, func(o model.Object) bool { return o.Ref() == ch.Ref })
		if at >= 0 {
			after[at] = ch.Object
		} else {
			after = append(after, ch.Object)
		}
		t.Policies = append(t.Policies, Tried{ch.Ref.String(), at < 0})
	}
	if len(t.Policies) == 0 {
		return t, ErrNoPolicy
	}
	t.Report = change.Compare(objects, after)
	return t, nil
}
