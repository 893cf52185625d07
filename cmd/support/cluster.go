package support

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
)

// mostLog bounds the log of a container in an archive.
const mostLog = 8 << 20

// OfCluster returns the command of the kubectl plugin. It asks the agents, or that of one node.
func OfCluster(agents *kubectl.Agents, node *string) *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what the agents report, and their logs, into one file",
		Long: `support-bundle writes a compressed archive with a folder for each node: the output of version, status, plan, doctor, flows and config get --vpp of its
agent, the agent's metrics, the newest files of its flight recorder, and the last 5,000 lines of the logs of the agent's container, of that before its last restart, and of the container
vpp, at most 8 MiB of each. What a command writes to standard error, and its exit code, are in a file beside its output. A node that does not answer has these files alone.

` + privacy + `

Exit code 0: the file is written. 1: no agent was found, or the file cannot be written.`,
		Example: "  kubectl contiv support-bundle\n  kubectl contiv support-bundle --node node-1 -w /tmp/node-1.tar.gz",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pods, err := agents.List(cmd.Context(), *node)
			if err != nil {
				return err
			}
			err = writeArchive(s.file, cmd.OutOrStdout(), func(a *archive) error {
				if err := a.addText(readme, readmeOf(true)); err != nil {
					return err
				}
				for _, pod := range pods {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", pod.Node)
					if err := s.collectPod(cmd.Context(), a, agents, pod); err != nil {
						return err
					}
				}
				return nil
			})
			if err == nil && s.file != stdout {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d nodes\n", s.file, len(pods))
			}
			return err
		},
	}
	s.addFlags(cmd)
	return cmd
}

// collectPod adds what an agent reports, and the logs of its pod.
func (s *settings) collectPod(ctx context.Context, a *archive, agents *kubectl.Agents, pod kubectl.Place) error {
	query := func(args ...string) ask {
		return func(ctx context.Context, stdout, stderr io.Writer) (int, error) {
			return agents.Ask(ctx, stdout, stderr, false, []kubectl.Question{{Place: pod, Args: args}})
		}
	}
	packed, complaint, err := collectAnswer(ctx, query("support-bundle", "--write="+stdout, fmt.Sprintf("--journal=%d", s.journal)))
	if err != nil {
		return err
	}
	files, err := gzip.NewReader(bytes.NewReader(packed))
	if err == nil {
		if err := a.addTar(pod.Node+"/", files, func(name string) bool { return name == readme }); err != nil {
			complaint = fmt.Appendf(complaint, "the answer is incomplete: %v\n", err)
		}
	} else { // an agent of an older version has no such command
		for _, q := range questions {
			if err := a.addAnswer(ctx, pod.Node+"/"+q.file, query(q.args...)); err != nil {
				return err
			}
		}
	}
	if err := a.addBoth(pod.Node+"/support-bundle", nil, complaint); err != nil {
		return err
	}
	return addLogs(ctx, a, agents, pod)
}

// addLogs adds the logs of a pod. Only that of the agent's container must exist.
func addLogs(ctx context.Context, a *archive, agents *kubectl.Agents, pod kubectl.Place) error {
	for _, l := range []struct {
		file string
		log  kubectl.Log
	}{
		{"log.txt", kubectl.Log{}},
		{"log-previous.txt", kubectl.Log{Previous: true}},
		{"log-vpp.txt", kubectl.Log{Container: "vpp"}},
	} {
		text, complaint, err := collectAnswer(ctx, func(ctx context.Context, stdout, stderr io.Writer) (int, error) {
			return agents.ReadLog(ctx, stdout, stderr, pod, l.log)
		})
		if err != nil {
			return err
		}
		if l.log != (kubectl.Log{}) && len(complaint) > 0 {
			continue
		}
		if err := a.addBoth(pod.Node+"/"+l.file, newestOf(text, mostLog), complaint); err != nil {
			return err
		}
	}
	return nil
}
