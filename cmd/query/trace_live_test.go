package query

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/trace/hops"
)

const guestbook = "../../examples/guestbook"

// running is the socket of an agent with the guestbook's objects. It has seen a packet of the client to the leader's pod.
type running struct {
	failed error // in place of the objects
}

func (r *running) serve(t *testing.T) (socket string) {
	t.Helper()
	changes, err := manifest.Load(guestbook)
	if err != nil {
		t.Fatal(err)
	}
	seen := hops.Header{Protocol: "TCP", Source: "10.1.1.2", SourcePort: 2001, Destination: "10.1.1.3", DestinationPort: 6379, TTL: 64}
	server := &control.Server{
		Logger: slog.New(slog.DiscardHandler),
		Status: func(context.Context) (*status.Status, error) {
			return &status.Status{Node: "node-1", Settings: map[string]string{"no-policies": "true"}}, nil
		},
		Objects: func(context.Context) (*control.Objects, error) {
			out := &control.Objects{Node: "node-1"}
			for _, ch := range changes {
				out.List = append(out.List, ch.Object)
			}
			return out, r.failed
		},
		Trace: func(context.Context, live.Question) (*live.Answer, error) {
			from := hops.Hop{Node: "node-1", GraphNode: "ip4-input", Kind: hops.Input, Interface: "pod-guestbook/client", Packet: &seen, Text: "from pod-guestbook/client"}
			return &live.Answer{Node: "node-1", From: "guestbook/client", To: "10.1.1.3:6379", Packet: seen, Flags: "S", Path: []hops.Hop{from}}, nil
		},
	}
	socket = filepath.Join(t.TempDir(), "s")
	l, err := httpserver.Unix(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = httpserver.HTTP(t.Context(), l, server.Handler(), server.Logger) }()
	return socket
}

// traced runs the command, and returns its output, its warnings and its exit code.
func traced(t *testing.T, args ...string) (text, warnings string, code int) {
	t.Helper()
	cmd := NewTrace()
	var out, warn bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&warn)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return out.String(), warn.String() + e.Error(), e.Code
	}
	if err != nil {
		return out.String(), warn.String() + err.Error(), exit.Failed
	}
	return out.String(), warn.String(), exit.OK
}

// The prediction is made of the running agent's objects and settings. Without these nothing is predicted, and with --no-prediction they are not read.
func TestLivePredictsWithTheAgentsObjects(t *testing.T) {
	r := &running{}
	socket := r.serve(t)
	ask := []string{"--live", "--status-socket", socket, "guestbook/client", "guestbook/redis-leader-0:6379"}
	text, warnings, code := traced(t, ask...)
	if code != exit.Differs || !strings.Contains(text, "predicted: delivered") || !strings.Contains(text, "to pod-guestbook/redis-leader-0") || strings.Contains(text, "NetworkPolicy") {
		t.Errorf("exit code %d, %s\n%s", code, warnings, text)
	}
	if text, warnings, code := traced(t, append(ask, "--manifests", guestbook)...); code != exit.Differs || !strings.Contains(text, "predicted: delivered") {
		t.Errorf("with manifests: exit code %d, %s\n%s", code, warnings, text)
	}
	r.failed = errors.New("the agent has not received all objects")
	if text, warnings, code := traced(t, ask...); code != exit.OK || strings.Contains(text, "predicted") || !strings.Contains(warnings, "nothing is predicted: ") || !strings.Contains(warnings, "the agent has not received all objects") {
		t.Errorf("without objects: exit code %d, %s\n%s", code, warnings, text)
	}
	if text, warnings, code := traced(t, append(ask, "--no-prediction")...); code != exit.OK || strings.Contains(text+warnings, "predicted") {
		t.Errorf("--no-prediction: exit code %d, %s\n%s", code, warnings, text)
	}
}

// trace --diff with one file compares the running agent's cluster, with its settings, with the same cluster after the file's objects are applied.
func TestDiffBesideTheAgentsObjects(t *testing.T) {
	r := &running{}
	socket := r.serve(t)
	file := filepath.Join(t.TempDir(), "slice.yaml")
	const without = "apiVersion: v1\nkind: Pod\nmetadata: {name: redis-leader-0, namespace: guestbook}\nspec: {nodeName: node-1}\nstatus: {phase: Succeeded, podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}]}\n"
	if err := os.WriteFile(file, []byte(without), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--diff", "--port", "6379/TCP", "--from-namespace", "kube-system", "--to-namespace", "guestbook", "--status-socket", socket}
	// The agent enforces no policies (its setting), so coredns reaches the leader before, although a policy of the guestbook denies it.
	text, warnings, code := traced(t, append(args, file)...)
	if code != exit.Differs || !strings.Contains(text, "kube-system/coredns-1") || !strings.Contains(text, "guestbook/redis-leader-0") {
		t.Errorf("exit code %d, %s\n%s", code, warnings, text)
	}
	if text, warnings, code := traced(t, append(args, guestbook)...); code != exit.OK || !strings.Contains(text, "the same connections are possible") {
		t.Errorf("the same objects: exit code %d, %s\n%s", code, warnings, text)
	}
	if _, warnings, code := traced(t, "--diff", "--port", "6379/TCP", "--status-socket", socket+"x", file); code != exit.Failed || !strings.Contains(warnings, "no agent answers at") {
		t.Errorf("without an agent: exit code %d, %s", code, warnings)
	}
}
