package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/sbom"
	"github.com/contiv-agent/contiv-agent/cmd/show"
)

// version is set at link time for releases: -ldflags "-X main.version=v1.2.3".
var version = "dev"

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	VPP      string `json:"vpp"` // releases whose binary API the bindings match
}

func newVersion() *cobra.Command {
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
			v := versionInfo{Version: version, Go: runtime.Version(), VPP: "24.06 to 26.06"}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						v.Revision = s.Value
					}
				}
			}
			return out.Print(cmd.OutOrStdout(), v, func(w io.Writer) {
				fmt.Fprintf(w, "contiv-agent %s (%s), for VPP %s\n", v.Version, v.Go, v.VPP)
			})
		},
	}
	out.AddFlag(cmd)
	cmd.Flags().BoolVar(&modules, "sbom", false, "print the modules that this program is built of, as CycloneDX 1.6 JSON")
	return cmd
}
