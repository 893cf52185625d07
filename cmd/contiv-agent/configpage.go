package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configIntro is how the page of configuration files begins.
const configIntro = `# Configuration files

` + "`contiv-agent run`" + ` and ` + "`contiv-agent fanout`" + ` take their configuration from a file (` + "`--config FILE`" + `), from their command line, or from both. This
page is written by the program (` + "`make man`" + `) from the same flags that its manual has; a test holds the two together.

* A file says which version it is in and what it is for: ` + "`apiVersion`" + ` and ` + "`kind`" + `. In one version, fields are added and none is taken away.
* Each flag is a field: ` + "`--service-cidr`" + ` is ` + "`serviceCIDR`" + `. Lists are lists, durations are strings (` + "`30s`" + `), numbers and booleans are what they are.
* A flag on the command line wins over the file. With ` + "`fanout`" + ` the environment comes in between (` + "`CONTIV_FANOUT_MAX_CONNECTIONS`" + `).
* A field that is not known, one that is there twice and a value of another type are refused, each with file, line and field.
* ` + "`--validate-config`" + ` says all that is wrong with file and flags together, and ends: exit code 0 if nothing is, 2 otherwise. It reads the
  files that are named (certificates, manifests' folder), and connects to nobody.

A file is read once, at the start. What may change while the agent runs is its log level: ` + "`contiv-agent log-level debug`" + `.

The files below have every field, each with the value it has when it is left out. A test loads them.
`

// configPage is the reference of configuration files, in Markdown.
func configPage() string {
	var b strings.Builder
	b.WriteString(configIntro)
	for _, c := range []struct {
		kind  string
		blank func() *cobra.Command
	}{{agentKind, newRun}, {fanoutKind, newFanout}} {
		fmt.Fprintf(&b, "\n## %s: contiv-agent %s\n\n```yaml\n%s```\n", c.kind, c.blank().Name(), sampleConfig(c.kind, c.blank().Flags()))
	}
	return b.String()
}

// sampleConfig is a file with every field, as it is when it is left out.
func sampleConfig(kind string, fs *pflag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", configVersion, kind)
	fields := (&fileFlags{}).fields(fs)
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		flag := fields[name]
		b.WriteByte('\n')
		for _, line := range wrapped(flag.Usage, 120) {
			b.WriteString("# " + line + "\n")
		}
		b.WriteString(name + ": " + sampleValue(flag) + "\n")
	}
	return b.String()
}

// sampleValue is the value of a flag that nobody set, in YAML.
func sampleValue(flag *pflag.Flag) string {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return "[" + strings.Join(list.GetSlice(), ", ") + "]"
	}
	if flag.Value.Type() == "string" {
		return `"` + flag.DefValue + `"`
	}
	return flag.DefValue
}

// wrapped breaks a text into lines of at most so many bytes, if its words are no longer.
func wrapped(text string, width int) (out []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			out, line = append(out, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(out, line)
}
