package typha

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/fanout/wire"
)

// Name is what this source calls itself in events.
const Name = "typha"

// Source follows servers for an agent. Create with New, start with Run; a Source runs once.
type Source struct {
	cfg       Config
	translate *translator
	emit      func(event.Event)
	status    event.Sync
	said      string
}

// New makes a source; what is wrong with cfg is told by Run.
func New(cfg Config) *Source { return &Source{cfg: cfg, translate: newTranslator()} }

// Run follows servers until ctx is done, and returns its error; a configuration that is wrong is the only other reason to
// return. It emits the sync states wait-for-ready, resync when a server has begun, one update with everything, in-sync; then
// updates as they come. Servers that cannot be reached are told by a sync status that carries the error and leaves the state as
// it is; another one without error follows when one is in sync again. emit is only ever called from the goroutine of Run.
func (s *Source) Run(ctx context.Context, emit func(event.Event)) error {
	s.emit = emit
	if err := s.cfg.Validate(); err != nil {
		return err
	}
	s.say(nil)
	return NewClient(s.cfg, wire.Felix, false).Follow(ctx, s.took, s.say)
}

// took turns a batch into events.
func (s *Source) took(b wire.Batch) {
	if b.Status > wire.WaitForDatastore && s.status == event.WaitForReady {
		s.status = event.ResyncInProgress
		s.say(nil)
	}
	if changes := s.translate.changes(b.KVs); len(changes) > 0 {
		s.emit(&event.Update{Source: Name, Changes: changes, At: time.Now()})
	}
	if b.Status == wire.InSync && s.status != event.InSync {
		s.status = event.InSync
		s.say(nil)
	}
}

// say emits the sync status if it is not what was said last.
func (s *Source) say(err error) {
	text := s.status.String()
	if err != nil {
		text += err.Error()
	}
	if text != s.said {
		s.said = text
		s.emit(&event.SyncStatus{Source: Name, Status: s.status, Err: err})
	}
}
