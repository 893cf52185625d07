package vppagent

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
)

// Relief says how to free NAT44 sessions before the table is full.
type Relief struct {
	Workers int    // how many VPP has for NAT44
	Want    uint64 // how many sessions to free; 0: only count holders
	Share   uint64 // how many sessions a holder may have before its longest idle ones may be freed
	// Evictable chooses the holders this is done to; nil: no one. It is called with every holder above Share.
	Evictable func(netip.Addr) bool
	// Pause waits that long while VPP forwards; its error ends the relief.
	Pause func(context.Context, time.Duration) error
}

// Relieved is what a Relief found and did.
type Relieved struct {
	Sessions uint64          // in the table, before
	Holders  []SessionHolder // by sessions before, largest first
	Expired  int             // sessions freed that had expired
	Evicted  int             // sessions freed that had not, of holders above their share
	Busy     time.Duration   // how long VPP was asked
}

// SessionHolder is who opened connections that have NAT44 sessions.
type SessionHolder struct {
	Addr     netip.Addr
	Sessions uint64
}

const (
	// reliefSlice is how many sessions one write to VPP's socket frees: about 2 ms of VPP's time.
	reliefSlice = 256
	// lookedAt is the part of the table, in percent, whose holders are counted: the rest is many users with few sessions each, and
	// VPP walks the whole table for each.
	lookedAt = 95
	// restAfterDump is how long VPP forwards after a list of sessions, in multiples of the time that it took.
	restAfterDump = 4
)

// RelieveSessions frees sessions: those that have expired, of the users with most sessions first, and if there are not enough of them
// the longest idle ones of holders above their share, down to that share. Any other session stays. It is safe beside Run.
//
// VPP does nothing else while it lists sessions or frees them; so sessions are listed for one user after the other and freed in
// slices, with pauses in between.
func (a *Agent) RelieveSessions(ctx context.Context, r Relief) (Relieved, error) {
	if err := a.away(); err != nil {
		return Relieved{}, err
	}
	run := relief{Relief: r, a: a, held: map[netip.Addr][]nat.Session{}, count: map[netip.Addr]uint64{}}
	err := run.all(ctx)
	run.done.Holders = run.holders()
	return run.done, err
}

// relief is one that runs.
type relief struct {
	Relief
	a     *Agent
	done  Relieved
	count map[netip.Addr]uint64        // by holder
	held  map[netip.Addr][]nat.Session // by holder, those that have not expired
}

func (r *relief) freed() uint64 { return uint64(r.done.Expired + r.done.Evicted) }

// ask makes VPP do something and lets it rest after.
func (r *relief) ask(ctx context.Context, rest int, what func() error) error {
	start := r.a.cfg.Now()
	if err := what(); err != nil {
		return err
	}
	took := r.a.cfg.Now().Sub(start)
	r.done.Busy += took
	return r.Pause(ctx, time.Duration(rest)*took)
}

func (r *relief) all(ctx context.Context) error {
	var users []nat.SessionUser
	if err := r.ask(ctx, 1, func() (err error) {
		users, err = nat.SessionUsers(ctx, r.a.cfg.Caller.Do)
		return err
	}); err != nil {
		return err
	}
	for _, u := range users {
		r.done.Sessions += u.Sessions
	}
	var looked uint64
	for _, u := range users {
		if looked*100 >= r.done.Sessions*lookedAt && r.freed() >= r.Want {
			return nil
		}
		looked += u.Sessions
		if err := r.user(ctx, u); err != nil {
			return err
		}
	}
	return r.evict(ctx)
}

// user frees the expired sessions of a user, as long as more are wanted, and remembers the others.
func (r *relief) user(ctx context.Context, u nat.SessionUser) error {
	var list []nat.Session
	if err := r.ask(ctx, restAfterDump, func() (err error) {
		list, err = nat.SessionsOf(ctx, r.a.cfg.Caller.Do, u, r.Workers)
		return err
	}); err != nil {
		return err
	}
	var expired []nat.Session
	for _, s := range list {
		r.count[s.Holder]++
		switch {
		case s.Expired:
			expired = append(expired, s)
		case r.Evictable != nil:
			r.held[s.Holder] = append(r.held[s.Holder], s)
		}
	}
	if missing := r.Want - min(r.Want, r.freed()); uint64(len(expired)) > missing {
		expired = expired[:missing]
	}
	return r.free(ctx, expired, &r.done.Expired)
}

// evict frees what holders have beyond their share, if more is wanted.
func (r *relief) evict(ctx context.Context) error {
	if r.Evictable == nil {
		return nil
	}
	for _, h := range r.holders() {
		held := r.held[h.Addr]
		if r.freed() >= r.Want {
			return nil
		}
		if uint64(len(held)) <= r.Share || !r.Evictable(h.Addr) {
			continue
		}
		slices.SortStableFunc(held, func(a, b nat.Session) int { return cmp.Compare(b.Idle, a.Idle) })
		if err := r.free(ctx, held[:uint64(len(held))-r.Share], &r.done.Evicted); err != nil {
			return err
		}
	}
	return nil
}

// holders is who has sessions in the part of the table that was looked at.
func (r *relief) holders() []SessionHolder {
	out := make([]SessionHolder, 0, len(r.count))
	for a, n := range r.count {
		out = append(out, SessionHolder{a, n})
	}
	slices.SortFunc(out, func(a, b SessionHolder) int {
		return cmp.Or(cmp.Compare(b.Sessions, a.Sessions), a.Addr.Compare(b.Addr))
	})
	return out
}

func (r *relief) free(ctx context.Context, sessions []nat.Session, count *int) error {
	for slice := range slices.Chunk(sessions, reliefSlice) {
		if err := r.ask(ctx, 1, func() error {
			n, err := nat.FreeSessions(ctx, r.a.cfg.Caller.Do, slice)
			*count += n
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
