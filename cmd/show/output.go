// Package show turns results into text or JSON on standard output.
//
// Invariant: text of objects is made safe for a terminal first; JSON does not change.
package show

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
)

// Output is the -o flag: text or json.
type Output string

// AddFlag adds the flag to a command.
func (o *Output) AddFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "text", "output format: text or json")
}

// Check returns an error for another format.
func (o *Output) Check() error {
	if *o != "text" && *o != "json" {
		return exit.Usage(fmt.Errorf("-o %s: must be text or json", *o))
	}
	return nil
}

// Print writes v as JSON, or the output of text after all texts in v are made plain.
func (o *Output) Print(w io.Writer, v any, text func(io.Writer)) error {
	if err := o.Check(); err != nil {
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

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// withReason appends a reason to a state.
func withReason(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + reason
}
