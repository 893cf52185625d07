package agent

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// driverStatus adds the state of the driver. Until the driver has received everything, the agent is not healthy.
func (p *parts) driverStatus(out *Status) {
	if p.cfg.Driver == nil {
		return
	}
	st := p.cfg.Driver.Status()
	out.driver, out.Driver = st, attachment.ShowDriver(st)
	if st.PID != 0 && st.InSync {
		return
	}
	out.InSync, out.Ready = false, false
	if out.Waiting == "" {
		out.Waiting = "the dataplane driver"
		if st.PID == 0 && st.Trouble != "" {
			out.Waiting += ": " + st.Trouble
		}
	}
}

// drivenStatus returns the state of a policy, as the driver reports it for its endpoints.
func drivenStatus(s policy.Status, driver *felix.SupervisorStatus) PolicyStatus {
	status := PolicyStatus{Object: s.Policy.ID.String(), Tier: s.Policy.Tier, State: stateIdle, Text: governs(s)}
	if len(s.Endpoints) == 0 {
		return status
	}
	worst := event.Configured
	if !driver.InSync || driver.Behind > 0 {
		worst = event.Pending
		status.Reasons = append(status.Reasons, "the driver has not received everything")
	}
	for _, at := range s.Endpoints {
		switch health := healthOf(driver, at); health {
		case felix.Up:
		case felix.Error:
			worst = max(worst, event.Failed)
			status.Reasons = append(status.Reasons, at.Endpoint+": the driver reports an error")
		case "":
			worst = max(worst, event.Pending)
			status.Reasons = append(status.Reasons, at.Endpoint+": the driver has not reported it")
		default:
			worst = max(worst, event.Pending)
			status.Reasons = append(status.Reasons, fmt.Sprintf("%s: the driver reports %q", at.Endpoint, health))
		}
	}
	status.State = worst.String()
	return status
}

// healthOf returns the driver's report about an endpoint.
func healthOf(driver *felix.SupervisorStatus, at policy.Applied) felix.Health {
	for id, health := range driver.Endpoints {
		if id.Host() == at.Host && (id.Workload == at.Endpoint || at.Host && id.Endpoint == at.Endpoint) {
			return health
		}
	}
	return ""
}
