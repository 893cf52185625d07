package vppagent

import (
	"context"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// SessionUse is the use of VPP's NAT44 session table.
type SessionUse = sessions.Use

// SessionUse counts the NAT44 sessions. It is safe beside Run. VPP stops forwarding while it counts, so call it rarely.
func (a *Agent) SessionUse(ctx context.Context) (SessionUse, error) {
	if err := a.away(); err != nil {
		return SessionUse{}, err
	}
	return sessions.Count(ctx, a.cfg.Caller.Do)
}

// SessionLimit is SessionUse without the count, which costs VPP nothing.
func (a *Agent) SessionLimit(ctx context.Context) (SessionUse, error) {
	if err := a.away(); err != nil {
		return SessionUse{}, err
	}
	return sessions.Limit(ctx, a.cfg.Caller.Do)
}

// Reclassify is whether VPP evaluates established flows again when access lists change.
type Reclassify = acl.Reclassify

// The values of Reclassify.
const (
	ReclassifyUnknown = acl.ReclassifyUnknown
	ReclassifyOn      = acl.ReclassifyOn
	ReclassifyOff     = acl.ReclassifyOff
)
