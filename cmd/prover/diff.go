package prover

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
)

// diff shows what a change of manifests opens and closes.
func diff(cmd *cobra.Command, folders, manifests []string, socket string, asked *questions, out *show.Output) error {
	switch err := alone(cmd); {
	case err != nil:
		return exit.Usage(err)
	case asked.given():
		return exit.Usage(errors.New("--diff excludes --never, --always and --assert"))
	case len(manifests) > 0:
		return exit.Usage(errors.New("--diff takes its folders as arguments, not --manifests"))
	case len(folders) != 1 && len(folders) != 2:
		return exit.Usage(fmt.Errorf("--diff takes one folder, whose objects are applied to those of the running agent, or two, not %d", len(folders)))
	case len(folders) == 2 && cmd.Flags().Changed("status-socket"):
		return exit.Usage(errors.New("--status-socket: --diff asks no agent about two folders"))
	}
	before, after, err := sides(cmd, folders, socket)
	if err != nil {
		return err
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

// sides are the objects of two folders, or those of the running agent without and with the objects of one folder.
func sides(cmd *cobra.Command, folders []string, socket string) (before, after []model.Object, err error) {
	if len(folders) == 2 {
		if before, err = objectsOf(folders[:1], cmd.ErrOrStderr()); err == nil {
			after, err = objectsOf(folders[1:], cmd.ErrOrStderr())
		}
		return before, after, exit.Usage(err)
	}
	given, err := manifest.Load(folders...)
	if err != nil {
		return nil, nil, exit.Usage(err)
	}
	present, err := control.FetchObjects(cmd.Context(), flags.StatusSocket(socket))
	if err != nil {
		return nil, nil, err
	}
	return understood(present, io.Discard), understood(whatif.Overlay(present, given), cmd.ErrOrStderr()), nil
}

// understood returns the objects of changes, and writes their errors.
func understood(changes []event.Change, warn io.Writer) (objects []model.Object) {
	for _, ch := range changes {
		if ch.Err != nil {
			fmt.Fprintln(warn, ch.Err)
		}
		if ch.Object != nil {
			objects = append(objects, ch.Object)
		}
	}
	return objects
}
