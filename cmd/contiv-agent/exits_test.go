package main

import (
	"maps"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/manual"
	"github.com/contiv-agent/contiv-agent/cmd/query"
)

// TestOneTableOfExitCodes compares the table of docs/habits.md with the manual pages, which TestManualPagesHaveExitStatusFilesAndEnvironment compares with the help.
func TestOneTableOfExitCodes(t *testing.T) {
	page, err := os.ReadFile("../../docs/habits.md")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z ]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(page), -1) {
		table[row[1]] = row[2]
	}
	if diff := cmp.Diff(manual.Findings(), table); diff != "" {
		t.Errorf("docs/habits.md: -manual pages +table\n%s", diff)
	}
	commands := maps.Clone(table)
	for _, root := range []*cobra.Command{newRoot(), query.NewPlugin()} {
		each(root, func(cmd *cobra.Command, path []string) {
			for name := range commands {
				if cmd.CommandPath() == root.CommandPath()+" "+name {
					delete(commands, name)
				}
			}
		})
	}
	if len(commands) > 0 {
		t.Errorf("docs/habits.md has commands that do not exist: %v", commands)
	}
}

// TestEveryCommandRefusesWrongFlags: every command ends with exit code 2 for a flag that it does not have, and those without arguments for an argument.
func TestEveryCommandRefusesWrongFlags(t *testing.T) {
	for _, newTree := range []func() *cobra.Command{newRoot, query.NewPlugin} {
		each(newTree(), func(cmd *cobra.Command, path []string) {
			if code := execute(t.Context(), newTree(), append(path, "--no-such-flag")); code != exit.Wrong {
				t.Errorf("%s --no-such-flag: exit code %d, want %d", cmd.CommandPath(), code, exit.Wrong)
			}
			if len(path) == 0 || cmd.Args == nil || cmd.HasSubCommands() {
				return
			}
			if err := cmd.Args(cmd, []string{"no-such-argument", "nor", "this"}); err == nil {
				return
			}
			if code := execute(t.Context(), newTree(), append(path, "no-such-argument", "nor", "this")); code != exit.Wrong {
				t.Errorf("%s with arguments: exit code %d, want %d", cmd.CommandPath(), code, exit.Wrong)
			}
		})
	}
}

// each calls visit for a command and all below it, with the words that name it.
func each(cmd *cobra.Command, visit func(cmd *cobra.Command, path []string)) {
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		visit(cmd, path)
		for _, sub := range cmd.Commands() {
			if sub.Name() != "completion" && sub.Name() != "help" {
				walk(sub, append(append([]string{}, path...), sub.Name()))
			}
		}
	}
	walk(cmd, nil)
}
