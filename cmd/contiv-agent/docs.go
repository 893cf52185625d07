package main

import (
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/configfile"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/manual"
	"github.com/contiv-agent/contiv-agent/cmd/query"
)

func newDocs() *cobra.Command {
	return &cobra.Command{
		Use:   "docs man DIR | docs configuration FILE",
		Short: "Write the manual pages of all commands to a folder, or the page of configuration files to a file",
		Example: `  contiv-agent docs man docs/man && man -l docs/man/contiv-agent-run.1
  contiv-agent docs configuration docs/configuration.md`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || !slices.Contains([]string{"man", "configuration"}, args[0]) {
				return exit.Usage(errors.New("docs: want 'docs man DIR' or 'docs configuration FILE'"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "configuration" {
				return os.WriteFile(args[1], []byte(configfile.Page(newRun(), newFanout())), 0o644)
			}
			if err := os.MkdirAll(args[1], 0o755); err != nil {
				return err
			}
			return errors.Join(manual.Write(cmd.Root(), args[1]), manual.Write(query.NewPlugin(), args[1]))
		},
	}
}
