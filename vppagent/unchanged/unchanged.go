// Package unchanged turns the answers of VPP to the requests of a turn of rechecks into whether VPP is as it was when the agent compared it last.
//
// Invariant: VPP counts as unchanged only if it answers each request of a turn as it did in the last comparison of that turn, that comparison found nothing to do,
// and the agent has changed neither its desired nor its actual state since.
//
// The agent compares digests of answers (package vpp/digest), so it decodes and keeps nothing of them. If one differs, the agent asks again and compares everything.
package unchanged

import (
	"context"
	"errors"
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/digest"
)

// Caller sends requests to VPP in order and returns one reply per request. *vpp.Conn is one.
type Caller interface {
	Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply
}

const (
	// mostJoined is the most details of a turn whose requests are sent at once, so that VPP does not write long answers in a row before it forwards again.
	mostJoined = 256
	// A turn whose answers differ vainMost times in a row although the agent finds nothing to do has answers that change by themselves: for the next vainPause
	// rounds the agent does not ask twice.
	vainMost, vainPause = 2, 20
)

// Answers are VPP's answers to the turns of a round. One goroutine at a time uses it. Only Caller has no useful zero value.
type Answers struct {
	Caller Caller

	turns  map[int]*turn
	vain   map[int]int // turns in a row whose answers differed; negative: the turns for which the agent does not ask
	record *turn       // of the comparison that is going on; nil: none is
	began  uint64      // changes when it began
	// changes counts calls of Forget.
	changes uint64
}

// turn is the requests of a turn, with their answers.
type turn struct {
	groups  [][]vpp.Call // that were sent at once
	digests [][]digest.Sum
	details int
	unknown bool // the digest of an answer
}

// Record starts the record of a comparison: Do notes requests and answers until Keep or Drop.
func (a *Answers) Record() {
	a.record, a.began = &turn{}, a.changes
}

// Do sends requests. During a record it asks for digests beside the answers.
func (a *Answers) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	if a.record == nil {
		return a.Caller.Do(ctx, calls...)
	}
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].Digest = true
	}
	replies := a.Caller.Do(ctx, calls...)
	a.record.addGroup(calls, replies)
	return replies
}

// addGroup notes requests that were sent at once.
func (t *turn) addGroup(calls []vpp.Call, replies []vpp.Reply) {
	var group []vpp.Call
	var digests []digest.Sum
	for i, r := range replies {
		if _, lacking := errors.AsType[*vpp.MissingError](r.Err); lacking {
			continue // never sent on this connection
		}
		_, refused := errors.AsType[*vpp.Retval](r.Err)
		if r.Digest == (digest.Sum{}) || r.Err != nil && !refused {
			t.unknown = true
		}
		group = append(group, vpp.Call{Msg: calls[i].Msg, Dump: calls[i].Dump, Brief: true, For: calls[i].For})
		digests = append(digests, r.Digest)
		t.details += len(r.Details)
	}
	if len(group) > 0 {
		t.groups, t.digests = append(t.groups, group), append(t.digests, digests)
	}
}

// Drop ends the record without a result.
func (a *Answers) Drop() { a.record = nil }

// Keep ends the record of turn n, whose comparison found nothing to do. Answers without a digest, and those from before a call of Forget, are not kept.
func (a *Answers) Keep(n int) {
	t := a.record
	a.record = nil
	if t == nil || t.unknown || a.began != a.changes {
		return
	}
	if t.details <= mostJoined {
		t.groups, t.digests = [][]vpp.Call{slices.Concat(t.groups...)}, [][]digest.Sum{slices.Concat(t.digests...)}
	}
	if a.turns == nil {
		a.turns = map[int]*turn{}
	}
	a.turns[n] = t
}

// Forget forgets all answers: the agent has changed its desired or its actual state.
func (a *Answers) Forget() {
	a.changes++
	clear(a.turns)
}

// Unchanged asks VPP the requests of turn n, and reports whether all answers are those of the last comparison. It asks nothing if it knows no such answers.
func (a *Answers) Unchanged(ctx context.Context, n int) bool {
	t := a.turns[n]
	if t == nil {
		return false
	}
	if a.vain[n] < 0 {
		a.vain[n]++
		return false
	}
	if a.vain == nil {
		a.vain = map[int]int{}
	}
	for i, calls := range t.groups {
		for j, r := range a.Caller.Do(ctx, calls...) {
			if r.Digest == t.digests[i][j] {
				continue
			}
			if a.vain[n]++; a.vain[n] >= vainMost {
				a.vain[n] = -vainPause
			}
			delete(a.turns, n)
			return false
		}
	}
	a.vain[n] = 0
	return true
}
