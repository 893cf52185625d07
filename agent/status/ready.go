package status

import (
	"context"
	"fmt"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/controller"
)

// stuckLoop is how long one step of the loop may take before the node is unready. The first sync of 10,000 Services takes a
// second or two.
const stuckLoop = 10 * time.Second

// quiet is the time since the loop ended a step.
func (r *Reader) quiet() time.Duration { return since(r.Controller.Beat()) }

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// stuck returns why the loop may hang; "": it does not, or it does not run yet.
func (r *Reader) stuck() string {
	if beat := r.Controller.Beat(); beat.IsZero() || time.Since(beat) < stuckLoop {
		return ""
	}
	return fmt.Sprintf("the event loop has not ended a step for %s", r.quiet())
}

// Unready returns why the node cannot serve; "": it can. It waits for nothing that may be busy.
func (r *Reader) Unready() string {
	h := r.Controller.Health()
	if h.Ended {
		return controller.ErrStopped.Error()
	}
	if why := r.stuck(); why != "" {
		return why
	}
	st := &Status{Ready: h.Healthy()}
	if !st.Ready {
		st.Waiting = Waiting(&h.Status)
	}
	r.others(st)
	if st.Ready {
		return ""
	}
	return st.Waiting
}

// silentTooLong is how long VPP may be silent before health checks fail.
const silentTooLong = 10 * time.Second

// Hung returns why VPP is taken for hung, although it is connected; "": it answers, or works on a large change for some seconds.
func (r *Reader) Hung() string {
	now, silent := time.Now(), r.Conn.State().Silent
	if silent.For(now) < silentTooLong {
		return ""
	}
	return silent.Text(now)
}

// Serves reports whether VPP has the desired state. Sources do not count: while the API server is away, VPP keeps its
// state, and load balancers must not leave all nodes at once. They must not leave a node whose VPP works on a large change
// for some seconds, either. Serves does not wait for the loop.
func (r *Reader) Serves(context.Context) bool {
	st := r.Controller.Health()
	return r.Hung() == "" && !st.Ended && r.stuck() == "" && st.VPP.Connected && st.Started && st.Last != nil && st.Last.Err == nil && !st.Overdue
}
