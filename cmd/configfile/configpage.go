package configfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configIntro is the introduction of the page of configuration files.
const configIntro = `# Configuration files

` + "`contiv-agent run`" + ` and ` + "`contiv-agent fanout`" + ` read their configuration from a file (` + "`--config FILE`" + `), from their command line, or from both. This
page is generated (` + "`make man`" + `) from the same flags as the manual pages; a test compares them.

* A file names its version and purpose: ` + "`apiVersion`" + ` and ` + "`kind`" + `. Within one version, fields may be added; none is removed.
* Each flag is a field: ` + "`--service-cidr`" + ` is ` + "`serviceCIDR`" + `. Lists are YAML lists, durations are strings (` + "`30s`" + `), numbers and booleans are YAML scalars.
* A flag on the command line wins over the file. For ` + "`fanout`" + `, the environment wins over the file, and the command line over both (` + "`CONTIV_FANOUT_MAX_CONNECTIONS`" + `).
* An unknown field, a duplicate field and a value of another type are errors, each with file, line and field.
* ` + "`--validate-config`" + ` reports all errors of file and flags together, and ends: exit code 0 if there is none, 2 otherwise. It reads the
  files that are named (certificates, manifests' folder), and connects to nobody.

The agent reads the file once, at its start. While it runs, only the log level may change: ` + "`contiv-agent log-level debug`" + `.

The files below have every field with its default value. A test loads them.
`

// Page returns the reference of configuration files, in Markdown: of the commands run and fanout.
func Page(run, fanout *cobra.Command) string {
	var b strings.Builder
	b.WriteString(configIntro)
	for _, c := range []struct {
		kind string
		cmd  *cobra.Command
	}{{AgentKind, run}, {FanoutKind, fanout}} {
		fmt.Fprintf(&b, "\n## %s: contiv-agent %s\n\n```yaml\n%s```\n", c.kind, c.cmd.Name(), Sample(c.kind, c.cmd.Flags()))
	}
	return b.String()
}

// Sample returns a file with every field and its default.
func Sample(kind string, fs *pflag.FlagSet) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", Version, kind)
	fields := (&File{}).Fields(fs)
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

// sampleValue returns the default of a flag, in YAML.
func sampleValue(flag *pflag.Flag) string {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return "[" + strings.Join(list.GetSlice(), ", ") + "]"
	}
	if flag.Value.Type() == "string" {
		return `"` + flag.DefValue + `"`
	}
	return flag.DefValue
}

// wrapped breaks a text into lines of at most width bytes; a longer word is a line by itself.
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
