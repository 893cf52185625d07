// Package conflict turns what a change opens and closes at interfaces into the interfaces whose openings must wait for closings.
//
//	packet ─▶ input of one interface: egress of its source ─▶ output of another: egress again, ingress of its destination
//
// Interfaces change one after the other. A packet that one interface begins to permit before another begins to deny it would pass although the
// states before and after deny it. This needs a packet that both changes concern: its source is behind the first interface and its
// destination behind the second one.
//
// Invariant: two changes that may concern one packet conflict. The answer may only err on that side: sets of addresses are never too small.
package conflict

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Hook is an interface of VPP, as a place where packets enter and leave.
type Hook struct {
	Name string
	// Addrs are the addresses behind the interface. Nil is any address.
	Addrs []netip.Addr
	// Checked: every packet that enters has one of Addrs as source, before and after the change.
	Checked bool
}

// Shift is one kind of packets that a change begins to permit, or to deny, at some inputs or outputs.
type Shift struct {
	Table  string // name of the access list that makes it, or another name of the cause
	Output bool   // where packets leave VPP
	Opens  bool   // the change permits the packets; false: it denies them
	Egress bool   // a rule of the egress of the packets' source
	Peers  *Peers // destinations of the packets at an input, their sources at an output
	Hooks  []*Hook
}

// World has facts about addresses.
type World struct {
	// StandIns are sources that NAT may give to any packet that reaches an output.
	StandIns []netip.Addr
	// Dialled returns the addresses that NAT may replace by a, except those that inputs permit regardless of policies. Nil: none.
	Dialled func(a netip.Addr) []netip.Addr
}

// DialledIn returns World.Dialled for services at addresses that are no cluster IPs. The table is made at the first use.
func DialledIn(outer []dataplane.Outer) func(netip.Addr) []netip.Addr {
	by := sync.OnceValue(func() map[netip.Addr][]netip.Addr {
		out := map[netip.Addr][]netip.Addr{}
		for k := range outer {
			for _, b := range outer[k].Backends {
				if !slices.Contains(out[b.Addr()], outer[k].Addr) {
					out[b.Addr()] = append(out[b.Addr()], outer[k].Addr)
				}
			}
		}
		return out
	})
	return func(a netip.Addr) []netip.Addr { return by()[a] }
}

// meet returns the hooks at which an input's and an output's change concern one packet.
func (w *World) meet(in, out *Shift) (ins, outs []*Hook) {
	if in.Peers.Empty() || out.Peers.Empty() {
		return nil, nil
	}
	var free, checked []*Hook
	for _, h := range in.Hooks {
		switch {
		case !h.Checked:
			free = append(free, h)
		case in.Egress && out.Egress:
			// The input and the output evaluate egress of one source. The packet passes both only if a state permits it.
		case out.Peers.coversAny(w.StandIns) || out.Peers.coversAny(h.Addrs):
			checked = append(checked, h)
		}
	}
	if len(free) > 0 && apart(free, out.Hooks) {
		return append(free, checked...), out.Hooks
	}
	if len(checked) == 0 {
		return nil, nil
	}
	for _, h := range out.Hooks {
		if w.reached(h, in.Peers) {
			outs = append(outs, h)
		}
	}
	if !apart(checked, outs) {
		return nil, nil
	}
	return checked, outs
}

// reached reports whether a packet to one of the peers may leave by a hook.
func (w *World) reached(h *Hook, peers *Peers) bool {
	if h.Addrs == nil {
		return true
	}
	return slices.ContainsFunc(h.Addrs, func(a netip.Addr) bool {
		return peers.covers(a) || w.Dialled != nil && peers.coversAny(w.Dialled(a))
	})
}

// apart reports whether two lists have two different hooks, one each. A list has no hook twice.
func apart(a, b []*Hook) bool {
	return len(a) > 0 && len(b) > 0 && (len(a) > 1 || len(b) > 1 || a[0].Name != b[0].Name)
}

// conflicts calls f with an opening and a closing that concern one packet, and their hooks.
func (w *World) conflicts(opening, closing []*Shift, f func(opens, closes []*Hook)) {
	for _, o := range opening {
		if !o.Opens {
			continue
		}
		for _, c := range closing {
			if c.Opens || c.Output == o.Output {
				continue
			}
			var opens, closes []*Hook
			if o.Output {
				closes, opens = w.meet(c, o)
			} else {
				opens, closes = w.meet(o, c)
			}
			if len(opens) > 0 {
				f(opens, closes)
			}
		}
	}
}

// Waiting returns the names of the interfaces whose changes must wait: those that already do, and those whose openings must come after
// closings in late or after closings that wait. Each list of joint names interfaces with a changed access list in common: they wait together.
func (w *World) Waiting(change []*Shift, late *Log, joint map[string][]string, already map[string]bool) map[string]bool {
	waits := maps.Clone(already)
	if waits == nil {
		waits = map[string]bool{}
	}
	mark := func(opens, _ []*Hook) {
		for _, h := range opens {
			waits[h.Name] = true
		}
	}
	w.conflicts(change, late.closings(), mark)
	for known := 0; known < len(waits); {
		known = len(waits)
		for _, names := range joint {
			if slices.ContainsFunc(names, func(n string) bool { return waits[n] }) {
				for _, n := range names {
					waits[n] = true
				}
			}
		}
		w.conflicts(change, only(change, func(h *Hook) bool { return waits[h.Name] }), mark)
	}
	return waits
}

// Torn returns the names of the interfaces, without those that wait, that one change opens and closes for one packet.
func (w *World) Torn(change []*Shift, waits map[string]bool) map[string]bool {
	torn := map[string]bool{}
	now := change
	if len(waits) > 0 {
		now = only(change, func(h *Hook) bool { return !waits[h.Name] })
	}
	w.conflicts(now, now, func(opens, closes []*Hook) {
		for _, h := range slices.Concat(opens, closes) {
			torn[h.Name] = true
		}
	})
	return torn
}

// Leading returns the names of the interfaces that a change opens for packets to some addresses: where packets enter that are sent to them, and where
// packets leave. The zero Addr is any address.
func (w *World) Leading(change []*Shift, to []netip.Addr) map[string]bool {
	out := map[string]bool{}
	if len(to) == 0 {
		return out
	}
	dialled := make(map[netip.Addr]bool, len(to))
	for _, a := range to {
		dialled[a] = true
	}
	anywhere := dialled[netip.Addr{}]
	for _, s := range change {
		if !s.Opens || s.Peers.Empty() {
			continue
		}
		for _, h := range s.Hooks {
			at := s.Peers.coversAny
			if s.Output {
				at = func([]netip.Addr) bool {
					return h.Addrs == nil || slices.ContainsFunc(h.Addrs, func(a netip.Addr) bool { return dialled[a] })
				}
			}
			if anywhere || at(to) {
				out[h.Name] = true
			}
		}
	}
	return out
}

// only returns the shifts at some hooks.
func only(list []*Shift, keep func(*Hook) bool) (out []*Shift) {
	for _, s := range list {
		hooks := slices.DeleteFunc(slices.Clone(s.Hooks), func(h *Hook) bool { return !keep(h) })
		if len(hooks) > 0 {
			c := *s
			c.Hooks = hooks
			out = append(out, &c)
		}
	}
	return out
}

// Log has the closings that VPP may lack. The zero value is empty.
type Log struct {
	fresh, older map[string]*Shift
}

// Add adds the closings of a change.
func (l *Log) Add(change []*Shift) {
	for _, s := range change {
		if s.Opens {
			continue
		}
		if l.fresh == nil {
			l.fresh = map[string]*Shift{}
		}
		key := s.signature()
		if was := l.fresh[key]; was != nil {
			c := *was
			c.Peers = was.Peers.with(s.Peers)
			s = &c
		}
		l.fresh[key] = s
	}
}

// Age forgets the closings that existed at the last call of Age.
func (l *Log) Age() { l.fresh, l.older = nil, l.fresh }

func (l *Log) closings() []*Shift {
	return append(slices.Collect(maps.Values(l.fresh)), slices.Collect(maps.Values(l.older))...)
}

// signature is equal for shifts that differ in their peers alone.
func (s *Shift) signature() string {
	names := make([]string, 0, len(s.Hooks)+1)
	for _, h := range s.Hooks {
		name := h.Name
		for _, a := range h.Addrs {
			name += " " + a.String()
		}
		if h.Checked {
			name += " checked"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	flags := []byte{'0', '0'}
	if s.Output {
		flags[0] = '1'
	}
	if s.Egress {
		flags[1] = '1'
	}
	return strings.Join(append(names, s.Table, string(flags)), "\x00")
}
