package manifest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/stdin"
)

// Name is the name of this source in events.
const Name = "manifest"

// Config selects what to read.
type Config struct {
	Paths    []string      // folders, files, and "-" for standard input; at least one
	Stdin    io.Reader     // what "-" reads; nil: os.Stdin
	Watch    bool          // after the first reading, follow changes of files and folders
	Debounce time.Duration // how long files must be quiet before they are read again; 0: 50 ms
	Keys     bool          // also encode every object as Calico's datastore stores it (event.Change.Keys)
	Logger   *slog.Logger  // nil: silent. The source does not log refused objects: changes carry their errors.
}

// Validate returns all problems of the configuration.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Paths) == 0 {
		errs = append(errs, errors.New("manifest: no paths given"))
	}
	if slices.Contains(c.Paths, "") {
		errs = append(errs, errors.New("manifest: a path is empty"))
	}
	if c.Debounce < 0 {
		errs = append(errs, errors.New("manifest: debounce must not be negative"))
	}
	return errors.Join(errs...)
}

// Source follows manifests. Create with New, start with Run; a Source runs once.
type Source struct {
	cfg   Config
	log   *slog.Logger
	tree  tree
	sent  sent
	emit  func(event.Event)
	fault string // error of the last sync status
}

// New returns a source; cfg must be valid.
func New(cfg Config) *Source {
	if cfg.Stdin == nil {
		cfg.Stdin = os.Stdin
	}
	if cfg.Debounce == 0 {
		cfg.Debounce = 50 * time.Millisecond
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Source{cfg: cfg, log: log.With("source", Name), tree: tree{files: map[string]*file{}}, sent: sent{}}
}

// Run reads everything and emits it as one update between the sync states resync and in-sync. Without Watch it then returns
// nil. With Watch it emits an update per change until ctx is done, and returns ctx's error. A path that is missing at the
// start is an error. A path that disappears later yields a sync status with an error, and the objects read from it stay.
// Only the goroutine of Run calls emit.
func (s *Source) Run(ctx context.Context, emit func(event.Event)) error {
	if err := s.cfg.Validate(); err != nil {
		return err
	}
	s.emit, s.cfg.Stdin = emit, stdin.Until(ctx, s.cfg.Stdin)
	emit(&event.SyncStatus{Source: Name, Status: event.WaitForReady})
	var w *watcher
	if s.cfg.Watch {
		var err error
		if w, err = newWatcher(s.cfg.Paths); err != nil {
			return err
		}
		defer w.close()
	}
	if _, err := s.tree.scan(&s.cfg, w, nil); err != nil {
		return err
	}
	emit(&event.SyncStatus{Source: Name, Status: event.ResyncInProgress})
	s.publishChanges()
	emit(&event.SyncStatus{Source: Name, Status: event.InSync})
	if w == nil {
		return nil
	}
	return s.followFiles(ctx, w)
}

// followFiles reads again once touched files have been quiet for the debounce time. It reads continuously written files after
// twenty such times.
func (s *Source) followFiles(ctx context.Context, w *watcher) error {
	touched := map[string]bool{}
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	var deadline time.Time
	wake := func(d time.Duration) {
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(20 * s.cfg.Debounce)
		}
		quiet.Reset(max(0, min(d, deadline.Sub(now))))
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case name, ok := <-w.touched:
			if !ok {
				return errors.New("manifest: the file watcher ended")
			}
			if s.tree.cares(name, s.cfg.Paths) {
				touched[name] = true
				wake(s.cfg.Debounce)
			}
		case <-quiet.C:
			deadline = time.Time{}
			again, err := s.tree.scan(&s.cfg, w, touched)
			clear(touched)
			s.publishChanges()
			s.report(err)
			if again {
				wake(10 * s.cfg.Debounce)
			}
		}
	}
}

// report emits a status when a path becomes unreadable, and another when it is readable again.
func (s *Source) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == s.fault {
		return
	}
	s.fault = text
	s.emit(&event.SyncStatus{Source: Name, Status: event.InSync, Err: err})
}

// publishChanges emits the changes since the last update, if any.
func (s *Source) publishChanges() {
	for _, f := range s.tree.sorted() {
		if f.logged {
			continue
		}
		f.logged = true
		for _, text := range f.parsed.warnings {
			s.log.Warn(text)
		}
		for _, kind := range slices.Sorted(maps.Keys(f.parsed.ignored)) {
			s.log.Debug("kind not read", "file", f.path, "kind", kind, "objects", f.parsed.ignored[kind])
		}
	}
	if changes := s.sent.diff(s.tree.objectChanges()); len(changes) > 0 {
		s.emit(&event.Update{Source: Name, Changes: changes, At: time.Now()})
	}
}
