package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// secrets are planted in everything that an agent answers. None may be in an archive.
var secrets = []string{"hunter2", "s3cr3t-token", "eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl", "MIIEvQIBADANBgkq", "pa55word"}

// planted is JSON and text with the secrets.
const planted = `{"a":"etcd password=hunter2 refused","token":"s3cr3t-token","log":"Bearer eyJhbGciOiJSUzI1.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl",` +
	`"key":"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----","url":"https://me:pa55word@proxy:3128","pod":"prod/web-0"}`

// journalFile is a flight recorder's file: a record with secrets, one without, and a damaged one.
func journalFile() string {
	at := time.Unix(1000, 0)
	with := record.Line{Number: 1, At: at, Op: record.Put, Key: "object Pod prod/web-0", Body: []byte(planted)}
	without := record.Line{Number: 2, At: at, Op: record.Notice, Key: "outcome", Body: []byte(`{"x":1}`)}
	return string(with.AppendTo(nil)) + string(without.AppendTo(nil)) + "00000000 damaged token=s3cr3t-token\n"
}

// served is an agent's socket that answers for metrics and the journal.
func served(t *testing.T, journal string) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "s")
	l, err := httpserver.Unix(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "contiv_x", Help: "Of https://me:pa55word@proxy."}))
	s := &control.Server{Registry: registry, Logger: slog.New(slog.DiscardHandler), Journal: func(w io.Writer, most int64) error {
		if most != 3<<20 {
			t.Errorf("asked for %d bytes", most)
		}
		out := tar.NewWriter(w)
		_ = out.WriteHeader(&tar.Header{Name: "../00000001.journal", Size: int64(len(journal))})
		_, _ = io.WriteString(out, journal)
		return out.Close()
	}}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- httpserver.HTTP(ctx, l, s.Handler(), nil) }()
	t.Cleanup(func() { cancel(); <-ended })
	return at
}

// ran executes a command, and returns its standard output.
func ran(t *testing.T, cmd *cobra.Command, args ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// filesIn returns the files of an archive, without the folder. No secret is in it.
func filesIn(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for in := tar.NewReader(plain); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		name, inside := strings.CutPrefix(h.Name, folder)
		if !inside || strings.Contains(name, "..") || h.Mode != 0o600 {
			t.Errorf("%s, mode %o", h.Name, h.Mode)
		}
		files[name] = string(text)
		for _, secret := range secrets {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s has %s:\n%s", name, secret, text)
			}
		}
	}
}

// answerPlanted answers each command with the secrets, and doctor with an error.
func answerPlanted(_ context.Context, stdout, stderr io.Writer, args ...string) int {
	if args[0] == "doctor" {
		fmt.Fprintln(stderr, "no VPP, token: s3cr3t-token")
		return 1
	}
	fmt.Fprintln(stdout, planted)
	return 0
}

// The archive of a node has a file for each answer, without secrets. JSON stays JSON, and a journal replays.
func TestArchiveOfANode(t *testing.T) {
	socket := served(t, journalFile())
	var asked []string
	cmd := New(func(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
		asked = append(asked, strings.Join(args, " "))
		return answerPlanted(ctx, stdout, stderr, args...)
	})
	files := filesIn(t, ran(t, cmd, "-w", "-", "--journal", "3", "--status-socket", socket))
	if !slices.Contains(asked, "plan --output=json --status-socket="+socket) || !slices.Contains(asked, "doctor --all") {
		t.Errorf("asked %q", asked)
	}
	var status map[string]string
	if err := json.Unmarshal([]byte(files["status.json"]), &status); err != nil || status["pod"] != "prod/web-0" || status["token"] != redacted {
		t.Errorf("%s: %v", files["status.json"], err)
	}
	if files["doctor.txt.stderr"] != "no VPP, token: REDACTED\nexit code 1\n" || !strings.Contains(files["metrics.txt"], "\ncontiv_x 0\n") {
		t.Errorf("%q, %q", files["doctor.txt.stderr"], files["metrics.txt"])
	}
	lines := strings.Split(files["journal/00000001.journal"], "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines of the journal", len(lines))
	}
	for i, line := range lines[:2] {
		if l, err := record.ParseLine([]byte(line)); err != nil || l.Number != uint64(i+1) || !json.Valid(l.Body) {
			t.Errorf("%s: %v", line, err)
		}
	}
	for name := range files {
		listed := strings.TrimSuffix(name, ".stderr")
		if strings.HasPrefix(name, "journal") {
			listed = "journal/"
		}
		if name != readme && !strings.Contains(files[readme], "\n"+listed+" ") {
			t.Errorf("%s does not name %s", readme, name)
		}
	}
	if _, has := filesIn(t, ran(t, New(answerPlanted), "-w", "-", "--journal", "0", "--status-socket", socket))["journal/00000001.journal"]; has {
		t.Error("a journal that was not asked for")
	}
}

// Without an agent the archive says so.
func TestArchiveWithoutAnAgent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.tar.gz")
	if out := ran(t, New(answerPlanted), "-w", file, "--status-socket", filepath.Join(t.TempDir(), "none")); string(out) != file+"\n" {
		t.Errorf("%s", out)
	}
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := filesIn(t, packed)
	for _, name := range []string{"metrics.txt.stderr", "journal.stderr"} {
		if !strings.HasPrefix(files[name], "no agent answers at ") {
			t.Errorf("%s: %q", name, files[name])
		}
	}
}

// kubectlOf is a kubectl with an agent on node-1, which answers a support-bundle with the archive in a file, and other commands with planted secrets.
func kubectlOf(t *testing.T, archive []byte) *kubectl.Agents {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
cd ` + dir + `
case "$*" in
"get pods"*) echo '{"items":[{"metadata":{"name":"agent-1"},"spec":{"nodeName":"node-1"},"status":{"phase":"Running"}}]}' ;;
*support-bundle*) [ -s archive ] && exec cat archive; echo "unknown command" >&2; exit 2 ;;
exec*) cat planted ;;
*--previous*) echo "no previous container" >&2; exit 1 ;;
*--container=vpp*) echo "of vpp, password=hunter2" ;;
logs*) cat log ;;
esac
`
	for name, content := range map[string]string{"kubectl": script, "archive": string(archive), "planted": planted, "log": "first\n" + strings.Repeat(strings.Repeat("x", 1023)+"\n", mostLog>>10) + "token=s3cr3t-token\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBECTL", filepath.Join(dir, "kubectl"))
	return &kubectl.Agents{Namespace: "system", Selector: "a=b", Container: "agent", Program: "contiv-agent"}
}

// The archive of a cluster has the files of each node, and the newest lines of the logs of its pod.
func TestArchiveOfACluster(t *testing.T) {
	socket := served(t, journalFile())
	ofNode := ran(t, New(answerPlanted), "-w", "-", "--journal", "3", "--status-socket", socket)
	files := filesIn(t, ran(t, OfCluster(kubectlOf(t, ofNode), new(string)), "-w", "-"))
	for name := range filesIn(t, ofNode) {
		if _, has := files["node-1/"+name]; has != (name != readme) {
			t.Errorf("%s: %t", name, has)
		}
	}
	log := files["node-1/log.txt"]
	if !strings.HasPrefix(log, "1030 older bytes are left out\nxxx") || !strings.HasSuffix(log, "\ntoken=REDACTED\n") {
		t.Errorf("log of %d bytes: %.80s", len(log), log)
	}
	if files["node-1/log-vpp.txt"] != "of vpp, password=REDACTED\n" || files["node-1/log-previous.txt.stderr"] != "" || !strings.Contains(files[readme], "\nlog-vpp.txt ") {
		t.Errorf("%q", files["node-1/log-vpp.txt"])
	}
}

// An agent of an older version answers one command after the other, and an archive that ends early is named.
func TestArchiveOfOlderAndLostAgents(t *testing.T) {
	files := filesIn(t, ran(t, OfCluster(kubectlOf(t, nil), new(string)), "-w", "-"))
	if files["node-1/support-bundle.stderr"] != "unknown command\nexit code 2\n" || !json.Valid([]byte(files["node-1/flows.json"])) {
		t.Errorf("%q", files)
	}
	whole := ran(t, New(answerPlanted), "-w", "-", "--status-socket", filepath.Join(t.TempDir(), "none"))
	files = filesIn(t, ran(t, OfCluster(kubectlOf(t, whole[:len(whole)/2]), new(string)), "-w", "-"))
	if !strings.Contains(files["node-1/support-bundle.stderr"], "the answer is incomplete: unexpected EOF") {
		t.Errorf("%q", files["node-1/support-bundle.stderr"])
	}
}
