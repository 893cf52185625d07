package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

const (
	interval = 5 * time.Second  // between two looks at what there is
	anyway   = time.Minute      // between two looks if nothing has changed
	patience = 10 * time.Second // for one answer
)

// Config says what to report, as which node.
type Config struct {
	Node string // this node's name; must not be empty
	// Events says what is wrong with Services and policies in Events.
	Events bool
	// Conditions says it of policies whose API has conditions there, too.
	Conditions bool
	// LeaseNamespace is where the node's Lease is; "": there is none.
	LeaseNamespace string
	// NodeCondition tells on the Node whether the agent is ready.
	NodeCondition bool
	Logger        *slog.Logger // nil: silent
}

// Any tells whether there is anything to report.
func (c *Config) Any() bool {
	return c.Events || c.Conditions || c.LeaseNamespace != "" || c.NodeCondition
}

// Validate reports everything wrong with the configuration.
func (c *Config) Validate() error {
	if c.Node == "" {
		return errors.New("report: the node must have a name")
	}
	return nil
}

// Objects knows who objects are to the API server; *kube.Source does, and a Named that hears of them from somebody else.
type Objects interface {
	Identity(model.Ref) (kube.Identity, bool)
	Identities(visit func(model.Ref, *kube.Identity) bool, kinds ...model.Kind)
}

// Reporter tells others. Create with New, start with Run; a Reporter runs once.
type Reporter struct {
	cfg     Config
	log     *slog.Logger
	objects Objects
	connect func() (kubernetes.Interface, dynamic.Interface, error)
	client  kubernetes.Interface
	dynamic dynamic.Interface
	health  atomic.Pointer[event.Report] // of the last look

	mu     sync.Mutex
	faults map[string]string // the last error of each thing that fails

	// Of the goroutine of Run.
	ledger   *ledger
	verdicts verdicts
	written  condition // of the Node
	unready  time.Time // since when it is to be something worse

	away, unheard, unwritten retreat // of the condition of the Node, Events, conditions of policies
}

// New makes a reporter of what an agent says of the objects of a source, with a client of its own.
func New(cfg Config, objects Objects, connect func() (kubernetes.Interface, dynamic.Interface, error)) *Reporter {
	r := &Reporter{cfg: cfg, log: cfg.Logger, objects: objects, connect: connect, faults: map[string]string{}, ledger: newLedger(cfg.Node)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Run reports until ctx ends, and returns its error. changes counts what happens to the agent: as long as it stays the same, ask is called
// once a minute, else every 5 s. What cannot be told is logged once, and tried again. A configuration that gives no client is the only
// other reason to return.
func (r *Reporter) Run(ctx context.Context, changes func() uint64, ask func(context.Context) (*event.Report, error)) error {
	err := r.cfg.Validate()
	if err == nil {
		r.client, r.dynamic, err = r.connect()
	}
	if err != nil {
		return err
	}
	var pulse sync.WaitGroup
	defer pulse.Wait()
	if r.cfg.LeaseNamespace != "" {
		pulse.Go(func() { r.lease(ctx) })
	}
	var rep *event.Report
	var seen, before uint64
	var asked time.Time
	for pause(ctx, interval) {
		now := time.Now()
		// One look more after a change: the agent may not have been done with it.
		if n := changes(); rep == nil || n != seen || seen != before || now.Sub(asked) >= anyway {
			before, seen, asked = seen, n, now
			rep = r.ask(ctx, ask)
			r.health.Store(rep)
		}
		if ctx.Err() == nil {
			r.look(ctx, now, rep)
		}
	}
	if r.cfg.NodeCondition && r.written.status != "" {
		r.part(ctx, "node condition", func(ctx context.Context) error {
			return r.writeCondition(ctx, time.Now(), condition{"Unknown", "AgentStopped", "the agent was stopped; VPP goes on with what it has"})
		})
	}
	return ctx.Err()
}

// ask asks the agent. One that does not answer is not ready, and has nothing to say of objects.
func (r *Reporter) ask(ctx context.Context, ask func(context.Context) (*event.Report, error)) *event.Report {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rep, err := ask(ctx)
	if err != nil {
		return &event.Report{Waiting: "the agent does not answer: " + err.Error()}
	}
	return rep
}

// look tells what is due. While the agent is not ready, what it says of objects is of a state on the way: nothing of it begins or ends.
func (r *Reporter) look(ctx context.Context, now time.Time, rep *event.Report) {
	if r.cfg.NodeCondition {
		r.nodeCondition(ctx, now, rep)
	}
	if !rep.Ready {
		return
	}
	r.ledger.look(now, rep.Problems, r.nodes(), r.objects.Identity)
	if r.cfg.Events {
		r.tellEvents(ctx, now)
	}
	if r.cfg.Conditions {
		r.applyConditions(ctx, now, rep.Problems)
	}
}

func (r *Reporter) tellEvents(ctx context.Context, now time.Time) {
	for !now.Before(r.unheard.until) {
		s := r.ledger.next(now)
		if s == nil {
			return
		}
		err := r.attempt(ctx, "events", func(ctx context.Context) error { return r.tell(ctx, now, s) })
		r.unheard.result(now, err)
		switch {
		case err == nil:
			r.ledger.done(now, s)
		case final(err):
			r.ledger.refused(now, s)
		default:
			r.ledger.failed(now, s)
		}
	}
}

func (r *Reporter) applyConditions(ctx context.Context, now time.Time, problems []event.Problem) {
	for _, v := range r.verdicts.due(now, r.ledger, r.objects, problems) {
		if now.Before(r.unwritten.until) || !r.ledger.bucket.take(now) {
			return
		}
		r.unwritten.result(now, r.attempt(ctx, "policy conditions", func(ctx context.Context) error { return r.apply(ctx, now, &v) }))
	}
}

// nodes are the names of all Nodes.
func (r *Reporter) nodes() (out []string) {
	r.objects.Identities(func(_ model.Ref, id *kube.Identity) bool {
		out = append(out, id.Name)
		return true
	}, model.KindNode)
	return out
}

// attempt does something within a time, and logs an error that is not the one of the time before.
func (r *Reporter) attempt(ctx context.Context, what string, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := do(limited)
	if ctx.Err() != nil && err != nil {
		return err
	}
	r.mu.Lock()
	was := r.faults[what]
	r.faults[what] = text(err)
	r.mu.Unlock()
	switch is := text(err); {
	case is == was:
	case err != nil:
		r.log.Warn("not reported", "what", what, "err", err)
	default:
		r.log.Info("reported again", "what", what)
	}
	return err
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprint(err)
}
