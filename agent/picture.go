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

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// The loop never builds a status. It copies references to its state (a picture); readers join, sort and format them.
//
//	loop ─ Health, after each step ───────────────▶ /readyz, /healthz: ready or not
//	     ◀─ capture ─ gallery.run ─ picture ──────▶ status, reports; /readyz: the problems
//
// One goroutine requests pictures, only after the loop has changed, and for at most a share of the loop's time.

// picture is the loop's state at one moment. It is immutable.
type picture struct {
	*parts
	loop       *controller.Capture
	policyList []policy.Status
	notes      []model.Note // of the processors
	mappings   int
	pods       map[string]bool // that exist, for drops of source checks; nil: not counted
	felix      *attachment.FelixStatus
	steps      uint64        // the loop's step count
	cost       time.Duration // of the loop

	services    func() []service.Status         // sorted
	owners      func() []controller.OwnerStatus // sorted
	full, plain func() *Status                  // with and without texts of Services
}

// capture returns a picture; it runs in the loop.
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
	out.felix, out.pods = p.session.Status(), p.counters.Pods()
	list := p.processor.Unsorted()
	out.services = sync.OnceValue(func() []service.Status { service.SortStatuses(list); return list })
	out.owners = sync.OnceValue(out.loop.Owners)
	out.cost = time.Since(began)
	return out.anew()
}

// anew returns the same picture with new statuses: a status has parts that other goroutines publish.
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
	// pictureRest is the loop's free time after a picture, in multiples of the picture's time: pictures take at most 5 %.
	pictureRest = 20
	// pictureAge is the age up to which readers that do not wait use a picture.
	pictureAge = time.Second
	// statusPatience bounds how long status waits for the loop before it shows the last picture.
	statusPatience = 2 * time.Second
)

// gallery has the last picture. Only its run requests pictures from the loop, for all readers.
type gallery struct {
	take    func(context.Context) (*picture, error)
	steps   func() uint64
	orders  chan chan<- shot // readers that wait for a picture taken after now
	nudge   chan struct{}    // a reader found the last one old
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

// run requests pictures until ctx ends.
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

// refresh requests a picture if the loop has changed; cost is the loop's time for it.
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

// latest returns the last picture, nil if there is none; it requests another one if the last is old.
func (g *gallery) latest() *picture {
	if time.Since(time.Unix(0, g.lastAt.Load())) > pictureAge {
		select {
		case g.nudge <- struct{}{}:
		default:
		}
	}
	return g.last.Load()
}

// fresh returns a picture taken after the call. All waiting readers share one.
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

// Status returns the state of the agent, of every Service and of every policy. If the loop is busy for longer than 2 s, it
// returns the last known status with the reason in Busy.
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

// stuckLoop is how long one step of the loop may take before the node is unready. The first sync of 10,000 Services takes a
// second or two.
const stuckLoop = 10 * time.Second

// quiet is the time since the loop ended a step.
func (p *parts) quiet() time.Duration { return since(p.controller.Beat()) }

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }

// stuck returns why the loop may hang; "": it does not, or it does not run yet.
func (p *parts) stuck() string {
	if beat := p.controller.Beat(); beat.IsZero() || time.Since(beat) < stuckLoop {
		return ""
	}
	return fmt.Sprintf("the event loop has not ended a step for %s", p.quiet())
}

// unready returns why the node cannot serve; "": it can. It waits for nothing that may be busy.
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

// others adds state from outside the loop: whether VPP answers, the driver, and the NAT session table.
func (p *parts) others(out *Status) {
	if why := p.conn.State().Silent.Text(time.Now()); why != "" {
		out.Ready, out.VPP.Silent = false, why
		out.Waiting = strings.TrimSuffix(why+"; "+out.Waiting, "; ")
	}
	p.driverStatus(out)
	p.natStatus(out)
	out.VPP.Rival = p.rivals.Problem()
}

// natStatus adds the NAT session table: while it is full, the agent is not ready.
func (p *parts) natStatus(out *Status) {
	out.NAT = p.nat.Status()
	if out.NAT == nil || !out.NAT.Full {
		return
	}
	out.Ready = false
	if out.Waiting != "" {
		out.Waiting += "; "
	}
	out.Waiting += "NAT session table: " + out.NAT.Problem
}
