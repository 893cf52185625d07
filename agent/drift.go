package agent

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// driftLimit bounds the time of comparing a VPP with the desired state.
const driftLimit = time.Minute

// servePlan answers with the changes that a resync would make.
func (a *Agent) servePlan(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), driftLimit)
	defer cancel()
	plan, err := a.vppagent.Drift(ctx, r.URL.Query().Get("sessions") == "true")
	if err != nil {
		httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
		return
	}
	httpserver.JSON(w, http.StatusOK, plan)
}

// driftShown is how long status and Kubernetes show a drift after the recheck found it.
const driftShown = 10 * time.Minute

// drift records the recent changes of other programs in VPP.
func (p *parts) drift(list []vppagent.Drifted) (out []DriftStatus) {
	now := p.now()
	for _, d := range list {
		if now.Sub(d.Last) < driftShown {
			one := DriftStatus{Key: d.Key, What: string(d.What), Times: d.Times, Last: d.Last, Repaired: d.Repaired, Contest: d.Contest}
			if now.Sub(d.Last) < 2*p.cfg.Recheck+time.Minute {
				one.Error = d.Err
			}
			out = append(out, one)
		}
	}
	return out
}

func (p *parts) now() time.Time {
	if p.cfg.Now != nil {
		return p.cfg.Now()
	}
	return time.Now()
}

// driftProblem returns the problem that the agent reports to Kubernetes for a drift. Its text stays the same while it lasts:
// each change would make another Event.
func driftProblem(ref model.Ref, d *DriftStatus) event.Problem {
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
func (p *picture) driftProblems() (out []event.Problem) {
	list := p.drift(p.vppagent.Snapshot().Drift)
	if len(list) == 0 {
		return nil
	}
	if node := (model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}); len(list) > mostDriftEvents {
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
		if !known || p.cfg.NoServices {
			ref = model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}
		}
		out = append(out, driftProblem(ref, &list[i]))
	}
	return out
}

// FetchPlan fetches, from the agent at a unix socket, the changes that a resync would make in VPP. It only reads VPP. With
// sessions it also counts the NAT sessions that the changes would cut, which stops VPP's forwarding while it counts.
func FetchPlan(ctx context.Context, socket string, sessions bool) (*vppagent.Plan, error) {
	plan := &vppagent.Plan{}
	return plan, fetch(ctx, socket, "/plan?sessions="+strconv.FormatBool(sessions), plan)
}
