package owner

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// rivalsEvery is the period in which the agent lists VPP's clients.
const rivalsEvery = 30 * time.Second

// Rivals looks for agents that do not see this agent's lock, because they have another folder at the same path, or no lock. VPP lists
// its clients by name. VPP may list an ended agent for a moment, so only two looks in a row find a rival.
type Rivals struct {
	VPP     vppagent.Caller
	Self    string // this agent's name in VPP's list
	Logger  *slog.Logger
	Changed func() // called when Problem changes

	seen atomic.Pointer[string] // nil: not checked yet
}

// Run looks until ctx ends.
func (r *Rivals) Run(ctx context.Context) error {
	tick := time.NewTicker(rivalsEvery)
	defer tick.Stop()
	before := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		before = r.Look(ctx, before)
	}
}

// Look looks once. before is the result of the previous look, found the result of this one.
func (r *Rivals) Look(ctx context.Context, before bool) (found bool) {
	ctx, cancel := context.WithTimeout(ctx, rivalsEvery/2)
	defer cancel()
	names, err := descriptor.ClientNames(r.VPP.Do(ctx, descriptor.Clients())[0])
	if err != nil {
		return before
	}
	why := rival(names, r.Self)
	if why != "" && !before {
		return true
	}
	if was := r.seen.Swap(&why); (was == nil || *was != why) && (was != nil || why != "") {
		r.Logger.Warn("another agent programs VPP", "rival", why)
		r.Changed()
	}
	return why != ""
}

// Problem returns why another agent is a rival; "": no rival was found. It is safe for concurrent use.
func (r *Rivals) Problem() string {
	if why := r.seen.Load(); why != nil {
		return *why
	}
	return ""
}

// rival returns the client that programs the same part as the client of that name, which is one of names; "": none.
func rival(names []string, self string) string {
	whole := func(name string) bool { return name == vpp.DefaultClientName }
	at := slices.Index(names, self)
	if at < 0 {
		return "" // VPP truncated the name, or does not list clients
	}
	for i, name := range names {
		if i != at && IsAgent(name) && (whole(name) || whole(self) || name == self) {
			return fmt.Sprintf("another agent, which does not see this agent's lock, is connected to this VPP: each reverts the other's changes (VPP's client %q; "+
				"end one, or give both the same folder at --vpp-lock)", name)
		}
	}
	return ""
}

// IsAgent reports whether the client of VPP with that name is an agent.
func IsAgent(name string) bool {
	return name == vpp.DefaultClientName || strings.HasPrefix(name, vpp.DefaultClientName+"/")
}
