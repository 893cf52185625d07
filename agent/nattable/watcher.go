// Package nattable watches VPP's NAT44 session table: it counts sessions, names the clients with most of them, and frees some before
// the table is full.
//
// Invariant: the watcher frees an unexpired session only of a pod above its share, and only while the table is nearly full.
package nattable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// SessionCounter counts VPP's NAT44 sessions without stopping its forwarding; stats.Reader implements it.
type SessionCounter interface {
	NAT44Sessions(ctx context.Context) (uint64, error)
}

// Thresholds of the NAT44 session table, in percent of its size.
const (
	countFrom  = 50 // from here on the agent counts sessions per client
	nearlyFull = 80 // from here on the agent frees sessions
	full       = 95 // from here on the agent is not ready
	enough     = 70 // the agent frees down to here
)

// DefaultPodShare is the part of the table, in percent, that a pod keeps while the table is nearly full.
const DefaultPodShare = 25

const (
	mostHolders   = 5 // shown holders
	holdersEvery  = time.Minute
	evictionShown = 10 * time.Minute
	// VPP does not forward while it counts or lists sessions: counting may take 0.5 % of its time, freeing 5 %.
	countRest, reliefRest = 200, 20
)

// Watcher watches the table. VPP frees an expired session when a new one begins, but checks its limit first: a full table
// stays full for new connections through Services (nat44_ed_out2in.c, VPP 24.06 to 26.06). So the agent frees some sessions
// earlier.
type Watcher struct {
	Config
	seen atomic.Pointer[Status] // nil: not counted yet, or NAT44 is off
	// drained and lost are Status.Drained and Status.Lost.
	drained, lost atomic.Uint64
	own           memory
}

// Config configures a Watcher.
type Config struct {
	Table   Table
	Counter SessionCounter // nil: Table counts, which stops VPP's forwarding
	// Pods returns the pods of this node by their addresses.
	Pods func(context.Context) (map[netip.Addr]string, error)
	// Rest waits, or returns an error if the context ends.
	Rest func(context.Context, time.Duration) error
	// Every is the shortest period of Run.
	Every time.Duration
	// Sessions is the configured size of the table for each worker; 0: any.
	Sessions uint32
	// PodShare is the part of the table, in percent, that a pod keeps while the table is nearly full. 0: DefaultPodShare; 100: all.
	PodShare uint8
	Now      func() time.Time
	Logger   *slog.Logger
	Metrics  *Metrics
}

// Table is VPP's session table; vppagent.Agent implements it.
type Table interface {
	// SessionLimit returns the size of the table. SessionUse also counts the sessions.
	SessionLimit(ctx context.Context) (vppagent.SessionUse, error)
	SessionUse(ctx context.Context) (vppagent.SessionUse, error)
	// RelieveSessions counts sessions by client and frees some.
	RelieveSessions(ctx context.Context, r vppagent.Relief) (vppagent.Relieved, error)
}

// New returns a Watcher that has not counted yet.
func New(cfg Config) *Watcher {
	if cfg.PodShare == 0 {
		cfg.PodShare = DefaultPodShare
	}
	return &Watcher{Config: cfg}
}

// Status returns the table as it was at the last count; nil: it was not counted, or NAT44 is off. It is safe for concurrent use. A nil
// Watcher has no status.
func (n *Watcher) Status() *Status {
	if n == nil {
		return nil
	}
	st := n.seen.Load()
	if st == nil {
		return nil
	}
	now := *st
	now.Drained, now.Lost = n.drained.Load(), n.lost.Load()
	return &now
}

// Drained counts endpoints that VPP drains since a change of their mapping, and those that it could not drain. Any goroutine may call it; a nil Watcher counts
// nothing.
func (n *Watcher) Drained(drained, lost int) {
	if n == nil {
		return
	}
	n.drained.Add(uint64(drained))
	n.lost.Add(uint64(lost))
	if n.Metrics != nil {
		n.Metrics.drains.WithLabelValues("drained").Add(float64(drained))
		n.Metrics.drains.WithLabelValues("not drained").Add(float64(lost))
	}
}

// Used is the number of sessions at the last count; false: not known. Any goroutine may call it.
func (n *Watcher) Used() (int, bool) {
	st := n.Status()
	if st == nil {
		return 0, false
	}
	return int(st.Used), true
}

// memory is the state of the goroutine that watches the table.
type memory struct {
	counted time.Time // last count of holders
	evicted time.Time // last eviction of sessions
	from    string    // holders at the last eviction

	expiredSum, evictedSum uint64 // since the agent started
}

// Run watches the table until ctx ends.
func (n *Watcher) Run(ctx context.Context) error {
	for {
		rest, err := n.Look(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, vpp.ErrDisconnected) {
			n.Logger.Debug("NAT sessions", "err", err)
		}
		if err := n.Rest(ctx, max(n.Every, rest)); err != nil {
			return err
		}
	}
}

// Look counts sessions once, frees some if needed, and returns the pause until the next count.
func (n *Watcher) Look(ctx context.Context) (rest time.Duration, err error) {
	use, rest, err := n.countSessions(ctx)
	if err != nil {
		n.seen.Store(nil) // VPP may have restarted
		return rest, err
	}
	m := n.Metrics
	defer func() {
		m.sessions.Set(float64(use.Used))
		m.limit.Set(float64(use.Limit))
	}()
	if use.Limit == 0 {
		n.seen.Store(nil)
		m.holders.Reset()
		return rest, nil
	}
	st := Status{}
	if last := n.seen.Load(); last != nil {
		st = *last
	}
	now := n.Now()
	relief := vppagent.Relief{Workers: use.Workers, Share: use.Limit * uint64(n.PodShare) / 100, Pause: n.Rest}
	switch {
	case use.Used*100 >= use.Limit*nearlyFull:
		relief.Want = use.Used - use.Limit*enough/100
	case use.Used*100 < use.Limit*countFrom:
		st.Holders = nil
		n.publishTable(st, use, now)
		return rest, nil
	case now.Sub(n.own.counted) < holdersEvery:
		n.publishTable(st, use, now)
		return rest, nil
	}
	busy, err := n.relieve(ctx, relief, &st, &use)
	n.publishTable(st, use, now)
	return max(rest, reliefRest*busy), err
}

// countSessions reads the stats segment, or VPP's own count without one.
func (n *Watcher) countSessions(ctx context.Context) (use vppagent.SessionUse, rest time.Duration, err error) {
	if c := n.Counter; c != nil {
		if use.Used, err = c.NAT44Sessions(ctx); err == nil {
			used := use.Used
			use, err = n.Table.SessionLimit(ctx)
			use.Used = used
			return use, 0, err
		}
	}
	start := n.Now()
	use, err = n.Table.SessionUse(ctx)
	return use, countRest * n.Now().Sub(start), err
}

// relieve frees sessions, or only counts sessions per client, and returns how long VPP was busy.
func (n *Watcher) relieve(ctx context.Context, r vppagent.Relief, st *Status, use *vppagent.SessionUse) (time.Duration, error) {
	pods, err := n.Pods(ctx)
	if err != nil {
		return 0, err
	}
	if r.Want > 0 && n.PodShare < 100 {
		r.Evictable = func(a netip.Addr) bool { return pods[a] != "" }
	}
	done, err := n.Table.RelieveSessions(ctx, r)
	n.own.counted = n.Now()
	st.Holders = nil
	for _, h := range done.Holders[:min(mostHolders, len(done.Holders))] {
		st.Holders = append(st.Holders, Holder{Addr: h.Addr, Pod: pods[h.Addr], Sessions: h.Sessions})
	}
	n.own.expiredSum += uint64(done.Expired)
	n.own.evictedSum += uint64(done.Evicted)
	use.Used -= min(use.Used, uint64(done.Expired+done.Evicted))
	n.Metrics.freed.WithLabelValues("expired").Add(float64(done.Expired))
	n.Metrics.freed.WithLabelValues("evicted").Add(float64(done.Evicted))
	if r.Want == 0 {
		return done.Busy, err
	}
	if done.Evicted > 0 {
		n.own.evicted, n.own.from = n.Now(), holdersText(st.Holders)
	}
	n.Logger.Warn("NAT table nearly full", "used", done.Sessions, "limit", use.Limit, "expired", done.Expired, "evicted", done.Evicted,
		"holders", holdersText(st.Holders), "busy", done.Busy)
	return done.Busy, err
}

// publishTable publishes the state of the table after a round.
func (n *Watcher) publishTable(st Status, use vppagent.SessionUse, now time.Time) {
	st.Used, st.Limit, st.Expired, st.Evicted = use.Used, use.Limit, n.own.expiredSum, n.own.evictedSum
	st.Full, st.Problem = use.Used*100 >= use.Limit*full, ""
	state := fmt.Sprintf("%d of %d sessions (%d %%)", use.Used, use.Limit, use.Used*100/use.Limit)
	held := ""
	if len(st.Holders) > 0 {
		held = "; most by " + holdersText(st.Holders)
	}
	switch {
	case st.Full:
		st.Problem = state + ": new connections through Services fail; the agent finds no more sessions to free" + held + "; see --nat-sessions"
	case use.Used*100 >= use.Limit*nearlyFull:
		st.Problem = state + ": nearly full" + held
	case !n.own.evicted.IsZero() && now.Sub(n.own.evicted) < evictionShown:
		st.Problem = fmt.Sprintf("%s; at %s it was nearly full, and the agent freed the longest idle sessions of pods above %d %%; most had %s",
			state, n.own.evicted.UTC().Format(time.TimeOnly), n.PodShare, n.own.from)
	}
	st.Remark = n.otherSize(use)
	if last := n.seen.Load(); st.Remark != "" && (last == nil || last.Remark != st.Remark) {
		n.Logger.Warn("NAT table", "remark", st.Remark)
	}
	m := n.Metrics
	m.holders.Reset()
	for i, h := range st.Holders { // without names and addresses: everyone who reaches the listener reads metrics
		kind := "other"
		if h.Pod != "" {
			kind = "pod"
		}
		m.holders.WithLabelValues(strconv.Itoa(i+1), kind).Set(float64(h.Sessions))
	}
	n.seen.Store(&st)
}

// otherSize returns a remark if VPP's table has another size than configured; "": it has not.
func (n *Watcher) otherSize(use vppagent.SessionUse) string {
	want, has := uint64(n.Sessions), use.Limit/uint64(max(1, use.Workers))
	if want == 0 || want == has {
		return ""
	}
	return fmt.Sprintf("--nat-sessions is %d, but VPP's table has room for %d sessions per worker since NAT44 was enabled: restart VPP to change the size, or remove the flag", want, has)
}
