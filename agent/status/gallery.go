package status

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
)

const (
	// pictureRest is the loop's free time after a picture, in multiples of the picture's time: pictures take at most 5 %.
	pictureRest = 20
	// pictureAge is the age up to which readers that do not wait use a picture.
	pictureAge = time.Second
	// statusPatience bounds how long status waits for the loop before it shows the last picture.
	statusPatience = 2 * time.Second
)

// Gallery has the last picture. Only its Run requests pictures from the loop, for all readers.
type Gallery struct {
	reader  *Reader
	take    func(context.Context) (*Picture, error)
	version func() uint64
	orders  chan chan<- shot // readers that wait for a picture taken after now
	nudge   chan struct{}    // a reader found the last one old
	last    atomic.Pointer[Picture]
	lastAt  atomic.Pointer[time.Time] // with its monotonic reading; nil: none
	ended   chan struct{}             // closed when Run returns
	waiting []chan<- shot
}

type shot struct {
	p   *Picture
	err error
}

// NewGallery returns a gallery without a picture. inLoop calls a function in the controller's loop.
func NewGallery(r *Reader, inLoop func(context.Context, func()) error) *Gallery {
	take := func(ctx context.Context) (out *Picture, err error) {
		err = inLoop(ctx, func() { out = r.Capture() })
		return out, err
	}
	g := newGallery(take, r.version)
	g.reader = r
	return g
}

func newGallery(take func(context.Context) (*Picture, error), version func() uint64) *Gallery {
	return &Gallery{take: take, version: version, orders: make(chan chan<- shot), nudge: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Run requests pictures until ctx ends.
func (g *Gallery) Run(ctx context.Context) error {
	defer close(g.ended)
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case order := <-g.orders:
			g.waiting = append(g.waiting, order)
		case <-g.nudge:
		}
		for resting := true; resting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case order := <-g.orders:
				g.waiting = append(g.waiting, order)
			case <-rest.C:
				resting = false
			}
		}
		p, cost, err := g.refresh(ctx)
		for _, order := range g.waiting {
			order <- shot{p, err}
		}
		g.waiting = nil
		rest.Reset(pictureRest * cost)
	}
}

// refresh requests a picture if the state has changed; cost is the loop's time for it.
func (g *Gallery) refresh(ctx context.Context) (p *Picture, cost time.Duration, err error) {
	p = g.last.Load()
	if p == nil || p.version != g.version() {
		if p, err = g.take(ctx); err != nil {
			return nil, 0, err
		}
		cost = p.cost
	} else {
		p = p.anew()
	}
	at := time.Now()
	g.lastAt.Store(&at) // before the picture: a reader of that needs it
	g.last.Store(p)
	return p, cost, nil
}

// latest returns the last picture, nil if there is none; it requests another one if the last is old.
func (g *Gallery) latest() *Picture {
	if at := g.lastAt.Load(); at == nil || time.Since(*at) > pictureAge {
		select {
		case g.nudge <- struct{}{}:
		default:
		}
	}
	return g.last.Load()
}

// fresh returns a picture taken after the call. All waiting readers share one.
func (g *Gallery) fresh(ctx context.Context) (*Picture, error) {
	answer := make(chan shot, 1)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.ended:
		return nil, controller.ErrStopped
	case g.orders <- answer:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-g.ended:
		return nil, controller.ErrStopped
	case s := <-answer:
		return s.p, s.err
	}
}

// Status returns the state of the agent, of every Service and of every policy. If the loop is busy for longer than 2 s, it
// returns the last known status with the reason in Busy.
func (g *Gallery) Status(ctx context.Context) (*Status, error) {
	patient, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	p, err := g.fresh(patient)
	if err == nil {
		st := *p.full()
		return &st, nil
	}
	last := g.last.Load()
	if last == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return nil, err
	}
	st := *last.full()
	st.Busy = fmt.Sprintf("the event loop has been busy for %s; this is the status of %s ago", g.reader.quiet(), since(*g.lastAt.Load()))
	st.summarize()
	return &st, nil
}

// Report returns the report about all objects, and about the agent.
func (g *Gallery) Report(ctx context.Context) (*event.Report, error) {
	p, err := g.fresh(ctx)
	if err != nil {
		return nil, err
	}
	st := p.plain()
	out := &event.Report{Ready: st.Ready, Summary: st.Summary, Problems: p.problems()}
	if !out.Ready {
		out.Waiting = st.Waiting
	}
	return out, nil
}

// mostProblems bounds the problems in the body of /readyz.
const mostProblems = 20

// Ready returns no error while every source is in sync, VPP is connected and transactions succeed; otherwise the error is
// what is missing. The problems are those of the last picture: a refused object is a tenant's error, and does not make the
// node unready. Ready never waits for the loop, and requests cause no work in the loop.
func (g *Gallery) Ready(context.Context) (problems []string, _ error) {
	if p := g.latest(); p != nil {
		list := p.plain().Problems
		for i, problem := range list {
			if i == mostProblems {
				problems = append(problems, fmt.Sprintf("and %d more", len(list)-i))
				break
			}
			problems = append(problems, problem.String())
		}
	}
	if why := g.reader.Unready(); why != "" {
		return problems, errors.New(why)
	}
	return problems, nil
}
