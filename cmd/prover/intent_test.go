package prover

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/verify/intent"
)

const (
	guestbook  = "../../examples/guestbook"
	assertions = "../../examples/intent/assertions.yaml"
)

// proved executes the command and returns its output and exit code.
func proved(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	cmd := New()
	var out, warnings bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&warnings)
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	var coded *exit.Error
	switch {
	case err == nil:
		return out.String(), exit.OK
	case errors.As(err, &coded):
		return out.String() + warnings.String() + coded.Error(), coded.Code
	}
	return out.String() + warnings.String() + err.Error(), exit.Failed
}

// loosened returns a copy of the guestbook's manifests with the policy of examples/intent/looser.yaml.
func loosened(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(guestbook)); err != nil {
		t.Fatal(err)
	}
	looser, err := os.ReadFile("../../examples/intent/looser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "50-policies.yaml"), looser, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestExampleAssertions(t *testing.T) {
	text, code := proved(t, "--manifests", guestbook, "--assert", assertions, "--all")
	if code != exit.OK || !strings.Contains(text, "6 assertions: 6 hold, 0 violated, 0 not decided") || !strings.Contains(text, "nobody outside reaches the databases: never outside -> service:guestbook/redis: holds") {
		t.Errorf("exit code %d: %s", code, text)
	}
	text, code = proved(t, "--manifests", loosened(t), "--assert", assertions)
	for _, want := range []string{
		"only the guestbook reaches its databases: never ns:kube-system -> ns:guestbook,app=redis: violated", "because   redis has no password",
		"packet    tcp 10.1.2.5:40000 -> 10.1.2.3:80 SYN", "receiver  guestbook/redis-follower-0: allowed by NetworkPolicy guestbook/redis ingress rule 1",
		"6 assertions: 5 hold, 1 violated, 0 not decided; 8 pods in 2 classes",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line with %q in\n%s", want, text)
		}
	}
	if code != exit.Differs || strings.Contains(text, ": holds") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

func TestFileOfAssertionsBesideManifests(t *testing.T) {
	dir := loosened(t)
	text, err := os.ReadFile(assertions)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "intent.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said, code := proved(t, "--manifests", dir, "--assert", file)
	if code != exit.Differs || strings.Contains(said, "intent.yaml") {
		t.Errorf("exit code %d: the manifests' reader complains about the file: %s", code, said)
	}
}

func TestAssertionsAsJSON(t *testing.T) {
	text, code := proved(t, "--manifests", guestbook, "--never", "any -> ns:guestbook,app=redis:6379", "--always", "ns:guestbook -> service:guestbook/redis:6379", "-o", "json")
	var r intent.Report
	if err := json.Unmarshal([]byte(text), &r); err != nil || code != exit.Differs {
		t.Fatalf("exit code %d, %v: %s", code, err, text)
	}
	if r.Verdict != intent.Violated || len(r.Results) != 2 || r.Results[0].Example == nil || r.Results[1].Verdict != intent.Holds {
		t.Errorf("%+v", r)
	}
}

// TestTraceAgreesWithCounterexamples asks trace the questions of counterexamples: an allowed packet arrives, a denied one does not.
func TestTraceAgreesWithCounterexamples(t *testing.T) {
	changes, err := manifest.Load(guestbook)
	if err != nil {
		t.Fatal(err)
	}
	cluster := trace.NewCluster(trace.Config{Seed: 1})
	defer cluster.Close()
	if err := cluster.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	for question, arrives := range map[[2]string]bool{
		{"--never", "ns:guestbook,app=frontend -> service:guestbook/redis"}:     true,
		{"--never", "any -> ns:guestbook,app=redis:6379"}:                       true,
		{"--never", "outside -> ns:guestbook,app=client"}:                       true,
		{"--always", "ns:kube-system -> service:guestbook/redis-leader"}:        false,
		{"--always", "outside -> ns:guestbook:6379"}:                            false,
		{"--always", "pod:kube-system/coredns-1 -> ns:guestbook:ICMP"}:          false,
		{"--never", "pod:kube-system/coredns-1 -> ns:guestbook,app=client:UDP"}: true,
	} {
		text, code := proved(t, "--manifests", guestbook, question[0], question[1], "-o", "json")
		var r intent.Report
		if err := json.Unmarshal([]byte(text), &r); err != nil || code != exit.Differs {
			t.Fatalf("%v: exit code %d, %v: %s", question, code, err, text)
		}
		s, err := trace.ParseStep([]byte(r.Results[0].Example.Trace))
		if err != nil {
			t.Fatalf("%v: %s: %v", question, r.Results[0].Example.Trace, err)
		}
		if a := cluster.AnswerStep(s); a.Error != "" || (a.Verdict == trace.Delivered) != arrives {
			t.Errorf("%v: %s: %s %s, want arrival: %v", question, r.Results[0].Example.Trace, a.Verdict, a.Error, arrives)
		}
	}
}

func TestWrongUse(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("assertions:\n- {name: a, reason: b, nevr: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--never", "ns:a -> ns:b"}, "--manifests is required"},
		{[]string{"--manifests", guestbook, "--never", "ns:a"}, "--never: \"ns:a\": want LEFT -> RIGHT"},
		{[]string{"--manifests", guestbook, "--always", "a -> b"}, "--always: \"a\": a side is"},
		{[]string{"--manifests", guestbook, "--assert", wrong}, "wrong.yaml:2: assertion 1 (a): field nevr is not known"},
		{[]string{"--manifests", guestbook, "--assert", "no-such-file"}, "no-such-file"},
		{[]string{"--manifests", guestbook, "--never", "ns:a -> ns:b", "--node", "node-1"}, "--node is for a running VPP"},
		{[]string{"--manifests", guestbook, "--never", "ns:a -> ns:b", "-o", "xml"}, "-o xml"},
		{[]string{"--manifests", "no-such-folder", "--never", "ns:a -> ns:b"}, "no-such-folder"},
	} {
		if text, code := proved(t, tc.args...); code != exit.Wrong || !strings.Contains(text, tc.says) {
			t.Errorf("%v: exit code %d, %s; want %q", tc.args, code, text, tc.says)
		}
	}
	if text, code := proved(t, "--manifests", guestbook, "--never", "ns:a -> ns:b"); code != exit.Differs || !strings.Contains(text, "not decided: ns:a selects no pod") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// TestRefusedManifestsAreReported has a policy that the conversion refuses: it isolates.
func TestRefusedManifestsAreReported(t *testing.T) {
	dir := loosened(t)
	broken := "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: broken, namespace: guestbook}\nspec:\n  podSelector: {matchLabels: {app: frontend}}\n  ingress: [{from: [{ipBlock: {cidr: nonsense}}]}]\n"
	if err := os.WriteFile(filepath.Join(dir, "60-broken.yaml"), []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	text, code := proved(t, "--manifests", dir, "--always", "any -> service:guestbook/frontend:80")
	if code != exit.Differs || !strings.Contains(text, "60-broken.yaml") || !strings.Contains(text, "violated") || !strings.Contains(text, "NetworkPolicy guestbook/broken") {
		t.Errorf("exit code %d: %s", code, text)
	}
}

// TestTemplatesSelectNothing has a Deployment without its Pods.
func TestTemplatesSelectNothing(t *testing.T) {
	dir := loosened(t)
	template := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {template: {metadata: {labels: {app: web}}}}\n"
	if err := os.WriteFile(filepath.Join(dir, "60-web.yaml"), []byte(template), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code := proved(t, "--manifests", dir, "--never", "ns:shop -> any"); code != exit.Differs || !strings.Contains(text, "not decided: ns:shop selects no pod and no address of these manifests (templates of pods") {
		t.Errorf("exit code %d: %s", code, text)
	}
}
