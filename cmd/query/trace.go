package query

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/live"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/stdin"
	"github.com/contiv-agent/contiv-agent/trace"
)

// traceFlags are the flags of trace.
type traceFlags struct {
	flags.Agent
	whatif.Source
	toReply  bool
	stateful bool
	answers  whatif.Answers
	matrix   whatif.Matrix
	live     live.Settings
	out      show.Output
}

// NewTrace returns the command trace.
func NewTrace() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace [FROM TO [PROTOCOL] | QUESTION ...]",
		Short: "Show the fate of packets in a cluster, given as manifests or by its API server",
		Long: `trace FROM TO answers one question in words: FROM is NAMESPACE/POD, TO is NAMESPACE/SERVICE:PORT, NAMESPACE/POD:PORT or an address and port, and the protocol is
TCP unless it follows TO; without a port it is ICMP. Otherwise trace reads questions, one JSON object per line, from standard input (or from its arguments), and answers each with one
line, in order. Every Node among the objects gets a separate agent and embedded VPP; packets cross between them. Objects are those of
--manifests, or of an API server (--kubeconfig, --in-cluster), which trace only reads.

  from      pod:<ns>/<name> | node:<name> | external:<ip>@<node>
  to        <ip>:<port> (IPv6 in brackets; no port for ICMP) | pod:<ns>/<name>:<port> | service:<ns>/<name>:<port>
  protocol  TCP | UDP | SCTP (the packet is an INIT) | ICMP

The answer has a verdict: delivered (every backend that the load balancer may choose gets the packet, and its reply arrives with the addresses that
the client expects), rejected (the client gets an ICMP error or a RST) or dropped (no answer); and one outcome for every backend. In JSON, an outcome has
its hops as lines ("hops") and with fields ("path"); without an outcome, the answer has the path. Standard error
reports refused objects; a question that cannot be evaluated is answered with "error", and the exit code is 2 in the end. With --expect it is 3 if a verdict is another
one. trace answers each line at once, so a program can ask one question after the other. More fields of a question, all optional, describe its packet:

  sourceAddress    a forged source address; the packet gets no answer, and delivered means that it arrived
  sourcePort       the client's port, or the identifier of an echo (40000, 4000)
  destinationPort  replaces the port of "to"
  flags            TCP: S, SA, A, PA, FA, R; SCTP: a chunk (INIT, DATA); ICMP: echo-request or echo-reply
                   SYN+ACK, a reset, an echo reply and answering chunks get no answer
  oneWay           true: the packet gets no answer, and delivered means that it arrived
  fragments        2 to 16: the packet is sent in that many fragments; delivered means that all arrived, and made it whole
  only             the fragments that are sent: first, later (all others) or reversed (all, the last one first)
  identification   that of the fragments (one that no other question gets): with --stateful, questions with one number send one packet

With --stateful, trace evaluates questions one after another on the same nodes and VPPs: sessions stay (NAT, access lists, cnat, affinity), load
balancers choose one backend themselves, and the answer names the true sender in "sender". Fields for steps before the packet, in this order:

  restart          vpp:<node> or agent:<node>
  apply, delete    lists: manifests whose objects are created or replaced; objects to remove ("NetworkPolicy prod/web")
  after            the time that passes, such as 90s

With --matrix it evaluates, for each --port, whether each pod can reach each other pod. With --diff it compares two folders (or files), and shows
which of these connections become possible from the first to the second, and which stop; the exit code is 3 if there are differences.
With one folder, the first side is the cluster as it is, by an API server or by the running agent of this node (--status-socket), with its settings; the
second side is the same with the folder's objects created or replaced, as kubectl apply does. No object is removed.
Both take --from-namespace and --to-namespace. A matrix that is wider than the terminal is written in parts.

` + live.Text + ` It queries the agent of this node, at
--status-socket. Without a source of objects the prediction is made of the objects and settings of that agent.`,
		Example: `  contiv-agent trace --manifests examples/guestbook guestbook/client guestbook/frontend:80
  contiv-agent trace --manifests examples/guestbook guestbook/client kube-system/kube-dns:53 UDP
  echo '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}' |
    contiv-agent trace --manifests examples/guestbook -o json
  contiv-agent trace --manifests examples/guestbook '{"from":"external:198.51.100.7@node-1","to":"192.168.16.1:30080","protocol":"TCP"}'
  contiv-agent trace --manifests examples/guestbook --matrix --port 6379/TCP --port ICMP
  contiv-agent trace --diff before/ after/ --port 80/TCP
  contiv-agent trace --diff new-policies.yaml --port 80/TCP
  contiv-agent trace --kubeconfig ~/.kube/config --matrix --port 6379/TCP
  contiv-agent trace --live guestbook/client guestbook/frontend:80
  contiv-agent trace --live --inject guestbook/client guestbook/frontend:80
  contiv-agent trace --stateful --manifests examples/guestbook \
    '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP","sourcePort":4000}' \
    '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP","sourcePort":4000,"flags":"PA","restart":"vpp:node-1"}'`,
		ValidArgsFunction: completeWords(&f.Manifests),
		RunE:              func(cmd *cobra.Command, args []string) error { return f.runTrace(cmd, args, f.live.Here) },
	}
	f.Agent.AddFlags(cmd)
	f.addFlags(cmd)
	f.live.AddSocketFlag(cmd)
	cmd.Flags().StringSliceVar(&f.Manifests, "manifests", nil, "folders or files with the cluster's objects")
	cmd.Flags().StringVar(&f.Kubeconfig, "kubeconfig", "", "use the objects of this kubeconfig's API server")
	cmd.Flags().StringVar(&f.Context, "context", "", "context of the kubeconfig (default: its current one)")
	cmd.Flags().BoolVar(&f.InCluster, "in-cluster", false, "use the objects of the API server of the cluster that trace runs in")
	cmd.Flags().StringSliceVar(&f.Ignored, "ignore-policy-kinds", nil, "kinds of policies to ignore although the API server serves them, as for run")
	return cmd
}

// addFlags adds the flags for questions and answers.
func (f *traceFlags) addFlags(cmd *cobra.Command) {
	f.out.AddFlag(cmd)
	f.answers.AddFlags(cmd)
	f.matrix.AddFlags(cmd)
	f.live.AddFlags(cmd)
	cmd.Flags().BoolVar(&f.toReply, "to-reply", false, "add the hops of the reply")
	cmd.Flags().BoolVar(&f.stateful, "stateful", false, "evaluate one question after another on the same nodes and VPPs: sessions stay")
}

func (f *traceFlags) runTrace(cmd *cobra.Command, args []string, ask live.Ask) error {
	if err := f.answers.Check(); err != nil {
		return err
	}
	l := f.loader(cmd)
	if f.live.On && (f.stateful || f.toReply || f.answers.Expect != "" || f.matrix.Matrix || f.matrix.Diff) {
		return exit.Usage(errors.New("--live excludes --stateful, --to-reply, --expect, --matrix and --diff"))
	}
	if f.live.On {
		return f.runLive(cmd, args, ask)
	}
	if f.stateful && (f.matrix.Matrix || f.matrix.Diff) {
		return exit.Usage(errors.New("--stateful excludes --matrix and --diff"))
	}
	if f.matrix.Matrix || f.matrix.Diff {
		return f.matrix.Run(cmd, l, f.Manifests, args, &f.out)
	}
	cluster, err := l.Load(f.Manifests)
	if err != nil {
		return err
	}
	defer cluster.Close()
	in := cmd.InOrStdin()
	if whatif.IsWords(args) {
		line, err := whatif.Words(args, cluster.AnswerStep)
		if err != nil {
			return exit.Usage(err)
		}
		in = strings.NewReader(line)
	} else if len(args) > 0 {
		in = strings.NewReader(strings.Join(args, "\n"))
	}
	stdin.Prompt(in, cmd.ErrOrStderr(), `Questions, one JSON object per line, such as {"from":"pod:NAMESPACE/NAME","to":"service:NAMESPACE/NAME:PORT","protocol":"TCP"}. Ctrl-D ends.`)
	answer := cluster.AnswerStep
	if f.stateful {
		answer = func(s trace.Step) trace.Answer { return cluster.Send(cmd.Context(), s) }
	}
	f.answers.Out = f.out
	return f.answers.Answer(answer, in, cmd.OutOrStdout())
}
