// Command contiv-agent turns Kubernetes Services and network policies into VPP configuration: on a node, in a simulation, or
// to answer a question about them.
//
// Invariant: the command holds no logic. Flags become a configuration, the rooms do the work, and errors become exit codes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/acceptance"
	"github.com/contiv-agent/contiv-agent/cmd/buildinfo"
	"github.com/contiv-agent/contiv-agent/cmd/capture"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/flows"
	"github.com/contiv-agent/contiv-agent/cmd/player"
	"github.com/contiv-agent/contiv-agent/cmd/prover"
	"github.com/contiv-agent/contiv-agent/cmd/query"
	"github.com/contiv-agent/contiv-agent/cmd/support"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/cmd/ui"
	"github.com/contiv-agent/contiv-agent/stdin"
)

// version is set at link time for releases: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() {
	// The signals stay caught to the end: one that arrives while a command ends by itself must not change its exit code.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	os.Exit(execute(ctx, rootOf(os.Args[0]), implied(os.Args[0], completing(os.Args[0], os.Args[1:]))))
}

// execute executes one command line and returns the exit code.
func execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	stderr := &terminal.Writer{Writer: root.ErrOrStderr()}
	root.SetOut(&terminal.Writer{Writer: root.OutOrStdout()})
	root.SetErr(stderr)
	root.SetIn(stdin.Until(ctx, root.InOrStdin()))
	exit.Groups(root)
	flags.GroupUsage(root)
	cmd, err := root.ExecuteContextC(ctx)
	var coded *exit.Error
	switch {
	case err == nil:
		return exit.OK
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return exit.Stopped(cmd)
	case errors.As(err, &coded):
		if coded.Err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", root.CommandPath(), coded.Err)
		}
		return coded.Code
	default:
		fmt.Fprintf(stderr, "%s: %v\n", root.CommandPath(), err)
		return exit.Failed
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "contiv-agent",
		Short: "Kubernetes Services and network policies on FD.io VPP",
		Long: `contiv-agent turns Kubernetes Services and network policies into configuration of FD.io VPP over its
binary API, keeps VPP equal to it, and explains the fate of any packet.

Exit codes: 0 done; 1 failed at run time; 2 wrong flags, arguments or input;
3 "plan" found changes to make, "trace --diff" or "config diff" found a difference, "status" found the agent not in sync or not healthy,
"doctor" found something missing, wrong or dangerous, "verify" found a difference or an assertion that does not hold, "trace --expect" found another verdict,
"trace --live" found another path than predicted, or "cleanup --dry-run" found values to remove; 130 interrupted before it was done (a command that serves until it is stopped ends with 0).

Text for a terminal fits its width, or $COLUMNS, and has colours, unless $NO_COLOR is set. On a pipe each object is one line, without colours. Names are never cut.`,
		Example: `  contiv-agent run --sim --manifests examples/guestbook --node node-1
  contiv-agent run --kubeconfig ~/.kube/config --node "$(hostname)" --vpp-socket /run/vpp/api.sock
  echo '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}' |
    contiv-agent trace --manifests examples/guestbook -o json`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		Version:           "see version", // the template does not show it: without it the flag does not exist
	}
	root.SetVersionTemplate(buildinfo.Of(version).String() + "\n")
	root.SetFlagErrorFunc(exit.FlagError)
	root.AddCommand(newRun(), newFelixDriver(), newFanout(), newSim(), newCalc(), query.NewTrace(), player.New(), flows.New(), flows.NewStaged(), capture.New(), query.NewPolicy(), query.NewPlan(), query.NewStatus(), query.NewDoctor(), prover.New(), newCleanup(), query.NewLogLevel(), query.NewRelease(), query.NewConfig(), acceptance.InPods(), buildinfo.New(version), newDocs())
	root.AddCommand(ui.New(), support.New(executeBeside))
	return root
}

// executeBeside executes another command line within a command, without standard input.
func executeBeside(ctx context.Context, stdout, stderr io.Writer, args ...string) int {
	root := newRoot()
	root.SetIn(strings.NewReader(""))
	root.SetOut(stdout)
	root.SetErr(stderr)
	return execute(ctx, root, args)
}

// rootOf returns the command line of the program for the name that it was started under.
func rootOf(program string) *cobra.Command {
	if name := filepath.Base(program); name == query.PluginName || name == query.CompletionName {
		return query.NewPlugin()
	}
	return newRoot()
}

// completing returns the arguments with which the program completes a command line, if kubectl started it for that.
func completing(program string, args []string) []string {
	if filepath.Base(program) == query.CompletionName {
		return append([]string{"__complete"}, args...)
	}
	return args
}
