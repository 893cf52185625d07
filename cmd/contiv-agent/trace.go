package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/trace"
)

// maxLine bounds an input line: a question is short.
const maxLine = 1 << 20

// traceFlags are the flags of trace.
type traceFlags struct {
	agentFlags
	clusterFlags
	toReply  bool
	stateful bool
	matrix   matrixFlags
	out      output
}

func newTrace() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace [QUESTION ...]",
		Short: "Tell what happens to packets in a cluster, given as manifests or by its API server",
		Long: `trace reads questions, one JSON object per line, from standard input (or from its arguments), and answers each with one
line, in order. Every Node among the objects gets its own agent and embedded VPP; packets cross between them. Objects are those of
--manifests, or what an API server has now (--kubeconfig, --in-cluster), which is only read.

  from      pod:<ns>/<name> | node:<name> | external:<ip>@<node>
  to        <ip>:<port> (IPv6 in brackets; no port for ICMP) | pod:<ns>/<name>:<port> | service:<ns>/<name>:<port>
  protocol  TCP | UDP | SCTP (the packet is an INIT) | ICMP

The answer has a verdict: delivered (every backend the load balancer may choose gets the packet, and its reply gets back
with the addresses the client expects), rejected (the client gets an ICMP error or a RST) or dropped (silence); and one
outcome for every backend. Objects that are refused are reported on standard error; a question that cannot be asked is
answered with "error". More fields of a question, all optional, describe its packet:

  sourceAddress    a forged source address; nobody answers the packet, and delivered means that it arrived
  sourcePort       the client's port, or the identifier of an echo (40000, 4000)
  destinationPort  replaces the port of "to"
  flags            TCP: S, SA, A, PA, FA, R; SCTP: a chunk (INIT, DATA); ICMP: echo-request or echo-reply
                   SYN+ACK, a reset, an echo reply and chunks that answer are not answered
  oneWay           true: nobody answers, and delivered means that the packet arrived

With --stateful, questions are asked one after another on the same nodes and VPPs: sessions stay (NAT, access lists, cnat,
affinity), load balancers choose one backend by themselves, and the answer names in "sender" who really sent the packet. Fields
for what happens before the packet, in this order:

  restart          vpp:<node> or agent:<node>
  apply, delete    lists: manifests whose objects are created or replaced; objects to remove ("NetworkPolicy prod/web")
  after            the time that passes, such as 90s

With --matrix it asks instead, for each --port, whether each pod can reach each other pod. With --diff it takes two folders
(or files) and tells which of these connections become possible from the first to the second, and which stop; the exit code
is 3 if there are any.`,
		Example: `  echo '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}' |
    contiv-agent trace --manifests examples/guestbook -o json
  contiv-agent trace --manifests examples/guestbook '{"from":"external:198.51.100.7@node-1","to":"192.168.16.1:30080","protocol":"TCP"}'
  contiv-agent trace --manifests examples/guestbook --matrix --port 6379/TCP --port ICMP
  contiv-agent trace --diff before/ after/ --port 80/TCP
  contiv-agent trace --kubeconfig ~/.kube/config --matrix --port 6379/TCP
  contiv-agent trace --stateful --manifests examples/guestbook \
    '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP","sourcePort":4000}' \
    '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP","sourcePort":4000,"flags":"PA","restart":"vpp:node-1"}'`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.agentFlags.add(cmd)
	f.add(cmd)
	cmd.Flags().StringSliceVar(&f.manifests, "manifests", nil, "folders or files with the cluster's objects")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "ask about what the API server of this kubeconfig has")
	cmd.Flags().StringVar(&f.context, "context", "", "context of the kubeconfig (default: its current one)")
	cmd.Flags().BoolVar(&f.inCluster, "in-cluster", false, "ask about what the API server has of the cluster this runs in")
	cmd.Flags().StringSliceVar(&f.ignored, "ignore-policy-kinds", nil, "kinds of policies to leave out though the API server serves them, as of run")
	return cmd
}

// add adds the flags that are about questions and answers.
func (f *traceFlags) add(cmd *cobra.Command) {
	f.out.flag(cmd)
	f.matrix.add(cmd)
	cmd.Flags().BoolVar(&f.toReply, "to-reply", false, "add the way of the reply to the hops")
	cmd.Flags().BoolVar(&f.stateful, "stateful", false, "ask one question after another on the same nodes and VPPs: sessions stay")
}

func (f *traceFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.out.check(); err != nil {
		return err
	}
	load := func(paths []string) (*trace.Cluster, error) {
		from := f.clusterFlags
		from.manifests = paths
		return from.load(cmd.Context(), &f.agentFlags, f.toReply, cmd.ErrOrStderr())
	}
	if f.stateful && (f.matrix.matrix || f.matrix.diff) {
		return usage(errors.New("--stateful is about questions: it excludes --matrix and --diff"))
	}
	if f.matrix.matrix || f.matrix.diff {
		return f.matrix.run(cmd, load, f.manifests, args, f.out == "json")
	}
	cluster, err := load(f.manifests)
	if err != nil {
		return err
	}
	defer cluster.Close()
	in := cmd.InOrStdin()
	if len(args) > 0 {
		in = strings.NewReader(strings.Join(args, "\n"))
	}
	ask := cluster.AnswerStep
	if f.stateful {
		ask = func(s trace.Step) trace.Answer { return cluster.Send(cmd.Context(), s) }
	}
	return answerAll(ask, in, cmd.OutOrStdout(), f.out == "json")
}

// clusterFlags say where the objects of a what-if cluster come from.
type clusterFlags struct {
	manifests           []string
	kubeconfig, context string
	inCluster           bool
	api                 bool // of the API server a kubeconfig leads to, be it the default one
	ignored             []string
}

// load builds the what-if cluster and reports what of it is not usable.
func (f *clusterFlags) load(ctx context.Context, flags *agentFlags, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	api := f.api || f.inCluster || f.kubeconfig != ""
	switch {
	case api && len(f.manifests) > 0:
		return nil, usage(errors.New("objects are either of --manifests or of an API server"))
	case f.inCluster && f.kubeconfig != "":
		return nil, usage(errors.New("--in-cluster and --kubeconfig exclude each other"))
	case !api && (f.context != "" || len(f.ignored) > 0):
		return nil, usage(errors.New("--context and --ignore-policy-kinds need an API server: --kubeconfig or --in-cluster"))
	case !api && len(f.manifests) == 0:
		return nil, usage(errors.New("no objects: give --manifests, --kubeconfig or --in-cluster"))
	case !api:
		return loadCluster(ctx, f.manifests, flags, toReply, warn)
	}
	cfg := kube.Config{Kubeconfig: f.kubeconfig, Context: f.context, IgnorePolicyKinds: f.ignored}
	if err := cfg.Validate(); err != nil {
		return nil, usage(err)
	}
	changes, err := kube.Snapshot(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return newCluster(ctx, changes, flags, toReply, warn)
}

// loadCluster builds the what-if cluster of some manifests and reports what they contain that is not usable.
func loadCluster(ctx context.Context, paths []string, flags *agentFlags, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	if len(paths) == 0 {
		return nil, usage(errors.New("--manifests is required"))
	}
	changes, err := manifest.Load(paths...)
	if err != nil {
		return nil, usage(err)
	}
	return newCluster(ctx, changes, flags, toReply, warn)
}

func newCluster(ctx context.Context, changes []event.Change, flags *agentFlags, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	cfg, err := flags.config()
	if err != nil {
		return nil, err
	}
	for _, ch := range changes {
		if ch.Err != nil {
			fmt.Fprintf(warn, "refused: %s\n", plain(ch.Err.Error()))
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
func answerAll(ask func(trace.Step) trace.Answer, in io.Reader, w io.Writer, asJSON bool) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		a := answerLine(ask, lines.Bytes())
		if !asJSON {
			plainAll(&a)
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

func answerLine(ask func(trace.Step) trace.Answer, line []byte) trace.Answer {
	s, err := trace.ParseStep(line)
	if err != nil {
		return trace.Answer{Error: fmt.Sprintf("not a question: %v", err)}
	}
	return ask(s)
}
