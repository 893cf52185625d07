package flows

import (
	"github.com/contiv-agent/contiv-agent/agent/flows/tally"
	"github.com/contiv-agent/contiv-agent/model"
)

// StagedMetrics returns the metrics of staged policies; nil of a nil Watcher.
func (w *Watcher) StagedMetrics() *tally.Metrics {
	if w == nil {
		return nil
	}
	return w.staged.Metrics()
}

// changes says when staged policies have to be read again; it belongs to the loop.
type changes struct {
	version uint64
	staged  int // policies
}

// note notes a change of an object. Without staged policies, changes of other objects are none.
func (c *changes) note(was, now model.Object) {
	before := c.staged
	c.staged += countStaged(now) - countStaged(was)
	if before+c.staged > 0 {
		c.version++
	}
}

func countStaged(object model.Object) int {
	if p, ok := object.(*model.Policy); ok && p.StagedAction() != "" {
		return 1
	}
	return 0
}

// reading is the objects of a moment, if staged policies have to be read.
type reading struct {
	due     bool
	version uint64
	objects []model.Object
}

// newReading takes the objects if they have changed; in the loop.
func (w *Watcher) newReading(l *Loop) reading {
	r := reading{version: w.changes.version}
	if r.due = l.Policies != nil && w.staged.Wants(r.version); r.due && w.changes.staged > 0 {
		r.objects = l.Objects()
	}
	return r
}
