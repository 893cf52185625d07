package agent

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/contiv-agent/contiv-agent/serve"
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
		serve.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
		return
	}
	serve.JSON(w, http.StatusOK, plan)
}

// FetchPlan asks the agent behind a unix socket what a resync would change in VPP: where VPP is not as it is wanted, now. VPP is only
// read. With sessions the NAT sessions it would cut are counted, which stops VPP's forwarding meanwhile.
func FetchPlan(ctx context.Context, socket string, sessions bool) (*vppagent.Plan, error) {
	plan := &vppagent.Plan{}
	return plan, fetch(ctx, socket, "/plan?sessions="+strconv.FormatBool(sessions), plan)
}
