// Package support collects what the agents of a cluster report into one compressed archive, for people who look for a cause elsewhere.
//
// Invariant: the archive has what the commands of the kubectl plugin and the pods' logs show, without private keys, passwords and tokens.
package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
)

// answerLimit is how long one answer of an agent may take.
const answerLimit = time.Minute

// questions are the commands whose output is a file of the archive.
var questions = []struct {
	file string
	args []string
}{
	{"version.txt", []string{"version"}},
	{"status.json", []string{"status", "--all", "--history", "--output=json"}},
	{"plan.json", []string{"plan", "--output=json"}},
	{"doctor.txt", []string{"doctor", "--all"}},
	{"flows.json", []string{"flows", "--output=json"}},
	{"vpp.json", []string{"config", "get", "--vpp", "--output=json"}},
}

// OfCluster returns the command of the kubectl plugin. It asks the agents, or that of one node.
func OfCluster(agents *kubectl.Agents, node *string) *cobra.Command {
	file := ""
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect what the agents report, and their logs, into one file",
		Long: `support-bundle writes a compressed archive with a folder for each node: the output of version, status, plan, doctor, flows and config get --vpp of its
agent, and the last 5,000 lines of the log of the agent's container. What a command writes to standard error, and its exit code, are in a file beside its output.
A node that does not answer has these files alone.

The archive has names, labels and addresses of pods, Services and policies. Private keys, passwords and tokens in it are replaced by REDACTED.

Exit code 0: the file is written. 1: no agent was found, or the file cannot be written.`,
		Example: "  kubectl contiv support-bundle\n  kubectl contiv support-bundle --node node-1 -w /tmp/node-1.tar.gz",
		Args:    exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pods, err := agents.List(cmd.Context(), *node)
			if err != nil {
				return err
			}
			to, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			err = errors.Join(writeBundle(cmd.Context(), to, cmd.ErrOrStderr(), agents, pods), to.Close())
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d nodes\n", file, len(pods))
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "write", "w", "contiv-support.tar.gz", "file to write; an existing one is replaced")
	return cmd
}

func writeBundle(ctx context.Context, to, progress io.Writer, agents *kubectl.Agents, pods []kubectl.Place) error {
	packed := gzip.NewWriter(to)
	out := tar.NewWriter(packed)
	for _, pod := range pods {
		fmt.Fprintf(progress, "%s\n", pod.Node)
		for _, q := range questions {
			if err := addAnswer(ctx, out, pod.Node+"/"+q.file, func(ctx context.Context, stdout, stderr io.Writer) (int, error) {
				return agents.Ask(ctx, stdout, stderr, false, []kubectl.Question{{Place: pod, Args: q.args}})
			}); err != nil {
				return err
			}
		}
		if err := addAnswer(ctx, out, pod.Node+"/log.txt", func(ctx context.Context, stdout, stderr io.Writer) (int, error) {
			return agents.Log(ctx, stdout, stderr, pod)
		}); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), packed.Close())
}

// addAnswer adds the file with an answer, and one with what went wrong. The error is of the archive, or ctx has ended.
func addAnswer(ctx context.Context, out *tar.Writer, name string, ask func(context.Context, io.Writer, io.Writer) (int, error)) error {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code, err := ask(limited, &stdout, &stderr)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		fmt.Fprintln(&stderr, err)
	}
	if code != exit.OK {
		fmt.Fprintf(&stderr, "exit code %d\n", code)
	}
	for _, part := range []struct {
		name    string
		content []byte
	}{{name, stdout.Bytes()}, {name + ".stderr", stderr.Bytes()}} {
		if len(part.content) == 0 {
			continue
		}
		content := redact(part.content)
		if err := out.WriteHeader(&tar.Header{Name: "contiv-support/" + part.name, Mode: 0o600, Size: int64(len(content)), ModTime: time.Now()}); err != nil {
			return err
		}
		if _, err := out.Write(content); err != nil {
			return err
		}
	}
	return nil
}

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`)
	credential = regexp.MustCompile(`(?i)((?:password|passwd|token|authorization)\\?["']?\s*[:=]\s*\\?["']?(?:bearer |basic )?)[^\s"'\\,}]+`)
)

// redact replaces private keys, and the values of passwords and tokens. JSON stays JSON.
func redact(text []byte) []byte {
	return credential.ReplaceAll(privateKey.ReplaceAll(text, []byte("REDACTED")), []byte("${1}REDACTED"))
}
