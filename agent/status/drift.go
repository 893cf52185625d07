package status

import (
	"fmt"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// driftShown is how long status and Kubernetes show a drift after the recheck found it.
const driftShown = 10 * time.Minute

// drift records the recent changes of other programs in VPP.
func (r *Reader) drift(list []vppagent.Drifted) (out []Drift) {
	now := r.Now()
	for _, d := range list {
		if now.Sub(d.Last) < driftShown {
			one := Drift{Key: d.Key, What: string(d.What), Times: d.Times, Last: d.Last, Repaired: d.Repaired, Contest: d.Contest}
			if now.Sub(d.Last) < 2*r.Recheck+time.Minute {
				one.Error = d.Err
			}
			out = append(out, one)
		}
	}
	return out
}

// driftProblem returns the problem that the agent reports to Kubernetes for a drift. Its text stays the same while it lasts:
// each change would make another Event.
func driftProblem(ref model.Ref, d *Drift) event.Problem {
	text := "another program changed VPP: " + d.Key + " was " + d.What
	switch {
	case d.Contest != "":
		text += " again and again"
	case d.Repaired:
		text += "; the agent repaired it"
	}
	return event.Problem{Ref: ref, Reason: event.Drifted, Text: text}
}

// mostDriftEvents bounds the drifted values with a separate Event; beyond that they share one.
const mostDriftEvents = 20

// driftProblems returns the problems of drifts: on the Services whose values drifted, and on the Node for other values.
func (p *Picture) driftProblems() (out []event.Problem) {
	list := p.drift(p.VPPAgent.Snapshot().Drift)
	if len(list) == 0 {
		return nil
	}
	if node := (model.Ref{Kind: model.KindNode, Name: p.Node}); len(list) > mostDriftEvents {
		text := fmt.Sprintf("another program changed VPP: more than %d values differed from what the agent made", mostDriftEvents)
		return []event.Problem{{Ref: node, Reason: event.Drifted, Text: text}}
	}
	whose := map[string]model.Ref{}
	for _, o := range p.owners() {
		if ref := ownerRef(o.Owner); ref != (model.Ref{}) {
			for _, key := range o.Keys {
				whose[key] = ref
			}
		}
	}
	for i := range list {
		ref, known := whose[list[i].Key]
		if !known || !p.Services {
			ref = model.Ref{Kind: model.KindNode, Name: p.Node}
		}
		out = append(out, driftProblem(ref, &list[i]))
	}
	return out
}
