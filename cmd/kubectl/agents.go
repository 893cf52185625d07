// Package kubectl finds the agents of a cluster and runs commands in their pods, with the kubectl program.
//
// Invariant: only Objects changes something in the cluster, as its caller asks.
package kubectl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// Place is the pod of an agent.
type Place struct{ Node, pod string }

// Question is a command for one agent.
type Question struct {
	Place
	Args  []string
	Input string // for its standard input; "": it gets none
}

// List returns the agent's pods, of one node or of all, sorted by node; at least one.
func (f *Agents) List(ctx context.Context, node string) ([]Place, error) {
	args := []string{"get", "pods", "--namespace=" + f.Namespace, "--selector=" + f.Selector, "--output=json"}
	where := ""
	if node != "" {
		args = append(args, "--field-selector=spec.nodeName="+node)
		where = " on node " + node
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name              string
				DeletionTimestamp string
			}
			Spec   struct{ NodeName string }
			Status struct{ Phase string }
		}
	}
	if err := f.readJSON(ctx, &list, args...); err != nil {
		return nil, err
	}
	best, rank := map[string]Place{}, map[string]int{} // of two pods on a node, one is ending
	for _, p := range list.Items {
		if p.Spec.NodeName == "" {
			continue
		}
		score := 1
		if p.Status.Phase == "Running" {
			score += 2
		}
		if p.Metadata.DeletionTimestamp == "" {
			score++
		}
		if score > rank[p.Spec.NodeName] {
			best[p.Spec.NodeName], rank[p.Spec.NodeName] = Place{p.Spec.NodeName, p.Metadata.Name}, score
		}
	}
	if len(best) == 0 {
		return nil, fmt.Errorf("no agent%s: no pod in namespace %s has label %s", where, f.Namespace, f.Selector)
	}
	return slices.SortedFunc(maps.Values(best), func(a, b Place) int { return cmp.Compare(a.Node, b.Node) }), nil
}

// NodeOf returns the node of a pod.
func (f *Agents) NodeOf(ctx context.Context, namespace, name string) (string, error) {
	var pod struct{ Spec struct{ NodeName string } }
	if err := f.readJSON(ctx, &pod, "get", "pod", "--namespace="+namespace, "--output=json", "--", name); err != nil {
		return "", err
	}
	if pod.Spec.NodeName == "" {
		return "", fmt.Errorf("pod %s/%s has no node yet", namespace, name)
	}
	return pod.Spec.NodeName, nil
}

// exec returns the arguments of kubectl for a command in an agent's container.
func (f *Agents) exec(at Place, args ...string) []string {
	return append([]string{"exec", "--namespace=" + f.Namespace, at.pod, "--container=" + f.Container, "--", f.Program}, args...)
}

// Stream runs a command of an agent that writes lines until its standard input ends, and calls line with each. The input ends when ctx ends, or this
// program: the end of kubectl exec alone does not end the command.
func (f *Agents) Stream(ctx context.Context, at Place, line func([]byte) error, args ...string) error {
	return f.holdInput(ctx, at, ctx.Done(), &splitter{line: line}, args...)
}

// Fetch runs a command of an agent that writes its output when it ends, at the latest when its standard input ends. The input ends when stop is closed,
// when ctx ends, or this program. Ctrl-C at the terminal does not end kubectl, which brings the output.
func (f *Agents) Fetch(ctx context.Context, at Place, stop <-chan struct{}, out io.Writer, args ...string) error {
	apart := *f
	apart.apart = true
	return apart.holdInput(ctx, at, stop, out, args...)
}

// holdInput runs a command of an agent whose standard input ends when stop is closed, and at the end of ctx.
func (f *Agents) holdInput(ctx context.Context, at Place, stop <-chan struct{}, out io.Writer, args ...string) error {
	in, open, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	var closing sync.WaitGroup
	defer closing.Wait()
	ended := make(chan struct{})
	defer close(ended)
	closing.Go(func() {
		select {
		case <-stop:
		case <-ctx.Done():
		case <-ended:
		}
		_ = open.Close()
	})
	var complaint strings.Builder
	args = append([]string{"exec", "--stdin"}, f.exec(at, args...)[1:]...)
	code, err := f.feedKubectl(ctx, in, out, &complaint, args...)
	switch {
	case err != nil:
		return err
	case code != exit.OK:
		return fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(complaint.String()))
	}
	return nil
}

// Log is a log of an agent's pod. The zero value is that of the agent's container.
type Log struct {
	Container string // "": the agent's
	Previous  bool   // of the container before its last restart
}

// ReadLog writes the last lines of a log.
func (f *Agents) ReadLog(ctx context.Context, out, complaints io.Writer, at Place, l Log) (int, error) {
	args := []string{"logs", "--namespace=" + f.Namespace, at.pod, "--container=" + cmp.Or(l.Container, f.Container), "--tail=5000"}
	if l.Previous {
		args = append(args, "--previous")
	}
	return f.runKubectl(ctx, out, complaints, args...)
}

// StatusOf returns the status of an agent.
func (f *Agents) StatusOf(ctx context.Context, at Place) (*status.Status, error) {
	st := &status.Status{}
	if err := f.answer(ctx, at, st, "status", "--output=json"); err != nil {
		return nil, err
	}
	return st, nil
}

// answer runs a command of an agent that writes JSON.
func (f *Agents) answer(ctx context.Context, at Place, into any, args ...string) error {
	var text, complaint strings.Builder
	code, err := f.runKubectl(ctx, &text, &complaint, f.exec(at, args...)...)
	if err != nil {
		return err
	}
	if code != exit.OK && code != exit.Differs {
		return fmt.Errorf("%s of %s: exit code %d: %s", args[0], at.Node, code, strings.TrimSpace(complaint.String()))
	}
	if err := json.Unmarshal([]byte(text.String()), into); err != nil {
		return fmt.Errorf("%s of %s: %w", args[0], at.Node, err)
	}
	return nil
}

// Ask queries one agent after the other, and writes the answers as they are, with a heading for each of several. It returns the worst exit code.
func (f *Agents) Ask(ctx context.Context, out, complaints io.Writer, headings bool, asks []Question) (worst int, err error) {
	for i, a := range asks {
		if headings && len(asks) > 1 {
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintf(out, "== %s (%s)\n", a.Node, a.pod)
		}
		code, err := f.sendQuestion(ctx, &a, out, complaints)
		if err != nil {
			return worst, err
		}
		worst = exit.Worse(worst, code)
	}
	return worst, nil
}

// sendQuestion asks one agent. It returns the exit code.
func (f *Agents) sendQuestion(ctx context.Context, a *Question, out, complaints io.Writer) (int, error) {
	args := f.exec(a.Place, a.Args...)
	if a.Input == "" {
		return f.runKubectl(ctx, out, complaints, args...)
	}
	return f.feedKubectl(ctx, strings.NewReader(a.Input), out, complaints, slices.Insert(args, 1, "--stdin")...)
}

// Answers are the answers of agents, in the form of a list of Kubernetes.
type Answers struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Items      []Answer `json:"items"`
}

// Answer is the answer of one agent.
type Answer struct {
	Node     string          `json:"node"`
	Pod      string          `json:"pod"`
	ExitCode int             `json:"exitCode"`
	Answer   json.RawMessage `json:"answer"` // null if it is not JSON
}

// Collect queries one agent after the other for JSON. It returns the answers, and the worst exit code.
func (f *Agents) Collect(ctx context.Context, complaints io.Writer, asks []Question) (all *Answers, worst int, err error) {
	all = &Answers{APIVersion: "v1", Kind: "List", Items: []Answer{}}
	for _, a := range asks {
		var text strings.Builder
		code, err := f.sendQuestion(ctx, &a, &text, complaints)
		if err != nil {
			return nil, worst, err
		}
		worst = exit.Worse(worst, code)
		one := Answer{a.Node, a.pod, code, json.RawMessage(text.String())}
		if !json.Valid(one.Answer) {
			one.Answer = nil
		}
		all.Items = append(all.Items, one)
	}
	return all, worst, nil
}

// Unanswered returns the list for an agent that gave no answer.
func (f *Agents) Unanswered(at Place) *Answers {
	return &Answers{APIVersion: "v1", Kind: "List", Items: []Answer{{at.Node, at.pod, exit.Failed, nil}}}
}

// Agents are the agents of a cluster, as kubectl reaches them.
type Agents struct {
	kubectl
	Namespace, Selector string // of their pods
	Container, Program  string // in each pod
}
