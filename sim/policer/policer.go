// Package policer models VPP's policer: token buckets with names, and the interfaces whose packets they limit. It turns requests and packets into
// return values and verdicts.
//
// Invariant: a bucket of one rate and two colours (1R2C) never lets more bytes pass than its burst and its rate times the time. The other kinds of
// buckets are refused. An Engine is not safe for concurrent use.
package policer

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"
)

// Return values of VPP 24.06 (vnet/error.h).
const (
	noSuchEntry  int32 = -6
	invalidValue int32 = -7
	valueExists  int32 = -81
	noIndex            = ^uint32(0)
	bitsPerKbit        = 1000
)

// Trap is a request or packet that VPP does not survive.
type Trap string

// Error is the trap's text.
func (t Trap) Error() string { return string(t) }

// The traps (policer.c policer_input, node_funcs.c vnet_policer_inline, VPP 25.10).
const (
	TrapNone    Trap = "policer_input: removed from an interface that never had a policer"
	TrapFreed   Trap = "policer: a packet meets a policer that is deleted"
	TrapRemoved Trap = "policer: a packet meets a policer that was applied twice and removed once"
)

// Place is a direction of an interface.
type Place struct {
	Interface uint32
	Output    bool
}

// bucket is a policer.
type bucket struct {
	index  uint32
	config policer.PolicerAddDel
	tokens float64 // bytes
	last   time.Time
}

// use is what VPP keeps of a place: how often the node is on the arc, and the policer.
type use struct {
	times int
	of    *bucket
}

// Engine is the policers of a VPP.
type Engine struct {
	named map[string]*bucket
	at    map[Place]*use
	freed map[*bucket]bool
	count uint32
}

// New returns an engine without policers.
func New() *Engine {
	return &Engine{named: map[string]*bucket{}, at: map[Place]*use{}, freed: map[*bucket]bool{}}
}

// AddDel is policer_add_del.
func (e *Engine) AddDel(m *policer.PolicerAddDel) *policer.PolicerAddDelReply {
	b := e.named[m.Name]
	r := &policer.PolicerAddDelReply{PolicerIndex: noIndex}
	switch {
	case !m.IsAdd && b == nil:
		r.Retval = noSuchEntry
	case !m.IsAdd:
		e.freed[b] = true
		delete(e.named, m.Name)
	case b != nil:
		r.Retval = valueExists
	case m.Type != policer_types.SSE2_QOS_POLICER_TYPE_API_1R2C, m.RateType != policer_types.SSE2_QOS_RATE_API_KBPS, m.Cir == 0 && m.Cb > 0, m.Eir > 0, m.Eb > 0:
		r.Retval = invalidValue
	default:
		r.PolicerIndex = e.count
		e.named[m.Name] = &bucket{index: e.count, config: *m, tokens: float64(m.Cb)}
		e.count++
	}
	return r
}

// Apply is policer_input and policer_output.
func (e *Engine) Apply(name string, p Place, apply bool) (retval int32) {
	b, u := e.named[name], e.at[p]
	switch {
	case b == nil:
		return noSuchEntry
	case u == nil && !apply:
		panic(TrapNone)
	case u == nil:
		u = &use{}
		e.at[p] = u
	}
	if apply {
		u.times, u.of = u.times+1, b
	} else {
		u.times, u.of = max(u.times-1, 0), nil
	}
	return 0
}

// Deleted notes that an interface is deleted: VPP takes the nodes off its arcs.
func (e *Engine) Deleted(index uint32) {
	for _, out := range []bool{false, true} {
		if u := e.at[Place{index, out}]; u != nil {
			u.times = 0
		}
	}
}

// On reports whether packets meet a policer at a place.
func (e *Engine) On(p Place) bool { return e.at[p] != nil && e.at[p].times > 0 }

// Passes decides about a packet of so many bytes.
func (e *Engine) Passes(p Place, bytes int, now time.Time) bool {
	u := e.at[p]
	switch {
	case u.of == nil:
		panic(TrapRemoved)
	case e.freed[u.of]:
		panic(TrapFreed)
	}
	b := u.of
	for range u.times {
		if !b.last.IsZero() {
			b.tokens = min(float64(b.config.Cb), b.tokens+now.Sub(b.last).Seconds()*float64(b.config.Cir)*bitsPerKbit/8)
		}
		b.last = now
		if b.tokens < float64(bytes) {
			return false
		}
		b.tokens -= float64(bytes)
	}
	return true
}

// Each calls f for every policer.
func (e *Engine) Each(f func(*policer.PolicerDetails)) {
	for _, b := range slices.SortedFunc(maps.Values(e.named), func(a, b *bucket) int { return int(a.index) - int(b.index) }) {
		c := &b.config
		f(&policer.PolicerDetails{
			Name: c.Name, Cir: c.Cir, Cb: c.Cb, RateType: c.RateType, RoundType: c.RoundType, Type: c.Type, SingleRate: true,
			ConformAction: c.ConformAction, ExceedAction: c.ExceedAction, ViolateAction: c.ViolateAction,
		})
	}
}

// Lines describe the policers and where they are, sorted.
func (e *Engine) Lines(name func(index uint32) string) (lines []string) {
	e.Each(func(d *policer.PolicerDetails) {
		lines = append(lines, fmt.Sprintf("policer %q %d kbit/s burst %d bytes\n", d.Name, d.Cir, d.Cb))
	})
	for p, u := range e.at {
		if u.times > 0 && u.of != nil {
			lines = append(lines, fmt.Sprintf("policer %q on %s output %t\n", u.of.config.Name, name(p.Interface), p.Output))
		}
	}
	slices.Sort(lines)
	return lines
}
