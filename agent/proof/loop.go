package proof

import (
	"context"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/verify"
)

// Loop is what a prover looks into: the loop of an agent, and facts beside it.
type Loop struct {
	Controller *controller.Controller
	// Settings returns the agent's settings, as far as VPP's state depends on them. The located interfaces may be nil.
	Settings func(*event.Located) verify.Config
	// Waiting returns what is missing for being in sync.
	Waiting func(*controller.Status) string
	// Policies has the policies that the agent refuses; nil: it enforces none.
	Policies *policy.Processor
	// Writes counts the agent's requests that change VPP.
	Writes func() uint64
}

// Look implements Config.Look. While the loop stands still, objects are read.
func (l Loop) Look(ctx context.Context, objects func()) (m Moment, err error) {
	err = l.Controller.Ask(ctx, func(c *controller.Controller) {
		st := c.Status()
		m = Moment{Busy: l.busy(&st), Settings: l.Settings(st.Located), Mark: Mark{st.VPP.Generation, l.Writes()}}
		m.Settings.Refused = l.refused()
		objects()
	})
	return m, err
}

// refused returns the policies that ask for too much, each with the reason.
func (l Loop) refused() map[model.Ref]string {
	if l.Policies == nil {
		return nil
	}
	out := map[model.Ref]string{}
	for _, s := range l.Policies.Policies() {
		if s.Refused != "" {
			out[s.Policy.Ref()] = s.Refused
		}
	}
	return out
}

// busy returns why VPP does not have the desired state; "": it has.
func (l Loop) busy(st *controller.Status) string {
	switch {
	case !st.Synced():
		return "the agent is not in sync: " + l.Waiting(st)
	case st.Waits:
		return "changes wait for VPP"
	}
	return ""
}
