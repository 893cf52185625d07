package kube

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// gate holds the requests of all informers back while the API server cannot be reached, but for one at a time, which tries for
// all. Left to themselves informers wait each on its own, in the end 30 to 60 s: so long they would stay behind after the API
// server is there again.
type gate struct {
	timer func() wait.Timer // for the pauses of an outage

	mu     sync.Mutex
	outage *outage // nil: the API server can be reached, as far as is known
}

// outage is a time in which nobody can connect.
type outage struct {
	err  error           // of the first who could not
	over chan struct{}   // closed when it is
	turn chan wait.Timer // who takes it tries next, after a pause
}

// pauses are between two tries: 0.5 to 1 s, then longer each time, in the end 4 to 8 s.
var pauses = wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 1, Steps: 4, Cap: 4 * time.Second}

func newGate() *gate { return &gate{timer: pauses.Timer} }

// pass makes a request, again until the API server is reached or ctx is done; its answer is returned, also if it is an error. heard
// is told the result of each try, and, when the request is held back, the error that made the gate close.
func (g *gate) pass(ctx context.Context, heard func(error), request func() error) error {
	for {
		o, turn, err := g.enter(ctx, heard)
		if err != nil {
			return err
		}
		err = request()
		heard(err)
		switch {
		case !unreachable(err):
			if turn != nil { // nobody else opens the gate: what was asked before it closed says nothing of now
				g.found()
			}
			return err
		case turn == nil:
			g.lost(err)
		default:
			turn.Next()
			o.turn <- turn
		}
	}
}

// enter waits for the end of an outage, or for the turn to try, which is returned then.
func (g *gate) enter(ctx context.Context, heard func(error)) (o *outage, turn wait.Timer, err error) {
	g.mu.Lock()
	o = g.outage
	g.mu.Unlock()
	if o == nil {
		return nil, nil, ctx.Err()
	}
	heard(o.err)
	select {
	case turn = <-o.turn:
	case <-o.over:
		return nil, nil, ctx.Err()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	select {
	case <-turn.C():
		return o, turn, nil
	case <-ctx.Done():
		o.turn <- turn
		return nil, nil, ctx.Err()
	}
}

// lost closes the gate.
func (g *gate) lost(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outage == nil {
		g.outage = &outage{err: err, over: make(chan struct{}), turn: make(chan wait.Timer, 1)}
		g.outage.turn <- g.timer()
	}
}

// found opens it.
func (g *gate) found() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.outage.over)
	g.outage = nil
}

// unreachable tells a server that nobody can connect to from one that answers badly, or to this request only.
func unreachable(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
