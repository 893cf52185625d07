package typha

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
)

// Name is the name of this source in events.
const Name = "typha"

// Source follows servers for an agent. Create with New, start with Run; a Source runs once.
type Source struct {
	cfg       Config
	translate *translator
	emit      func(event.Event)
	status    event.Sync
	emitted   string
}

// New returns a source. Run reports problems of cfg.
func New(cfg Config) *Source { return &Source{cfg: cfg, translate: newTranslator()} }

// Run follows servers until ctx is done, and returns ctx's error. An invalid configuration is the only other reason to
// return. Run emits the sync states wait-for-ready, resync when a server has begun to send, one update with everything, and
// in-sync; then updates as changes arrive. If no server is reachable, Run emits a sync status with the error and keeps the
// state; a status without error follows when a server is in sync again. Only the goroutine of Run calls emit.
func (s *Source) Run(ctx context.Context, emit func(event.Event)) error {
	s.emit = emit
	if err := s.cfg.Validate(); err != nil {
		return err
	}
	s.emitStatus(nil)
	return NewClient(s.cfg, wire.Felix, false).Follow(ctx, s.emitBatch, s.emitStatus)
}

// emitBatch converts a batch to events and emits them.
func (s *Source) emitBatch(b wire.Batch) {
	if b.Status > wire.WaitForDatastore && s.status == event.WaitForReady {
		s.status = event.ResyncInProgress
		s.emitStatus(nil)
	}
	if changes := s.translate.objectChanges(b.KVs); len(changes) > 0 {
		s.emit(&event.Update{Source: Name, Changes: changes, At: time.Now()})
	}
	if b.Status == wire.InSync && s.status != event.InSync {
		s.status = event.InSync
		s.emitStatus(nil)
	}
}

// emitStatus emits the sync status if it differs from the last one.
func (s *Source) emitStatus(err error) {
	text := s.status.String()
	if err != nil {
		text += err.Error()
	}
	if text != s.emitted {
		s.emitted = text
		s.emit(&event.SyncStatus{Source: Name, Status: s.status, Err: err})
	}
}
