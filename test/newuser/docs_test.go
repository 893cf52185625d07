package newuser

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// elsewhere are the pages and sections whose command blocks other tests execute.
var elsewhere = map[string]string{
	"README.md#Try it":  "TestReadme",
	"docs/install.md":   "make e2e-nodes, word by word, with a list in the page's source of the blocks that it cannot run",
	"docs/versions.md#": "TestWholeRelease of release",
}

// cannotRun are the commands that no test executes, by how they begin, with the cause. TestPagesNameCommandsThatExist of cmd/contiv-agent parses those of this program.
var cannotRun = map[string]string{
	"contiv-agent status":                                   "needs an agent on a node; TestReadme runs it with the embedded VPP",
	"contiv-agent trace":                                    "as above",
	"contiv-agent plan":                                     "as above",
	"contiv-agent flows":                                    "as above",
	"contiv-agent verify  ":                                 "needs an agent on a node",
	"kubectl contiv connectivity test":                      "needs a cluster; make e2e-nodes runs it",
	"kubectl contiv status":                                 "needs a cluster",
	"kubectl contiv trace":                                  "needs a cluster",
	"helm install contiv-agent deploy/":                     "needs a cluster; make e2e-nodes runs that of docs/install.md",
	"kubectl label namespace contiv-system":                 "as above",
	"etcdctl ":                                              "needs etcdctl, and the address that make run ETCD=1 prints",
	"contiv-agent run --kubeconfig":                         "needs a cluster and a VPP",
	"contiv-agent verify --manifests cluster/ --node":       "needs an agent and its VPP",
	"contiv-agent fanout --in-cluster":                      "needs a cluster",
	"contiv-agent run --source typha":                       "needs a fan-out server",
	"contiv-agent run --in-cluster":                         "needs a cluster",
	`ln -s "$(command -v contiv-agent)" /usr/local/bin`:     "changes a folder of the machine",
	"FELIX_USEINTERNALDATAPLANEDRIVER=false FELIX_DATAPLAN": "needs calico-felix; make interop runs one",
}

// cluster has two namespaces, and a policy that keeps one from the other.
const cluster = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: dev, labels: {kubernetes.io/metadata.name: dev}}
---
apiVersion: v1
kind: Namespace
metadata: {name: prod, labels: {kubernetes.io/metadata.name: prod}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: dev}
spec: {nodeName: node-1, containers: [{name: a, image: a}]}
status: {phase: Running, podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: prod}
spec: {nodeName: node-1, containers: [{name: b, image: b}]}
status: {phase: Running, podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: own, namespace: prod}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}
`

// block is a command block of a page.
type block struct{ page, section, text string }

// commandBlocks returns the blocks of sh on all pages, but those of separate modules.
func commandBlocks(t *testing.T) (out []block) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || name == "bin" || name == "dist" || name == "interop"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		section, open, body := "", false, ""
		for line := range strings.Lines(string(text)) {
			word := strings.TrimSpace(line)
			switch {
			case !open && strings.HasPrefix(line, "## "):
				section = strings.TrimSpace(line[3:])
			case !open && (word == "```sh" || word == "```bash" || word == "```shell"):
				open, body = true, ""
			case open && word == "```":
				out, open = append(out, block{name, section, body}), false
			case open:
				body += line
			}
		}
		return err
	})
	if err != nil || len(out) < 20 {
		t.Fatalf("%d blocks: %v", len(out), err)
	}
	return out
}

// lines returns the commands of a block. A line that ends with | or \ continues.
func (b block) lines() (out []string) {
	open := ""
	for line := range strings.Lines(b.text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		open += line + "\n"
		if !strings.HasSuffix(line, "|") && !strings.HasSuffix(line, `\`) {
			out, open = append(out, strings.TrimSpace(open)), ""
		}
	}
	return out
}

// remaining are the commands that TestDocs has to execute. It fails for entries of the lists that are out of date.
func remaining(t *testing.T) (out []string) {
	t.Helper()
	used := map[string]bool{}
	for _, b := range commandBlocks(t) {
		known := false
		for _, key := range []string{b.page, b.page + "#" + b.section, b.page + "#"} {
			if _, ok := elsewhere[key]; ok {
				known, used[key] = true, true
			}
		}
		if known {
			continue
		}
		for _, command := range b.lines() {
			begin := ""
			for prefix := range cannotRun {
				if strings.HasPrefix(command, prefix) && len(prefix) > len(begin) {
					begin = prefix
				}
			}
			if used[begin] = true; begin == "" {
				out = append(out, command)
			}
		}
	}
	for _, list := range []map[string]string{elsewhere, cannotRun} {
		for key := range list {
			if !used[key] {
				t.Errorf("%q is on no page", key)
			}
		}
	}
	return out
}

// TestEachCommandIsHeld: a new command on a page is executed by TestDocs, or is in a list with the cause. This is how many there are of both kinds.
func TestEachCommandIsHeld(t *testing.T) {
	if out := remaining(t); len(out) != 2 || len(cannotRun) != 18 {
		t.Errorf("TestDocs executes %d commands, want 2: %q; %d ways to begin are in the list of those that cannot run, want 18", len(out), out, len(cannotRun))
	}
}

// TestDocs executes the commands of the pages that need no cluster, in a folder with the examples.
func TestDocs(t *testing.T) {
	if os.Getenv("CONTIV_NEWUSER") == "" {
		t.Skip("it builds the agent: make newuser")
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "make", "build")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	dir := t.TempDir()
	if err := errors.Join(os.Symlink(filepath.Join(top, "examples"), filepath.Join(dir, "examples")), os.Mkdir(filepath.Join(dir, "cluster"), 0o700),
		os.WriteFile(filepath.Join(dir, "cluster", "all.yaml"), []byte(cluster), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, command := range remaining(t) {
		cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", command)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+filepath.Join(top, "bin")+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}
