package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/manual"
	"github.com/contiv-agent/contiv-agent/cmd/query"
)

// manuals are the pages of all commands, by name of the command.
func manuals(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		page, err := manual.Page(cmd)
		if err != nil {
			t.Fatal(err)
		}
		text := string(page)
		out[cmd.CommandPath()] = text
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if n := strings.Count(text, "\\fB--"+f.Name+"\\fP"); !f.Hidden && n != 1 {
				t.Errorf("%s: the manual page has --%s %d times", cmd.CommandPath(), f.Name, n)
			}
		})
		if _, rest, found := strings.Cut(text, "\n.SH EXIT STATUS\n.TP\n\\fB0\\fP\n"); !found || !strings.Contains(rest, "\n\\fB1\\fP\n") || !strings.Contains(rest, "\n\\fB2\\fP\n") {
			t.Errorf("%s: the manual page has no exit status", cmd.CommandPath())
		}
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if _, files, _ := strings.Cut(text, "\n.SH FILES\n"); strings.HasPrefix(f.DefValue, "/") && f.Name != "etcd-prefix" && !strings.Contains(files, "\\fB"+f.DefValue+"\\fP\n") {
				t.Errorf("%s: the manual page does not have the file %s of --%s", cmd.CommandPath(), f.DefValue, f.Name)
			}
		})
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				add(sub)
			}
		}
	}
	add(newRoot())
	add(query.NewPlugin())
	return out
}

// TestManualPagesHaveExitStatusFilesAndEnvironment holds the pages against the help, the flags and the variables that the program reads.
func TestManualPagesHaveExitStatusFilesAndEnvironment(t *testing.T) {
	pages := manuals(t)
	if text := pages["contiv-agent run"]; !strings.Contains(text, "\n.SS Flags for sources\n\\fB--api-server\\fP") || strings.Count(text, "\n.SS ") < 8 {
		t.Error("the manual page of run does not have its flags by group")
	}
	_, list, _ := strings.Cut(newRoot().Long, "\n3 ")
	list, _, _ = strings.Cut(list, "; 130 ")
	commands := regexp.MustCompile(`"([a-z ]+)( --[a-z-]+)?"`).FindAllStringSubmatch(list, -1)
	if len(commands) < 8 {
		t.Errorf("the help names %d commands with exit code 3", len(commands))
	}
	for _, c := range commands {
		_, text, found := strings.Cut(pages["contiv-agent "+c[1]], "\n\\fB3\\fP\n")
		if text, _, _ = strings.Cut(text, "\n"); !found || !strings.Contains(text, strings.TrimSpace(c[2])) {
			t.Errorf("the manual page of %s does not have exit code 3 (%s)", c[1], c[2])
		}
	}
	all := ""
	for _, page := range pages {
		_, variables, _ := strings.Cut(page, "\n.SH ENVIRONMENT\n")
		all += variables
	}
	for _, name := range variablesRead(t) {
		if !strings.Contains(all, "\\fB"+name+"\\fP\n") {
			t.Errorf("no manual page has the variable %s", name)
		}
	}
}

// variablesRead are the environment variables that the program's source names.
func variablesRead(t *testing.T) (out []string) {
	t.Helper()
	names := regexp.MustCompile(`os\.(?:Getenv|LookupEnv)\("([A-Z_]+)"\)|(?:Env|env)[A-Z][A-Za-z]+ += "(CONTIV_[A-Z_]+)"`)
	for _, root := range []string{"agent", "calico", "client", "cmd", "doctor", "plugins", "replay", "sim", "source", "trace", "vpp", "vppagent"} {
		if err := filepath.WalkDir("../../"+root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/contiv-cni/") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range names.FindAllStringSubmatch(string(text), -1) {
				out = append(out, m[1]+m[2])
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 12 {
		t.Errorf("the program reads only %q", out)
	}
	return out
}
