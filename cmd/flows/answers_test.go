package flows

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/control"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/ui/sample"
)

// A command that follows answers prints all flows once, in bounded lines, and then changes. It prints nothing without a change, and everything again after the
// agent was restarted.
func TestAnswersAreFollowed(t *testing.T) {
	var state atomic.Pointer[agentflows.Answer]
	numbered := func(first, last uint64, seen uint64) *agentflows.Answer {
		a := &agentflows.Answer{Node: "node-1", Next: last, Sources: []agentflows.Source{{Name: "capture", Seen: seen}}}
		for n := first; n <= last; n++ {
			a.Flows = append(a.Flows, flows.Flow{Number: n})
		}
		return a
	}
	state.Store(numbered(1, mostInLine+1, 1))
	asked := make(chan uint64, 100)
	s := &control.Server{Logger: slog.New(slog.DiscardHandler), AllFlows: func(_ context.Context, after uint64) (*agentflows.Answer, error) {
		a := *state.Load()
		list := a.Flows
		a.Flows = nil
		for i := range list {
			if list[i].Number > after {
				a.Flows = append(a.Flows, list[i])
			}
		}
		asked <- after
		return &a, nil
	}}
	at := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	l, err := httpserver.Unix(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	out, in := io.Pipe()
	served, ended := make(chan error, 1), make(chan error, 1)
	go func() { served <- httpserver.HTTP(ctx, l, s.Handler(), s.Logger) }()
	cmd := New()
	cmd.SetOut(in)
	cmd.SetArgs([]string{"--status-socket", at, "-f", "-o", "json", "--answers"})
	go func() { ended <- cmd.ExecuteContext(ctx); in.Close() }()
	t.Cleanup(func() { cancel(); <-ended; <-served })
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	expect := func(what string, flows int, next uint64) {
		t.Helper()
		var a agentflows.Answer
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &a) != nil || len(a.Flows) != flows || a.Next != next || a.Node != "node-1" || len(a.Sources) != 1 {
			t.Errorf("%s: %s", what, lines.Text())
		}
	}
	expect("the first line", mostInLine, mostInLine+1)
	expect("the rest", 1, mostInLine+1)
	for range 2 { // no change, no line
		<-asked
	}
	state.Store(numbered(1, mostInLine+2, 1))
	expect("a change", 1, mostInLine+2)
	state.Store(numbered(1, mostInLine+2, 2))
	expect("another state of a source", 0, mostInLine+2)
	state.Store(numbered(1, 3, 1))
	expect("a restarted agent", 3, 3)
}

func TestAnswersNeedJSON(t *testing.T) {
	for _, args := range [][]string{{"--answers"}, {"--answers", "-f"}, {"--answers", "-o", "json"}} {
		cmd := New()
		cmd.SetArgs(append(args, "--status-socket", "none"))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || fmt.Sprint(err) != "--answers needs -f and -o json" {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// BenchmarkPeriod: what a page reads of a node in a period in which one flow of the node changed, of a cluster with 1,000 pods and ten nodes: all flows by a
// separate command, or the line of a command that follows.
func BenchmarkPeriod(b *testing.B) {
	c := sample.New(sample.Large)
	s := &control.Server{
		Logger: slog.New(slog.DiscardHandler),
		Flows: func(ctx context.Context, after uint64, _ *flows.Filter) (*agentflows.Answer, error) {
			return c.Flows(ctx, "node-1", after)
		},
		AllFlows: func(ctx context.Context, after uint64) (*agentflows.Answer, error) {
			return c.Flows(ctx, "node-1", after)
		},
	}
	at := filepath.Join(b.TempDir(), "s")
	ctx, cancel := context.WithCancel(b.Context())
	l, err := httpserver.Unix(ctx, at)
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- httpserver.HTTP(ctx, l, s.Handler(), s.Logger) }()
	b.Cleanup(func() { cancel(); <-served })
	whole, err := fetchAll(ctx, at, 0)
	if err != nil {
		b.Fatal(err)
	}
	for name, after := range map[string]uint64{"all": 0, "changes": whole.Next - 1} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var out bytes.Buffer
				a, err := fetchAll(ctx, at, after)
				if err == nil {
					err = json.NewEncoder(&out).Encode(a)
				}
				size := out.Len()
				if errRead := json.Unmarshal(out.Bytes(), &agentflows.Answer{}); err != nil || errRead != nil {
					b.Fatal(err, errRead)
				}
				b.ReportMetric(float64(size), "B/period")
				b.ReportMetric(float64(len(a.Flows)), "flows")
			}
		})
	}
}
