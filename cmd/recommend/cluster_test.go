package recommend

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
)

// served is an API server with objects. It returns a kubeconfig.
func served(t *testing.T, objects ...apiserver.Object) string {
	t.Helper()
	api := apiserver.New(1)
	if err := api.Set(objects); err != nil {
		t.Fatal(err)
	}
	client := api.Client(1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := client.RoundTrip(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		out := http.NewResponseController(w)
		for b := make([]byte, 4096); ; {
			n, err := resp.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = out.Flush()
			if err != nil {
				return
			}
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}]}", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// clusterOf is the agents of a kubectl that answers for nodes with these texts; node-1.to: for flows to a namespace. A node with an empty text does not answer.
func clusterOf(t *testing.T, flowsOf map[string]string) *kubectl.Agents {
	t.Helper()
	dir := t.TempDir()
	var items []string
	for node, answer := range flowsOf {
		if !strings.HasSuffix(node, ".to") {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":"agent-of-%s"},"spec":{"nodeName":"%s"},"status":{"phase":"Running"}}`, node, node))
		}
		if answer == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "agent-of-"+node), []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := `#!/bin/sh
for a; do case "$a" in
	pods) echo '{"items":[` + strings.Join(items, ",") + `]}'; exit ;;
	agent-of-*) echo "$@" >>` + dir + `/asked; cd ` + dir + `
		case "$*" in *--to=*) [ -f $a.to ] && exec cat $a.to; esac
		cat $a 2>/dev/null && exit; echo "$a: no flows" >&2; exit 1 ;;
esac; done
`
	program := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECTL", program)
	t.Setenv("ASKED", filepath.Join(dir, "asked"))
	return &kubectl.Agents{Namespace: "system", Selector: "a=b", Container: "agent", Program: "contiv-agent"}
}

// ran executes a command, and returns what it wrote, and its exit code.
func ran(t *testing.T, cmd *cobra.Command, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&complaint)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		code = exit.Failed
		if e, ok := errors.AsType[*exit.Error](err); ok {
			code = e.Code
		}
		fmt.Fprintln(&complaint, err)
	}
	return out.String(), complaint.String(), code
}

// flow is the answer of a node with one connection from a client to a web pod.
func flow(node, web string, port int) string {
	return fmt.Sprintf(`{"node":%q,"next":1,"sources":[],"flows":[{"number":1,"last":"2026-01-02T12:00:01Z","node":%q,
"source":{"kind":"pod","namespace":"prod","name":"client","workload":"client","labels":{"app":"client"},"address":"10.1.1.3"},
"destination":{"kind":"pod","namespace":"prod","name":%q,"workload":"web","labels":{"app":"web"},"address":"10.1.1.2"},
"protocol":"TCP","port":%d,"verdict":"allowed","decision":{},"connections":2}]}`, node, node, web, port)
}

func pod(name, app, address string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "prod", Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}},
	}
}

// policiesIn reads YAML as an API server does.
func policiesIn(t *testing.T, text string) (out []networkingv1.NetworkPolicy) {
	t.Helper()
	for _, doc := range strings.Split(text, "---\n")[1:] {
		var p networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict([]byte(doc), &p); err != nil {
			t.Fatalf("%v:\n%s", err, doc)
		}
		out = append(out, p)
	}
	return out
}

// The policies allow what all nodes have seen, and comments say what they would close among the API server's objects.
func TestRecommendFromAllNodes(t *testing.T) {
	agents := clusterOf(t, map[string]string{"node-1": flow("node-1", "web-0", 8080), "node-2": flow("node-2", "web-1", 9090)})
	agents.Kubeconfig = served(t, pod("web-0", "web", "10.1.1.2"), pod("client", "client", "10.1.1.3"), pod("stranger", "stranger", "10.1.1.4"))
	out, said, code := ran(t, OfCluster(agents, new(string)), "-n", "prod", "--agents-namespace", "other")
	if code != exit.OK || said != "" {
		t.Fatalf("exit code %d: %s", code, said)
	}
	list := policiesIn(t, out)
	if len(list) != 2 || list[1].Name != "recommended-web" || len(list[1].Spec.Ingress) != 1 || len(list[1].Spec.Ingress[0].Ports) != 2 {
		t.Errorf("not one policy for each workload, with the ports of both nodes:\n%s", out)
	}
	for _, want := range []string{"\n# With these policies, in the cluster:\n", "\n# closed: prod/stranger", "# 0 kinds of connections opened, "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	asked, err := os.ReadFile(os.Getenv("ASKED"))
	if want := "exec --namespace=other agent-of-node-1 --container=agent -- contiv-agent flows --output=json --from=prod --verdict=allowed\n"; err != nil || !strings.Contains(string(asked), want) {
		t.Errorf("asked %s, %v", asked, err)
	}
	yamlOut, _, _ := ran(t, OfCluster(agents, new(string)), "-n", "prod", "-o", "yaml")
	if yamlOut != out {
		t.Errorf("-o yaml:\n%s\nand text:\n%s", yamlOut, out)
	}
	one := "node-2"
	if out, _, code := ran(t, OfCluster(agents, &one), "-n", "prod", "--staged", "--compare=false", "-o", "json"); code != exit.OK || strings.Count(out, `"contiv-agent.io/staged": "true"`) != 2 || !strings.Contains(out, `"kind": "List"`) {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// A node that does not answer is named in the output, and by the exit code. If no node answers, nothing is recommended.
func TestRecommendNamesSilentNodes(t *testing.T) {
	incomplete := strings.Replace(flow("node-1", "web-0", 8080), `"sources":[]`, `"sources":[{"name":"sessions","seen":1,"missed":2,"problem":"too\nmany"}],"forgotten":3`, 1)
	agents := clusterOf(t, map[string]string{"node-1": incomplete, "node-0": ""})
	out, said, code := ran(t, OfCluster(agents, new(string)), "-n", "prod", "--compare=false")
	want := "# incomplete: node-0: its agent did not answer\n# incomplete: node-1: sessions: too many (2 reads)\n# incomplete: node-1: 3 older flows had no room\n"
	if code != exit.Failed || !strings.Contains(said, "node-0: agent-of-node-0: no flows") || !strings.HasSuffix(out, want) || len(policiesIn(t, out)) != 2 {
		t.Errorf("exit code %d, %s:\n%s", code, said, out)
	}
	out, said, code = ran(t, OfCluster(agents, new(string)), "-n", "prod", "--compare=false", "-o", "json")
	if code != exit.Failed || !strings.Contains(said, "\nincomplete: node-1: 3 older flows had no room\n") || strings.Contains(out, "incomplete") {
		t.Errorf("exit code %d, %s:\n%s", code, said, out)
	}
	if n := strings.Count(said, "agent-of-node-0: no flows"); n != 1 {
		t.Errorf("the node is named %d times: %s", n, said)
	}
	agents = clusterOf(t, map[string]string{"node-0": ""})
	if out, said, code := ran(t, OfCluster(agents, new(string)), "-n", "prod"); code != exit.Failed || out != "" {
		t.Errorf("exit code %d, %s:\n%s", code, said, out)
	}
}

// Each agent is asked for the flows from and to the namespace. A flow in both answers counts once, and an answer that is full is named.
func TestRecommendFromBothDirections(t *testing.T) {
	from := flow("node-1", "web-0", 8080)
	outside := `{"number":7,"node":"node-1","source":{"kind":"outside","address":"192.0.2.7"},"destination":{"kind":"pod","namespace":"prod","name":"web-0","workload":"web","labels":{"app":"web"},"address":"10.1.1.2"},"protocol":"TCP","port":%d,"verdict":"allowed","decision":{}}`
	to := strings.Replace(from, `"flows":[`, `"flows":[`+fmt.Sprintf(outside, 9999)+`,`, 1)
	out, _, code := ran(t, OfCluster(clusterOf(t, map[string]string{"node-1": from, "node-1.to": to}), new(string)), "-n", "prod", "--compare=false")
	if code != exit.OK || strings.Count(out, "# 1 flows, 2 connections: prod/client -> prod/web-0:8080 TCP\n") != 2 || !strings.Contains(out, "port: 9999") || strings.Contains(out, "incomplete") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	many := make([]string, agentflows.Most-1)
	for i := range many {
		many[i] = fmt.Sprintf(outside, i+1)
	}
	to = strings.Replace(from, `"flows":[`, `"flows":[`+strings.Join(many, ",")+`,`, 1)
	out, _, _ = ran(t, OfCluster(clusterOf(t, map[string]string{"node-1": from, "node-1.to": to}), new(string)), "-n", "prod", "--compare=false")
	if !strings.HasSuffix(out, "# incomplete: node-1: the latest 1000 flows alone are shown\n") {
		t.Errorf("%.500s", out[max(0, len(out)-500):])
	}
}

// Wrong flags ask no agent; without an API server the error says how to go on.
func TestRecommendRefuses(t *testing.T) {
	agents := clusterOf(t, map[string]string{"node-1": flow("node-1", "web-0", 8080)})
	for _, args := range [][]string{{}, {"-n", "prod", "-o", "name"}, {"-n", "prod/web"}, {"-n", "prod", "now"}} {
		if _, said, code := ran(t, OfCluster(agents, new(string)), args...); code != exit.Wrong {
			t.Errorf("%q: exit code %d, %s", args, code, said)
		}
	}
	if asked, err := os.ReadFile(os.Getenv("ASKED")); err == nil {
		t.Errorf("asked %s", asked)
	}
	agents.Kubeconfig = filepath.Join(t.TempDir(), "none")
	out, said, code := ran(t, OfCluster(agents, new(string)), "-n", "prod")
	if code != exit.Failed || out != "" || !strings.Contains(said, "--compare=false") {
		t.Errorf("exit code %d, %s:\n%s", code, said, out)
	}
}
