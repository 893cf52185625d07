package main

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/contiv-agent/contiv-agent/cmd/configfile"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
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
			manualDate := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC) // fixed, so that the pages do not depend on the day
			if err := os.MkdirAll(args[1], 0o755); err != nil {
				return err
			}
			for _, root := range []*cobra.Command{cmd.Root(), query.NewPlugin()} {
				if err := doc.GenManTree(root, &doc.GenManHeader{
					Title: "CONTIV-AGENT", Section: "1", Source: "contiv-agent", Manual: "contiv-agent", Date: &manualDate,
				}, args[1]); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
