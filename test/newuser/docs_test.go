package newuser

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// elsewhere are the pages and sections whose command blocks other tests execute.
var elsewhere = map[string]string{
	"README.md#Try it in a minute": "TestReadme executes make run; CI executes make test and make run KUBE=1",
	"README.md#Try it":             "TestReadme",
	"docs/install.md":              "make e2e-nodes, word by word, with a list in the page's source of the blocks that it cannot run",
	"docs/versions.md#":            "TestWholeRelease of release",
}

// cannotRun are the commands that no test executes, by how they begin, with the cause. TestBlocksNameCommandsThatExist of cmd/contiv-agent parses those of this
// program and of its kubectl plugin.
var cannotRun = map[string]string{
	"kubectl ":               "needs a cluster; make e2e-nodes runs the pages about the installation",
	"helm ":                  "as above",
	"etcdctl ":               "needs etcdctl, and the address that make run ETCD=1 prints",
	"curl ":                  "needs a node with --cni; the tests of plugins/cni send such requests",
	"grpcurl ":               "needs grpcurl; the tests of plugins/extconfig/grpc send such requests",
	"contiv-agent run ":      "needs a cluster, a fan-out server or a NIC; make e2e and make interop run agents with each of these",
	"contiv-agent fanout ":   "needs a cluster and certificates; make e2e-nodes and make interop run some",
	"contiv-agent capture ":  "needs a pod of the node; TestVPPCapture of test/realvpp captures packets of one",
	"contiv-agent trace --l": "needs packets of a pod of the node; TestVPPTraceLive of test/realvpp traces some",
	"contiv-agent ui ":       "serves until it is stopped; tools/browser opens such a page",
	"contiv-agent sim --ho":  "needs the network namespace of a node; make sim-test runs it",
	"hubble ":                "needs Cilium's hubble; make interop-hubble runs such commands",
	"FELIX_":                 "needs calico-felix; make interop runs one",
}

// parsed are the beginnings of commands that take minutes. TestLongCommandsExist compares their words with the Makefile and with the tests.
var parsed = []string{"make ", "go test "}

// block is a command block of a page.
type block struct{ page, section, text string }

// page is a Markdown file.
type page struct{ name, text string }

// pages returns all pages, but those of separate modules.
func pages(t *testing.T) (out []page) {
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
		out = append(out, page{name, string(text)})
		return err
	})
	if err != nil || len(out) < 50 {
		t.Fatalf("%d pages: %v", len(out), err)
	}
	return out
}

// commandBlocks returns the blocks of sh on all pages.
func commandBlocks(t *testing.T) (out []block) {
	t.Helper()
	for _, p := range pages(t) {
		section, open, body := "", false, ""
		for line := range strings.Lines(p.text) {
			word := strings.TrimSpace(line)
			switch {
			case !open && strings.HasPrefix(line, "## "):
				section = strings.TrimSpace(line[3:])
			case !open && (word == "```sh" || word == "```bash" || word == "```shell"):
				open, body = true, ""
			case open && word == "```":
				out, open = append(out, block{p.name, section, body}), false
			case open:
				body += line
			}
		}
	}
	if len(out) < 20 {
		t.Fatalf("%d blocks", len(out))
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

// environment matches what stands before the program of a command: sudo, and variables.
var environment = regexp.MustCompile(`^(sudo )?([A-Z_]+=\S* )*`)

// remaining are the commands that TestDocs has to execute, and those that take minutes. It fails for entries of the lists that are out of date.
func remaining(t *testing.T) (run, long []string) {
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
				if strings.HasPrefix(command, prefix) && !machineRuns(command) {
					begin = prefix
				}
			}
			bare := environment.ReplaceAllString(command, "")
			switch {
			case begin != "":
				used[begin] = true
			case slices.ContainsFunc(parsed, func(p string) bool { return strings.HasPrefix(bare, p) }):
				long = append(long, bare)
			default:
				run = append(run, command)
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
	return run, long
}

// TestEachCommandIsHeld: a new command on a page is executed by TestDocs, or is in a list with the cause.
func TestEachCommandIsHeld(t *testing.T) {
	run, long := remaining(t)
	for _, want := range []string{"contiv-agent status", "contiv-agent verify", "kubectl contiv status", "ln -s"} {
		if !slices.ContainsFunc(run, func(command string) bool { return strings.HasPrefix(command, want) }) {
			t.Errorf("TestDocs does not execute %s: %q", want, run)
		}
	}
	if len(run) < 14 || len(long) < 10 {
		t.Errorf("TestDocs executes %d commands, want 14 or more: %q; %d are parsed, want 10 or more: %q", len(run), run, len(long), long)
	}
}

// TestLongCommandsExist compares what pages say about make and go test with the Makefile and with the tests.
func TestLongCommandsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	_, long := remaining(t)
	for _, command := range long {
		command, _, _ = strings.Cut(command, " #")
		if err := exists(strings.Fields(command), string(makefile)); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// exists reports what is wrong with a command of make or go test.
func exists(words []string, makefile string) error {
	if words[0] == "make" {
		for _, word := range words[1:] {
			name, _, isVariable := strings.Cut(word, "=")
			switch {
			case isVariable && !strings.Contains(makefile, "\n"+name+" "):
				return fmt.Errorf("the Makefile has no variable %s", name)
			case !isVariable && !strings.Contains(makefile, "\n"+name+": "):
				return fmt.Errorf("the Makefile has no target %s", name)
			}
		}
		return nil
	}
	at := slices.Index(words, "-run")
	if at < 0 || at+1 == len(words) {
		return errors.New("it names no test")
	}
	name, folder := strings.Trim(words[at+1], "'^$"), words[len(words)-1]
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "\nfunc "+name+"(") {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("%s has no test %s", folder, name))
}

// TestNoIndentedCommands: a command stands in a block of sh, which tests read, and not in a block that four spaces make.
func TestNoIndentedCommands(t *testing.T) {
	for _, p := range pages(t) {
		open, before := false, ""
		for at, line := range strings.Split(p.text, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				open = !open
			}
			if !open && before == "" && indentedCommand.MatchString(line) {
				t.Errorf("%s:%d: a command in an indented block, which no test reads: put it between ```sh and ```", p.name, at+1)
			}
			before = line
		}
	}
}

// indentedCommand matches the first line of an indented block that has a command.
var indentedCommand = regexp.MustCompile(`^(    |\t)(sudo |[A-Z_]+=\S* )*(bin/)?(contiv-agent|make|go|kubectl|helm|etcdctl|curl|grpcurl|docker|ln|cat|git|vppctl) `)

func TestIndentedCommandsAreFound(t *testing.T) {
	for line, want := range map[string]bool{
		"    contiv-agent status": true, "    CONTIV_VPP=sim sudo make run": true, "\tgo test ./...": true,
		"contiv-agent status": false, "  make run": false, "    pool, err := ipam.Open()": false,
	} {
		if got := indentedCommand.MatchString(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}
