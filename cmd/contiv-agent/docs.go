package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newDocs() *cobra.Command {
	return &cobra.Command{
		Use:     "docs man DIR",
		Short:   "Write the manual pages of all commands to a folder",
		Example: "  contiv-agent docs man docs/man && man -l docs/man/contiv-agent-run.1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] != "man" {
				return usage(fmt.Errorf("docs: want 'docs man DIR'"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			manualDate := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC) // fixed: the same pages on any day
			if err := os.MkdirAll(args[1], 0o755); err != nil {
				return err
			}
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{
				Title: "CONTIV-AGENT", Section: "1", Source: "contiv-agent", Manual: "contiv-agent", Date: &manualDate,
			}, args[1])
		},
	}
}
