package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"k8s.io/client-go/dynamic"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

const (
	interval = 5 * time.Second  // between two looks at the agent's report
	anyway   = time.Minute      // between two requests for it if nothing has changed
	patience = 10 * time.Second // limit for one answer
)

// Config selects what to report, and for which node.
type Config struct {
	Node string // this node's name; must not be empty
	// Events reports problems of Services and policies as Events.
	Events bool
	// Conditions also reports the problems of policies as conditions, where the policy's API has them.
	Conditions bool
	// LeaseNamespace is the namespace of the node's Lease; "": no Lease.
	LeaseNamespace string
	// NodeCondition writes on the Node whether the agent is ready.
	NodeCondition bool
	// Pods says that the agent connects the node's pods. With NodeCondition it then also writes, once it is ready, that the network of the Node is available:
	// a cloud may have said that it is not, and no pod is scheduled there until that changes. The agent never says that it is not: VPP
	// forwards without it.
	Pods   bool
	Logger *slog.Logger // nil: silent
}

// Any reports whether the configuration selects anything.
func (c *Config) Any() bool {
	return c.Events || c.Conditions || c.LeaseNamespace != "" || c.NodeCondition
}

// Validate returns all problems of the configuration.
func (c *Config) Validate() error {
	if c.Node == "" {
		return errors.New("report: the node must have a name")
	}
	return nil
}

// Objects looks up the identities of objects. *kube.Source implements it for objects it reads itself, and Named for objects
// that another source sends.
type Objects interface {
	Identity(model.Ref) (kube.Identity, bool)
	Identities(visit func(model.Ref, *kube.Identity) bool, kinds ...model.Kind)
}

// Reporter reports an agent's problems to the API server. Create with New, start with Run; a Reporter runs once.
type Reporter struct {
	cfg     Config
	log     *slog.Logger
	objects Objects
	connect func() (api.Client, dynamic.Interface, error)
	client  api.Client
	dynamic dynamic.Interface
	health  atomic.Pointer[event.Report] // the last report of the agent

	mu     sync.Mutex
	faults map[string]string // the last error of each operation

	// Owned by the goroutine of Run.
	ledger   *ledger
	verdicts verdicts
	written  written
	unready  time.Time // since when the Node should have a worse condition

	nodeBackoff, eventBackoff, policyBackoff backoff.Timer // back-off of the Node's condition, of Events, of policy conditions
}

// New returns a reporter on the objects of a source. It gets a separate client from connect.
func New(cfg Config, objects Objects, connect func() (api.Client, dynamic.Interface, error)) *Reporter {
	r := &Reporter{cfg: cfg, log: cfg.Logger, objects: objects, connect: connect, faults: map[string]string{}, ledger: newLedger(cfg.Node)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Run reports until ctx ends, and returns ctx's error. It calls ask once a minute while changes returns the same number,
// else every 5 s. It logs a failure once and retries. An invalid configuration or a failed connect are the only other
// reasons to return.
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
		// Ask once more after a change: the agent may not have processed it yet.
		if n := changes(); rep == nil || n != seen || seen != before || now.Sub(asked) >= anyway {
			before, seen, asked = seen, n, now
			rep = r.ask(ctx, ask)
			r.health.Store(rep)
		}
		if ctx.Err() == nil {
			r.sendDue(ctx, now, rep)
		}
	}
	if r.cfg.NodeCondition && r.written.status != "" {
		r.part(ctx, "node condition", func(ctx context.Context) error {
			return r.writeCondition(ctx, time.Now(), condition{"Unknown", "AgentStopped", "the agent was stopped; VPP keeps its configuration"})
		})
	}
	return ctx.Err()
}

// ask gets the agent's report. An agent that does not answer is not ready and reports no objects.
func (r *Reporter) ask(ctx context.Context, ask func(context.Context) (*event.Report, error)) *event.Report {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rep, err := ask(ctx)
	if err != nil {
		return &event.Report{Waiting: "the agent does not answer: " + err.Error()}
	}
	return rep
}

// sendDue sends what is due. While the agent is not ready, its problems of objects are transient: none of them begins or ends.
func (r *Reporter) sendDue(ctx context.Context, now time.Time, rep *event.Report) {
	if r.cfg.NodeCondition {
		r.nodeCondition(ctx, now, rep)
	}
	if !rep.Ready {
		return
	}
	r.ledger.recordProblems(now, rep.Problems, r.nodes(), r.objects.Identity)
	if r.cfg.Events {
		r.sendEvents(ctx, now)
	}
	if r.cfg.Conditions {
		r.applyConditions(ctx, now, rep.Problems)
	}
}

func (r *Reporter) sendEvents(ctx context.Context, now time.Time) {
	for r.eventBackoff.Due(now) {
		s := r.ledger.nextStatement(now)
		if s == nil {
			return
		}
		err := r.attempt(ctx, "events", func(ctx context.Context) error { return r.sendEvent(ctx, now, s) })
		record(&r.eventBackoff, now, err)
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
		if !r.policyBackoff.Due(now) || !r.ledger.bucket.takeToken(now) {
			return
		}
		record(&r.policyBackoff, now, r.attempt(ctx, "policy conditions", func(ctx context.Context) error { return r.applyCondition(ctx, now, &v) }))
	}
}

// nodes returns the names of all Nodes.
func (r *Reporter) nodes() (out []string) {
	r.objects.Identities(func(_ model.Ref, id *kube.Identity) bool {
		out = append(out, id.Name)
		return true
	}, model.KindNode)
	return out
}

// attempt runs do with a time limit, and logs its error if the error differs from the last one.
func (r *Reporter) attempt(ctx context.Context, what string, do func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := do(limited)
	if ctx.Err() != nil && err != nil {
		return err
	}
	r.mu.Lock()
	was := r.faults[what]
	r.faults[what] = errorText(err)
	r.mu.Unlock()
	switch is := errorText(err); {
	case is == was:
	case err != nil:
		r.log.Warn("not reported", "what", what, "err", err)
	default:
		r.log.Info("reported again", "what", what)
	}
	return err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprint(err)
}
