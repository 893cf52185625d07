package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/terminal"
)

// output is the -o flag: text or json.
type output string

func (o *output) flag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "text", "output format: text or json")
}

func (o *output) check() error {
	if *o != "text" && *o != "json" {
		return usage(fmt.Errorf("-o %s: must be text or json", *o))
	}
	return nil
}

// print writes v as JSON, or the output of text after all texts in v are made plain.
func (o *output) print(w io.Writer, v any, text func(io.Writer)) error {
	if err := o.check(); err != nil {
		return err
	}
	if *o == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	terminal.PlainAll(v)
	text(w)
	return nil
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("%s takes no arguments, got %q\nsee '%s --help'", cmd.CommandPath(), args, cmd.CommandPath()))
	}
	return nil
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// join appends a reason to a state.
func join(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + reason
}
