// Package support collects what agents report into one compressed archive, for people who look for a cause elsewhere.
//
// Invariant: the archive has what the commands, the metrics, the flight recorder and the pods' logs show, without private keys, passwords and tokens.
package support

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
)

// questions are the commands whose output is a file of the archive.
var questions = []struct {
	file   string
	args   []string
	socket bool // it has the flag --status-socket
}{
	{"version.txt", []string{"version"}, false},
	{"status.json", []string{"status", "--all", "--history", "--output=json"}, true},
	{"plan.json", []string{"plan", "--output=json"}, true},
	{"doctor.txt", []string{"doctor", "--all"}, false},
	{"flows.json", []string{"flows", "--output=json"}, true},
	{"vpp.json", []string{"config", "get", "--vpp", "--output=json"}, false},
}

const privacy = `The archive has names, labels and addresses of pods, Services and policies. Private keys, passwords and tokens in it are replaced by REDACTED. Its README.txt says
what each file is, and what is left out.`

// settings are the flags that the commands of a node and of a cluster share.
type settings struct {
	file    string
	journal uint32
}

func (s *settings) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.file, "write", "w", "contiv-support.tar.gz", "file to write; an existing one is replaced; - is standard output")
	cmd.Flags().Uint32Var(&s.journal, "journal", 16, "newest MiB of the flight recorder's journal, in whole files; 0: none")
}

// Run executes a command line of contiv-agent and returns its exit code.
type Run func(ctx context.Context, stdout, stderr io.Writer, args ...string) int

// New returns the command for the agent of this node.
func New(run Run) *cobra.Command {
	var s settings
	var socket string
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what the agent of this node reports into one file",
		Long: `support-bundle writes a compressed archive with the output of version, status, plan, doctor, flows and config get --vpp, the agent's metrics, and the newest files
of its flight recorder. It needs the agent's unix socket, and no kubectl; doctor and config get use their own sockets. What a command writes to standard error,
and its exit code, are in a file beside its output.

` + privacy + ` The agent's log is not in it.

Exit code 0: the file is written, also if the agent does not answer. 1: the file cannot be written. 2: a flag is wrong.`,
		Example: "  contiv-agent support-bundle\n  contiv-agent support-bundle -w /tmp/node.tar.gz --journal 64",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := writeArchive(s.file, cmd.OutOrStdout(), func(a *archive) error {
				return s.collectNode(cmd.Context(), a, run, socket)
			})
			if err == nil && s.file != stdout {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), s.file)
			}
			return err
		},
	}
	s.addFlags(cmd)
	cmd.Flags().StringVar(&socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	return cmd
}

// collectNode adds what the agent behind a socket reports.
func (s *settings) collectNode(ctx context.Context, a *archive, run Run, socket string) error {
	if err := a.addText(readme, readmeOf(false)); err != nil {
		return err
	}
	for _, q := range questions {
		args := q.args
		if q.socket && socket != flags.Auto {
			args = append(slices.Clip(args), "--status-socket="+socket)
		}
		if err := a.addAnswer(ctx, q.file, func(ctx context.Context, stdout, stderr io.Writer) (int, error) {
			return run(ctx, stdout, stderr, args...), nil
		}); err != nil {
			return err
		}
	}
	at := flags.StatusSocket(socket)
	if err := a.addAnswer(ctx, "metrics.txt", func(ctx context.Context, stdout, _ io.Writer) (int, error) {
		return exit.OK, control.FetchMetrics(ctx, at, stdout)
	}); err != nil || s.journal == 0 {
		return err
	}
	files, complaint, err := collectAnswer(ctx, func(ctx context.Context, stdout, _ io.Writer) (int, error) {
		return exit.OK, control.FetchJournal(ctx, at, int64(s.journal)<<20, stdout)
	})
	if err != nil {
		return err
	}
	if err := a.addTar("journal/", bytes.NewReader(files), func(string) bool { return false }); err != nil {
		complaint = fmt.Appendf(complaint, "the answer of the agent is incomplete: %v\n", err)
	}
	return a.addBoth("journal", nil, complaint)
}
