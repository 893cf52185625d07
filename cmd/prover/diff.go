package prover

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// diff shows what a change of manifests opens and closes.
func diff(cmd *cobra.Command, folders, manifests []string, asked *questions, out *show.Output) error {
	switch err := alone(cmd); {
	case err != nil:
		return exit.Usage(err)
	case asked.given():
		return exit.Usage(errors.New("--diff excludes --never, --always and --assert"))
	case len(manifests) > 0:
		return exit.Usage(errors.New("--diff takes its two folders as arguments, not --manifests"))
	case len(folders) != 2:
		return exit.Usage(fmt.Errorf("--diff takes two folders, not %d", len(folders)))
	}
	before, err := objectsOf(folders[:1], cmd.ErrOrStderr())
	if err != nil {
		return exit.Usage(err)
	}
	after, err := objectsOf(folders[1:], cmd.ErrOrStderr())
	if err != nil {
		return exit.Usage(err)
	}
	report := change.Compare(before, after)
	if err := out.Print(cmd.OutOrStdout(), report, func(w io.Writer) { show.Changed(w, report) }); err != nil {
		return err
	}
	if !report.Same() {
		return &exit.Error{Code: exit.Differs}
	}
	return nil
}
