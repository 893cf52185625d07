//go:build nodes

package kube

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// pageBlock is a block of commands in docs/install.md.
type pageBlock struct{ heading, comment, text string }

// withHelm is the comment of blocks for Helm, in place of kubectl's.
const withHelm = "Helm"

// installPage returns the blocks of docs/install.md.
func installPage(t *testing.T) (out []pageBlock) {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	var b *pageBlock
	heading, comment := "", ""
	for line := range strings.Lines(string(text)) {
		switch {
		case b != nil && line == "```\n":
			out, b, comment = append(out, *b), nil, ""
		case b != nil:
			b.text += line
		case line == "```sh\n":
			b = &pageBlock{heading: heading, comment: comment}
		case strings.HasPrefix(line, "```"):
			t.Errorf("a block that no test knows: %s", line)
		case strings.HasPrefix(line, "#"):
			heading = strings.Trim(line, "# \n")
		case strings.HasPrefix(line, "<!-- "):
			comment = strings.TrimSuffix(strings.TrimPrefix(line, "<!-- "), " -->\n")
		}
	}
	return out
}

// pageRun executes blocks of docs/install.md, in one folder.
type pageRun struct {
	dir string
	env []string
}

// openPage makes the folder, with the repository in it, and programs to execute.
func (s *realSite) openPage(t *testing.T, name string, programs ...string) *pageRun {
	t.Helper()
	r := &pageRun{dir: s.path(name), env: append(os.Environ(), "KUBECONFIG="+s.path("admin.kubeconfig"))}
	repository, err := filepath.Abs("../..")
	if err == nil {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil {
		err = os.Symlink(repository, filepath.Join(r.dir, "contiv-agent"))
	}
	if err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "PATH="+strings.Join(append(programs, s.bin, os.Getenv("PATH")), ":"))
	values := map[string]string{
		"AGENT_IMAGE": "contiv-agent", "AGENT_TAG": "e2e", "NEW_AGENT_TAG": "later", "VPP_IMAGE": "contiv-vpp", "VPP_TAG": "e2e", "TEST_IMAGE": "agnhost:e2e",
	}
	for _, b := range installPage(t) {
		if !strings.HasPrefix(b.comment, "values: ") {
			continue
		}
		for _, m := range regexp.MustCompile(`(\w+)=\S+`).FindAllStringSubmatch(b.text, -1) {
			if values[m[1]] == "" {
				t.Errorf("the page has a value %s, and the test has none", m[1])
			}
			r.env = append(r.env, m[1]+"="+values[m[1]])
		}
	}
	return r
}

func (r *pageRun) run(t *testing.T, b pageBlock) {
	t.Helper()
	began := time.Now()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", b.text)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	t.Logf("%s, %s\n%s%s", b.heading, time.Since(began).Round(time.Second/10), b.text, out)
	if err != nil {
		t.Fatal(err)
	}
}

// pageIsFollowed executes docs/install.md, from bare nodes to bare nodes.
func pageIsFollowed(t *testing.T, s *realSite) {
	for _, n := range s.real { // a later version
		if _, err := n.run("ctr", "-n", "k8s.io", "images", "tag", "docker.io/library/contiv-agent:e2e", "docker.io/library/contiv-agent:later"); err != nil {
			t.Fatal(err)
		}
	}
	r := s.openPage(t, "page")
	ran := 0
	for _, b := range installPage(t) {
		switch {
		case strings.HasPrefix(b.comment, "not run: "):
			t.Logf("%s: %s", b.heading, b.comment)
		case strings.HasPrefix(b.comment, "values: ") || b.comment == withHelm:
		case b.comment != "":
			t.Errorf("%s: a comment that no test knows: %s", b.heading, b.comment)
		default:
			r.run(t, b)
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("only %d blocks were executed", ran)
	}
	s.asBefore(t, false)
}

// chartIsUninstalled executes the blocks of docs/install.md for Helm, by the real helm, from bare nodes to bare nodes. Pods talk in between.
func chartIsUninstalled(t *testing.T, s *realSite) {
	program, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	programs := s.path("helm-programs")
	if err := os.Mkdir(programs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(programs, "helm")); err != nil {
		t.Fatal(err)
	}
	r := s.openPage(t, "page-of-helm", programs)
	home := t.TempDir()
	r.env = append(r.env, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var blocks []pageBlock
	for _, b := range installPage(t) {
		if b.comment == withHelm {
			blocks = append(blocks, b)
		}
	}
	if len(blocks) != 3 {
		t.Fatalf("the page has %d blocks for Helm: one installs, one removes, one deletes the namespace", len(blocks))
	}
	s.bare(t)
	r.run(t, blocks[0])
	s.allReady(t)
	s.deployWeb(t)
	s.whole(t)
	s.asBefore(t, true)
	s.withoutPods(t)
	began := time.Now()
	r.run(t, blocks[1])
	s.asBefore(t, false)
	t.Logf("from helm uninstall to nodes as before: %s", time.Since(began).Round(time.Second/10))
	t.Logf("the namespace has\n%s", s.kubectl(nil, "-n", system, "get", "all,configmap,secret,serviceaccount,role,rolebinding,lease", "-o", "name"))
	r.run(t, blocks[2])
	if out := s.kubectl(nil, "get", "clusterrole,clusterrolebinding,namespace", "-o", "name"); strings.Contains(out, "contiv-") {
		t.Errorf("the cluster has\n%s", out)
	}
}
