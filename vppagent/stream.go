package vppagent

import (
	"context"
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// bunchSize is how many steps are sent at a time of many.
const bunchSize = 1024

// bunch is a part of a level.
type bunch struct {
	p        *planner // whose plan it is of
	ends     bool     // it is the last of that plan
	tried    []Step
	requests []request
	calls    []vpp.Call
}

// stream carries out creations in bunches: VPP is at work on one while the next is prepared. A bunch is sent when all of the
// one before is answered.
type stream struct {
	x       *execution
	out     *bunch // on its way; nil: none
	replies chan []vpp.Reply
}

// push sends steps that free no claim and do not need each other. When it returns the last of them are on their way.
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
		go func() { replies <- s.x.a.pace.do(ctx, b.calls, costs) }() // waited for by conclude
		s.out, s.replies = b, replies
		s.finish(before, nil)
	}
	return nil
}

// waitsFor reports that what is on its way has to be there before the steps can be prepared.
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

// drain waits for what is on its way.
func (s *stream) drain(ctx context.Context) error {
	b := s.out
	lost := s.conclude(ctx)
	if lost == nil {
		s.finish(b, nil)
	}
	return lost
}

// conclude takes in the replies to what is on its way, and sends what follows from them. If VPP is lost that is finished
// with, too.
func (s *stream) conclude(ctx context.Context) error {
	b := s.out
	if b == nil {
		return nil
	}
	s.out = nil
	next, lost := s.x.take(b.requests, <-s.replies)
	if lost == nil {
		lost = s.x.send(ctx, next)
	}
	if lost != nil {
		s.finish(b, lost)
	}
	return lost
}

// finish takes over what a bunch achieved; nil: there is none.
func (s *stream) finish(b *bunch, lost error) {
	if b == nil {
		return
	}
	s.x.finishAll(b, lost)
	if b.ends && lost == nil {
		s.x.a.observe(b.p, s.x)
	}
}
