package flows

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/backoff"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/flows"
)

const (
	// answerLimit is how long an agent may take for its answer.
	answerLimit = 20 * time.Second
	// mostQueries is how many agents are queried at a time.
	mostQueries = 16
	// mergeEvery is how long a flow waits for earlier ones of other nodes.
	mergeEvery = 200 * time.Millisecond
	// listEvery is how often a command that follows looks for agents of new nodes.
	listEvery = 30 * time.Second
)

// retryPauses are the pauses after which a node that does not answer is asked again.
var retryPauses = backoff.Range{Min: time.Second, Max: 30 * time.Second}

// cluster is the command of the kubectl plugin.
type cluster struct {
	selection
	agents *kubectl.Agents
	node   *string // "": all nodes
}

// OfCluster returns the command of the kubectl plugin. It asks the agents, or that of one node.
func OfCluster(agents *kubectl.Agents, node *string) *cobra.Command {
	c := cluster{agents: agents, node: node}
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "Show connections that passed the VPPs of the cluster, and packets that they dropped, with the policies that decided",
		Long: `flows shows connections that the VPPs of all nodes passed, and packets that they dropped, in the order of time, each with its node. The agents run with
--flows. Each line is all connections, or packets, with the same ends, destination port, verdict and reason. With -f it prints each change until Ctrl-C.

It queries all agents at the same time. It names a node whose agent does not answer, and shows the flows of the others; with -f it asks that node
again, with longer and longer pauses up to half a minute, and finds new nodes. The order of time is that of the nodes' clocks.

The last lines say which sources of a node are incomplete, and why. docs/flows.md lists what is not seen.

Exit code 0: every agent answered. 1: an agent does not answer, or does not watch flows. 2: a flag is wrong.`,
		Example: `  kubectl contiv flows
  kubectl contiv flows -f --verdict dropped
  kubectl contiv flows --from prod/client --to prod
  kubectl contiv flows --node node-1 -o json`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.filter.Validate(); err != nil {
				return exit.Usage(err)
			}
			if c.follow {
				return c.printChanges(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			return c.printNow(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	c.addFlags(cmd)
	return cmd
}

// args are the arguments of contiv-agent in a pod.
func (c *cluster) args() []string {
	out := []string{"flows", "--output=json"}
	for name, values := range c.filter.Query() {
		out = append(out, "--"+name+"="+values[0])
	}
	slices.Sort(out[2:])
	return out
}

// printNow prints the flows that the agents have.
func (c *cluster) printNow(ctx context.Context, w, complaints io.Writer) error {
	pods, err := c.agents.List(ctx, *c.node)
	if err != nil {
		return err
	}
	all, worst := c.queryAll(ctx, pods, complaints)
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case c.out.IsData() && *c.node != "":
		if answer := all.Items[0].Answer; answer != nil {
			err = c.out.Print(w, answer, nil)
		}
	case c.out.IsData():
		err = c.out.Print(w, all, nil)
	default:
		err = c.printMerged(w, complaints, all)
	}
	if err == nil && worst != exit.OK {
		err = &exit.Error{Code: worst} // the cause is printed
	}
	return err
}

// queryAll queries agents at the same time, and names those that do not answer.
func (c *cluster) queryAll(ctx context.Context, pods []kubectl.Place, complaints io.Writer) (all *kubectl.Answers, worst int) {
	answers, codes, texts := make([]*kubectl.Answers, len(pods)), make([]int, len(pods)), make([]string, len(pods))
	var running sync.WaitGroup
	free := make(chan struct{}, mostQueries)
	for i, pod := range pods {
		running.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, answerLimit)
			defer cancel()
			var complaint bytes.Buffer
			var err error
			answers[i], codes[i], err = c.agents.Collect(ctx, &complaint, []kubectl.Question{{Place: pod, Args: c.args()}})
			if texts[i] = strings.TrimSpace(complaint.String()); err == nil {
				return
			}
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("no answer within %s", answerLimit)
			}
			answers[i], codes[i], texts[i] = c.agents.Unanswered(pod), exit.Failed, err.Error()
		})
	}
	running.Wait()
	for i, answer := range answers {
		if all == nil {
			all = answer
		} else {
			all.Items = append(all.Items, answer.Items...)
		}
		worst = exit.Worse(worst, codes[i])
		if texts[i] != "" {
			fmt.Fprintf(complaints, "%s: %s\n", pods[i].Node, texts[i])
		}
	}
	return all, worst
}

func (c *cluster) printMerged(w, complaints io.Writer, all *kubectl.Answers) error {
	seen := merge(all, complaints)
	if err := printFlows(w, seen.Flows, c.out, *c.node == ""); err != nil {
		return err
	}
	for _, lack := range seen.Lacks {
		if _, err := fmt.Fprintf(w, "incomplete: %s\n", terminal.Plain(lack)); err != nil {
			return err
		}
	}
	return nil
}

// Seen is the flows of several agents.
type Seen struct {
	Flows    []flows.Flow // in the order of time
	Lacks    []string     // what is not in them, each with its node
	Answered int          // nodes whose agents answered
	Silent   []string     // nodes whose agents did not
}

// Gather queries the agents of a cluster for the flows that match one of the filters, all at the same time for each filter; node: that of one node, "": all.
// It names agents that do not answer, and does not ask them again. It also returns the worst exit code of the agents.
func Gather(ctx context.Context, agents *kubectl.Agents, node string, filters []*flows.Filter, complaints io.Writer) (*Seen, int, error) {
	pods, err := agents.List(ctx, node)
	if err != nil {
		return nil, exit.Failed, err
	}
	out, worst := &Seen{}, exit.OK
	for i, filter := range filters {
		pods = slices.DeleteFunc(pods, func(p kubectl.Place) bool { return slices.Contains(out.Silent, p.Node) })
		if len(pods) == 0 {
			break
		}
		c := cluster{selection: selection{filter: *filter}, agents: agents, node: &node}
		all, code := c.queryAll(ctx, pods, complaints)
		if err := ctx.Err(); err != nil {
			return nil, exit.Failed, err
		}
		out.Add(merge(all, complaints), filters[:i])
		worst = exit.Worse(worst, code)
	}
	sortByTime(out.Flows)
	return out, worst, nil
}

// Add adds the flows of a later query, except those that the filters of earlier ones match.
func (s *Seen) Add(later *Seen, earlier []*flows.Filter) {
	for i := range later.Flows {
		f := &later.Flows[i]
		if !slices.ContainsFunc(earlier, func(other *flows.Filter) bool { return other.Matches(f) }) {
			s.Flows = append(s.Flows, *f)
		}
	}
	for _, to := range []struct{ all, more *[]string }{{&s.Lacks, &later.Lacks}, {&s.Silent, &later.Silent}} {
		for _, text := range *to.more {
			if !slices.Contains(*to.all, text) {
				*to.all = append(*to.all, text)
			}
		}
	}
	s.Answered = max(s.Answered, later.Answered)
}

// merge returns the flows of answers. It names answers that cannot be read.
func merge(all *kubectl.Answers, complaints io.Writer) *Seen {
	out := &Seen{}
	for _, item := range all.Items {
		var a agentflows.Answer
		if item.Answer == nil {
			out.Silent = append(out.Silent, item.Node)
			continue
		}
		if err := json.Unmarshal(item.Answer, &a); err != nil {
			fmt.Fprintf(complaints, "%s: %v\n", item.Node, err)
			out.Silent = append(out.Silent, item.Node)
			continue
		}
		out.Answered++
		out.Flows = append(out.Flows, a.Flows...)
		for _, lack := range Lacks(&a) {
			out.Lacks = append(out.Lacks, item.Node+": "+lack)
		}
	}
	sortByTime(out.Flows)
	return out
}

func sortByTime(list []flows.Flow) {
	slices.SortStableFunc(list, func(a, b flows.Flow) int { return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Node, b.Node)) })
}

// news is a flow, or a remark about a node.
type news struct {
	flow   *flows.Flow
	remark string
}

// printChanges prints flows until ctx ends.
func (c *cluster) printChanges(ctx context.Context, w, complaints io.Writer) error {
	pods, err := c.agents.List(ctx, *c.node)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	in := make(chan news)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	known := map[string]bool{}
	merge, look := time.NewTicker(mergeEvery), time.NewTicker(listEvery)
	defer merge.Stop()
	defer look.Stop()
	var batch []flows.Flow
	printBatch := func() error {
		sortByTime(batch)
		defer func() { batch = batch[:0] }()
		return printFlows(w, batch, c.out, *c.node == "")
	}
	for {
		for _, pod := range pods {
			if !known[pod.Node] {
				known[pod.Node] = true
				running.Go(func() { c.followNode(ctx, pod.Node, in) })
			}
		}
		pods = nil
		select {
		case n := <-in:
			if n.flow != nil {
				batch = append(batch, *n.flow)
			} else {
				fmt.Fprintln(complaints, n.remark)
			}
		case <-merge.C:
			if err := printBatch(); err != nil {
				return err
			}
		case <-look.C:
			if pods, err = c.agents.List(ctx, *c.node); err != nil && ctx.Err() == nil {
				fmt.Fprintln(complaints, err)
			}
		case <-ctx.Done():
			return printBatch()
		}
	}
}

// followNode sends the flows of a node until ctx ends. It starts again when they end, and says why, once for each cause.
func (c *cluster) followNode(ctx context.Context, node string, out chan<- news) {
	send := func(n news) {
		select {
		case out <- n:
		case <-ctx.Done():
		}
	}
	var last position
	pause, said := time.Duration(0), ""
	for {
		found := false
		err := c.streamNode(ctx, node, func(f *flows.Flow) {
			if found = true; last.advance(f) {
				send(news{flow: f})
			}
		})
		if ctx.Err() != nil {
			return
		}
		if found {
			pause, said = 0, ""
		}
		remark := node + ": its flows ended"
		if err != nil {
			remark = fmt.Sprintf("%s: %v", node, err)
		}
		if remark != said {
			send(news{remark: remark})
			said = remark
		}
		pause = retryPauses.Next(pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// streamNode calls seen with the flows of a node's agent until they end.
func (c *cluster) streamNode(ctx context.Context, node string, seen func(*flows.Flow)) error {
	pods, err := c.agents.List(ctx, node)
	if err != nil {
		return err
	}
	return c.agents.Stream(ctx, pods[0], func(line []byte) error {
		f := &flows.Flow{}
		if err := json.Unmarshal(line, f); err != nil {
			return fmt.Errorf("a line is no flow: %w", err)
		}
		seen(f)
		return nil
	}, append(c.args(), "--follow", "--"+flags.UntilInputEnds)...)
}

// position is the latest flow of a node. An agent that is asked again sends all its flows; its numbers begin again when it is restarted.
type position struct {
	at     time.Time
	number uint64
}

// advance reports whether a flow is later than the position, which it moves there.
func (p *position) advance(f *flows.Flow) bool {
	if d := f.Last.Compare(p.at); d < 0 || d == 0 && f.Number <= p.number {
		return false
	}
	p.at, p.number = f.Last, f.Number
	return true
}
