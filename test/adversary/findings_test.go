package adversary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/trace"
)

// finding is a sequence that once broke the law: questions of trace --stateful about testdata/objects.yaml, of which the last packet must
// not arrive.
type finding struct {
	name  string
	steps []string
	// switched turns the fix off: then the last packet arrives. nil: there is no such option.
	switched func(*agent.Config)
}

// findings whose fix has no option are seen by TestFixesAreNeeded, which takes it out.
var findings = []finding{
	{name: "a revoked connection goes on as the server speaks", steps: []string{
		`{"from":"pod:prod/client","to":"10.96.0.20:6379","protocol":"TCP","sourcePort":40000}`,
		`{"from":"pod:prod/client","to":"10.96.0.20:6379","protocol":"TCP","sourcePort":40000,"flags":"PA"}`,
		`{"from":"pod:prod/client","to":"10.96.0.20:6379","protocol":"TCP","sourcePort":40000,"flags":"PA","oneWay":true,"delete":["NetworkPolicy prod/redis"],"apply":["testdata/isolate.yaml"],"after":"1s"}`,
		`{"from":"pod:prod/redis","to":"10.1.1.2:40000","protocol":"TCP","sourcePort":6379,"flags":"PA","oneWay":true}`,
		`{"from":"pod:prod/client","to":"10.96.0.20:6379","protocol":"TCP","sourcePort":40000,"flags":"PA","oneWay":true}`,
	}},
	{name: "a dropped packet opens the door", steps: []string{
		`{"from":"pod:evil/evil","to":"10.96.0.20:6379","protocol":"TCP","sourcePort":4000}`,
		`{"from":"pod:evil/evil","to":"10.1.1.3:6379","protocol":"TCP","sourcePort":4000,"oneWay":true}`,
	}},
	{name: "a dropped datagram opens the door", steps: []string{
		`{"from":"pod:evil/evil","to":"10.96.0.20:6380","protocol":"UDP","sourcePort":4000}`,
		`{"from":"pod:evil/evil","to":"10.1.1.3:6380","protocol":"UDP","sourcePort":4000,"oneWay":true}`,
	}},
	{name: "a dropped packet opens the door of a pod on another node", steps: farSteps("TCP", 6379, "testdata/far.yaml")},
	{name: "a dropped datagram opens the door of a pod on another node", steps: farSteps("UDP", 6380, "testdata/far.yaml")},
	{name: "a denied flow passes after VPP restarts", steps: []string{
		`{"from":"pod:evil/evil","to":"10.1.1.3:6380","protocol":"UDP","sourcePort":4000,"oneWay":true}`,
		`{"from":"pod:evil/evil","to":"10.1.1.3:6380","protocol":"UDP","sourcePort":4000,"oneWay":true,"restart":"vpp:node-1"}`,
		`{"from":"pod:evil/evil","to":"10.1.1.3:6380","protocol":"UDP","sourcePort":4000,"oneWay":true,"after":"2s"}`,
	}},
	{name: "an address keeps the rights of the pod that had it", steps: []string{
		`{"from":"pod:prod/client","to":"10.1.1.3:6379","protocol":"TCP","sourcePort":40000}`,
		`{"from":"pod:evil/heir","to":"10.1.1.3:6379","protocol":"TCP","sourcePort":40000,"flags":"PA","oneWay":true,"delete":["Pod prod/client"],"apply":["testdata/heir.yaml"],"after":"1s"}`,
	}},
	{name: "a pod sends from the node's address", steps: []string{
		`{"from":"pod:evil/evil","to":"10.1.1.3:6379","protocol":"TCP","sourceAddress":"192.168.16.1","sourcePort":4000}`,
	}},
	{name: "a pod sends from an allowed pod's address", switched: sourceOff, steps: []string{
		`{"from":"pod:evil/evil","to":"10.1.1.3:6379","protocol":"TCP","sourceAddress":"10.1.1.2","sourcePort":4000}`,
	}},
	{name: "a pod sends from the NAT loopback", switched: sourceOff, steps: []string{
		`{"from":"pod:evil/evil","to":"10.1.1.3:6379","protocol":"TCP","sourceAddress":"10.1.1.254","sourcePort":4000}`,
	}},
	{name: "somebody outside sends from an allowed pod's address", switched: sourceOff, steps: []string{
		`{"from":"external:198.51.100.7@node-1","to":"10.1.1.3:6379","protocol":"TCP","sourceAddress":"10.1.1.2","sourcePort":4000}`,
	}},
	{name: "somebody outside sends from the NAT loopback", switched: sourceOff, steps: []string{
		`{"from":"external:198.51.100.7@node-1","to":"10.1.1.3:6379","protocol":"TCP","sourceAddress":"10.1.1.254","sourcePort":4000}`,
	}},
	{name: "somebody outside sends fragments from an allowed pod's address", switched: sourceOff, steps: []string{
		`{"from":"external:198.51.100.7@node-1","to":"10.1.1.3:6379","protocol":"TCP","sourceAddress":"10.1.1.2","sourcePort":4000,"fragments":2}`,
	}},
	{name: "the fragments of a denied datagram", steps: []string{
		`{"from":"pod:evil/evil","to":"10.1.1.3:6380","protocol":"UDP","sourcePort":4000,"fragments":2,"only":"later","identification":7}`,
		`{"from":"pod:evil/evil","to":"10.1.1.3:6380","protocol":"UDP","sourcePort":4000,"fragments":2,"only":"reversed","identification":7}`,
	}},
	{name: "a denied association opens the way back", steps: []string{
		`{"from":"pod:prod/redis","to":"10.1.1.5:3868","protocol":"SCTP","sourcePort":5000,"oneWay":true}`,
		`{"from":"pod:prod/closed","to":"10.1.1.3:3868","protocol":"SCTP","sourcePort":5001,"oneWay":true}`,
	}},
}

// farSteps dial a Service with its endpoint on another node, and then the endpoint, from the same port.
func farSteps(protocol string, port int, objects ...string) []string {
	apply := `"` + strings.Join(objects, `","`) + `"`
	return []string{
		fmt.Sprintf(`{"from":"pod:evil/evil","to":"10.96.0.30:%d","protocol":"%s","sourcePort":4000,"apply":[%s]}`, port, protocol, apply),
		fmt.Sprintf(`{"from":"pod:evil/evil","to":"10.1.2.3:%d","protocol":"%s","sourcePort":4000,"oneWay":true}`, port, protocol),
	}
}

// TestPoliciesThatLetNodesIn: the second packet leaves nat44 with the node's address. A policy on another node that lets in that address does not let
// in the packet, unless the configuration trusts nodes' addresses; with cnat it never does.
func TestPoliciesThatLetNodesIn(t *testing.T) {
	for _, c := range []struct {
		r       agent.ServiceRenderer
		trusted bool
		want    trace.Verdict
	}{{agent.RendererAuto, false, trace.Dropped}, {agent.RendererAuto, true, trace.Delivered}, {agent.RendererCNAT, false, trace.Dropped}} {
		last := ask(t, agent.Config{Services: config.ServedBy(c.r), Policies: config.Policies{Config: policy.Config{TrustNodeAddresses: c.trusted}}}, farSteps("TCP", 6379, "testdata/far.yaml", "testdata/far-nodes.yaml"))
		if last.Verdict != c.want {
			t.Errorf("%s, trusted %v: %s (%s), want %s", c.r, c.trusted, last.Verdict, last.Reason, c.want)
		}
	}
}

func sourceOff(c *agent.Config) { c.Policies.ACL.SourceCheck = acl.SourceOff }

// TestFindings plays each finding with every renderer.
func TestFindings(t *testing.T) {
	for _, f := range findings {
		for _, r := range []agent.ServiceRenderer{agent.RendererAuto, agent.RendererCNAT} {
			t.Run(strings.ReplaceAll(f.name, " ", "-")+"/"+string(r), func(t *testing.T) {
				cfg := agent.Config{Services: config.ServedBy(r)}
				last := ask(t, cfg, f.steps)
				if last.Verdict == trace.Delivered {
					t.Errorf("the last packet arrived: %s\n%s", last.Reason, strings.Join(last.Outcomes[0].Hops, "\n"))
				}
				if f.switched == nil {
					return
				}
				f.switched(&cfg)
				if last = ask(t, cfg, f.steps); last.Verdict != trace.Delivered {
					t.Errorf("without the fix the last packet does not arrive either: %s", last.Reason)
				}
			})
		}
	}
}

// ask asks questions one after another: the last answer.
func ask(t *testing.T, cfg agent.Config, lines []string) (last trace.Answer) {
	t.Helper()
	objects, err := manifest.Load(filepath.Join("testdata", "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c := trace.NewCluster(trace.Config{Agent: cfg, Seed: 1})
	defer c.Close()
	if err := c.Apply(context.Background(), objects); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		s, err := trace.ParseStep([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if last = c.Send(context.Background(), s); last.Error != "" {
			t.Fatalf("%s: %s", line, last.Error)
		}
		if os.Getenv("CONTIV_SHOW") != "" {
			t.Logf("%s: %s %s", line, last.Verdict, last.Reason)
		}
	}
	return last
}
