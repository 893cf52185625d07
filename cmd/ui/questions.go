package ui

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/trace"
)

// objectsAge is how long objects are used before they are read again.
const objectsAge = 15 * time.Second

// questions answers questions about objects. One request at a time uses it.
type questions struct {
	load     func(context.Context) ([]event.Change, error)
	settings func(context.Context) (*flags.Agent, error)

	changes []event.Change
	read    time.Time
	cluster *trace.Cluster // of changes; nil: not built yet
}

func newQuestions(load func(context.Context) ([]event.Change, error), settings func(context.Context) (*flags.Agent, error)) *questions {
	return &questions{load: load, settings: settings}
}

// closeCluster ends the simulated cluster.
func (q *questions) closeCluster() {
	if q.cluster != nil {
		q.cluster.Close()
		q.cluster = nil
	}
}

func (q *questions) refresh(ctx context.Context) error {
	if q.changes != nil && time.Since(q.read) < objectsAge {
		return nil
	}
	changes, err := q.load(ctx)
	if err != nil {
		return err
	}
	q.closeCluster()
	q.changes, q.read = changes, time.Now()
	return nil
}

// objects returns the objects of the cluster. Refused ones keep the parts that were understood.
func (q *questions) objects(ctx context.Context) (out []model.Object, err error) {
	if err := q.refresh(ctx); err != nil {
		return nil, err
	}
	for _, ch := range q.changes {
		if ch.Object != nil {
			out = append(out, ch.Object)
		}
	}
	return out, nil
}

// trace answers a question about a packet.
func (q *questions) trace(ctx context.Context, from, to, protocol string) (verdict, text string, err error) {
	if err := q.refresh(ctx); err != nil {
		return "", "", err
	}
	if q.cluster == nil {
		settings, err := q.settings(ctx)
		if err != nil {
			return "", "", err
		}
		if q.cluster, err = whatif.Build(ctx, q.changes, settings, false, io.Discard); err != nil {
			return "", "", err
		}
	}
	a := q.cluster.Answer(trace.Question{From: from, To: to, Protocol: strings.ToUpper(protocol)})
	var out strings.Builder
	trace.WriteText(&out, a)
	return string(a.Verdict), out.String(), nil
}
