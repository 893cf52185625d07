package realvpp

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
)

// demoEvents are the events of docs/traffic.md that the demo shows.
var demoEvents = []string{
	"policies revoke",
	"policies allow",
	"a Service gets an endpoint and loses it",
	"agents killed, policies change, agents start",
	"VPPs killed and started at once",
	"VPPs stopped for 3 s (SIGSTOP), policies change",
}

// traffic shows what flows of TCP, UDP and ICMP see while something happens: a part of TestVPPTraffic, with nat44.
func (d *demo) traffic(t *testing.T, path string) {
	w := openTraffic(t, path, agent.RendererNAT44)
	d.site = w.site
	d.say("Traffic while things change: nine clients and their flows to pods of two nodes, by VIP and directly (docs/traffic.md)")
	for _, e := range trafficEvents() {
		if !slices.Contains(demoEvents, e.name) {
			continue
		}
		r := w.play(e)
		came, wrong := r.story()
		d.report(e.name, came, wrong)
		w.tidy(&e)
	}
}

// story says what the flows of each class saw, and what of it policies do not say.
func (r *round) story() (came string, wrong error) {
	all, _, _ := r.tallies()
	allowed, letIn, revoked, denied := all["allowed"], all["let in"], all["revoked"], all["denied"]
	came = fmt.Sprintf("%d of %d allowed flows go on", allowed.alive, allowed.flows)
	if allowed.excused > 0 {
		came += fmt.Sprintf(" (%d end with VPP's translations)", allowed.excused)
	}
	came += fmt.Sprintf(", lost %d of %d, longest gap %s", allowed.lost, allowed.sent, allowed.gap.Round(gapUnit))
	if letIn.flows > 0 {
		came += fmt.Sprintf("; %d of %d start", letIn.alive, letIn.flows)
	}
	came += fmt.Sprintf("; later than 1 s after the acknowledgement: %d packets of %d denied flows", revoked.forbidden+denied.forbidden, revoked.flows+denied.flows)
	if allowed.alive+allowed.excused < allowed.flows || letIn.alive < letIn.flows || revoked.forbidden+denied.forbidden > 0 {
		wrong = errors.New("not what policies say")
	}
	return came, wrong
}
