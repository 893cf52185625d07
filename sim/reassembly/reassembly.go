// Package reassembly turns the fragments of IPv4 datagrams into the order in which NAT44 of VPP translates them, and into the header by
// which it does: shallow virtual reassembly (ip4_sv_reass.c of VPP 24.06 to 26.06).
//
//	first fragment ─────────────▶ passes, behind those that wait for it
//	later fragment ─ first known ▶ passes
//	               └ else ───────▶ waits, or is dropped: too many wait, or the time is up
//
// Invariant: what passes has the header of the first fragment that came, whatever a second first fragment says. Entries of a Table are
// not changed, so that a Clone is a copy of its state.
package reassembly

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// Limits of a Table.
type Limits struct {
	Timeout time.Duration // since the last fragment of a datagram
	Most    int           // datagrams: the next one ends the oldest; 0: any number
	Waiting int           // fragments of one datagram that wait for its first one
}

// Defaults returns the limits of a VPP that starts.
func Defaults() Limits { return Limits{Timeout: 100 * time.Millisecond, Most: 1024, Waiting: 3} }

// Table has the datagrams of which fragments came of late. T is what is known about a fragment that waits. It is not safe for concurrent
// use.
type Table[T any] struct {
	Limits Limits
	Host   Host // for datagrams to VPP itself
	by     map[key]*entry[T]
	order  []key // as they were made
}

// key is ip4_sv_reass_key_t.
type key struct {
	table    uint32 // of the incoming interface
	src, dst netip.Addr
	proto    model.Protocol
	id       uint16
}

type entry[T any] struct {
	heard time.Time
	first *packet.Packet // nil: it has not come
	held  []T            // that wait for it
}

// New returns an empty table with the default limits.
func New[T any]() *Table[T] {
	return &Table[T]{Limits: Defaults(), Host: newHost(), by: map[key]*entry[T]{}}
}

// Clone returns a copy.
func (t *Table[T]) Clone() *Table[T] {
	return &Table[T]{t.Limits, t.Host.clone(), maps.Clone(t.by), slices.Clone(t.order)}
}

// SetLimits sets the limits of shallow virtual reassembly or, full, those of datagrams to VPP itself. Of IPv6 only the latter have an effect.
func (t *Table[T]) SetLimits(full, v6 bool, l Limits) {
	switch {
	case full:
		t.Host.limits[slot(v6)] = l
	case !v6:
		t.Limits = l
	}
}

// Verdict is what happens to a fragment: it passes with the header First, behind those that waited; or it waits; or it is dropped.
type Verdict[T any] struct {
	First  *packet.Packet
	Waited []T
	Waits  bool
	Why    string // of a drop
}

// Arrive processes a fragment that came by an interface of a table at a time; now is what is known about it.
func (t *Table[T]) Arrive(table uint32, p *packet.Packet, at time.Time, now T) Verdict[T] {
	k := key{table, p.Src, p.Dst, p.Proto, p.Fragment.ID}
	d := entry[T]{}
	if old := t.by[k]; old != nil && at.After(old.heard.Add(t.Limits.Timeout)) {
		t.forgetDatagram(k)
	} else if old != nil {
		d = *old
	}
	d.heard = at
	switch {
	case d.first != nil:
		t.recordDatagram(k, &d)
		return Verdict[T]{First: d.first}
	case !p.Fragment.Later() && !hasPorts(p):
		t.forgetDatagram(k)
		return Verdict[T]{Why: "no ports (unsupported ip protocol)"}
	case !p.Fragment.Later():
		first := p.Clone()
		t.recordDatagram(k, &entry[T]{heard: at, first: &first})
		return Verdict[T]{First: &first, Waited: d.held}
	case len(d.held) >= t.Limits.Waiting:
		t.forgetDatagram(k)
		return Verdict[T]{Why: fmt.Sprintf("%d fragments without the first one (fragment chain too long)", len(d.held)+1)}
	}
	d.held = append(slices.Clone(d.held), now)
	t.recordDatagram(k, &d)
	return Verdict[T]{Waits: true}
}

func (t *Table[T]) recordDatagram(k key, d *entry[T]) {
	if t.by[k] == nil {
		if t.Limits.Most > 0 && len(t.order) >= t.Limits.Most {
			t.forgetDatagram(t.order[0])
		}
		t.order = append(t.order, k)
	}
	t.by[k] = d
}

func (t *Table[T]) forgetDatagram(k key) {
	delete(t.by, k)
	t.order = slices.DeleteFunc(t.order, func(o key) bool { return o == k })
}

// Together runs the packets of a vector, as VPP does: each node processes all of them, in order, before another node does. A run calls
// pause where a node ends.
func Together[T any](vector []T, run func(p T, pause func())) {
	var running []func() (struct{}, bool)
	for _, p := range vector {
		next, stop := iter.Pull(func(yield func(struct{}) bool) { run(p, func() { yield(struct{}{}) }) })
		defer stop() // of use if a run panics
		running = append(running, next)
	}
	for len(running) > 0 {
		running = slices.DeleteFunc(running, func(next func() (struct{}, bool)) bool {
			_, more := next()
			return !more
		})
	}
}

// hasPorts reports whether ip4_get_port finds both ports.
func hasPorts(p *packet.Packet) bool {
	return (p.Proto == model.TCP || p.Proto == model.UDP) && p.SrcPort != 0 && p.DstPort != 0 || p.IsEcho() && p.ICMPID != 0
}
