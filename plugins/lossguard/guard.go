package lossguard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Defaults of the commands.
const (
	DefaultShare = 50
	DefaultLeast = 20
	DefaultFor   = 2 * time.Minute
)

// Config configures a Guard.
type Config struct {
	Limits
	// Record is the file that remembers between two runs of the agent how many objects each source had; "": none.
	Record string
	// Gone reports that a pod of a node is known to be disconnected, so that its removal is a fact; nil: of no pod.
	Gone   func(pod model.PodID, node string) bool
	Logger *slog.Logger     // nil: silent
	Now    func() time.Time // nil: time.Now
}

// Validate returns all errors of the limits.
func (l *Limits) Validate() error {
	var errs []error
	if l.Share < 1 || l.Share > 100 {
		errs = append(errs, fmt.Errorf("share of removals, %d %%: must be 1 to 100", l.Share))
	}
	if l.Least < 1 {
		errs = append(errs, fmt.Errorf("removals that are never held, fewer than %d: must be at least 1", l.Least))
	}
	if l.For < 0 {
		errs = append(errs, fmt.Errorf("time for which removals are held, %s: must not be negative", l.For))
	}
	return errors.Join(errs...)
}

// Guard stands between the sources and the loop. A nil *Guard holds nothing. It is safe for concurrent use.
type Guard struct {
	cfg     Config
	metrics metrics
	wake    chan struct{} // has one element if a time has changed
	status  atomic.Pointer[[]Held]

	mu      sync.Mutex // also the order in which changes are emitted
	emit    func(event.Event)
	sources map[string]*source
	record  record
}

// source is what the guard knows of a source.
type source struct {
	book   *book
	last   *event.SyncStatus // as the source sent it; nil: none
	synced bool              // its first InSync has passed
	late   *event.SyncStatus // its first InSync, which is held; nil: it is not
	since  time.Time         // late is held since then
	what   string            // what the source lacks
}

// Held describes what is held of one source.
type Held struct {
	Source  string
	What    string // "120 of 150 endpoints, 40 of 40 frontends"
	Since   time.Time
	Until   time.Time // zero: until they are confirmed
	Objects int       // whose removal is held
	AtStart bool      // the first sync is held, because the source has fewer objects than before the agent's restart
}

// String is one line for people.
func (h Held) String() string {
	text := fmt.Sprintf("the removal of %s at once is held", h.What)
	if h.AtStart {
		text = fmt.Sprintf("the first sync is held: the source lacks %s that the agent had before its restart", h.What)
	}
	if h.Until.IsZero() {
		return text + ", until contiv-agent release"
	}
	return text + ", until " + h.Until.Format(time.TimeOnly) + " or contiv-agent release"
}

// New returns a guard. Watch and Run start it.
func New(cfg Config) *Guard {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Guard{cfg: cfg, metrics: newMetrics(), wake: make(chan struct{}, 1), sources: map[string]*source{}}
}

// Watch returns an emit for sources: changes pass to the given emit, removals later if they are too many at once.
func (g *Guard) Watch(emit func(event.Event)) func(event.Event) {
	if g == nil {
		return emit
	}
	g.mu.Lock()
	g.emit = emit
	if err := g.record.openFile(g.cfg.Record); err != nil {
		g.cfg.Logger.Warn("the agent does not remember how many objects it had", "err", err)
	}
	g.mu.Unlock()
	return func(ev event.Event) {
		switch ev := ev.(type) {
		case *event.Update:
			g.passUpdate(ev)
		case *event.SyncStatus:
			g.sync(ev)
		default:
			emit(ev)
		}
	}
}

// Run releases removals when they are due, and keeps the record, until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	if g == nil {
		return nil
	}
	const every = 10 * time.Second
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			g.mu.Lock()
			defer g.mu.Unlock()
			return errors.Join(g.keepRecord(), g.record.closeFile())
		case <-g.wake:
		case <-timer.C:
		}
		next := g.tick()
		timer.Reset(max(0, min(every, next.Sub(g.cfg.Now()))))
	}
}

// Release lets everything pass that is held, and returns what it was.
func (g *Guard) Release() []Held {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.held()
	for _, name := range slices.Sorted(maps.Keys(g.sources)) {
		s := g.sources[name]
		if !s.book.since.IsZero() {
			g.pass(name, s.book.release(g.cfg.Now()), time.Time{})
		}
		g.letStart(s)
	}
	for _, h := range was {
		g.cfg.Logger.Warn("held removals are released by hand", "source", h.Source, "what", h.What)
	}
	g.publish()
	return was
}

// Held returns what is held now, by source.
func (g *Guard) Held() []Held {
	if g == nil {
		return nil
	}
	if held := g.status.Load(); held != nil {
		return *held
	}
	return nil
}

// ReleaseAll is Release with one line of text for each thing that was held.
func (g *Guard) ReleaseAll() (lines []string) {
	for _, h := range g.Release() {
		lines = append(lines, "source "+h.Source+": "+h.String())
	}
	return lines
}

// Register registers the metrics.
func (g *Guard) Register(r prometheus.Registerer) error {
	if g == nil {
		return nil
	}
	return r.Register(g.metrics)
}

func (g *Guard) source(name string) *source {
	s := g.sources[name]
	if s == nil {
		s = &source{book: newBook(&g.cfg.Limits, g.cfg.Gone)}
		g.sources[name] = s
	}
	return s
}

func (g *Guard) passUpdate(ev *event.Update) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.source(ev.Source)
	if !s.synced {
		s.book.recordAll(ev.Changes)
		g.emit(ev)
		if s.late != nil && g.record.lacks(ev.Source, s.book.have.classes, &g.cfg.Limits) == "" {
			g.letStart(s)
			g.publish()
		}
		return
	}
	pass := s.book.takeChanges(ev.Changes, g.cfg.Now())
	if len(pass) == len(ev.Changes) && len(pass) > 0 && &pass[0] == &ev.Changes[0] {
		g.emit(ev)
		return
	}
	g.pass(ev.Source, pass, ev.At)
	g.publish()
	g.awake()
}

// pass emits changes of a source, if there are any.
func (g *Guard) pass(source string, changes []event.Change, at time.Time) {
	if len(changes) > 0 {
		g.emit(&event.Update{Source: source, Changes: changes, At: at})
	}
}

// sync passes the state of a source. The first InSync waits while the source has far fewer objects than before the agent's restart: the loop removes
// from VPP what it does not know.
func (g *Guard) sync(ev *event.SyncStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.source(ev.Source)
	s.last = ev
	switch {
	case s.synced || ev.Status != event.InSync:
		g.announce(ev.Source)
		return
	case s.late != nil:
		s.late = ev
		return
	}
	if s.what = g.record.lacks(ev.Source, s.book.have.classes, &g.cfg.Limits); s.what == "" {
		s.synced = true
		g.emit(ev)
		return
	}
	s.late, s.since = ev, g.cfg.Now()
	g.publish()
	g.awake()
}

// announce emits the state of a source, with what the guard holds of it.
func (g *Guard) announce(name string) {
	s := g.sources[name]
	st := event.SyncStatus{Source: name, Status: event.InSync}
	if s.last != nil {
		st = *s.last
	}
	if s.late != nil {
		st.Status = event.ResyncInProgress
	}
	for _, h := range g.held() {
		if h.Source == name && st.Note != "" {
			st.Note += "; "
		}
		if h.Source == name {
			st.Note += h.String()
		}
	}
	g.emit(&st)
}

// letStart passes the first InSync of a source, if it is held.
func (g *Guard) letStart(s *source) {
	if s.late != nil {
		late := s.late
		s.late, s.synced = nil, true
		g.emit(late)
	}
}

// tick does what is due, and returns when it must be called again.
func (g *Guard) tick() (next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cfg.Now()
	next = now.Add(time.Hour)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.sources)) {
		s := g.sources[name]
		if s.late != nil && g.cfg.For > 0 {
			if due := s.since.Add(g.cfg.For); now.Before(due) {
				sooner(due)
			} else {
				g.letStart(s)
			}
		}
		var pass []event.Change
		if g.cfg.Gone != nil {
			pass = s.book.review(now)
		}
		g.pass(name, append(pass, s.book.decideHold(false, now)...), time.Time{})
		sooner(s.book.next())
		if g.cfg.Gone != nil && len(s.book.waiting) > 0 {
			sooner(now.Add(time.Second))
		}
	}
	if err := g.keepRecord(); err != nil {
		g.cfg.Logger.Warn("the agent does not remember how many objects it has", "err", err)
	}
	g.publish()
	return next
}

// keepRecord saves how many objects the sources have. Objects whose removal is held count, so that a restart of the agent is no confirmation.
func (g *Guard) keepRecord() error {
	var errs []error
	for name, s := range g.sources {
		if s.synced {
			errs = append(errs, g.record.save(name, s.book.have.classes))
		}
	}
	return errors.Join(errs...)
}

// awake makes Run look at the times again.
func (g *Guard) awake() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// held lists what is held. The caller holds mu.
func (g *Guard) held() (out []Held) {
	for _, name := range slices.Sorted(maps.Keys(g.sources)) {
		s := g.sources[name]
		h := Held{Source: name, What: s.what, Since: s.since, AtStart: true}
		switch {
		case s.late != nil:
		case !s.book.since.IsZero():
			h = Held{Source: name, What: s.book.measure(), Since: s.book.since, Objects: len(s.book.waiting)}
			if h.What == "" { // some of the removed objects are back
				h.What = fmt.Sprintf("%d objects", h.Objects)
			}
		default:
			continue
		}
		if g.cfg.For > 0 {
			h.Until = h.Since.Add(g.cfg.For)
		}
		out = append(out, h)
	}
	return out
}

// publish shows what is held, and logs and announces what changed.
func (g *Guard) publish() {
	was, now := g.Held(), g.held()
	if len(was)+len(now) == 0 && g.status.Load() != nil {
		return
	}
	g.status.Store(&now)
	g.metrics.show(now)
	of := func(list []Held, source string) bool {
		return slices.ContainsFunc(list, func(h Held) bool { return h.Source == source })
	}
	for _, h := range now {
		if !of(was, h.Source) {
			g.metrics.holds.Inc()
			g.cfg.Logger.Error("held", "source", h.Source, "what", h.String())
			g.announce(h.Source)
		}
	}
	for _, h := range was {
		if !of(now, h.Source) {
			g.cfg.Logger.Warn("no longer held", "source", h.Source, "what", h.What)
			g.announce(h.Source)
		}
	}
}
