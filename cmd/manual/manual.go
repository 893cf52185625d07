// Package manual turns commands into manual pages: cobra's, with the exit status, the files and the environment of each command.
//
// Invariant: the same commands give the same pages.
package manual

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
)

// Write writes the pages of a command and of all below it to a folder.
func Write(cmd *cobra.Command, dir string) error {
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := Write(sub, dir); err != nil {
			return err
		}
	}
	page, err := Page(cmd)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, nameOf(cmd)+".1"), page, 0o644) //nolint:gosec // for everybody
}

// nameOf is a command's page: contiv-agent-config-put.
func nameOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// Page returns the page of a command.
func Page(cmd *cobra.Command) ([]byte, error) {
	var b bytes.Buffer
	day := time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC) // fixed, so that the pages do not depend on the day
	header := &doc.GenManHeader{Title: strings.ToUpper(nameOf(cmd)), Section: "1", Source: "contiv-agent", Manual: "contiv-agent", Date: &day}
	if err := doc.GenMan(cmd, header, &b); err != nil {
		return nil, err
	}
	page, also, found := strings.Cut(byGroup(cmd, b.String()), "\n.SH SEE ALSO\n")
	page += sections(cmd)
	if found {
		page += "\n.SH SEE ALSO\n" + also
	}
	return []byte(page), nil
}

// option matches the name of a flag at the begin of its paragraph.
var option = regexp.MustCompile(`^(?:\\fB-\w\\fP, )?\\fB--([a-z0-9-]+)\\fP`)

// byGroup orders the options of a page by group, with a heading for each.
func byGroup(cmd *cobra.Command, page string) string {
	const head, between = "\n.SH OPTIONS\n", "\n\n.PP\n"
	groups := flags.Sections(cmd.NonInheritedFlags())
	before, rest, found := strings.Cut(page, head)
	if groups == nil || !found {
		return page
	}
	options, after, more := strings.Cut(rest, "\n.SH ")
	text := map[string]string{}
	for _, o := range strings.Split(strings.TrimRight(options, "\n"), between) {
		if m := option.FindStringSubmatch(o); m != nil {
			text[m[1]] = o
		}
	}
	var b strings.Builder
	b.WriteString(before + head)
	for i, g := range groups {
		if i > 0 {
			b.WriteString(".SS " + g.Title + "\n")
		}
		var list []string
		g.Flags.VisitAll(func(f *pflag.Flag) { list = append(list, text[f.Name]) })
		b.WriteString(strings.Join(list, between) + "\n\n")
	}
	if more {
		b.WriteString("\n.SH " + after)
	}
	return b.String()
}

// sections are EXIT STATUS, FILES and ENVIRONMENT.
func sections(cmd *cobra.Command) string {
	var b strings.Builder
	writeSection(&b, "EXIT STATUS", exits(cmd))
	var files, variables []item
	seen := map[string]bool{}
	visit := func(f *pflag.Flag) {
		if f.Hidden || seen[f.Name] {
			return
		}
		seen[f.Name] = true
		if of, ok := flagFiles[f.Name]; ok && (of.only == "" || of.only == cmd.Name()) {
			files = append(files, item{of.path, of.text + " (--" + f.Name + ")"})
		}
		variables = append(variables, flagVariables[f.Name]...)
	}
	cmd.NonInheritedFlags().VisitAll(visit)
	cmd.InheritedFlags().VisitAll(visit)
	path := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath()+" ")
	files = append(files, commandFiles[path]...)
	variables = append(variables, commandVariables[path]...)
	if cmd.Root().Name() == "kubectl-contiv" {
		variables = append(variables, item{"KUBECTL", "the kubectl that it runs; default: the one in PATH"})
	}
	writeSection(&b, "FILES", sortedItems(files))
	writeSection(&b, "ENVIRONMENT", sortedItems(variables))
	return b.String()
}

func exits(cmd *cobra.Command) []item {
	done, stopped := "done", item{fmt.Sprint(exit.Interrupted), "Ctrl-C or SIGTERM ended it before it was done"}
	list := []item{{fmt.Sprint(exit.Failed), "a failure at run time"}, {fmt.Sprint(exit.Wrong), "flags, arguments or input are wrong"}}
	if text, ok := findings[strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath()+" ")]; ok {
		list = append(list, item{fmt.Sprint(exit.Differs), text})
	} else if cmd.HasAvailableSubCommands() {
		list = append(list, item{fmt.Sprint(exit.Differs), "a finding: the pages of the commands say which"})
	}
	if _, serves := cmd.Annotations[exit.Serves]; serves {
		done = "done, or stopped by Ctrl-C or SIGTERM"
	} else {
		list = append(list, stopped)
	}
	return append([]item{{fmt.Sprint(exit.OK), done}}, list...)
}

func sortedItems(list []item) []item {
	slices.SortFunc(list, func(a, b item) int { return strings.Compare(a.name, b.name) })
	return slices.Compact(list)
}

// writeSection writes a list as a section; nothing if it is empty.
func writeSection(b *strings.Builder, title string, list []item) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n.SH %s\n", title)
	for _, i := range list {
		fmt.Fprintf(b, ".TP\n\\fB%s\\fP\n%s\n", escape(i.name), escape(i.text))
	}
}

// escape protects text from roff: a backslash, and a point or a quote at the begin of a line.
func escape(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
