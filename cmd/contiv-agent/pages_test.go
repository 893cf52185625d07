package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/cmd/query"
	"github.com/contiv-agent/contiv-agent/trace"
)

// TestPagesNameCommandsThatExist parses each contiv-agent command line in the operators' pages; the command and its flags
// must exist.
func TestPagesNameCommandsThatExist(t *testing.T) {
	for page, least := range map[string]int{"operations": 3, "handover": 6, "install": 3} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		lines := regexp.MustCompile("(?m)`(?:[^`\n]* )?(contiv-agent [a-z-]+[^`\n]*)").FindAllStringSubmatch(string(text), -1)
		if len(lines) < least {
			t.Errorf("%s.md: only %d command lines were found", page, len(lines))
		}
		for _, line := range lines {
			words := strings.Fields(line[1])[1:]
			cmd, rest, err := newRoot().Find(words)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.Args != nil {
				err = cmd.Args(cmd, cmd.Flags().Args())
			}
			if err != nil || cmd.Name() != words[0] {
				t.Errorf("%s.md: %s: %v", page, line[1], err)
			}
		}
	}
}

// TestBlocksNameCommandsThatExist parses each command line of contiv-agent and of its kubectl plugin in the blocks of sh on all pages.
func TestBlocksNameCommandsThatExist(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md"} {
		some, err := filepath.Glob("../../" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, some...)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, rest := range strings.Split(string(text), "```sh\n")[1:] {
			body, _, _ := strings.Cut(rest, "```")
			for _, line := range strings.Split(strings.ReplaceAll(body, "\\\n", " "), "\n") {
				line, _, _ = strings.Cut(line, " #")
				m := regexp.MustCompile(`(?:^|[ /])(contiv-agent|kubectl contiv) ([a-z].*)`).FindStringSubmatch(line)
				if m == nil || strings.HasPrefix(line, "docker") || strings.HasPrefix(line, "helm") || strings.Contains(line, "name: contiv-agent") {
					continue
				}
				found++
				if err := parses(m[1], words(m[2])); err != nil {
					t.Errorf("%s: %s: %v", page, line, err)
				}
			}
		}
	}
	if found < 32 {
		t.Errorf("only %d command lines were found", found)
	}
}

// words splits a command line as a shell does, as far as the pages need it: to the first pipe, redirection or list.
func words(line string) (out []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|"((?:[^"\\$]|\$\([^)]*\))*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		if m[3] != "" && strings.ContainsAny(m[3][:1], "|<>&;") {
			break
		}
		out = append(out, m[1]+m[2]+m[3])
	}
	return out
}

// parses reports what is wrong with a command line of a program.
func parses(program string, line []string) error {
	root := newRoot()
	if program != root.Name() {
		root = query.NewPlugin()
	}
	cmd, rest, err := root.Find(line)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.Args != nil {
		return cmd.Args(cmd, cmd.Flags().Args())
	}
	return nil
}

// TestTracePage evaluates the questions of each block of docs/trace.md and compares the answers with the page.
func TestTracePage(t *testing.T) {
	text, err := os.ReadFile("../../docs/trace.md")
	if err != nil {
		t.Fatal(err)
	}
	var questions, answers []string // a block of json, and the next block of text; one of text without a question is an example
	for _, rest := range strings.Split(string(text), "```json\n")[1:] {
		question, rest, _ := strings.Cut(rest, "```")
		_, rest, answered := strings.Cut(rest, "```text\n")
		answer, _, _ := strings.Cut(rest, "```")
		if questions, answers = append(questions, question), append(answers, answer); !answered {
			t.Fatalf("docs/trace.md: no block of text answers\n%s", question)
		}
	}
	if len(questions) == 0 {
		t.Fatal("docs/trace.md has no blocks of json")
	}
	for i, block := range questions {
		if diff := cmp.Diff(answers[i], verdicts(t, block)); diff != "" {
			t.Errorf("block %d: -page +answers:\n%s", i, diff)
		}
	}
}

// verdicts returns the senders and verdicts of questions about the guestbook, one a line.
func verdicts(t *testing.T, questions string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot()
	root.SetArgs([]string{"trace", "--stateful", "-o", "json", "--manifests", "../../examples/guestbook"})
	root.SetIn(strings.NewReader(questions))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	if err := root.Execute(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got strings.Builder
	for dec := json.NewDecoder(&stdout); dec.More(); {
		var a trace.Answer
		if err := dec.Decode(&a); err != nil {
			t.Fatal(err)
		}
		got.WriteString(a.Sender + " " + string(a.Verdict) + a.Error + "\n")
	}
	return got.String()
}
