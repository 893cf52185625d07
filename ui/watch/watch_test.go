package watch_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/ui/sample"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

// follow runs a watcher in a bubble until the test ends.
func follow(t *testing.T, source watch.Source) *watch.Watcher {
	t.Helper()
	w := watch.New(source, time.Second, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	synctest.Wait()
	return w
}

func TestSnapshotsFollowTheAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sample.New(sample.Small)
		w := follow(t, c)
		first := w.Latest()
		if len(first.Nodes) != 3 || first.Nodes[1].Status.Healthy || !first.Nodes[0].Status.Healthy || first.Problem != "" {
			t.Fatalf("%+v", first.Nodes)
		}
		n := len(first.Flows)
		c.Attack()
		<-first.Replaced()
		second := w.Latest()
		if len(second.Flows) != n+1 || second.Flows[0].Port != 22 || !second.Flows[0].Changed.Equal(time.Now()) {
			t.Errorf("%d flows after %d, the first: %s", len(second.Flows), n, &second.Flows[0].Flow)
		}
		if len(first.Flows) != n {
			t.Error("a snapshot has changed")
		}
		c.Deny(0) // a flow that exists changes its counts and its place
		<-second.Replaced()
		if third := w.Latest(); len(third.Flows) != n+1 || third.Flows[0].Packets != 2 {
			t.Errorf("%d flows, %s", len(third.Flows), &third.Flows[0].Flow)
		}
		if at := w.Latest().Flows[n].Changed; !at.Equal(first.At) {
			t.Errorf("a flow that did not change changed at %s", at)
		}
	})
}

// A node whose agent does not answer keeps its state and its flows, with the reason. Others are not affected.
func TestSilentNodesKeepTheirState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := sample.New(sample.Small)
		w := follow(t, c)
		n := len(w.Latest().Flows)
		c.Silence("node-2", true)
		for range 4 { // within the rounds of one status
			<-w.Latest().Replaced()
		}
		s := w.Latest()
		if at := s.Nodes[1]; at.Status == nil || !strings.Contains(at.Problem+at.FlowProblem, "no agent answers") || len(s.Flows) != n {
			t.Errorf("%+v, %d flows", at, len(s.Flows))
		}
		if at := s.Nodes[0]; at.Problem+at.FlowProblem != "" || !at.Answered.Equal(s.At) {
			t.Errorf("%+v", at)
		}
		c.Silence("node-2", false)
		<-w.Latest().Replaced()
		<-w.Latest().Replaced()
		if at := w.Latest().Nodes[1]; at.Problem+at.FlowProblem != "" {
			t.Errorf("%+v", at)
		}
	})
}

// counting counts queries, and may have other answers.
type counting struct {
	*sample.Cluster
	queries atomic.Int64
	answer  func(after uint64) (*agentflows.Answer, error)
	err     atomic.Pointer[error] // of Nodes
}

func (c *counting) Nodes(ctx context.Context) ([]string, error) {
	c.queries.Add(1)
	if err := c.err.Load(); err != nil {
		return nil, *err
	}
	return []string{"node-1"}, nil
}

func (c *counting) Flows(ctx context.Context, node string, after uint64) (*agentflows.Answer, error) {
	if c.answer == nil {
		return c.Cluster.Flows(ctx, node, after)
	}
	return c.answer(after)
}

// Agents are queried only while a page is open.
func TestNobodyIsQueriedForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{Cluster: sample.New(sample.Small)}
		w := follow(t, c)
		time.Sleep(time.Hour)
		synctest.Wait()
		was := c.queries.Load()
		if was > 63 { // a minute after the last reader, and a reserve
			t.Errorf("%d rounds without a reader", was)
		}
		s := w.Latest()
		<-s.Replaced()
		if n := c.queries.Load() - was; n != 1 {
			t.Errorf("%d rounds for a reader", n)
		}
	})
}

// A restarted agent counts from 0 again: its flows continue.
func TestRestartedAgentsAreReadFromTheirBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var number atomic.Uint64
		number.Store(100)
		c := &counting{Cluster: sample.New(sample.Small)}
		c.answer = func(after uint64) (*agentflows.Answer, error) {
			next := number.Load()
			a := &agentflows.Answer{Node: "node-1", Next: next}
			if after < next {
				a.Flows = []flows.Flow{{Number: next, Node: "node-1", Port: uint16(next), Source: flows.Peer{Kind: flows.Outside, Address: netip.MustParseAddr("192.0.2.1")}}}
			}
			return a, nil
		}
		w := follow(t, c)
		number.Store(5)
		<-w.Latest().Replaced()
		if got := w.Latest().Flows; len(got) != 2 {
			t.Errorf("%d flows", len(got))
		}
	})
}

// A snapshot is bounded, and says what it forgot. An error about the nodes keeps them.
func TestSnapshotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counting{Cluster: sample.New(sample.Small)}
		c.answer = func(after uint64) (*agentflows.Answer, error) {
			a := &agentflows.Answer{Node: "node-1", Next: after + 6000}
			for i := range uint64(6000) {
				a.Flows = append(a.Flows, flows.Flow{Number: after + i, Node: "node-1", Last: sample.Begin.Add(time.Duration(after+i) * time.Second), Source: flows.Peer{Kind: flows.Node, Name: fmt.Sprint(after + i)}})
			}
			return a, nil
		}
		w := follow(t, c)
		<-w.Latest().Replaced()
		if s := w.Latest(); len(s.Flows) != watch.MostFlows || s.Forgotten != 2000 || s.Flows[0].Number != 11999 {
			t.Errorf("%d flows, %d forgotten, the first %d", len(s.Flows), s.Forgotten, s.Flows[0].Number)
		}
		<-w.Latest().Replaced()
		if s := w.Latest(); len(s.Flows) != watch.MostFlows || s.Forgotten != 8000 {
			t.Errorf("%d flows, %d forgotten", len(s.Flows), s.Forgotten)
		}
		err := errors.New("kubectl: no route")
		c.err.Store(&err)
		<-w.Latest().Replaced()
		if s := w.Latest(); s.Problem != "kubectl: no route" || len(s.Nodes) != 1 {
			t.Errorf("%q, %d nodes", s.Problem, len(s.Nodes))
		}
	})
}
