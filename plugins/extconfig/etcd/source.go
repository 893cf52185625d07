package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// Number of keys per page, and pauses between attempts to reach etcd.
const (
	maxPage    = 1000
	firstPause = 250 * time.Millisecond
	maxPause   = 10 * time.Second
	// maxLogged bounds how many refused keys one change logs.
	maxLogged = 100
)

// Source is the configuration that an etcd stores for this node, as a source of external configuration.
type Source struct {
	cfg     Config
	log     *slog.Logger
	dial    func(context.Context) (reader, error)
	table   *table
	limit   int64 // keys of a page; smaller where values are long
	queue   *queue
	board   *board // nil: statuses are not written
	metrics *metrics
}

// New validates the configuration; the source does nothing before Run.
func New(cfg Config) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.StatusTTL == 0 {
		cfg.StatusTTL = 30 * time.Second
	}
	s := &Source{cfg: cfg, log: cfg.Logger, table: newTable(), limit: maxPage, queue: newQueue(), metrics: newMetrics()}
	s.dial = func(ctx context.Context) (reader, error) { return dial(ctx, &s.cfg) }
	if !cfg.NoStatus {
		s.board = newBoard(cfg.StatusTTL, s.log, s.metrics)
		s.board.dial = func(ctx context.Context) (writer, error) { return dial(ctx, &s.cfg) }
	}
	return s, nil
}

// String implements controller.ExternalConfigSource.
func (*Source) String() string { return Name }

// Show implements controller.Onlooker: this source uses only the states of Committed.
func (*Source) Show(func() []event.Value) {}

// Committed implements controller.Onlooker: it records the states of values.
func (s *Source) Committed(ev *event.Committed, _ func(key string) proto.Message) {
	if s.board != nil {
		s.board.committed(ev.Statuses)
	}
}

// Run follows etcd until ctx ends. A Source runs once.
//
//	etcd ─ Page, Watch ─▶ table ─ changes ─▶ queue ─▶ the controller's loop
//	  ▲                     └ rows ─▶ board ◀─ states ┘
//	  └────────── Write ──────────────┘
func (s *Source) Run(ctx context.Context, emit func(event.Event)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.queue.runQueue(ctx, func(ev *event.External) {
			if s.board != nil {
				s.board.ask(ctx, ev)
			}
		}, emit)
	})
	g.Go(func() error { return s.followConfig(ctx) })
	if s.cfg.StartWait > 0 {
		g.Go(func() error { return s.impatient(ctx) })
	}
	if s.board != nil {
		g.Go(func() error { return s.board.listen(ctx) })
		g.Go(func() error { return s.board.publishStatuses(ctx) })
	}
	return g.Wait()
}

// impatient lets the agent start without etcd after StartWait.
func (s *Source) impatient(ctx context.Context) error {
	timer := time.NewTimer(s.cfg.StartWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
		if note, first := s.queue.goOn(Name, fmt.Errorf("not read within %s", s.cfg.StartWait)); first {
			s.log.Warn("etcd", "note", note)
		}
	}
	return nil
}

// followConfig reads etcd's content and watches it, and starts again when either ends.
func (s *Source) followConfig(ctx context.Context) error {
	pause := firstPause
	for reported := ""; ; {
		read := false
		err := s.session(ctx, func() { read, reported = true, "" })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.metrics.connected.Set(0)
		if read {
			pause = firstPause
		}
		if err.Error() != reported { // the source reports once that etcd is away
			reported = err.Error()
			s.log.Warn("etcd", "endpoints", s.cfg.Endpoints, "err", err)
			s.say(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = backoff.Range{Min: firstPause, Max: maxPause}.Next(pause)
	}
}

// say reports the state of the source. After the first full read, an absent etcd does not stop the agent: VPP keeps its
// configuration.
func (s *Source) say(err error) {
	st := &event.SyncStatus{Source: Name, Status: event.InSync, Note: s.table.remark()}
	switch {
	case err != nil && s.metrics.resynced():
		st.Note = joinErrors("etcd is away, its values stay as they are: "+err.Error(), st.Note)
	case err != nil:
		st = &event.SyncStatus{Source: Name, Status: event.WaitForReady, Err: err}
	}
	s.queue.status(st)
}

func joinErrors(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// session is one connection: it reads everything, sends the differences, and then every change. It always ends with an error.
func (s *Source) session(ctx context.Context, ready func()) error {
	r, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	began := time.Now()
	rev, err := s.load(ctx, r)
	if err != nil {
		return err
	}
	first := !s.metrics.resynced()
	s.metrics.loaded(rev)
	n := s.deliver(first)
	s.say(nil)
	s.log.Info("etcd", "endpoints", s.cfg.Endpoints, "revision", rev, "keys", len(s.table.entries), "refused", len(s.table.bad), "changes", n, "took", time.Since(began))
	ready()
	err = r.Watch(ctx, rev, func(rev int64, pairs []pair) {
		s.metrics.countChange(rev)
		refused := s.table.remark()
		for _, p := range pairs {
			s.table.setPair(p)
		}
		s.deliver(false)
		if s.table.remark() != refused {
			s.say(nil)
		}
	})
	if err == nil {
		err = errLost
	}
	return err
}

// load updates the table with etcd's content at one revision, page by page.
func (s *Source) load(ctx context.Context, r reader) (rev int64, err error) {
	s.table.beginRead()
	for from := ""; ; {
		p, err := r.Page(ctx, from, s.limit, rev)
		switch {
		case errors.Is(err, errPageTooLong) && s.limit > 1:
			s.limit = max(1, s.limit/4)
			continue
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			s.limit = max(1, s.limit/4) // for the next attempt, which may reach another member
			return 0, fmt.Errorf("no answer within %s", requestTimeout)
		case err != nil:
			return 0, err
		}
		if rev == 0 {
			rev = p.rev
		}
		for _, kv := range p.pairs {
			s.table.setPair(kv)
		}
		if !p.more || len(p.pairs) == 0 {
			s.table.endRead()
			return rev, nil
		}
		from = p.pairs[len(p.pairs)-1].key + "\x00" // the next possible key
		s.limit = min(2*s.limit, maxPage)
	}
}

// deliver sends the changes, and returns the number of their values. The first call sends everything.
func (s *Source) deliver(first bool) int {
	c := s.table.takeChanges()
	s.refusals(c.rows)
	if s.board != nil {
		s.board.rows(c.rows)
	}
	s.metrics.stored(len(s.table.entries), len(s.table.bad))
	if first {
		maps.DeleteFunc(c.values, func(_ string, msg proto.Message) bool { return msg == nil })
	} else if len(c.values) == 0 {
		return 0
	}
	ev := event.ExternalConfigChange(Name, c.values)
	ev.Merge, ev.Resync = c.merge, first
	s.queue.addChange(ev)
	return len(c.values)
}

// refusals logs the keys whose value is refused.
func (s *Source) refusals(rows map[string]row) {
	logged, more := 0, 0
	for _, raw := range slices.Sorted(maps.Keys(rows)) {
		r := rows[raw]
		switch {
		case r.err == nil:
			continue
		case logged < maxLogged:
			logged++
			s.log.Warn("etcd: refused", "key", raw, "err", r.err)
		default:
			more++
		}
		s.metrics.refused.Inc()
	}
	if more > 0 {
		s.log.Warn("etcd: refused", "more", more)
	}
}
