// Package proof turns requests and a period into proofs about the VPP of a running agent: does VPP do what the agent's own objects mean?
//
//	loop ◀─ Look ─ objects, settings, nothing in flight ─┐
//	VPP  ◀─ Compare: verify.Run ─────────────────────────┤ Run, one goroutine ─▶ report of each request; metrics, status, log
//	loop ◀─ Look ─ nothing was programmed meanwhile ─────┘
//
// Invariant: the agent programs nothing in VPP during a proof whose report has a verdict, and two proofs have found each difference. One proof runs
// at a time, and then rests.
package proof

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/verify"
)

const (
	// attempts bounds how often the prover looks again because the agent programs VPP, or to confirm a difference.
	attempts = 6
	// pause is the time between two attempts.
	pause = time.Second
	// restShare is the rest after a proof, in multiples of its cost: proofs take at most a fifth of a core. mostRest bounds the rest.
	restShare = 4
	mostRest  = 30 * time.Second
)

// ErrStopped is the result of a request to an agent that ends.
var ErrStopped = errors.New("the agent ends")

// Moment is what one look into the loop finds.
type Moment struct {
	// Busy is why VPP does not have the desired state yet; "": it has.
	Busy string
	// Mark changes with each request of the agent that changes VPP, and with each connection.
	Mark Mark
	// Settings are those of the agent.
	Settings verify.Config
}

// Mark is a moment of VPP's configuration, as far as the agent changes it.
type Mark struct{ Connection, Writes uint64 }

// Config has what a prover needs of its agent.
type Config struct {
	// Every is the period; 0: only on request.
	Every time.Duration
	// Look looks into the loop, and calls a function inside.
	Look func(context.Context, func()) (Moment, error)
	// Compare reads VPP and compares; nil: verify.Run.
	Compare func(context.Context, verify.Config, []model.Object) (*verify.Report, error)
	// Rest waits, or returns an error if the context ends.
	Rest    func(context.Context, time.Duration) error
	Now     func() time.Time
	Logger  *slog.Logger
	Metrics *Metrics
}

// Prover proves. Its goroutine is Run. Changed and Objects belong to the loop; the other methods are safe for concurrent use.
type Prover struct {
	cfg    Config
	orders chan chan<- result
	ended  chan struct{} // closed when Run returns
	last   atomic.Pointer[Summary]
	known  map[string]bool // the checks that differed in the last proof
	loop   objects
}

type result struct {
	report *verify.Report
	err    error
}

// New returns a prover. Run starts it.
func New(cfg Config) *Prover {
	if cfg.Compare == nil {
		cfg.Compare = verify.Run
	}
	return &Prover{cfg: cfg, loop: objects{}, orders: make(chan chan<- result), ended: make(chan struct{})}
}

// Report returns the report of a proof that begins after the call. All requests that wait share one.
func (p *Prover) Report(ctx context.Context) (*verify.Report, error) {
	answer := make(chan result, 1)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ended:
		return nil, ErrStopped
	case p.orders <- answer:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ended:
		return nil, ErrStopped
	case r := <-answer:
		return r.report, r.err
	}
}

// Run proves on request, and once in each period, until ctx ends.
func (p *Prover) Run(ctx context.Context) error {
	defer close(p.ended)
	var period <-chan time.Time
	if p.cfg.Every > 0 {
		t := time.NewTicker(p.cfg.Every)
		defer t.Stop()
		period = t.C
	}
	for {
		var waiting []chan<- result
		select {
		case <-ctx.Done():
			return ctx.Err()
		case order := <-p.orders:
			waiting = append(waiting, order)
		case <-period:
		}
		for more := true; more; {
			select {
			case order := <-p.orders:
				waiting = append(waiting, order)
			default:
				more = false
			}
		}
		began := p.cfg.Now()
		report, cost, err := p.prove(ctx)
		p.conclude(report, err, began, p.cfg.Now().Sub(began))
		for _, order := range waiting {
			order <- result{report, err}
		}
		if err := p.cfg.Rest(ctx, min(restShare*cost, mostRest)); err != nil {
			return err
		}
	}
}

// prove compares until the agent programs nothing meanwhile, and until a second comparison confirms each difference. If it does not come to that, the
// report has no checks, and says why. Cost is the time of the comparisons, without the pauses between them.
func (p *Prover) prove(ctx context.Context) (_ *verify.Report, cost time.Duration, _ error) {
	var unconfirmed *verify.Report
	var objects []model.Object
	why, node := "", ""
	for n := range attempts {
		if n > 0 {
			if err := p.cfg.Rest(ctx, pause); err != nil {
				return nil, cost, err
			}
		}
		before, err := p.cfg.Look(ctx, func() { objects = p.Objects() })
		if err != nil {
			return nil, cost, err
		}
		if node = before.Settings.Node; before.Busy != "" {
			why = before.Busy
			continue
		}
		began := p.cfg.Now()
		report, err := p.cfg.Compare(ctx, before.Settings, objects)
		cost += p.cfg.Now().Sub(began)
		if err != nil {
			return nil, cost, err
		}
		after, err := p.cfg.Look(ctx, func() {})
		if err != nil {
			return nil, cost, err
		}
		if after.Busy != "" || after.Mark != before.Mark {
			why = "the agent programmed VPP during each comparison"
			continue
		}
		if within(different(report), different(unconfirmed)) {
			return report, cost, nil
		}
		unconfirmed, why = report, "each comparison found other differences"
	}
	return &verify.Report{Node: node, Verdict: verify.Unknown, Why: why, Checks: []verify.Check{}, Services: []verify.ServiceCheck{}}, cost, nil
}

// different returns the names of the checks that differ; nil: no report.
func different(r *verify.Report) map[string]bool {
	out := map[string]bool{}
	if r == nil {
		return out
	}
	for i := range r.Checks {
		if c := &r.Checks[i]; c.Verdict == verify.Different {
			out[nameOf(c)] = true
		}
	}
	for i := range r.Services {
		if c := &r.Services[i]; c.Verdict == verify.Different {
			out[c.Of] = true
		}
	}
	return out
}

// nameOf is "namespace/name, ingress".
func nameOf(c *verify.Check) string { return c.Pod + ", " + c.Packets }

func within(a, b map[string]bool) bool {
	for name := range a {
		if !b[name] {
			return false
		}
	}
	return true
}
