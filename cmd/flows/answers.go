package flows

import (
	"context"
	"encoding/json"
	"io"
	"reflect"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
)

// mostInLine bounds the flows of an answer in one line.
const mostInLine = 500

// followAnswers prints what changed since the answer before, one answer in a line, until ctx ends. The first answers have all flows of the agent. Without a
// change it prints nothing. If the agent has forgotten the number, because it was restarted, the next answers have all flows again.
func followAnswers(ctx context.Context, w io.Writer, socket string) error {
	out := json.NewEncoder(w)
	var after uint64
	var was agentflows.Answer
	for first := true; ; first = false {
		a, err := fetchAll(ctx, socket, after)
		if err == nil && a.Next < after {
			a, err = fetchAll(ctx, socket, 0)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		a.Staged, a.Uncounted = nil, ""
		after = a.Next
		list := a.Flows
		a.Flows = nil
		if same := reflect.DeepEqual(&was, a); first || !same || len(list) > 0 {
			was = *a
			for begin := 0; begin == 0 || begin < len(list); begin += mostInLine {
				part := *a
				part.Flows = list[begin:min(begin+mostInLine, len(list))]
				if err := out.Encode(&part); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
	}
}

func fetchAll(ctx context.Context, socket string, after uint64) (*agentflows.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return control.FetchAllFlows(ctx, socket, after)
}
