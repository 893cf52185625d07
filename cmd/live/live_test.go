package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	agentlive "github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

var came = hops.Header{Protocol: "TCP", Source: "10.1.1.2", SourcePort: 2001, Destination: "10.96.0.10", DestinationPort: 80}

// to is the path of that packet to a backend.
func to(backend string) []hops.Hop {
	sent := came
	sent.Destination = backend
	return []hops.Hop{
		{Node: "node-1", GraphNode: "ip4-input", Kind: hops.Input, Interface: "pod-prod/a", Packet: &came},
		{Node: "node-1", GraphNode: "nat44-ed-out2in", Kind: hops.NAT44, Translation: &hops.Translation{Before: came, After: sent}},
		{Node: "node-1", GraphNode: "tx", Kind: hops.Output, Interface: "pod-prod/b", Packet: &sent},
	}
}

func answer(backend string) *agentlive.Answer {
	return &agentlive.Answer{Node: "node-1", From: "prod/a", To: "10.96.0.10:80", Packet: came, Flags: "S", Path: to(backend)}
}

// predicted predicts one outcome for each of two backends.
func predicted(s trace.Step) trace.Answer {
	if s.From != "pod:prod/a" || s.To != "10.96.0.10:80" || s.SourcePort != 2001 || s.Flags != "S" || s.Protocol != "TCP" {
		return trace.Answer{Error: "another packet"}
	}
	return trace.Answer{Verdict: trace.Delivered, Reason: "both", Outcomes: []trace.Outcome{
		{Verdict: trace.Delivered, Reason: "first", Path: to("10.1.2.2")}, {Verdict: trace.Delivered, Reason: "second", Path: to("10.1.2.3")},
	}}
}

// ran runs the command with an answer, and returns its output and exit code.
func ran(t *testing.T, a *agentlive.Answer, predict func(trace.Step) trace.Answer, format string, args ...string) (string, int) {
	t.Helper()
	s, out := Settings{}, show.Output(format)
	var text bytes.Buffer
	cmd := &cobra.Command{SilenceErrors: true, SilenceUsage: true, RunE: func(cmd *cobra.Command, args []string) error {
		return s.Run(cmd, args, func(_ context.Context, q agentlive.Question) (*agentlive.Answer, error) {
			want := agentlive.Question{From: model.PodID{Namespace: "prod", Name: "a"}, To: "prod/web:80", Protocol: "TCP", Time: 10 * time.Second}
			if q.Inject {
				want.Inject, want.SourcePort = true, 4321
			}
			if q != want {
				t.Errorf("asked %+v", q)
			}
			return a, nil
		}, predict, &out)
	}}
	s.AddFlags(cmd)
	cmd.SetArgs(args)
	cmd.SetOut(&text)
	cmd.SetErr(&bytes.Buffer{})
	err := cmd.ExecuteContext(t.Context())
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return text.String() + err.Error(), e.Code
	}
	if err != nil {
		return text.String() + err.Error(), exit.Failed
	}
	return text.String(), exit.OK
}

// The prediction for the backend that VPP chose is the one that is compared. Another backend is a difference.
func TestRunCompares(t *testing.T) {
	if text, code := ran(t, answer("10.1.2.3"), predicted, "", "prod/a", "prod/web:80"); code != exit.OK || !strings.Contains(text, "delivered, second") || strings.Contains(text, "!=") || strings.Count(text, " =  ") != 3 {
		t.Errorf("exit code %d\n%s", code, text)
	}
	text, code := ran(t, answer("10.1.9.9"), predicted, "", "pod:prod/a", "prod/web:80", "tcp")
	if code != exit.Differs || strings.Count(text, "!=") != 1 || strings.Count(text, " =  ") != 1 {
		t.Errorf("exit code %d\n%s", code, text)
	}
	text, code = ran(t, answer("10.1.2.3"), predicted, "json", "prod/a", "prod/web:80")
	var r Result
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != exit.OK || r.Equal == nil || !*r.Equal || len(r.Predicted) != 3 || len(r.Path) != 3 || len(r.Rows) != 3 {
		t.Errorf("exit code %d, %v\n%s", code, err, text)
	}
	if text, code := ran(t, answer("10.1.2.3"), nil, "", "prod/a", "prod/web:80"); code != exit.OK || strings.Contains(text, "predicted") || !strings.Contains(text, "nat44-ed-out2in") {
		t.Errorf("exit code %d\n%s", code, text)
	}
	none := func(trace.Step) trace.Answer { return trace.Answer{Error: "no such pod"} }
	if text, code := ran(t, answer("10.1.2.3"), none, "", "prod/a", "prod/web:80"); code != exit.Wrong || !strings.Contains(text, "no such pod") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// The text says that the packet was injected, and which sessions are left.
func TestRunInjects(t *testing.T) {
	a := answer("10.1.2.3")
	a.Injected, a.Left = true, []string{"a session of nat44", "a session of the access lists of pod-prod/a, input"}
	text, code := ran(t, a, predicted, "", "prod/a", "prod/web:80", "--inject", "--source-port", "4321")
	if code != exit.OK || !strings.Contains(text, "TCP, the packet that was injected on node-1\n") || !strings.HasSuffix(text, "\nleft in VPP until it expires:\n  a session of nat44\n  a session of the access lists of pod-prod/a, input\n") {
		t.Errorf("exit code %d\n%s", code, text)
	}
	if text, _ := ran(t, answer("10.1.2.3"), predicted, "", "prod/a", "prod/web:80"); strings.Contains(text, "injected") || strings.Contains(text, "left in VPP") {
		t.Error(text)
	}
}

func TestRunRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"prod/a":                             "want FROM TO",
		"prod/a b c d":                       "want FROM TO",
		"a prod/web:80":                      "want NAMESPACE/POD",
		"node:node-1 prod/web:80":            "want NAMESPACE/POD",
		"prod/a prod/web:80 SCTP":            "must be TCP, UDP or ICMP",
		"prod/a prod/web:80 --duration 2m":   "at most 1m0s",
		"prod/a prod/web:80 --duration 0s":   "at most 1m0s",
		"prod/a prod/web:80 --source-port 9": "--source-port: needs --inject",
	} {
		if text, code := ran(t, nil, nil, "", strings.Fields(args)...); code != exit.Wrong || !strings.Contains(text, want) {
			t.Errorf("%q: exit code %d, %s", args, code, text)
		}
	}
}

// Of runs the command in the agent's pod on the node of the pod.
func TestOf(t *testing.T) {
	dir := t.TempDir()
	b, err := json.Marshal(Result{Answer: answer("10.1.2.3")})
	if err != nil {
		t.Fatal(err)
	}
	script := `#!/bin/sh
case "$1 $2" in
"get pod") echo '{"spec":{"nodeName":"node-3"}}' ;;
"get pods") echo '{"items":[{"metadata":{"name":"agent-3"},"spec":{"nodeName":"node-3"},"status":{"phase":"Running"}}]}' ;;
*) echo "$@" >` + filepath.Join(dir, "asked") + `; echo '` + string(b) + `' ;;
esac
`
	program := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECTL", program)
	ask := Of(&kubectl.Agents{Namespace: "system", Selector: "a=b", Container: "agent", Program: "contiv-agent"}, "")
	got, err := ask(t.Context(), agentlive.Question{From: model.PodID{Namespace: "prod", Name: "a"}, To: "prod/web:80", Protocol: "TCP", Time: 3 * time.Second})
	if err != nil || got.Node != "node-1" || len(got.Path) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	if want := "trace --live --no-prediction --output=json --duration=3s -- prod/a prod/web:80 TCP\n"; err != nil || !strings.HasSuffix(string(asked), want) || !strings.Contains(string(asked), "agent-3") {
		t.Errorf("%s, %v", asked, err)
	}
	q := agentlive.Question{From: model.PodID{Namespace: "prod", Name: "a"}, To: "10.1.2.3", Protocol: "ICMP", Time: time.Second, Inject: true, SourcePort: 9}
	if _, err := ask(t.Context(), q); err != nil {
		t.Error(err)
	}
	asked, err = os.ReadFile(filepath.Join(dir, "asked"))
	if want := "--duration=1s --inject --source-port=9 -- prod/a 10.1.2.3 ICMP\n"; err != nil || !strings.HasSuffix(string(asked), want) {
		t.Errorf("%s, %v", asked, err)
	}
}
