package kube

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// gate holds back the requests of all informers while the API server is unreachable. One request at a time tries to connect
// on behalf of all. With client-go's own back-off each informer would wait up to 30 to 60 s, and stay behind that long
// after the API server is back.
type gate struct {
	timer func() wait.Timer // makes the back-off of an outage

	mu     sync.Mutex
	outage *outage // nil: no failed connection since the last successful one
}

// outage is a period in which no connection to the API server succeeds.
type outage struct {
	err  error           // of the first request that failed to connect
	over chan struct{}   // closed at the end of the outage
	turn chan wait.Timer // holds one timer; the request that receives it tries next, after the timer's pause
}

// pauses is the back-off between attempts to connect: 0.5 to 1 s at first, 4 to 8 s in the end.
var pauses = wait.Backoff{Duration: time.Second / 2, Factor: 2, Jitter: 1, Steps: 4, Cap: 4 * time.Second}

func newGate() *gate { return &gate{timer: pauses.Timer} }

// pass runs request, and repeats it until the API server is reachable or ctx is done. It returns the error of the last
// attempt. report gets the result of each attempt, and, for a held-back request, the error that closed the gate.
func (g *gate) pass(ctx context.Context, report func(error), request func() error) error {
	for {
		o, turn, err := g.enter(ctx, report)
		if err != nil {
			return err
		}
		err = request()
		report(err)
		switch {
		case !unreachable(err):
			if turn != nil { // only the request with the turn opens the gate: one that started before the outage does not prove that it is over
				g.endOutage()
			}
			return err
		case turn == nil:
			g.beginOutage(err)
		default:
			turn.Next()
			o.turn <- turn
		}
	}
}

// enter waits for the end of an outage, or for the turn to try. If it got the turn, it returns the outage and the turn's
// timer.
func (g *gate) enter(ctx context.Context, report func(error)) (o *outage, turn wait.Timer, err error) {
	g.mu.Lock()
	o = g.outage
	g.mu.Unlock()
	if o == nil {
		return nil, nil, ctx.Err()
	}
	report(o.err)
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

// beginOutage closes the gate: an outage begins.
func (g *gate) beginOutage(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.outage == nil {
		g.outage = &outage{err: err, over: make(chan struct{}), turn: make(chan wait.Timer, 1)}
		g.outage.turn <- g.timer()
	}
}

// endOutage opens the gate: the outage is over.
func (g *gate) endOutage() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.outage.over)
	g.outage = nil
}

// unreachable reports whether err is a failed connection, as opposed to an error that the API server answered.
func unreachable(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
