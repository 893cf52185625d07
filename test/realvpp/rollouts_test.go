package realvpp

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

// TestVPPRollouts replaces the pods of a Service of ten endpoints again and again, under connections that are kept open and a stream of new ones, without
// network policies and with them. No request may fail, no endpoint that drains may get a new connection, and the agents hold no removal (ADR 35), though
// they would from 5 removals on. docs/traffic.md has what a run counted.
// CONTIV_ROLLOUTS is the number of rolling updates, CONTIV_VPP_CLIENTS that of the connections that are kept open in each family: a multiple of 8.
func TestVPPRollouts(t *testing.T) {
	path := theVPP(t)
	rolls := int(oracle.Setting(t, "CONTIV_ROLLOUTS", 3))
	slots := int(oracle.Setting(t, "CONTIV_VPP_CLIENTS", 200)) / rolloutClients
	var rows []string
	version := ""
	for _, renderer := range []agent.ServiceRenderer{agent.RendererNAT44, agent.RendererCNAT} {
		families := map[agent.ServiceRenderer][]bool{agent.RendererNAT44: {false}, agent.RendererCNAT: {false, true}}[renderer]
		for _, with := range []string{"without policies", "with policies"} {
			t.Run(fmt.Sprintf("%s %s", renderer, with), func(t *testing.T) {
				shape := servedShape{clients: rolloutClients, slots: slots, endpoints: 10, vips: families, policies: map[string]string{"with policies": clientsAlone}[with]}
				r := openRollouts(openServed(t, path, shape, "--service-renderer", string(renderer), "--hold-removals-min", "5"))
				if version = release.FindString(r.nodes[0].version()); isSimulated(path) {
					version = "sim"
				}
				r.run(rolls)
				r.nothingWasHeld()
				if renderer == agent.RendererNAT44 {
					r.drained()
				}
				for _, six := range families {
					n := r.tally(six)
					rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |", renderer, map[bool]string{false: "IPv4", true: "IPv6"}[six], with, n))
					t.Log(rows[len(rows)-1])
					r.judge(n)
				}
			})
		}
	}
	t.Logf("%d cores, load %s", runtime.NumCPU(), loadOf())
	recordTable(t, "rollouts "+version, fmt.Sprintf("\n%d rolling updates in each row. A machine with %d cores that also did other work; its load was %s at the end of the run.\n%s%s\n\n",
		rolls, runtime.NumCPU(), loadOf(), rolloutsHead, strings.Join(rows, "\n")))
}

// nothingWasHeld fails the test if an agent held removals: endpoints and pods that others replace are no loss.
func (r *rollouts) nothingWasHeld() {
	r.t.Helper()
	for _, n := range r.nodes {
		text, err := os.ReadFile(n.log())
		r.check(err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "msg=held ") {
				r.t.Errorf("%s: %s", n.log(), line)
			}
		}
	}
}

const rolloutsHead = `
| renderer | family | policies | took | open connections | requests | ended in order | **failed** | longest gap | new connections | **lost** | longest gap | **to draining endpoints** | first packets sent again | **dropped** | pods | shares: χ² | beyond 3 σ | worst |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

// clientsAlone adds to onlyClients that clients may reach nothing but the Service's pods.
const clientsAlone = onlyClients + `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: client, namespace: default}
spec: {podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: web}}}]}]}
`
