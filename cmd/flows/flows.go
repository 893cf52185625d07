// Package flows turns the flags of contiv-agent flows, and the flows of a running agent, into lines.
//
// Invariant: the package holds no logic; it prints each change once.
package flows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/flows"
)

// followEvery is the period in which a command that follows asks the agent.
const followEvery = 250 * time.Millisecond

// selection are the flags that the commands of a node and of a cluster share.
type selection struct {
	filter flows.Filter
	follow bool
	out    show.Output
}

func (s *selection) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	s.out.AddFlag(cmd)
	fs.BoolVarP(&s.follow, "follow", "f", false, "print changes until Ctrl-C; JSON has one object in a line then, YAML one in a document")
	fs.StringVar((*string)(&s.filter.Verdict), "verdict", "", "show only this verdict: allowed or dropped")
	fs.StringVar((*string)(&s.filter.Staged), "staged", "", "show only flows whose verdict staged policies would change to this one: allowed or dropped")
	fs.StringVar(&s.filter.From, "from", "", "show only flows from NAMESPACE, NAMESPACE/NAME of a pod or workload, or an address")
	fs.StringVar(&s.filter.To, "to", "", "show only flows to NAMESPACE, NAMESPACE/NAME of a pod, workload or Service, or an address")
}

// New returns the command.
func New() *cobra.Command {
	var socket string
	var s selection
	var until, answers bool
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "Show connections that passed this node's VPP, and packets that it dropped, with the policies that decided",
		Long: `flows shows connections that a running VPP passed and packets that it dropped, as the agent of this node sees them (run --flows). Each line is all
connections, or packets, with the same ends, destination port, verdict and reason. With -f it prints each change until Ctrl-C.

An end is a pod, a Service, a node or an address. Packets and bytes of allowed connections are counted if NAT44 translates them; of dropped packets
always. The last lines say which sources are incomplete, and why. docs/flows.md lists what is not seen.

Exit code 0: flows were shown, perhaps none. 1: no agent answers, or it does not watch flows. 2: a flag is wrong.`,
		Example: `  contiv-agent flows
  contiv-agent flows -f --verdict dropped
  contiv-agent flows --from prod/client --to prod
  contiv-agent flows --staged dropped
  contiv-agent flows --to 192.0.2.7 -o json`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.filter.Validate(); err != nil {
				return exit.Usage(err)
			}
			ctx := cmd.Context()
			if until {
				var stop func()
				ctx, stop = flags.UntilEnd(ctx, cmd.InOrStdin())
				defer stop()
			}
			if answers {
				if !s.follow || s.out != "json" {
					return exit.Usage(errors.New("--answers needs -f and -o json"))
				}
				return followAnswers(ctx, cmd.OutOrStdout(), flags.StatusSocket(socket))
			}
			return s.printAll(ctx, cmd.OutOrStdout(), flags.StatusSocket(socket))
		},
	}
	s.addFlags(cmd)
	cmd.Flags().StringVar(&socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	cmd.Flags().BoolVar(&until, flags.UntilInputEnds, false, "with -f: stop when standard input ends; kubectl contiv flows uses it")
	cmd.Flags().BoolVar(&answers, "answers", false, "with -f -o json: a line has all changes and the state of the sources, as an answer without -f; kubectl contiv ui uses it")
	return cmd
}

func (s *selection) printAll(ctx context.Context, w io.Writer, socket string) error {
	after := uint64(0)
	for {
		answer, err := fetch(ctx, socket, after, &s.filter)
		switch {
		case err != nil && s.follow && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !s.follow && s.out.IsData():
			return s.out.Print(w, answer, nil)
		}
		if err := printFlows(w, answer.Flows, s.out, false); err != nil {
			return err
		}
		if !s.follow {
			return printSources(w, answer)
		}
		after = answer.Next
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
	}
}

func fetch(ctx context.Context, socket string, after uint64, filter *flows.Filter) (*agentflows.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return control.FetchFlows(ctx, socket, after, filter)
}

// printFlows prints each flow; lines of text have the node if they are of several nodes.
func printFlows(w io.Writer, list []flows.Flow, out show.Output, nodes bool) error {
	for i := range list {
		var err error
		switch f := &list[i]; {
		case out == "json":
			err = json.NewEncoder(w).Encode(f)
		case out == "yaml":
			if _, err = io.WriteString(w, "---\n"); err == nil {
				err = out.Print(w, f, nil)
			}
		default:
			terminal.PlainAll(f)
			node := ""
			if nodes {
				node = f.Node + " "
			}
			_, err = fmt.Fprintf(w, "%s %s%s\n", f.Last.Local().Format(time.TimeOnly), node, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printSources prints what an answer lacks.
func printSources(w io.Writer, a *agentflows.Answer) error {
	for _, lack := range Lacks(a) {
		if _, err := fmt.Fprintf(w, "incomplete: %s\n", terminal.Plain(lack)); err != nil {
			return err
		}
	}
	return nil
}

// Lacks says what an answer lacks, one line for each cause.
func Lacks(a *agentflows.Answer) (out []string) {
	for _, s := range a.Sources {
		if s.Problem != "" {
			reads := fmt.Sprintf("%d reads", s.Missed)
			if s.Present > 0 {
				reads += fmt.Sprintf("; the latest had %d of %d connections", s.Read, s.Present)
			}
			out = append(out, fmt.Sprintf("%s: %s (%s)", s.Name, s.Problem, reads))
		}
	}
	if len(a.Flows) >= agentflows.Most {
		out = append(out, fmt.Sprintf("the latest %d flows alone are shown", agentflows.Most))
	}
	if a.Forgotten > 0 {
		out = append(out, fmt.Sprintf("%d older flows had no room", a.Forgotten))
	}
	return out
}
