package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// The loop never builds a status. It copies references to what it knows (a picture); readers join, sort and format.
//
//	loop ─ Health, after each step ───────────────▶ /readyz, /healthz: ready or not
//	     ◀─ capture ─ gallery.run ─ picture ──────▶ status, reports; /readyz: the problems
//
// One goroutine asks for pictures, not before the loop has changed, and not for more than a share of the loop's time.

// picture is the loop's state at one moment. Nothing in it changes.
type picture struct {
	*parts
	loop       *controller.Capture
	policyList []policy.Status
	notes      []model.Note // of the processors
	mappings   int
	felix      *FelixStatus
	steps      uint64        // as of the loop
	cost       time.Duration // of the loop

	services    func() []service.Status         // sorted
	owners      func() []controller.OwnerStatus // sorted
	full, plain func() *Status                  // with texts of Services, and without
}

// capture takes a picture; it runs inside the loop.
func (p *parts) capture() *picture {
	began := time.Now()
	out := &picture{parts: p, loop: p.controller.Capture(), notes: p.processor.Notes(), mappings: p.mappings, steps: p.controller.Steps()}
	for i := range out.loop.Wants {
		if w := &out.loop.Wants[i]; len(w.Notes) > 0 {
			w.Notes = p.named(w.Notes)
		}
	}
	if p.policies != nil {
		out.policyList, out.notes = p.policies.Policies(), append(out.notes, p.policies.Notes()...)
	}
	if p.session != nil {
		out.felix = p.session.status()
	}
	list := p.processor.Unsorted()
	out.services = sync.OnceValue(func() []service.Status { service.SortStatuses(list); return list })
	out.owners = sync.OnceValue(out.loop.Owners)
	out.cost = time.Since(began)
	return out.anew()
}

// anew is the same picture, of which statuses are built anew: they have parts that others publish.
func (p *picture) anew() *picture {
	out := *p
	out.full = sync.OnceValue(func() *Status { return out.build(true) })
	out.plain = sync.OnceValue(func() *Status { return out.build(false) })
	return &out
}

// mappings counts the frontends of a value.
func mappings(msg proto.Message) int {
	switch m := msg.(type) {
	case *nat.DNat44:
		return len(m.StMappings)
	case *cnat.Translation:
		return 1
	}
	return 0
}

const (
	// pictureRest is how many times as long as taking a picture took the loop has to itself afterwards: 5 % of its time is for pictures.
	pictureRest = 20
	// pictureAge is how old a picture may be that is good enough for who does not wait.
	pictureAge = time.Second
	// statusPatience is how long status waits for the loop before it shows the last picture.
	statusPatience = 2 * time.Second
)

// gallery has the last picture. Its run is the only one who asks the loop, for all who want one.
type gallery struct {
	take    func(context.Context) (*picture, error)
	steps   func() uint64
	orders  chan chan<- shot // who wants one that is taken after now
	nudge   chan struct{}    // somebody found the last one old
	last    atomic.Pointer[picture]
	lastAt  atomic.Int64  // Unix time in nanoseconds
	ended   chan struct{} // closed when run returns
	waiting []chan<- shot
}

type shot struct {
	p   *picture
	err error
}

func newGallery(take func(context.Context) (*picture, error), steps func() uint64) *gallery {
	return &gallery{take: take, steps: steps, orders: make(chan chan<- shot), nudge: make(chan struct{}, 1), ended: make(chan struct{})}
}

// run takes pictures until ctx ends.
func (g *gallery) run(ctx context.Context) error {
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

// refresh takes a picture if the loop has changed; cost is how long the loop worked on it.
func (g *gallery) refresh(ctx context.Context) (p *picture, cost time.Duration, err error) {
	p = g.last.Load()
	if p == nil || p.steps != g.steps() {
		if p, err = g.take(ctx); err != nil {
			return nil, 0, err
		}
		cost = p.cost
	} else {
		p = p.anew()
	}
	g.last.Store(p)
	g.lastAt.Store(time.Now().UnixNano())
	return p, cost, nil
}

// latest is the last picture, nil if there is none; if it is old, another will be taken soon.
func (g *gallery) latest() *picture {
	if time.Since(time.Unix(0, g.lastAt.Load())) > pictureAge {
		select {
		case g.nudge <- struct{}{}:
		default:
		}
	}
	return g.last.Load()
}

// fresh is a picture taken after the call. All who wait share one.
func (g *gallery) fresh(ctx context.Context) (*picture, error) {
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

// Status is what the agent knows of itself, of every Service and of every policy. A loop that is busy for longer than 2 s does not keep
// it waiting: then it is the last known status, and Busy says so.
func (a *Agent) Status(ctx context.Context) (*Status, error) {
	patient, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	p, err := a.gallery.fresh(patient)
	if err == nil {
		st := *p.full()
		return &st, nil
	}
	last := a.gallery.last.Load()
	if last == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		return nil, err
	}
	st := *last.full()
	st.Busy = fmt.Sprintf("the event loop has been busy for %s; this is the status of %s ago", a.quiet(), since(time.Unix(0, a.gallery.lastAt.Load())))
	st.summarize()
	return &st, nil
}

// stuckLoop is how long one step of the loop may take before the node is unready. The first sync of 10,000 Services takes a second or two.
const stuckLoop = 10 * time.Second

// quiet is for how long the loop has ended no step.
func (p *parts) quiet() time.Duration { return since(p.controller.Beat()) }

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// stuck is why the loop cannot be trusted to be alive; "": it is, or it does not run yet.
func (p *parts) stuck() string {
	if beat := p.controller.Beat(); beat.IsZero() || time.Since(beat) < stuckLoop {
		return ""
	}
	return fmt.Sprintf("the event loop has not ended a step for %s", p.quiet())
}

// unready is why the node cannot serve; "": it can. It asks nobody who could be busy.
func (p *parts) unready() string {
	h := p.controller.Health()
	if h.Ended {
		return controller.ErrStopped.Error()
	}
	if why := p.stuck(); why != "" {
		return why
	}
	st := &Status{Ready: h.Healthy()}
	if !st.Ready {
		st.Waiting = waiting(&h.Status)
	}
	p.others(st)
	if st.Ready {
		return ""
	}
	return st.Waiting
}

// others adds what is known outside the loop: whether VPP answers, how it stands with a driver, and how full the NAT session table is.
func (p *parts) others(out *Status) {
	if why := p.conn.State().Silent.Text(time.Now()); why != "" {
		out.Ready, out.VPP.Silent = false, why
		out.Waiting = strings.TrimSuffix(why+"; "+out.Waiting, "; ")
	}
	p.driverStatus(out)
	p.nat.status(out)
	if why := p.rivals.Load(); why != nil {
		out.VPP.Rival = *why
	}
}
