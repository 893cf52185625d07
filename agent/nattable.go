package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// SessionCounter counts VPP's NAT44 sessions without stopping its forwarding; vpp.Stats implements it.
type SessionCounter interface {
	NAT44Sessions(ctx context.Context) (uint64, error)
}

// Thresholds of the NAT44 session table, in percent of its size.
const (
	natHolders = 50 // from here on the agent counts sessions per client
	natHigh    = 80 // from here on the agent frees sessions
	natFull    = 95 // from here on the agent is not ready
	natEnough  = 70 // the agent frees down to here
)

// DefaultPodSessionShare is the part of the table, in percent, that a pod keeps while the table is nearly full.
const DefaultPodSessionShare = 25

const (
	natTop        = 5 // shown holders
	holdersEvery  = time.Minute
	evictionShown = 10 * time.Minute
	// VPP does not forward while it counts or lists sessions: counting may take 0.5 % of its time, freeing 5 %.
	countRest, reliefRest = 200, 20
)

// NATTableStatus is the use of VPP's NAT44 session table, its holders, and the sessions that the agent freed.
type NATTableStatus struct {
	Used    uint64      `json:"used"`
	Limit   uint64      `json:"limit"`             // over all workers
	Holders []NATHolder `json:"holders,omitempty"` // clients with most sessions, largest first; from half of the table on
	Expired uint64      `json:"freedExpired"`      // expired sessions that the agent freed since it started
	Evicted uint64      `json:"freedEvicted"`      // other sessions that it freed, of pods above their share
	Full    bool        `json:"full,omitempty"`    // new connections through Services fail, or soon will
	Problem string      `json:"problem,omitempty"` // "": no problem
	Remark  string      `json:"remark,omitempty"`  // "" unless VPP's table has another size than configured
}

// NATHolder is a client whose connections have sessions.
type NATHolder struct {
	Addr     netip.Addr `json:"address"`
	Pod      string     `json:"pod,omitempty"` // namespace/name of a pod of this node; "": not a pod of this node
	Sessions uint64     `json:"sessions"`
}

// String returns "pod <namespace>/<name> (<address>) <sessions>", or without a pod "<address> <sessions>".
func (h NATHolder) String() string {
	if h.Pod != "" {
		return fmt.Sprintf("pod %s (%s) %d", h.Pod, h.Addr, h.Sessions)
	}
	return fmt.Sprintf("%s %d", h.Addr, h.Sessions)
}

// natTable watches the table. VPP frees an expired session when a new one begins, but checks its limit first: a full table
// stays full for new connections through Services (nat44_ed_out2in.c, VPP 24.06 to 26.06). So the agent frees some sessions
// earlier.
type natTable struct {
	p      *parts
	inLoop func(context.Context, func()) error        // calls a function in the controller's loop
	rest   func(context.Context, time.Duration) error // waits
	seen   atomic.Pointer[NATTableStatus]             // nil: not counted yet, or NAT44 is off
	own    natMemory
}

// natMemory is the state of the goroutine that watches the table.
type natMemory struct {
	counted time.Time // last count of holders
	evicted time.Time // last eviction of sessions
	from    string    // holders at the last eviction

	expiredSum, evictedSum uint64 // since the agent started
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// run watches the table until ctx ends.
func (n *natTable) run(ctx context.Context) error {
	for {
		rest, err := n.look(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, vpp.ErrDisconnected) {
			n.p.log.Debug("NAT sessions", "err", err)
		}
		if err := n.rest(ctx, max(n.p.cfg.SessionsEvery, rest)); err != nil {
			return err
		}
	}
}

// look counts sessions once, frees some if needed, and returns the pause until the next count.
func (n *natTable) look(ctx context.Context) (rest time.Duration, err error) {
	use, rest, err := n.count(ctx)
	if err != nil {
		n.seen.Store(nil) // VPP may have restarted
		return rest, err
	}
	m := n.p.metrics
	defer func() {
		m.sessions.Set(float64(use.Used))
		m.sessionsMax.Set(float64(use.Limit))
	}()
	if use.Limit == 0 {
		n.seen.Store(nil)
		m.holders.Reset()
		return rest, nil
	}
	st := NATTableStatus{}
	if last := n.seen.Load(); last != nil {
		st = *last
	}
	now := n.p.now()
	relief := vppagent.Relief{Workers: use.Workers, Share: use.Limit * uint64(n.p.podShare()) / 100, Pause: n.rest}
	switch {
	case use.Used*100 >= use.Limit*natHigh:
		relief.Want = use.Used - use.Limit*natEnough/100
	case use.Used*100 < use.Limit*natHolders:
		st.Holders = nil
		n.publish(st, use, now)
		return rest, nil
	case now.Sub(n.own.counted) < holdersEvery:
		n.publish(st, use, now)
		return rest, nil
	}
	busy, err := n.relieve(ctx, relief, &st, &use)
	n.publish(st, use, now)
	return max(rest, reliefRest*busy), err
}

// count reads the stats segment, or VPP's own count without one.
func (n *natTable) count(ctx context.Context) (use vppagent.SessionUse, rest time.Duration, err error) {
	if c := n.p.cfg.SessionCounter; c != nil {
		if use.Used, err = c.NAT44Sessions(ctx); err == nil {
			used := use.Used
			use, err = n.p.vppagent.SessionLimit(ctx)
			use.Used = used
			return use, 0, err
		}
	}
	start := n.p.now()
	use, err = n.p.vppagent.SessionUse(ctx)
	return use, countRest * n.p.now().Sub(start), err
}

// relieve frees sessions, or only counts sessions per client, and returns how long VPP was busy.
func (n *natTable) relieve(ctx context.Context, r vppagent.Relief, st *NATTableStatus, use *vppagent.SessionUse) (time.Duration, error) {
	pods, err := n.pods(ctx)
	if err != nil {
		return 0, err
	}
	if r.Want > 0 && n.p.podShare() < 100 {
		r.Evictable = func(a netip.Addr) bool { return pods[a] != "" }
	}
	done, err := n.p.vppagent.RelieveSessions(ctx, r)
	n.own.counted = n.p.now()
	st.Holders = nil
	for _, h := range done.Holders[:min(natTop, len(done.Holders))] {
		st.Holders = append(st.Holders, NATHolder{Addr: h.Addr, Pod: pods[h.Addr], Sessions: h.Sessions})
	}
	n.own.expiredSum += uint64(done.Expired)
	n.own.evictedSum += uint64(done.Evicted)
	use.Used -= min(use.Used, uint64(done.Expired+done.Evicted))
	n.p.metrics.freed.WithLabelValues("expired").Add(float64(done.Expired))
	n.p.metrics.freed.WithLabelValues("evicted").Add(float64(done.Evicted))
	if r.Want == 0 {
		return done.Busy, err
	}
	if done.Evicted > 0 {
		n.own.evicted, n.own.from = n.p.now(), holdersText(st.Holders)
	}
	n.p.log.Warn("NAT table nearly full", "used", done.Sessions, "limit", use.Limit, "expired", done.Expired, "evicted", done.Evicted,
		"holders", holdersText(st.Holders), "busy", done.Busy)
	return done.Busy, err
}

// pods returns the pods of this node by their addresses.
func (n *natTable) pods(ctx context.Context) (map[netip.Addr]string, error) {
	out := map[netip.Addr]string{}
	err := n.inLoop(ctx, func() {
		located := n.p.controller.Status().Located
		if located == nil {
			return
		}
		for a := range located.Pods {
			if pod, ok := n.p.processor.PodAt(a); ok {
				out[a] = pod.String()
			}
		}
	})
	return out, err
}

// publish publishes the state of the table after a round.
func (n *natTable) publish(st NATTableStatus, use vppagent.SessionUse, now time.Time) {
	st.Used, st.Limit, st.Expired, st.Evicted = use.Used, use.Limit, n.own.expiredSum, n.own.evictedSum
	st.Full, st.Problem = use.Used*100 >= use.Limit*natFull, ""
	state := fmt.Sprintf("%d of %d sessions (%d %%)", use.Used, use.Limit, use.Used*100/use.Limit)
	held := ""
	if len(st.Holders) > 0 {
		held = "; most by " + holdersText(st.Holders)
	}
	switch {
	case st.Full:
		st.Problem = state + ": new connections through Services fail; the agent finds no more sessions to free" + held + "; see --nat-sessions"
	case use.Used*100 >= use.Limit*natHigh:
		st.Problem = state + ": nearly full" + held
	case !n.own.evicted.IsZero() && now.Sub(n.own.evicted) < evictionShown:
		st.Problem = fmt.Sprintf("%s; at %s it was nearly full, and the agent freed the longest idle sessions of pods above %d %%; most had %s",
			state, n.own.evicted.UTC().Format(time.TimeOnly), n.p.podShare(), n.own.from)
	}
	st.Remark = n.otherSize(use)
	if last := n.seen.Load(); st.Remark != "" && (last == nil || last.Remark != st.Remark) {
		n.p.log.Warn("NAT table", "remark", st.Remark)
	}
	m := n.p.metrics
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
func (n *natTable) otherSize(use vppagent.SessionUse) string {
	want, has := uint64(n.p.cfg.NAT44.Sessions), use.Limit/uint64(max(1, use.Workers))
	if want == 0 || want == has {
		return ""
	}
	return fmt.Sprintf("--nat-sessions is %d, but VPP's table has room for %d sessions per worker since NAT44 was enabled: restart VPP to change the size, or remove the flag", want, has)
}

func holdersText(holders []NATHolder) string {
	var out []string
	for _, h := range holders {
		out = append(out, h.String())
	}
	return strings.Join(out, ", ")
}

// status adds the table to the agent's status: while it is full, the agent is not ready.
func (n *natTable) status(out *Status) {
	if n == nil {
		return
	}
	out.NAT = n.seen.Load()
	if out.NAT == nil || !out.NAT.Full {
		return
	}
	out.Ready = false
	if out.Waiting != "" {
		out.Waiting += "; "
	}
	out.Waiting += "NAT session table: " + out.NAT.Problem
}

func (p *parts) podShare() uint8 {
	if p.cfg.PodSessionShare == 0 {
		return DefaultPodSessionShare
	}
	return p.cfg.PodSessionShare
}
