package vppagent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// SessionUse is how full VPP's NAT44 session table is.
type SessionUse = descriptor.SessionUse

// SessionUse counts the NAT44 sessions. It is safe beside Run; VPP stops forwarding while it counts, so ask rarely.
func (a *Agent) SessionUse(ctx context.Context) (SessionUse, error) {
	if err := a.away(); err != nil {
		return SessionUse{}, err
	}
	return descriptor.Sessions(ctx, a.cfg.Caller.Do)
}

// SessionLimit is SessionUse without the count, which costs VPP nothing.
func (a *Agent) SessionLimit(ctx context.Context) (SessionUse, error) {
	if err := a.away(); err != nil {
		return SessionUse{}, err
	}
	return descriptor.SessionLimit(ctx, a.cfg.Caller.Do)
}

// Reclassify reports whether VPP judges established flows again when access lists change.
type Reclassify = descriptor.Reclassify

// What VPP may say.
const (
	ReclassifyUnknown = descriptor.ReclassifyUnknown
	ReclassifyOn      = descriptor.ReclassifyOn
	ReclassifyOff     = descriptor.ReclassifyOff
)
