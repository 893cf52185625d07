package cni

import (
	"context"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

const (
	// recordsEvery is the pause between two reads of the folder with recorded DELs. A plugin that found no agent although one had just
	// begun to listen leaves a record only when it is killed.
	recordsEvery = time.Minute
	// retryEvery is the pause while recorded DELs fail.
	retryEvery = 5 * time.Second
)

// Run carries out recorded DELs until ctx ends. The agent calls it after it has begun to listen: a plugin that finds no listener then has
// written its record before Run reads the folder, and any other plugin reaches the agent.
func (s *Server) Run(ctx context.Context) {
	failed := s.replay(ctx)
	if ctx.Err() == nil {
		close(s.started)
	}
	for {
		pause := recordsEvery
		if failed {
			pause = retryEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.owed:
			timer.Stop()
		case <-timer.C:
		}
		failed = s.replay(ctx)
	}
}

// replay carries out all recorded DELs, and reports whether one failed.
func (s *Server) replay(ctx context.Context) (failed bool) {
	if s.cfg.Spool == "" {
		return false
	}
	list, err := protocol.Spool{Dir: s.cfg.Spool}.Read(time.Now())
	if err != nil {
		s.cfg.Logger.Warn("recorded DELs", "error", err)
	}
	left := len(list)
	for _, r := range list {
		if ctx.Err() != nil {
			return true
		}
		if err := s.replayOne(ctx, r); err != nil {
			s.cfg.Logger.Warn("recorded DEL failed, and is repeated", "attachment", r.Attachment.String(), "error", err)
			failed = true
			continue
		}
		left--
	}
	s.metrics.owed.Set(float64(left))
	return failed
}

// replayOne carries out a recorded DEL, unless a call for the attachment was faster.
func (s *Server) replayOne(ctx context.Context, r protocol.Request) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DeleteLimit)
	defer cancel()
	return s.inTurn(ctx, r.Attachment, false, false, func(ctx context.Context) error {
		if !(protocol.Spool{Dir: s.cfg.Spool}).Has(r.Attachment) {
			return nil
		}
		return s.delete(ctx, r)
	})
}

// owe records a DEL that failed and that nobody else repeats.
func (s *Server) owe(r protocol.Request, why error) {
	log := s.cfg.Logger.With("attachment", r.Attachment.String(), "error", why)
	if s.cfg.Spool == "" {
		log.Warn("an attachment is not deleted: a GC or the next DEL does it")
		return
	}
	if err := (protocol.Spool{Dir: s.cfg.Spool}).Record(r); err != nil {
		log.Warn("an attachment is not deleted, and that cannot be recorded: a GC or the next DEL does it", "record", err)
		return
	}
	log.Warn("an attachment is not deleted yet: the agent repeats it")
	select {
	case s.owed <- struct{}{}:
	default: // Run is awake already
	}
}
