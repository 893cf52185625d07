package agent

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent/flows/tally"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/test/samples"
)

const stagedPolicies = `
apiVersion: projectcalico.org/v3
kind: StagedKubernetesNetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  ingress: [{from: [{ipBlock: {cidr: 10.2.9.0/24}}, {ipBlock: {cidr: 10.1.1.0/24}}]}]
  egress: [{to: [{ipBlock: {cidr: 10.3.0.0/16}}]}, {to: [{podSelector: {}}], ports: [{port: 53}]}]
---
apiVersion: projectcalico.org/v3
kind: StagedGlobalNetworkPolicy
metadata: {name: ignored}
spec: {stagedAction: Ignore, ingress: [{action: Deny}]}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: later, annotations: {contiv-agent.io/staged: "true"}}
spec:
  priority: 3
  subject: {namespaces: {}}
  egress: [{action: Deny, to: [{networks: [10.3.8.0/24]}]}]
`

// Flows say what staged policies would change, and so do rows and a metric. VPP does not.
func TestStagedPolicies(t *testing.T) {
	w := watchFlows(t, "staged", stagedPolicies)
	for _, s := range []struct{ in, from, to string }{
		{"uplink", "10.2.0.7:1000", "10.1.1.2:80"},       // would be dropped
		{"uplink", "10.2.0.7:1001", "10.1.1.2:80"},       // again
		{"uplink", "10.2.9.7:1002", "10.1.1.2:80"},       // would pass
		{webDoor, "10.1.1.2:1003", "10.3.8.1:53"},        // would be dropped by the annotated policy
		{webDoor, "10.1.1.2:1004", "10.3.9.1:53"},        // another rule, the same verdict: rule 1 of both
		{clientDoor, "10.1.1.3:1005", "10.96.0.10:80"},   // a Service: evaluated at its endpoint
		{webDoor, "10.1.1.3:1006", "10.3.0.1:53"},        // dropped, and not by a policy
		{webDoor, "10.1.1.2:1007", "10.3.7.1:53"},        // dropped in both
		{clientDoor, "10.1.1.3:40000", "203.0.113.9:53"}, // dropped in both
	} {
		w.send(s.in, tcp(s.from, s.to))
	}
	w.look()
	const client = "default/client-7d9f8b6c5-x2x4z"
	const isolates = "denied: no rule of NetworkPolicy default/web allows it"
	for verdict, want := range map[flows.Verdict][]string{
		flows.Dropped: {
			"sessions: allowed TCP 10.2.0.7:PORT -> default/web:80 ingress, allowed by NetworkPolicy default/web ingress rule 1 (with StagedKubernetesNetworkPolicy default/web: dropped, " + isolates + " (ingress of default/web, tier default)); 2 connections, 2 packets",
			"sessions: allowed TCP default/web:1003 -> 10.3.8.1:53 egress, allowed by NetworkPolicy default/web egress rule 1 (with AdminNetworkPolicy later: dropped, denied by AdminNetworkPolicy later egress rule 1); 1 connections",
			"nat44: allowed TCP default/web:1003 -> 10.3.8.1:53 (dialled 10.3.8.1:53, source 192.168.16.1:PORT) egress, allowed by NetworkPolicy default/web egress rule 1 (with AdminNetworkPolicy later: dropped, denied by AdminNetworkPolicy later egress rule 1); 1 connections, 1 packets, 40 bytes", // does not count again
			"nat44: allowed TCP " + client + ":1005 -> default/web:8080 (dialled 10.96.0.10:80, source 10.1.1.3:1005) egress, allowed by NetworkPolicy default/web egress rule 2 (with StagedKubernetesNetworkPolicy default/web: dropped, " + isolates + " (egress of " + client + ", tier default)); 1 connections, 1 packets, 40 bytes",
		},
		flows.Allowed: {
			"capture: dropped TCP 10.2.9.7:1002 -> default/web:80 ingress, denied: NetworkPolicy default/web isolates default/web for ingress and no rule allows it (with StagedKubernetesNetworkPolicy default/web: allowed, allowed by NetworkPolicy default/web ingress rule 1); 1 packets, 40 bytes",
		},
	} {
		got := w.lines(&flows.Filter{Staged: verdict})
		for i := range got { // of two connections, either is the latest
			got[i] = regexp.MustCompile(`(10\.2\.0\.7|192\.168\.16\.1):\d+`).ReplaceAllString(got[i], "$1:PORT")
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("would be %s (-want +got):\n%s", verdict, diff)
		}
	}
	answer, err := w.watcher.Ask(t.Context(), 0, nil)
	if err != nil || answer.Uncounted != "" {
		t.Fatal(err, answer.Uncounted)
	}
	for i := range answer.Staged {
		if !strings.Contains(answer.Staged[i].Latest, "(with ") {
			t.Errorf("the latest flow %q", answer.Staged[i].Latest)
		}
		if flow := answer.Staged[i].LatestFlow; flow == nil || flow.String() != answer.Staged[i].Latest {
			t.Errorf("the fields of the latest flow %v", flow)
		}
		answer.Staged[i].Latest, answer.Staged[i].LatestFlow = "", nil
	}
	want := []tally.Row{{Policy: "AdminNetworkPolicy later", Action: "Set", WouldDrop: 1}, {Policy: "StagedKubernetesNetworkPolicy default/web", Action: "Set", WouldDrop: 3, WouldPass: 1, Same: 1}}
	if diff := cmp.Diff(want, answer.Staged); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for series, want := range map[string]float64{
		`contiv_staged_changes_total{policy="StagedKubernetesNetworkPolicy default/web",verdict="dropped"}`: 3,
		`contiv_staged_changes_total{policy="StagedKubernetesNetworkPolicy default/web",verdict="allowed"}`: 1,
		`contiv_staged_changes_total{policy="AdminNetworkPolicy later",verdict="dropped"}`:                  1,
	} {
		if got := samples.Read(t, w.agent.registry)[series]; got != want {
			t.Errorf("%s %v, want %v", series, got, want)
		}
	}
}
