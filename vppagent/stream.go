package vppagent

import (
	"context"
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// bunchSize is the number of steps in one bunch.
const bunchSize = 1024

// bunch is a part of a level.
type bunch struct {
	p        *planner // planner of its plan
	ends     bool     // it is the last bunch of that plan
	tried    []Step
	requests []request
	calls    []vpp.Call
}

// stream executes creations in bunches: VPP works on one bunch while the agent prepares the next. A bunch is sent when VPP has
// answered the whole bunch before.
type stream struct {
	x       *execution
	out     *bunch // sent and not yet answered; nil: none
	replies chan []vpp.Reply
}

// push sends steps that free no claim and do not need each other. When it returns, VPP may not have answered the last of them.
func (s *stream) push(ctx context.Context, steps []Step) (lost error) {
	for some := range slices.Chunk(steps, bunchSize) {
		if s.waitsFor(some) {
			if lost = s.drain(ctx); lost != nil {
				return lost
			}
		}
		b := s.x.prepare(some)
		b.calls = appendCalls(nil, b.requests)
		costs := s.x.a.costs(b.requests)
		before := s.out
		if lost = s.conclude(ctx); lost != nil {
			s.x.finishAll(b, lost)
			return lost
		}
		replies := make(chan []vpp.Reply, 1)
		go func() { replies <- s.x.a.pace.Do(ctx, b.calls, costs) }() // conclude waits for it
		s.out, s.replies = b, replies
		s.finish(before, nil)
	}
	return nil
}

// waitsFor reports that the sent bunch must be answered before the steps can be prepared.
func (s *stream) waitsFor(steps []Step) bool {
	if s.out == nil {
		return false
	}
	missing := func(d *value) bool { return d.kind != nil && d.want != nil && d.will && d.have == nil }
	return slices.ContainsFunc(steps, func(s Step) bool {
		shutting := s.v.plan.shut != nil && !s.shut && s.v.have == nil
		return shutting || slices.ContainsFunc(s.v.deps, missing) || s.v.base != nil && missing(s.v.base)
	})
}

// drain waits for the answers to the sent bunch.
func (s *stream) drain(ctx context.Context) error {
	b := s.out
	lost := s.conclude(ctx)
	if lost == nil {
		s.finish(b, nil)
	}
	return lost
}

// conclude handles the replies to the sent bunch, and sends the requests that follow from them. If VPP is lost, it ends the bunch
// with that error.
func (s *stream) conclude(ctx context.Context) error {
	b := s.out
	if b == nil {
		return nil
	}
	s.out = nil
	next, lost := s.x.takeReplies(b.requests, <-s.replies)
	if lost == nil {
		lost = s.x.sendRequests(ctx, next)
	}
	if lost != nil {
		s.finish(b, lost)
	}
	return lost
}

// finish records the results of a bunch; nil: no bunch.
func (s *stream) finish(b *bunch, lost error) {
	if b == nil {
		return
	}
	s.x.finishAll(b, lost)
	if b.ends && lost == nil {
		s.x.a.observe(b.p, s.x)
	}
}
