package ui

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
)

// socketOf serves the socket of an agent.
func socketOf(t *testing.T) string {
	t.Helper()
	s := &control.Server{
		Status: func(context.Context) (*status.Status, error) {
			return &status.Status{Node: "node-1", Settings: map[string]string{"no-policies": "false"}}, nil
		},
		History: func() []status.Transaction { return nil },
		Policy: func(context.Context, model.PodID) (*policy.Description, error) {
			return &policy.Description{Endpoint: "guestbook/client"}, nil
		},
		AllFlows: func(_ context.Context, after uint64) (*agentflows.Answer, error) {
			return &agentflows.Answer{Node: "node-1", Next: after + 1}, nil
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	at := filepath.Join(t.TempDir(), "s")
	l, err := httpserver.Unix(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- httpserver.HTTP(ctx, l, s.Handler(), nil) }()
	t.Cleanup(func() { cancel(); <-ended })
	return at
}

// served starts the command, and returns the address that it prints.
func served(t *testing.T, args ...string) string {
	t.Helper()
	in, out := io.Pipe()
	cmd := New()
	cmd.SetOut(out)
	cmd.SetArgs(append(args, "--ui-listen", "127.0.0.1:0", "--every", "100ms"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	text := make([]byte, 1000)
	n, err := in.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(text[:n]), "open "))
}

func get(t *testing.T, client *http.Client, address string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v\n%s", address, resp.Status, err, text)
	}
	return string(text)
}

// The page of a running agent, with the objects of manifests: its state, a trace, and what policies allow.
func TestPageOfANode(t *testing.T) {
	address := served(t, "--status-socket", socketOf(t), "--manifests", "../../examples/guestbook")
	base, _, _ := strings.Cut(address, "/?")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	if text := get(t, client, address); !strings.Contains(text, "Map") {
		t.Error(text)
	}
	for path, want := range map[string]string{
		"/nodes": "node-1", "/policy?pod=guestbook/client": "guestbook/client",
		"/trace?from=pod:guestbook/client&to=service:guestbook/frontend:80": "✓ delivered",
		"/matrix?from=kube-system&to=guestbook":                             "NetworkPolicy guestbook/redis",
	} {
		if text := get(t, client, base+path); !strings.Contains(text, want) {
			t.Errorf("%s has no %q:\n%s", path, want, text)
		}
	}
}

func TestOnlyLoopback(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.com:80", "[::]:0", "nothing"} {
		cmd := New()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs([]string{"--ui-listen", listen, "--status-socket", "none"})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := cmd.ExecuteContext(ctx)
		cancel()
		var wrong *exit.Error
		if !errors.As(err, &wrong) || wrong.Code != exit.Wrong || !strings.Contains(err.Error(), "--ui-listen") {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

// Flags that name no source of objects, or two, are wrong at once.
func TestSourcesOfObjects(t *testing.T) {
	for want, args := range map[string][]string{
		"--context and --ignore-policy-kinds need an API server": {"--context", "prod"},
		"give --manifests or an API server, not both":            {"--manifests", "x", "--in-cluster"},
		"--in-cluster and --kubeconfig exclude each other":       {"--in-cluster", "--kubeconfig", "x"},
	} {
		cmd := New()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append(args, "--ui-listen", "127.0.0.1:0", "--status-socket", "none"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := cmd.ExecuteContext(ctx)
		cancel()
		var wrong *exit.Error
		if !errors.As(err, &wrong) || wrong.Code != exit.Wrong || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// fake is a kubectl of a cluster with two nodes. The agent of the second does not answer.
const fake = `#!/bin/sh
case "$*" in
*"get pods"*) echo '{"items":[{"metadata":{"name":"vswitch-a"},"spec":{"nodeName":"node-1"},"status":{"phase":"Running"}},{"metadata":{"name":"vswitch-b"},"spec":{"nodeName":"node-2"},"status":{"phase":"Running"}}]}';;
*"get pod "*) echo '{"spec":{"nodeName":"node-1"}}';;
*vswitch-b*) echo "no agent answers" >&2; exit 1;;
*"status --output=json") echo '{"node":"node-1","healthy":true}'; exit 3;;
*"flows --output=json") echo '{"node":"node-1","flows":[{"number":7,"port":80}],"next":7}';;
*"policy --output=json -- prod/web"*) echo '[{"endpoint":"prod/web"}]';;
*) echo "unexpected: $*" >&2; exit 2;;
esac
`

// The agents of a cluster are queried by kubectl. One that does not answer is an error of its node alone.
func TestAgentsOfACluster(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kubectl")
	if err := os.WriteFile(program, []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECTL", program)
	c := &cluster{agents: &kubectl.Agents{Namespace: "n", Selector: "s", Container: "c", Program: "contiv-agent"}, now: time.Now}
	names, err := c.Nodes(t.Context())
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	if st, err := c.Status(t.Context(), "node-1"); err != nil || !st.Healthy {
		t.Errorf("%+v, %v", st, err)
	}
	if a, err := c.Flows(t.Context(), "node-1", 0); err != nil || a.Next != 7 || a.Flows[0].Port != 80 {
		t.Errorf("%+v, %v", a, err)
	}
	if d, err := c.Policy(t.Context(), model.PodID{Namespace: "prod", Name: "web"}); err != nil || d.Endpoint != "prod/web" {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := c.Flows(t.Context(), "node-2", 0); err == nil || !strings.Contains(err.Error(), "no agent answers") {
		t.Error(err)
	}
	if !c.listed.IsZero() {
		t.Error("after an error the agents' pods are not listed again")
	}
	if _, err := c.Status(t.Context(), "node-3"); err == nil || !strings.Contains(err.Error(), "no agent runs") {
		t.Error(err)
	}
}
