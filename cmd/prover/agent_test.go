package prover

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/verify"
)

// serve runs the socket of an agent until the test ends.
func serve(t *testing.T, server *control.Server) (socket string) {
	t.Helper()
	server.Logger = slog.New(slog.DiscardHandler)
	socket = filepath.Join(t.TempDir(), "s")
	l, err := httpserver.Unix(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = httpserver.HTTP(t.Context(), l, server.Handler(), server.Logger) }()
	return socket
}

// Without manifests the command asks the running agent. Output and exit codes are those of a proof with manifests.
func TestRunningAgent(t *testing.T) {
	var report *verify.Report
	var failed error
	socket := serve(t, &control.Server{Verify: func(context.Context) (*verify.Report, error) { return report, failed }})
	packet := &verify.Difference{Packet: "tcp 198.51.100.7:40000 -> 10.1.1.3:1 SYN", VPP: "passed", Policy: "denied"}
	for name, c := range map[string]struct {
		report *verify.Report
		err    error
		args   []string
		code   int
		want   string
	}{
		"equal":     {&verify.Report{Node: "node-1", Verdict: verify.Equal, Checks: []verify.Check{{Pod: "a/a", Packets: "ingress", Verdict: verify.Equal}}}, nil, nil, exit.OK, "node-1: 1 pods, 1 checks: 1 equal for all headers, 0 different, 0 not compared\n"},
		"different": {&verify.Report{Node: "node-1", Verdict: verify.Different, Checks: []verify.Check{{Pod: "a/a", Packets: "ingress", Verdict: verify.Different, Difference: packet}}}, nil, nil, exit.Differs, "a/a, ingress: different\n  packet  tcp 198.51.100.7:40000 -> 10.1.1.3:1 SYN\n"},
		"JSON":      {&verify.Report{Node: "node-1", Verdict: verify.Different, Checks: []verify.Check{{Pod: "a/a", Packets: "ingress", Verdict: verify.Different, Difference: packet}}}, nil, []string{"-o", "json"}, exit.Differs, `"verdict": "different"`},
		"unsettled": {&verify.Report{Node: "node-1", Verdict: verify.Unknown, Why: "the agent programmed VPP during each comparison"}, nil, nil, exit.Differs, "node-1: not compared: the agent programmed VPP during each comparison\n"},
		"refused":   {&verify.Report{Node: "node-1", Verdict: verify.Equal, Refused: []string{"NetworkPolicy prod/wide: it asks for 9 rules"}}, nil, nil, exit.OK, "node-1: refused, and compared as a policy that denies: NetworkPolicy prod/wide: it asks for 9 rules\n"},
		"omitted":   {&verify.Report{Node: "node-1", Verdict: verify.Equal, Omitted: []string{"Services: this agent serves none"}}, nil, nil, exit.OK, "node-1: without Services: this agent serves none\n"},
		"no VPP":    {nil, errors.New("connect to vpp: refused"), nil, exit.Failed, "connect to vpp: refused"},
		"no agent":  {nil, nil, []string{"--status-socket", socket + "x"}, exit.Failed, "no agent answers at"},
		"another":   {nil, nil, []string{"--node", "node-2"}, exit.Wrong, "--node: needs --manifests"},
		"flags":     {nil, nil, []string{"--proxy-name", "mine"}, exit.Wrong, "--proxy-name: needs --manifests"},
		"VPP":       {nil, nil, []string{"--vpp-socket", "/s"}, exit.Wrong, "--vpp-socket: needs --manifests"},
		"no time":   {nil, nil, []string{"--probe", "0s"}, exit.Wrong, "--probe 0s: must be more than 0, such as 2m"},
		"offline":   {nil, nil, []string{"--probe", "1m", "--manifests", guestbook}, exit.Wrong, "--probe: needs a running agent"},
		"question":  {nil, nil, []string{"--probe", "1m", "--never", "any -> any"}, exit.Wrong, "--probe: needs a running agent"},
		"unproven":  {&verify.Report{Node: "node-1", Verdict: verify.Unknown, Why: "VPP is away"}, nil, []string{"--probe", "1m"}, exit.Differs, "node-1: not compared: VPP is away\n"},
		"probed":    {&verify.Report{Node: "node-1", Verdict: verify.Different, PacketsSent: 3, Probes: []verify.Check{{Pod: "a/a", Packets: "packets that it sends", Verdict: verify.Different, Difference: packet}}}, nil, nil, exit.Differs, "a/a, packets that it sends: different\n  packet  tcp 198.51.100.7:40000 -> 10.1.1.3:1 SYN\n  vpp     passed\n  policy  denied\nnode-1: 3 packets of 1 pods sent: 0 equal, 1 different, 0 not compared\n"},
		"both":      {nil, nil, []string{"--manifests", guestbook}, exit.Wrong, "--status-socket: "},
	} {
		report, failed = c.report, c.err
		if text, code := proved(t, append([]string{"--status-socket", socket}, c.args...)...); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%s: exit code %d\n%s", name, code, text)
		}
	}
}
