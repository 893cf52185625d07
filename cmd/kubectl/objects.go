package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/connectivity"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Objects reads and changes objects of a cluster, and runs programs in its pods. It implements connectivity.Cluster.
type Objects struct{ kubectl }

// Objects returns the objects of the agents' cluster.
func (f *Agents) Objects() *Objects { return &Objects{f.kubectl} }

// do runs a kubectl command that changes something. The error is what kubectl complains about.
func (o *Objects) do(ctx context.Context, stdin io.Reader, args ...string) error {
	var complaint bytes.Buffer
	code, err := o.feedKubectl(ctx, stdin, io.Discard, &complaint, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("kubectl %s: %s", args[0], strings.TrimSpace(complaint.String()))
	}
	return err
}

// Apply implements connectivity.Cluster.
func (o *Objects) Apply(ctx context.Context, namespace, manifest string) error {
	return o.do(ctx, strings.NewReader(manifest), "apply", "--namespace="+namespace, "--filename=-")
}

// Delete implements connectivity.Cluster.
func (o *Objects) Delete(ctx context.Context, args ...string) error {
	return o.do(ctx, nil, append([]string{"delete"}, args...)...)
}

// Read implements connectivity.Cluster.
func (o *Objects) Read(ctx context.Context, into any, args ...string) error {
	return o.readJSON(ctx, into, append([]string{"get", "--output=json"}, args...)...)
}

// Execute implements connectivity.Cluster.
func (o *Objects) Execute(ctx context.Context, namespace, pod, stdin string, line func([]byte), command ...string) error {
	var complaint bytes.Buffer
	lines := &splitter{line: func(b []byte) error { line(b); return nil }}
	args := append([]string{"exec", "--stdin", "--namespace=" + namespace, pod, "--"}, command...)
	code, err := o.feedKubectl(ctx, strings.NewReader(stdin), lines, &complaint, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(complaint.String()))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("kubectl exec takes too long")
	}
	return err
}

// answerLimit is how long an agent may take for one answer.
const answerLimit = 20 * time.Second

// Status returns the status of the agent in a pod.
func (f *Agents) Status(ctx context.Context, node, pod string) (*status.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	return f.StatusOf(ctx, Place{node, pod})
}

// Differences returns what the agent in a pod would change in its VPP, one line for each change.
func (f *Agents) Differences(ctx context.Context, node, pod string) (out []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var plan vppagent.Plan
	if err := f.answer(ctx, Place{node, pod}, &plan, "plan", "--output=json"); err != nil {
		return nil, err
	}
	for _, level := range plan.Levels {
		for _, s := range level {
			out = append(out, fmt.Sprintf("%s %s", s.Action, s.Key))
		}
	}
	return out, nil
}

var _ connectivity.Cluster = (*Objects)(nil)
