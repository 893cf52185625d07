package query

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/show"
)

// A watch shows a state once, names an agent that does not answer once, and shows the state again when the agent is back. It ends without an error.
func TestFollowShowsChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	one, two, gone := &status.Status{Node: "one"}, &status.Status{Node: "two"}, errors.New("no agent answers")
	answers := []struct {
		st  *status.Status
		err error
	}{{one, nil}, {one, nil}, {two, nil}, {nil, gone}, {nil, gone}, {two, nil}}
	tick := make(chan time.Time, len(answers))
	fetch := func(context.Context) (*status.Status, error) {
		if len(answers) == 0 {
			cancel()
			return nil, context.Canceled
		}
		next := answers[0]
		answers = answers[1:]
		tick <- time.Time{}
		if next.err != nil {
			return nil, next.err
		}
		st := *next.st
		return &st, nil
	}
	var out, complaints bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	cmd.SetErr(&complaints)
	f := statusFlags{out: show.Output("text")}
	if err := f.follow(cmd, nil, fetch, tick); err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for line := range strings.Lines(out.String()) {
		if words := strings.Fields(line); words[0] == "node" {
			nodes = append(nodes, words[1])
		}
	}
	if got := strings.Join(nodes, " "); got != "one two two" {
		t.Errorf("shown: %s", got)
	}
	if got := complaints.String(); got != "no agent answers\n" {
		t.Errorf("complaints: %q", got)
	}
}
