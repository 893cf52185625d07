// Package show turns results into text, JSON or YAML on standard output.
//
// Invariant: text of objects is made safe for a terminal first; JSON and YAML do not change.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
)

// Output is the value of the flag -o. The zero value is text.
type Output string

// Formats beside text, json and yaml, which every command has.
const (
	wide = "wide"
	name = "name"
)

// AddFlag adds the flag to a command that has only text, json and yaml.
func (o *Output) AddFlag(cmd *cobra.Command) { o.addFlag(cmd) }

// AddNameFlag adds the flag to a command that also prints the names of its objects.
func (o *Output) AddNameFlag(cmd *cobra.Command) { o.addFlag(cmd, name) }

// AddListFlag adds the flag to a command that also prints names, and more of each object.
func (o *Output) AddListFlag(cmd *cobra.Command) { o.addFlag(cmd, wide, name) }

func (o *Output) addFlag(cmd *cobra.Command, more ...string) {
	*o = "text"
	formats := append([]string{"text", "json", "yaml"}, more...)
	last := len(formats) - 1
	text := strings.Join(formats[:last], ", ") + " or " + formats[last]
	cmd.Flags().VarP(&format{o, formats, text}, "output", "o", "output format: "+text)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // the flag is new
}

// format is an Output that refuses other formats than a command has.
type format struct {
	to      *Output
	allowed []string
	text    string
}

// Set implements pflag.Value.
func (f *format) Set(to string) error {
	if !slices.Contains(f.allowed, to) {
		return exit.Usage(fmt.Errorf("-o %s: must be %s", to, f.text))
	}
	*f.to = Output(to)
	return nil
}

// String implements pflag.Value.
func (f *format) String() string {
	if f.to == nil {
		return ""
	}
	return string(*f.to)
}

// Type implements pflag.Value.
func (f *format) Type() string { return "string" }

// IsText reports whether people read the output.
func (o *Output) IsText() bool { return !o.IsData() && *o != name }

// IsData reports whether the output is JSON or YAML.
func (o *Output) IsData() bool { return *o == "json" || *o == "yaml" }

// IsWide reports whether people want more of each object.
func (o *Output) IsWide() bool { return *o == wide }

// Print writes v as JSON or YAML, or the output of text after all texts in v are made plain.
func (o *Output) Print(w io.Writer, v any, text func(io.Writer)) error {
	return o.PrintNamed(w, v, text, nil)
}

// PrintNamed is Print for a command that also prints names, one a line.
func (o *Output) PrintNamed(w io.Writer, v any, text func(io.Writer), names func() []string) error {
	switch *o {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	case "yaml":
		out, err := yaml.Marshal(v)
		if err == nil {
			_, err = w.Write(out)
		}
		return err
	case name:
		for _, line := range names() {
			fmt.Fprintln(w, terminal.Plain(line))
		}
		return nil
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
