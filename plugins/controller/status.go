package controller

import (
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Status is the state of the loop, taken in one step.
type Status struct {
	Sources  []event.SyncStatus // sorted by name
	VPP      event.VPPStatus
	Located  *event.Located // nil: no answer yet
	Started  bool           // the first full resync was sent
	Done     bool           // VPP has acknowledged the first full resync
	InFlight uint64         // sequence number of the transaction under way; 0: none
	Left     int            // keys that VPP gets after a back-off
	Waits    bool           // changes wait for their turn, or for the end of an interim state
	Overdue  bool           // the transaction in flight takes longer than overdue
	Last     *event.Committed
	Refused  []event.Change      // refused objects, with the reason
	Values   int                 // values wanted in VPP
	Unwell   []event.ValueStatus // values not configured, and why; sorted by key
	Trouble  error               // last error of the renderers
}

// overdue is how long VPP may take for a transaction before the agent reports itself unhealthy. A full resync of a large cluster
// takes one or two seconds.
const overdue = 30 * time.Second

// Synced reports that every source is in sync, VPP is connected and nothing waits to be programmed.
func (s *Status) Synced() bool { return s.Healthy() && s.InFlight == 0 && s.Left == 0 }

// Healthy reports that every source is in sync, VPP is connected and was programmed, and transactions end in time.
func (s *Status) Healthy() bool {
	for _, src := range s.Sources {
		if src.Status != event.InSync {
			return false
		}
	}
	return s.VPP.Connected && s.Done && s.Last != nil && s.Last.Err == nil && !s.Overdue
}

// Started reports that the first full resync was sent.
func (c *Controller) Started() bool { return c.phase == running }

// Well reports that VPP is connected and acknowledged the last transaction.
func (c *Controller) Well() bool {
	return c.Started() && c.vpp.Connected && c.last != nil && c.last.Err == nil
}

// small is the part of Status whose size does not depend on the number of objects.
func (c *Controller) small() Status {
	st := Status{
		Overdue: c.inFlight != 0 && !c.sentAt.IsZero() && c.now.Sub(c.sentAt) > overdue,
		VPP:     c.vpp, Started: c.phase == running, Done: c.done, InFlight: c.inFlight, Left: len(c.left), Last: c.last, Values: c.values.sent,
		Waits: c.fresh || len(c.lanes) > 0 || len(c.values.held) > 0 || c.way != nil,
	}
	for _, src := range c.sources {
		st.Sources = append(st.Sources, *src)
	}
	slices.SortFunc(st.Sources, func(a, b event.SyncStatus) int { return strings.Compare(a.Source, b.Source) })
	return st
}

// Status returns the controller's state. Call it inside Ask when Run is running.
func (c *Controller) Status() Status {
	st := c.small()
	st.Located, st.Refused, st.Trouble = c.located, c.refusals(), c.trouble
	for _, v := range c.statuses {
		st.Unwell = append(st.Unwell, v)
	}
	slices.SortFunc(st.Unwell, func(a, b event.ValueStatus) int { return strings.Compare(a.Key, b.Key) })
	return st
}

// OwnerStatus is the state of the values of one owner.
type OwnerStatus struct {
	Owner  string
	Keys   []string
	Notes  []model.Note
	Unwell []event.ValueStatus // those of Keys that are not configured
}

// State returns the worst state among the owner's values; Configured if all are configured.
func (o *OwnerStatus) State() event.State {
	worst := event.Configured
	for _, v := range o.Unwell {
		worst = max(worst, v.State)
	}
	return worst
}

// Owners lists the owners whose names start with prefix. Call it inside Ask when Run is running.
func (c *Controller) Owners(prefix string) []OwnerStatus {
	var out []OwnerStatus
	for _, owned := range c.values.List(prefix) {
		out = append(out, ownerStatus(owned, c.statuses))
	}
	return out
}

func ownerStatus(owned Owned, unwell map[string]event.ValueStatus) OwnerStatus {
	o := OwnerStatus{Owner: owned.Owner, Keys: owned.Keys, Notes: owned.Notes}
	for _, key := range owned.Keys {
		if v, bad := unwell[key]; bad {
			o.Unwell = append(o.Unwell, v)
		}
	}
	return o
}

// CountUnwell counts the values that are not configured, by state.
func (c *Controller) CountUnwell() map[event.State]int {
	out := map[event.State]int{}
	for _, v := range c.statuses {
		out[v.State]++
	}
	return out
}
