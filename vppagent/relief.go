package vppagent

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/sessions"
)

// Relief configures how RelieveSessions frees NAT44 sessions before the table is full.
type Relief struct {
	Workers int    // number of VPP's NAT44 workers
	Want    uint64 // number of sessions to free; 0: only count holders
	Share   uint64 // sessions of a holder above which its longest idle ones may be freed
	// Evictable chooses the holders whose idle sessions may be freed; nil: none. RelieveSessions calls it with every holder above Share.
	Evictable func(netip.Addr) bool
	// Pause waits for the duration while VPP forwards; its error ends the relief.
	Pause func(context.Context, time.Duration) error
}

// Relieved is the result of RelieveSessions.
type Relieved struct {
	Sessions uint64          // in the table before the relief
	Holders  []SessionHolder // by sessions before the relief, largest first
	Expired  int             // freed sessions that had expired
	Evicted  int             // freed sessions that had not expired, of holders above their share
	Busy     time.Duration   // time that VPP spent on the requests
}

// SessionHolder is an address that opened connections with NAT44 sessions.
type SessionHolder struct {
	Addr     netip.Addr
	Sessions uint64
}

const (
	// reliefSlice is the number of sessions that one write to VPP's socket frees: about 2 ms of VPP's time.
	reliefSlice = 256
	// lookedAt is the share of the table, in percent, whose holders are counted: the rest belongs to many users with few sessions
	// each, and VPP walks the whole table for each user.
	lookedAt = 95
	// restAfterDump is the pause after a list of sessions, in multiples of the time that the list took.
	restAfterDump = 4
)

// RelieveSessions frees sessions: first expired ones, of the users with most sessions first. If those are too few, it frees the
// longest idle sessions of holders above their share, down to that share. Any other session stays. It is safe beside Run.
//
// VPP does nothing else while it lists or frees sessions. So RelieveSessions lists the sessions of one user after the other and
// frees them in slices, with pauses in between.
func (a *Agent) RelieveSessions(ctx context.Context, r Relief) (Relieved, error) {
	if err := a.away(); err != nil {
		return Relieved{}, err
	}
	run := relief{Relief: r, a: a, held: map[netip.Addr][]sessions.Session{}, count: map[netip.Addr]uint64{}}
	err := run.relieveAll(ctx)
	run.done.Holders = run.holders()
	return run.done, err
}

// relief is a running RelieveSessions.
type relief struct {
	Relief
	a     *Agent
	done  Relieved
	count map[netip.Addr]uint64             // by holder
	held  map[netip.Addr][]sessions.Session // by holder, unexpired only
}

func (r *relief) freed() uint64 { return uint64(r.done.Expired + r.done.Evicted) }

// ask sends VPP a request and pauses after it.
func (r *relief) ask(ctx context.Context, rest int, what func() error) error {
	start := r.a.cfg.Now()
	if err := what(); err != nil {
		return err
	}
	took := r.a.cfg.Now().Sub(start)
	r.done.Busy += took
	return r.Pause(ctx, time.Duration(rest)*took)
}

func (r *relief) relieveAll(ctx context.Context) error {
	var users []sessions.User
	if err := r.ask(ctx, 1, func() (err error) {
		users, err = sessions.Users(ctx, r.a.cfg.Caller.Do)
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

// user frees the expired sessions of a user, up to the wanted number, and records the others.
func (r *relief) user(ctx context.Context, u sessions.User) error {
	var list []sessions.Session
	if err := r.ask(ctx, restAfterDump, func() (err error) {
		list, err = sessions.Of(ctx, r.a.cfg.Caller.Do, u, r.Workers)
		return err
	}); err != nil {
		return err
	}
	var expired []sessions.Session
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

// evict frees the sessions of holders beyond their share, up to the wanted number.
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
		slices.SortStableFunc(held, func(a, b sessions.Session) int { return cmp.Compare(b.Idle, a.Idle) })
		if err := r.free(ctx, held[:uint64(len(held))-r.Share], &r.done.Evicted); err != nil {
			return err
		}
	}
	return nil
}

// holders returns the holders of the sessions in the examined part of the table.
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

func (r *relief) free(ctx context.Context, list []sessions.Session, count *int) error {
	for slice := range slices.Chunk(list, reliefSlice) {
		if err := r.ask(ctx, 1, func() error {
			n, err := sessions.Free(ctx, r.a.cfg.Caller.Do, slice)
			*count += n
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
