package transient_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// kept are packets of new connections that arrive before a change. Those that arrive after it as well have to arrive after each of its messages.
type kept struct {
	whole []bool        // by probe: it arrives before the change, whatever the load balancers choose
	lost  map[int]*loss // by probe
	drops []*loss       // of probes that arrive before and after the change
}

// loss is a packet that arrives nowhere after some messages.
type loss struct {
	probe    int
	first    int // the first such message, from 1
	messages int // their number
	ends     []end
	after    []arrival // where it arrives after the change
}

func newKept(probes int) kept { return kept{whole: make([]bool, probes), lost: map[int]*loss{}} }

// nowhere reports whether a packet leaves the cluster although no host outside has its address.
func (w *watch) nowhere(i int, a arrival) bool {
	return w.probes[i].astray(a) || a.door == cni.Uplink && slices.ContainsFunc(w.c.names, func(n string) bool {
		return slices.ContainsFunc(w.c.nodes[n].object.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a.dst) })
	})
}

// lose records that a packet does not arrive after a message.
func (k *kept) lose(probe, message int, ends []end) {
	switch l := k.lost[probe]; {
	case !k.whole[probe]:
	case l == nil:
		k.lost[probe] = &loss{probe: probe, first: message, messages: 1, ends: ends}
	default:
		l.messages++
		l.ends = append(l.ends, ends...)
	}
}

// end finds the packets that arrive before and after the change, and did not arrive meanwhile. A direct packet has one place to arrive, or another
// pod with the same address. A packet to a Service's address that no VPP translates is not for the Service.
func (k *kept) end(w *watch) {
	for i, l := range k.lost {
		o := w.c.outcome(&w.probes[i])
		exempt := slices.ContainsFunc(o.at, func(a arrival) bool { return w.exempt(i, a) || w.nowhere(i, a) })
		if o.whole() && !exempt && (w.probes[i].service || slices.Equal(o.at, w.before[i])) {
			l.after = o.at
			k.drops = append(k.drops, l)
		}
	}
	slices.SortFunc(k.drops, func(a, b *loss) int { return a.probe - b.probe })
}

// describeDrop returns a dropped packet with the messages around it.
func (w *watch) describeDrop(l *loss) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s arrives as %s before and after the change, and not after %d messages, the first of which is %d of %d on %s:",
		w.probes[l.probe], w.before[l.probe], l.messages, l.first, len(w.messages), w.n.name)
	fmt.Fprintf(&b, " %s", l.ends[0].text)
	w.listMessages(&b, l.first)
	return b.String()
}

// listMessages writes the messages, with a mark at one of them.
func (w *watch) listMessages(b *strings.Builder, marked int) {
	for i, m := range w.messages {
		mark := "   "
		if i == marked-1 {
			mark = "-> "
		}
		fmt.Fprintf(b, "\n%s%3d %s", mark, i+1, m)
	}
}

// drop returns what happened to the packet.
func (l *loss) drop(w *watch) *drop {
	d := &drop{probe: w.probes[l.probe], w: w, first: l.first, messages: l.messages, text: func() string { return w.describeDrop(l) }}
	leads := func(list []arrival, to netip.AddrPort) bool {
		return slices.ContainsFunc(list, func(a arrival) bool { return a.dst == to.Addr() && a.port == to.Port() })
	}
	d.passing = d.probe.service && !slices.ContainsFunc(l.ends, func(e end) bool {
		return leads(w.before[l.probe], e.dst) && leads(l.after, e.dst) || e.dst.Addr() == d.probe.packet.Dst
	})
	return d
}

// keep books the packets of new connections that a change dropped. It reports whether each is an exception.
func (g *growth) keep(step int, w *watch, how manner, before, after []policy.Object) bool {
	for _, l := range w.kept.drops {
		d := l.drop(w)
		if text := g.sum.ledger.book(d); text != "" {
			g.report(step, text, d.probe, how, before, after)
			return false
		}
	}
	return true
}
