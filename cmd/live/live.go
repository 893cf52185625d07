// Package live turns a question about a real packet into the paths of that packet: as VPP's tracer shows it, and as a simulated cluster predicts it.
//
// Invariant: the prediction is about the packet that VPP traced: its addresses, ports and flags.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentlive "github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/trace/beside"
	"github.com/contiv-agent/contiv-agent/trace/hops"
	"github.com/contiv-agent/contiv-agent/vpp/tracer"
)

// Text is the paragraph of the commands' help.
const Text = `With --live FROM TO [PROTOCOL], VPP's packet tracer shows the path of the first real packet from the pod FROM to TO that comes within --duration: let
the pod send one meanwhile. trace prints this path beside the predicted one and marks the first difference with "!="; the exit code is 3 then. Only the path
through the node of FROM is shown. The protocol is TCP, UDP or ICMP.

trace sends no packet, unless --inject is given: then the agent lets the pod's kernel send one, and the path of this packet is shown. It is a SYN, a datagram
without data, or an echo request. It meets everything that packets of the pod meet, and a real server may get it. The answer of a server reaches the pod: its
kernel resets the connection. --inject needs an agent with --cni, and a pod with a veth or a tap.`

// answerLimit is how long an agent may take beyond the time of the trace.
const answerLimit = 30 * time.Second

// Settings are the flags.
type Settings struct {
	On           bool
	NoPrediction bool
	Socket       string
	inject       bool
	port         uint16
	time         time.Duration
}

// AddFlags adds the flags.
func (s *Settings) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.On, "live", false, "show the path of a real packet through VPP beside the predicted one")
	cmd.Flags().BoolVar(&s.NoPrediction, "no-prediction", false, "with --live: show VPP's path alone")
	cmd.Flags().BoolVar(&s.inject, "inject", false, "with --live: let the pod's kernel send one packet, and show its path")
	cmd.Flags().Uint16Var(&s.port, "source-port", 0, "with --inject: source port of TCP and UDP, or the identifier of an echo (default: one that the pod does not use)")
	cmd.Flags().DurationVar(&s.time, "duration", 10*time.Second, "with --live: wait this long for a packet, at most 1m")
}

// AddSocketFlag adds the flag of a command that runs beside an agent.
func (s *Settings) AddSocketFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.Socket, "status-socket", flags.Auto, "with --live, or --diff with one folder: unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
}

// Ask returns the path of a real packet.
type Ask func(context.Context, agentlive.Question) (*agentlive.Answer, error)

// Here queries the agent of this node.
func (s *Settings) Here(ctx context.Context, q agentlive.Question) (*agentlive.Answer, error) {
	whole, cancel := context.WithTimeout(ctx, s.time+answerLimit)
	defer cancel()
	return control.FetchTrace(whole, flags.StatusSocket(s.Socket), q)
}

// Of queries the agent of the pod's node, or that of one node.
func Of(agents *kubectl.Agents, node string) Ask {
	return func(ctx context.Context, q agentlive.Question) (*agentlive.Answer, error) {
		if node == "" {
			var err error
			if node, err = agents.NodeOf(ctx, q.From.Namespace, q.From.Name); err != nil {
				return nil, err
			}
		}
		places, err := agents.List(ctx, node)
		if err != nil {
			return nil, err
		}
		whole, cancel := context.WithTimeout(ctx, q.Time+2*answerLimit)
		defer cancel()
		var text strings.Builder
		args := []string{"trace", "--live", "--no-prediction", "--output=json", "--duration=" + q.Time.String()}
		if q.Inject {
			args = append(args, "--inject", fmt.Sprintf("--source-port=%d", q.SourcePort))
		}
		args = append(args, "--", q.From.String(), q.To, q.Protocol)
		if err := agents.Fetch(whole, places[0], nil, &text, args...); err != nil {
			return nil, err
		}
		var r Result
		if err := json.Unmarshal([]byte(text.String()), &r); err != nil || r.Answer == nil {
			return nil, fmt.Errorf("the agent's answer: %w", err)
		}
		return r.Answer, nil
	}
}

// Result is what the command prints.
type Result struct {
	*agentlive.Answer
	Verdict   string       `json:"verdict,omitempty"` // as predicted
	Reason    string       `json:"reason,omitempty"`
	Predicted []hops.Hop   `json:"predicted,omitempty"` // nil: nothing is predicted
	Rows      []beside.Row `json:"rows,omitempty"`
	Equal     *bool        `json:"equal,omitempty"` // nil: nothing is predicted
}

// question reads the arguments.
func (s *Settings) question(args []string) (agentlive.Question, error) {
	q := agentlive.Question{Protocol: "TCP", Time: s.time, Inject: s.inject, SourcePort: s.port}
	if len(args) < 2 || len(args) > 3 {
		return q, fmt.Errorf("--live: %d arguments: want FROM TO [PROTOCOL], such as prod/web-0 prod/db:5432", len(args))
	}
	namespace, name, ok := strings.Cut(strings.TrimPrefix(args[0], "pod:"), "/")
	if !ok || namespace == "" || name == "" || strings.ContainsAny(name, "/:") {
		return q, fmt.Errorf("--live: %q: want NAMESPACE/POD, a pod that sends", args[0])
	}
	if len(args) == 3 {
		q.Protocol = strings.ToUpper(args[2])
	}
	if q.Protocol != "TCP" && q.Protocol != "UDP" && q.Protocol != "ICMP" {
		return q, fmt.Errorf("--live: %q: the protocol must be TCP, UDP or ICMP", q.Protocol)
	}
	if s.time <= 0 || s.time > tracer.MostTime {
		return q, fmt.Errorf("--duration %s: must be more than 0, and at most %s", s.time, tracer.MostTime)
	}
	if s.port != 0 && !s.inject {
		return q, errors.New("--source-port: needs --inject")
	}
	q.From, q.To = model.PodID{Namespace: namespace, Name: name}, args[1]
	return q, nil
}

// Run asks for a packet, compares its path with what predict says, and prints both. A nil predict predicts nothing. The error has exit code 3 if they differ.
func (s *Settings) Run(cmd *cobra.Command, args []string, ask Ask, predict func(trace.Step) trace.Answer, out *show.Output) error {
	q, err := s.question(args)
	if err != nil {
		return exit.Usage(err)
	}
	act := "waiting up to %s for a packet"
	if q.Inject {
		act = "sending one packet, and waiting up to %s for its path,"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), act+" from %s to %s\n", q.Time, q.From, q.To)
	answer, err := ask(cmd.Context(), q)
	if err != nil {
		return err
	}
	r := &Result{Answer: answer}
	if predict != nil {
		if err := r.comparePaths(predict(r.predictedStep())); err != nil {
			return err
		}
	}
	if err := out.Print(cmd.OutOrStdout(), r, r.writeRows); err != nil {
		return err
	}
	if r.Equal != nil && !*r.Equal {
		return &exit.Error{Code: exit.Differs, Err: errors.New("VPP does something else than predicted")}
	}
	return nil
}

// predictedStep is the question of a prediction about the traced packet.
func (r *Result) predictedStep() trace.Step {
	p := &r.Packet
	s := trace.Step{Question: trace.Question{From: "pod:" + r.From, To: p.Destination, Protocol: strings.TrimSuffix(p.Protocol, "v6")}, Flags: r.Flags}
	if s.SourcePort = p.SourcePort; p.DestinationPort != 0 {
		s.To = net.JoinHostPort(p.Destination, strconv.Itoa(int(p.DestinationPort)))
	}
	if s.Protocol == "ICMP" {
		s.SourcePort = p.Identifier
	}
	return s
}

// comparePaths adds the prediction that agrees with VPP's path for longest: VPP has chosen one backend, and a prediction has a path for each.
func (r *Result) comparePaths(a trace.Answer) error {
	if a.Error != "" {
		return exit.Usage(fmt.Errorf("no prediction: %s", a.Error))
	}
	r.Verdict, r.Reason, r.Predicted = string(a.Verdict), a.Reason, a.Path
	longest := -1
	for i := range a.Outcomes {
		if n := beside.Agree(r.Node, a.Outcomes[i].Path, r.Path); n > longest {
			longest, r.Predicted = n, a.Outcomes[i].Path
			r.Verdict, r.Reason = string(a.Outcomes[i].Verdict), a.Outcomes[i].Reason
		}
	}
	rows, equal := beside.Compare(r.Node, r.Predicted, r.Path)
	r.Rows, r.Equal = rows, &equal
	return nil
}

// writeRows writes the result as text.
func (r *Result) writeRows(w io.Writer) {
	about := "a packet"
	switch {
	case r.Injected:
		about = "the packet that was injected"
	case r.Session:
		about = "a packet of an open connection"
	}
	if r.Injected && len(r.Left) > 0 {
		defer func() { fmt.Fprintf(w, "\nleft in VPP until it expires:\n  %s\n", strings.Join(r.Left, "\n  ")) }()
	}
	fmt.Fprintf(w, "%s -> %s %s, %s on %s\n", r.From, r.To, r.Packet.Protocol, about, r.Node)
	if r.Equal == nil {
		for _, h := range r.Path {
			fmt.Fprintln(w, "  "+h.String())
		}
		return
	}
	fmt.Fprintf(w, "predicted: %s, %s\n", r.Verdict, r.Reason)
	width := len("predicted")
	for _, row := range r.Rows {
		width = max(width, utf8.RuneCountInString(row.Predicted))
	}
	fmt.Fprintf(w, "\n  %-*s    VPP\n", width, "predicted")
	same := true
	for _, row := range r.Rows {
		mark := "="
		if same = same && !row.Differs; row.Differs {
			mark = "!="
		} else if !same {
			mark = ""
		}
		fmt.Fprintf(w, "  %-*s %-2s %s\n", width, row.Predicted, mark, row.VPP)
	}
}
