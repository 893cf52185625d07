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

// driftLimit bounds how long it may take to compare a VPP with what is wanted.
const driftLimit = time.Minute

// servePlan answers what a resync would change.
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

// drift is what other programs changed lately in VPP.
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

// driftProblem is the problem that the agent reports to Kubernetes for a drift. Its text stays the same while it is reported: each change would make an Event.
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

// mostDriftEvents is how many values that drifted have an Event each; more have one together.
const mostDriftEvents = 20

// driftProblems are on the Services whose values drifted, and of other values on the Node.
func (p *picture) driftProblems() (out []event.Problem) {
	list := p.drift(p.vppagent.Snapshot().Drift)
	if len(list) == 0 {
		return nil
	}
	if node := (model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}); len(list) > mostDriftEvents {
		text := fmt.Sprintf("another program changed VPP: more than %d values the agent made were not as it made them", mostDriftEvents)
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

// FetchPlan asks the agent behind a unix socket what a resync would change in VPP: where VPP is not as it is wanted, now. VPP is only
// read. With sessions the NAT sessions it would cut are counted, which stops VPP's forwarding meanwhile.
func FetchPlan(ctx context.Context, socket string, sessions bool) (*vppagent.Plan, error) {
	plan := &vppagent.Plan{}
	return plan, fetch(ctx, socket, "/plan?sessions="+strconv.FormatBool(sessions), plan)
}
