package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/verify"
)

// The states that only objects have. The others are those of values (event.State): PENDING, RETRYING, INVALID, ….
const (
	Idle    = "IDLE"    // a policy without endpoints on this node
	Skipped = "SKIPPED" // a Service that another proxy serves
	Partial = "PARTIAL" // a part of it is not served or not enforced, for a reason in the object; the rest is
	Refused = "REFUSED" // it is not served or not enforced at all, for a reason in the object
	Held    = "HELD"    // the removal of many objects at once, or a first sync without them
)

// wellStates returns the states without a problem.
func wellStates() []string {
	return []string{event.Configured.String(), Idle, Skipped}
}

// gravest returns the other states, most severe first. A state that is missing here is more severe than all.
func gravest() []string {
	return []string{
		Held, event.Failed.String(), event.Retrying.String(), event.Invalid.String(), event.Unimplemented.String(), event.Pending.String(),
		Refused, Partial,
	}
}

// well reports whether a state is without a problem.
func well(state string) bool { return slices.Contains(wellStates(), state) }

// worse returns the more severe of two states.
func worse(a, b string) string {
	rank := func(s string) int {
		if well(s) {
			return len(gravest()) + slices.Index(wellStates(), s)
		}
		return slices.Index(gravest(), s) // -1: unknown
	}
	if rank(b) < rank(a) {
		return b
	}
	return a
}

func withReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// problems returns all problems of a status, most severe first, one per object. It evaluates every field of Status that can
// have a problem: TestSummaryLooksAtEveryField has the table.
func (st *Status) problems() []Problem {
	found := map[string]Problem{}
	add := func(object, state string, texts ...string) {
		if well(state) {
			return
		}
		p := Problem{object, state, strings.Join(texts, "; ")}
		if old, known := found[object]; known {
			if p.State = worse(old.State, state); p.State == old.State {
				p.Text = old.Text
			}
		}
		found[object] = p
	}
	for _, s := range st.Services {
		add("Service "+s.Name, s.State, s.Reasons...)
	}
	for _, p := range st.Policies {
		add(p.Object, p.State, p.Reasons...)
	}
	for _, r := range st.Refused {
		if _, known := found[r.Object]; !known { // the policy's row has more detail
			add(r.Object, Refused, r.Error)
		}
	}
	for _, n := range st.Notes {
		if n.State != "" {
			add(n.Object, n.State, n.Reason)
		}
	}
	for _, v := range st.Unwell {
		add(v.Key, v.State, v.reasonText())
	}
	for _, d := range st.Drift {
		if d.Error != "" {
			add(d.Key, event.Retrying.String(), d.Error)
		}
		if d.Contest != "" {
			add(d.Key, event.Retrying.String(), d.Contest)
		}
	}
	st.surroundings(add)
	out := make([]Problem, 0, len(found))
	for _, p := range found {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(slices.Index(gravest(), a.State), slices.Index(gravest(), b.State)), strings.Compare(a.Object, b.Object))
	})
	return out
}

// surroundings adds the problems of the agent's neighbours: VPP, sources, Felix, a driver.
func (st *Status) surroundings(add func(object, state string, texts ...string)) {
	pending, failed := event.Pending.String(), event.Failed.String()
	if !st.VPP.Connected {
		add("VPP", failed, cmp.Or(st.VPP.Error, "not connected"))
	}
	if st.VPP.Rival != "" {
		add("VPP", failed, st.VPP.Rival)
	}
	if st.VPP.Silent != "" {
		add("VPP", failed, st.VPP.Silent)
	}
	if p := st.VPP.Proof; p != nil && p.Repeats && p.Verdict == verify.Different {
		add("VPP", Partial, "verify: "+p.String())
	}
	for _, src := range st.Sources {
		switch {
		case src.Error != "":
			add("source "+src.Name, event.Retrying.String(), src.Error)
		case src.Status != event.InSync.String():
			add("source "+src.Name, pending, src.Status)
		}
	}
	if st.Last != nil && st.Last.Error != "" {
		add("last transaction", failed, st.Last.Error)
	}
	endpoints := func(list []attachment.Endpoint) {
		for _, e := range list {
			if e.Status != string(felix.Up) {
				add("endpoint "+e.Name, pending, withReason(e.Status, e.Reason))
			}
		}
	}
	if f := st.Felix; f != nil {
		if f.Waits() {
			add("Felix", pending, f.State)
		}
		endpoints(f.Endpoints)
	}
	if t := st.NAT; t != nil && t.Problem != "" {
		state := Partial
		if t.Full {
			state = failed
		}
		add("NAT session table", state, t.Problem)
	}
	if d := st.Driver; d != nil {
		switch {
		case d.PID == 0:
			add("dataplane driver", failed, cmp.Or(d.Trouble, "does not run"))
		case !d.InSync || d.Behind > 0:
			add("dataplane driver", pending, fmt.Sprintf("%d messages behind", d.Behind))
		}
		endpoints(d.Endpoints)
	}
	if !st.Ready && st.Waiting != "" {
		add("agent", pending, st.Waiting)
	}
	if st.Busy != "" {
		add("event loop", pending, st.Busy)
	}
}

// summarize sets the fields that follow from all others.
func (st *Status) summarize() {
	st.Problems = st.problems()
	st.Healthy = st.Ready && len(st.Problems) == 0
	st.Summary = countStates(st.Problems)
}

// countStates returns a text such as "2 FAILED, 16 REFUSED", most severe first; "" if there are none.
func countStates(problems []Problem) string {
	n := map[string]int{}
	var states []string
	for _, p := range problems {
		if n[p.State]++; n[p.State] == 1 {
			states = append(states, p.State)
		}
	}
	for i, s := range states {
		states[i] = fmt.Sprintf("%d %s", n[s], s)
	}
	return strings.Join(states, ", ")
}

func (v *Value) reasonText() string {
	texts := []string{v.Error}
	if len(v.Waiting) > 0 {
		texts = append(texts, "waiting for "+strings.Join(v.Waiting, ", "))
	}
	return strings.TrimPrefix(strings.Join(texts, ", "), ", ")
}
