package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/trace"
)

// maxLine bounds an input line: a question is short.
const maxLine = 1 << 20

func newTrace() *cobra.Command {
	var manifests []string
	var toReply bool
	var all matrixFlags
	var flags agentFlags
	var out output
	cmd := &cobra.Command{
		Use:   "trace [QUESTION ...]",
		Short: "Tell what happens to packets in a cluster given as manifests",
		Long: `trace reads questions, one JSON object per line, from standard input (or from its arguments), and answers each with one
line, in order. Every Node among the objects gets its own agent and embedded VPP; packets cross between them.

  from      pod:<ns>/<name> | node:<name> | external:<ip>@<node>
  to        <ip>:<port> (IPv6 in brackets; no port for ICMP) | pod:<ns>/<name>:<port> | service:<ns>/<name>:<port>
  protocol  TCP | UDP | SCTP | ICMP

The answer has a verdict: delivered (every backend the load balancer may choose gets the packet, and its reply gets back
with the addresses the client expects), rejected (the client gets an ICMP error or a RST) or dropped (silence); and one
outcome for every backend. Objects that are refused are reported on standard error; a question that cannot be asked is
answered with "error".

With --matrix it asks instead, for each --port, whether each pod can reach each other pod. With --diff it takes two folders
(or files) and tells which of these connections become possible from the first to the second, and which stop; the exit code
is 3 if there are any.`,
		Example: `  echo '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}' |
    contiv-agent trace --manifests examples/guestbook -o json
  contiv-agent trace --manifests examples/guestbook '{"from":"external:198.51.100.7@node-1","to":"192.168.16.1:30080","protocol":"TCP"}'
  contiv-agent trace --manifests examples/guestbook --matrix --port 6379/TCP --port ICMP
  contiv-agent trace --diff before/ after/ --port 80/TCP`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(); err != nil {
				return err
			}
			load := func(paths []string) (*trace.Cluster, error) {
				return loadCluster(cmd.Context(), paths, &flags, toReply, cmd.ErrOrStderr())
			}
			if all.matrix || all.diff {
				return all.run(cmd, load, manifests, args, out == "json")
			}
			cluster, err := load(manifests)
			if err != nil {
				return err
			}
			defer cluster.Close()
			in := cmd.InOrStdin()
			if len(args) > 0 {
				in = strings.NewReader(strings.Join(args, "\n"))
			}
			return answerAll(cluster, in, cmd.OutOrStdout(), out == "json")
		},
	}
	flags.add(cmd)
	out.flag(cmd)
	all.add(cmd)
	cmd.Flags().StringSliceVar(&manifests, "manifests", nil, "folders or files with the cluster's objects (required)")
	cmd.Flags().BoolVar(&toReply, "to-reply", false, "add the way of the reply to the hops")
	return cmd
}

// loadCluster builds the what-if cluster of some manifests and reports what they contain that is not usable.
func loadCluster(ctx context.Context, paths []string, flags *agentFlags, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	if len(paths) == 0 {
		return nil, usage(fmt.Errorf("--manifests is required"))
	}
	cfg, err := flags.config()
	if err != nil {
		return nil, err
	}
	changes, err := manifest.Load(paths...)
	if err != nil {
		return nil, usage(err)
	}
	for _, ch := range changes {
		if ch.Err != nil {
			fmt.Fprintf(warn, "refused: %v\n", ch.Err)
		}
	}
	cluster := trace.NewCluster(trace.Config{Agent: cfg, Seed: 1, ToReply: toReply})
	if err := cluster.Apply(ctx, changes); err != nil {
		cluster.Close()
		return nil, err
	}
	return cluster, nil
}

// answerAll answers one line after the other; an empty line is skipped.
func answerAll(c *trace.Cluster, in io.Reader, w io.Writer, asJSON bool) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		a := answerLine(c, lines.Bytes())
		if !asJSON {
			trace.WriteText(buffered, a)
			continue
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return usage(fmt.Errorf("standard input: %w", err))
	}
	return buffered.Flush()
}

func answerLine(c *trace.Cluster, line []byte) trace.Answer {
	var q trace.Question
	if err := json.Unmarshal(line, &q); err != nil {
		return trace.Answer{Error: fmt.Sprintf("not a question: %v", err)}
	}
	return c.Answer(q)
}
