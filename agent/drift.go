package agent

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/contiv-agent/contiv-agent/httpserver"
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

func (p *parts) now() time.Time {
	if p.cfg.Now != nil {
		return p.cfg.Now()
	}
	return time.Now()
}

// FetchPlan fetches, from the agent at a unix socket, the changes that a resync would make in VPP. It only reads VPP. With
// sessions it also counts the NAT sessions that the changes would cut, which stops VPP's forwarding while it counts.
func FetchPlan(ctx context.Context, socket string, sessions bool) (*vppagent.Plan, error) {
	plan := &vppagent.Plan{}
	return plan, fetch(ctx, socket, "/plan?sessions="+strconv.FormatBool(sessions), plan)
}
