package flags

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Titles of groups of flags, as help and manual pages show them.
const (
	ForSources   = "sources"
	ForReports   = "reports to the API server"
	ForVPP       = "VPP"
	ForPods      = "pods and the node's network (CNI)"
	ForServices  = "Services"
	ForPolicies  = "policies"
	ForLimits    = "limits"
	ForPrograms  = "other programs"
	ForObservers = "observability"
	groupKey     = "contiv-group"
)

// titles are in the order of help and manual pages.
func titles() []string {
	return []string{ForSources, ForVPP, ForPods, ForServices, ForPolicies, ForLimits, ForPrograms, ForReports, ForObservers}
}

// Group puts the flags that add adds into a group, except those that add puts into another one.
func Group(fs *pflag.FlagSet, title string, add func()) {
	before := map[string]bool{}
	fs.VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	add()
	fs.VisitAll(func(f *pflag.Flag) {
		if !before[f.Name] && f.Annotations[groupKey] == nil {
			_ = fs.SetAnnotation(f.Name, groupKey, []string{title}) // the flag exists
		}
	})
}

// A Section is a group of a command's flags.
type Section struct {
	Title string // "Flags for Services"; of flags without a group: "Flags"
	Flags *pflag.FlagSet
}

// Sections returns the visible flags of a set by group, those without a group first. It returns nil if the set has no group.
func Sections(fs *pflag.FlagSet) (out []Section) {
	grouped := false
	for _, title := range append([]string{""}, titles()...) {
		s := Section{Title: "Flags for " + title, Flags: pflag.NewFlagSet(title, pflag.ContinueOnError)}
		if title == "" {
			s.Title = "Flags"
		}
		fs.VisitAll(func(f *pflag.Flag) {
			of := f.Annotations[groupKey]
			if !f.Hidden && (title == "" && of == nil || slices.Contains(of, title)) {
				s.Flags.AddFlag(f)
				grouped = grouped || of != nil
			}
		})
		if s.Flags.HasAvailableFlags() {
			out = append(out, s)
		}
	}
	if !grouped {
		return nil
	}
	return out
}

// GroupUsage lets the help of each command below root show its flags by group.
func GroupUsage(root *cobra.Command) {
	for _, sub := range root.Commands() {
		GroupUsage(sub)
	}
	if Sections(root.Flags()) == nil {
		return
	}
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		cmd.InitDefaultHelpFlag()
		w := cmd.OutOrStderr()
		fmt.Fprintf(w, "Usage:\n  %s\n", cmd.UseLine())
		if cmd.HasExample() {
			fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
		}
		for _, s := range Sections(cmd.LocalFlags()) {
			fmt.Fprintf(w, "\n%s:\n%s", s.Title, s.Flags.FlagUsages())
		}
		if cmd.HasAvailableInheritedFlags() {
			fmt.Fprintf(w, "\nGlobal Flags:\n%s", cmd.InheritedFlags().FlagUsages())
		}
		return nil
	})
}
