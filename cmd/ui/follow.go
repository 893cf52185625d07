package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/backoff"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/flows"
)

const (
	// mostFollowed is how many nodes' flows are followed: each needs a kubectl that runs. The others' are read in each round.
	mostFollowed = 16
	// unreadAfter is how long after the last read a node is no longer followed.
	unreadAfter = 30 * time.Second
)

// followAgain are the pauses after which flows that ended are followed again. Meanwhile they are read in each round.
var followAgain = backoff.Range{Min: 10 * time.Second, Max: 2 * time.Minute}

// follower follows the flows of one node, and keeps what has changed since it was last read: at most as many flows as an agent has.
type follower struct {
	cancel func()
	unread *time.Timer
	began  chan struct{} // closed at the first answer, or at the end

	mu        sync.Mutex // of the rest
	kept      map[any]*flows.Flow
	last      agentflows.Answer // without flows
	given     uint64            // the number that the reader got last
	forgotten uint64            // flows without room
	answered  bool
	ended     bool
}

// take adds an answer.
func (f *follower) take(a *agentflows.Answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range a.Flows {
		f.kept[a.Flows[i].Identity()] = &a.Flows[i]
	}
	if over := len(f.kept) - agentflows.MostFlows; over > 0 {
		list := f.byTime()
		for _, flow := range list[:over] {
			delete(f.kept, flow.Identity())
		}
		f.forgotten += uint64(over)
	}
	f.last = *a
	f.last.Flows = nil
	if !f.answered {
		f.answered = true
		close(f.began)
	}
}

// byTime returns the flows, the least recent first.
func (f *follower) byTime() []*flows.Flow {
	list := make([]*flows.Flow, 0, len(f.kept))
	for _, flow := range f.kept {
		list = append(list, flow)
	}
	slices.SortFunc(list, func(a, b *flows.Flow) int { return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Number, b.Number)) })
	return list
}

// hasAnswered reports whether an answer came.
func (f *follower) hasAnswered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answered
}

// noteLast notes that the flows have ended.
func (f *follower) noteLast() {
	f.unread.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended = true; !f.answered {
		close(f.began)
	}
}

// changed returns what has changed since the last call; nil: the reader asks for what it has got before, or the flows have ended.
func (f *follower) changed(after uint64) *agentflows.Answer {
	f.unread.Reset(unreadAfter)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || after < f.given {
		return nil
	}
	a := f.last
	a.Forgotten += f.forgotten
	for _, flow := range f.byTime() {
		a.Flows = append(a.Flows, *flow)
	}
	clear(f.kept)
	f.given = a.Next
	return &a
}

// followed are the nodes whose flows a page follows.
type followed struct {
	agents *kubectl.Agents
	ctx    context.Context // of all followers
	cancel func()
	now    func() time.Time

	running sync.WaitGroup
	mu      sync.Mutex // of the rest
	nodes   map[string]*follower
	again   map[string]*backoff.Timer
}

func newFollowed(agents *kubectl.Agents, now func() time.Time) *followed {
	f := &followed{agents: agents, now: now, nodes: map[string]*follower{}, again: map[string]*backoff.Timer{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// stop ends all followers.
func (f *followed) stop() {
	f.cancel()
	f.running.Wait()
}

// changed returns what has changed in a node since the last call, all flows at the first one; nil: it is not followed.
func (f *followed) changed(ctx context.Context, at kubectl.Place, after uint64) *agentflows.Answer {
	for range 2 {
		n := f.follow(at)
		if n == nil {
			return nil
		}
		select {
		case <-n.began:
		case <-ctx.Done():
			return nil
		}
		if a := n.changed(after); a != nil {
			return a
		}
		n.cancel()
		f.drop(at.Node, n)
	}
	return nil
}

// follow returns the follower of a node; nil: it has none, because it ended a short time ago or there are enough.
func (f *followed) follow(at kubectl.Place) *follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[at.Node]; n != nil {
		return n
	}
	if again := f.again[at.Node]; len(f.nodes) == mostFollowed || again != nil && !again.Due(f.now()) || f.ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(f.ctx)
	n := &follower{cancel: cancel, unread: time.AfterFunc(unreadAfter, cancel), began: make(chan struct{}), kept: map[any]*flows.Flow{}}
	f.nodes[at.Node] = n
	f.running.Go(func() {
		err := f.agents.Stream(ctx, at, func(line []byte) error {
			a := &agentflows.Answer{}
			if err := json.Unmarshal(line, a); err != nil {
				return fmt.Errorf("a line is no answer: %w", err)
			}
			n.take(a)
			return nil
		}, "flows", "--output=json", "--follow", "--answers", "--"+flags.UntilInputEnds)
		wanted := ctx.Err() != nil
		cancel()
		f.noteEnd(at.Node, wanted || err == nil && n.hasAnswered()) // before a reader sees the end, and follows the node again
		n.noteLast()
		f.drop(at.Node, n)
	})
	return n
}

// drop forgets a follower, unless the node has another one.
func (f *followed) drop(node string, n *follower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes[node] == n {
		delete(f.nodes, node)
	}
}

// noteEnd notes whether a follower ended well; otherwise there is a pause before the next one.
func (f *followed) noteEnd(node string, well bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if well {
		delete(f.again, node)
		return
	}
	if f.again[node] == nil {
		f.again[node] = &backoff.Timer{}
	}
	f.again[node].Failed(f.now(), followAgain)
}
