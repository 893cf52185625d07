// Package buildinfo turns the facts that the linker left in the program into its version, and the command that shows it.
//
// Invariant: it says nothing about a program other than the running one.
package buildinfo

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/sbom"
	"github.com/contiv-agent/contiv-agent/cmd/show"
)

// Info is the version of the program.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // commit; "-dirty" behind it: with changes
	Date     string `json:"date,omitempty"`     // of the commit, RFC 3339
	Go       string `json:"go"`
	VPP      string `json:"vpp"` // releases whose binary API the bindings match
}

// Of returns the version of the running program, whose name for it is given; a build between releases is "dev".
func Of(version string) *Info {
	v := &Info{Version: version, Go: runtime.Version(), VPP: "24.06 to 26.06"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Date = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		v.Revision += "-dirty"
	}
	return v
}

// String is one line: contiv-agent dev (commit 0123456789ab of 2026-01-02T03:04:05Z, go1.26), for VPP 24.06 to 26.06.
func (v *Info) String() string {
	built := v.Go
	if v.Revision != "" {
		commit, dirty, _ := strings.Cut(v.Revision, "-")
		if dirty != "" {
			dirty = " with changes"
		}
		built = fmt.Sprintf("commit %.12s%s of %s, %s", commit, dirty, v.Date, v.Go)
	}
	return fmt.Sprintf("contiv-agent %s (%s), for VPP %s", v.Version, built, v.VPP)
}

// New returns the command that shows it.
func New(version string) *cobra.Command {
	var out show.Output
	var modules bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  contiv-agent version\n  contiv-agent version -o json\n  contiv-agent version --sbom",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if modules {
				return sbom.Write(cmd.OutOrStdout(), version)
			}
			v := Of(version)
			return out.Print(cmd.OutOrStdout(), v, func(w io.Writer) {
				fmt.Fprintln(w, v)
			})
		},
	}
	out.AddFlag(cmd)
	cmd.Flags().BoolVar(&modules, "sbom", false, "print the modules that this program is built of, as CycloneDX 1.6 JSON")
	return cmd
}
