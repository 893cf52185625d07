package trace

import (
	"context"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// nodesAllowed lets the addresses of nodes, and everybody at one port, reach the server of node-2; nobody else comes in.
const nodesAllowed = `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: nodes, namespace: prod}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress:
  - from: [{ipBlock: {cidr: 192.168.16.0/24}}, {podSelector: {matchLabels: {app: nobody}}}]
  - ports: [{port: 81}]
`

// A session that a Service's packet left gives a pod its node's address when it dials the endpoint directly. On another node a policy that lets
// in the addresses of nodes does not let that pod in; the node itself neither, but where a rule lets in everybody. The policy's remark
// says so, and a setting admits both.
func TestNodeAddressesOfOtherNodes(t *testing.T) {
	const dial = `{"from":"pod:prod/client","protocol":"TCP","sourcePort":4000,"oneWay":true,`
	for _, tc := range []struct {
		name         string
		cfg          agent.Config
		bypass, node Verdict
	}{
		{"nat44", agent.Config{}, Dropped, Dropped},
		{"nat44, nodes trusted", agent.Config{Policies: config.Policies{Config: policy.Config{TrustNodeAddresses: true}}}, Delivered, Delivered},
		{"cnat", agent.Config{Services: config.ServedBy(agent.RendererCNAT)}, Dropped, Delivered},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewCluster(Config{Agent: tc.cfg})
			t.Cleanup(c.Close)
			change(t, c, objects(t, talkers(t)+nodesAllowed)...)
			for _, step := range []struct {
				line string
				want Verdict
			}{
				{dial + `"to":"10.96.0.2:80"}`, Dropped},
				{dial + `"to":"10.1.2.3:8080"}`, tc.bypass},
				{dial + `"to":"10.1.2.3:81"}`, Delivered},
				{`{"from":"pod:prod/client","to":"10.1.2.3:8080","protocol":"SCTP","oneWay":true}`, tc.bypass},
				{`{"from":"node:node-1","to":"10.1.2.3:8080","protocol":"TCP"}`, tc.node},
				{`{"from":"node:node-1","to":"10.1.2.3:81","protocol":"TCP"}`, Delivered},
				{`{"from":"node:node-2","to":"10.1.2.3:8080","protocol":"TCP"}`, Delivered},
				{`{"from":"external:192.168.16.77@node-2","to":"10.1.2.3:8080","protocol":"TCP","oneWay":true}`, Delivered},
			} {
				if a := c.Send(context.Background(), steps(t, step.line)[0]); a.Verdict != step.want || a.Error != "" {
					t.Errorf("%s: %s %s %s, not %s", step.line, a.Verdict, a.Reason, a.Error, step.want)
				}
			}
			said := false
			for _, n := range c.Agent("node-2").Notes(model.Ref{Kind: model.Kind(model.KindNetworkPolicy), Namespace: "prod", Name: "nodes"}) {
				said = said || strings.Contains(n, "addresses of nodes")
			}
			if said != (tc.name == "nat44") {
				t.Errorf("the policy's remark is there: %v", said)
			}
		})
	}
}
