// Package quarantine finds the values whose requests end VPP, and keeps them out: all else must be served.
//
//	end of VPP ─▶ the values of the unanswered requests are suspects: from now on their requests are sent alone
//	                  ├▶ VPP has the value: it is acquitted
//	                  └▶ VPP ends with a request of this value alone, for the second time: the value is in quarantine
//
// Invariant: a value is in quarantine only if the connection ended twice while VPP had requests of this value alone, with no success in between.
package quarantine

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// Caller sends requests to VPP in order and returns one reply per request. *vpp.Conn is one.
type Caller interface {
	Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply
}

// Config configures a Ward.
type Config struct {
	File   string           // remembers suspects and quarantine between two runs of the agent; "": none
	Logger *slog.Logger     // nil: silent
	Now    func() time.Time // nil: time.Now
}

// Ward has the suspects and the values in quarantine. A nil *Ward suspects nothing. It is safe for concurrent use.
type Ward struct {
	cfg     Config
	metrics metrics

	mu      sync.Mutex
	loaded  bool
	entries map[string]*entry // by key of the value
	lost    bool              // the connection has ended, and the sender does not know yet
}

// entry is what is known of a value.
type entry struct {
	Key     string    `json:"key"`
	Form    uint64    `json:"form,omitempty"` // hash of the value; 0: not known yet
	Strikes int       `json:"strikes"`        // ends of the connection with unanswered requests of the value alone
	Out     bool      `json:"out,omitempty"`  // it is in quarantine
	At      time.Time `json:"at"`             // the last of these ends
}

// Error is the refusal of a value in quarantine.
type Error struct{ At time.Time }

// Error names the reason, and the two ways out.
func (e *Error) Error() string {
	return fmt.Sprintf("in quarantine: VPP ended twice when it got this, last at %s; a change of the object, or contiv-agent release, lets it in again", e.At.Format(time.RFC3339))
}

// New returns a ward. It reads the file at its first use.
func New(cfg Config) *Ward {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Ward{cfg: cfg, metrics: newMetrics(), entries: map[string]*entry{}}
}

// Around returns a caller that sends requests of suspects alone, and notes which requests the end of a connection left unanswered. Calls name their values
// in For.
func (w *Ward) Around(inner Caller) Caller {
	if w == nil {
		return inner
	}
	return &caller{w, inner}
}

// Refuse returns an error if a value is in quarantine, otherwise the given reason not to send it now. A value that differs from the one that was put there
// is let in.
func (w *Ward) Refuse(reason error, key string, state any, message func(state any) proto.Message) error {
	if w == nil {
		return reason
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.load()
	e := w.entries[key]
	if e == nil {
		return reason
	}
	form := hash(kv.Format(key, message(state)))
	if e.Form == 0 {
		e.Form = form
	}
	if e.Form != form {
		if e.Out {
			w.cfg.Logger.Warn("released from quarantine: the object changed", "key", key)
		}
		w.forget(key)
		return reason
	}
	if e.Out {
		return &Error{e.At}
	}
	return reason
}

// Acquit notes that VPP has a value.
func (w *Ward) Acquit(key string) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries[key] != nil {
		w.forget(key)
	}
}

// Lost notes that the sender knows of the end of the connection; nil: it did not end. It returns err.
func (w *Ward) Lost(err error) error {
	if w == nil || err == nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = false
	return err
}

// ReleaseAll forgets all suspects and lets all values in again, and returns one line for each value that was in quarantine. The agent tries them within a
// minute.
func (w *Ward) ReleaseAll() (lines []string) {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.load()
	for _, e := range w.entries {
		if e.Out {
			lines = append(lines, e.Key+": "+(&Error{e.At}).Error())
			w.cfg.Logger.Warn("released from quarantine by hand", "key", e.Key)
		}
	}
	clear(w.entries)
	w.save()
	slices.Sort(lines)
	return lines
}

// Register registers the metrics.
func (w *Ward) Register(r prometheus.Registerer) error {
	if w == nil {
		return nil
	}
	return r.Register(w.metrics)
}

// forget removes an entry. The file follows when no suspect is left, or at the next end of the connection.
func (w *Ward) forget(key string) {
	out := w.entries[key].Out
	delete(w.entries, key)
	suspects := 0
	for _, e := range w.entries {
		if !e.Out {
			suspects++
			break
		}
	}
	if suspects == 0 || out {
		w.save()
	}
}

// suspects reports that one of the calls is for a suspect.
func (w *Ward) suspects(calls []vpp.Call) bool {
	return slices.ContainsFunc(calls, func(c vpp.Call) bool { return c.For != "" && w.entries[c.For] != nil })
}

// strike notes the values of unanswered requests. Alone: VPP had no request of another value, unless they were joined.
func (w *Ward) strike(keys []string, alone bool) {
	slices.Sort(keys)
	keys = slices.Compact(keys)
	w.lost, alone = true, alone || len(keys) == 1
	for _, key := range keys {
		e := w.entries[key]
		if e == nil {
			e = &entry{Key: key}
			w.entries[key] = e
		}
		e.At = w.cfg.Now()
		if alone {
			e.Strikes++
		}
		if e.Strikes > 1 && !e.Out {
			e.Out = true
			w.metrics.total.Inc()
			w.cfg.Logger.Error("quarantine", "key", key, "why", (&Error{e.At}).Error())
		}
	}
	w.save()
}

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return max(h.Sum64(), 1)
}

// caller is the caller around another one.
type caller struct {
	w     *Ward
	inner Caller
}

// Do sends calls: those of suspects one at a time, all others as they are.
func (c *caller) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	c.w.mu.Lock()
	c.w.load()
	plain := !c.w.suspects(calls)
	c.w.mu.Unlock()
	if plain {
		return c.send(ctx, calls, false)
	}
	out := make([]vpp.Reply, 0, len(calls))
	for begin := 0; begin < len(calls); {
		end, alone := c.part(calls, begin)
		out = append(out, c.send(ctx, calls[begin:end], alone)...)
		begin = end
	}
	return out
}

// part returns the end of the calls from begin that are sent together, and whether they are of a suspect. Joined calls stay together.
func (c *caller) part(calls []vpp.Call, begin int) (end int, alone bool) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	joined := func(i int) int { // the end of the joined calls from i
		for i < len(calls)-1 && calls[i].Joined {
			i++
		}
		return i + 1
	}
	for end = begin; end < len(calls); {
		next := joined(end)
		if c.w.suspects(calls[end:next]) {
			if end == begin {
				return next, true
			}
			return end, false
		}
		end = next
	}
	return end, false
}

// send sends calls together. After the end of a connection it sends nothing until the sender knows of it.
func (c *caller) send(ctx context.Context, calls []vpp.Call, alone bool) []vpp.Reply {
	c.w.mu.Lock()
	lost := c.w.lost
	c.w.mu.Unlock()
	if lost {
		out := make([]vpp.Reply, len(calls))
		for i := range out {
			out[i].Err = vpp.ErrDisconnected
		}
		return out
	}
	replies := c.inner.Do(ctx, calls...)
	if ctx.Err() != nil {
		return replies
	}
	var keys []string
	for i := range replies {
		if calls[i].For != "" && errors.Is(replies[i].Err, vpp.ErrDisconnected) {
			keys = append(keys, calls[i].For)
		}
	}
	if len(keys) > 0 {
		c.w.mu.Lock()
		defer c.w.mu.Unlock()
		c.w.strike(keys, alone)
	}
	return replies
}
