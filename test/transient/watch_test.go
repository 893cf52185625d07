package transient_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// watch checks a cluster while one node changes.
type watch struct {
	c        *cluster
	n        *node
	probes   []probe
	fresh    map[string]bool // new interfaces of n that had no lists yet
	gone     []string        // interfaces of n whose pods are deleted
	dead     []netip.Addr    // addresses of such pods
	before   [][]arrival
	during   []sighting // packets that did not arrive before
	seen     map[sighting]bool
	messages []string
	earlier  []string // of the same change, before this watch began
	faults   bool     // VPP refuses some requests
	txns     int      // transactions
	listed   int      // the transaction with the first lists of a new interface; 0: none yet
	lives    []*live
	kept     kept
	holes    []sighting
	start    time.Time
	overdue  int // packets that passed when the rest of a change no longer waited for an interim state that VPP refuses (ADR 32)
}

// sighting is a packet that arrives after a message.
type sighting struct {
	probe   int
	arrival arrival
	after   int // number of messages; not part of its name
	txns    int // transactions that had ended
	overdue bool
}

// held is how long the rest of a change waits for an interim state that VPP refuses (ADR 32).
const held = 30 * time.Second

func newWatch(c *cluster, n *node, probes []probe, fresh, gone []string, lives []*live, faults bool) *watch {
	w := &watch{c: c, n: n, probes: probes, gone: gone, fresh: map[string]bool{}, seen: map[sighting]bool{}, lives: lives, faults: faults, start: n.vpp.Now()}
	for _, name := range fresh {
		w.fresh[name] = true
	}
	n.refused = false
	w.before, w.kept = make([][]arrival, len(probes)), newKept(len(probes))
	for i := range probes {
		o := c.outcome(&probes[i])
		all, nowhere := len(o.at), slices.ContainsFunc(o.at, func(a arrival) bool { return w.nowhere(i, a) })
		w.before[i] = slices.DeleteFunc(o.at, func(a arrival) bool { return w.exempt(i, a) })
		w.kept.whole[i] = o.whole() && len(w.before[i]) == all && !nowhere
	}
	n.vpp.After(w.look)
	n.committed = w.committed
	return w
}

// exempt reports whether a packet arrives, or enters, through an interface without evaluation.
func (w *watch) exempt(i int, a arrival) bool {
	unjudged := func(node, door string) bool {
		_, fresh := w.fresh[door]
		return node == w.n.name && (fresh || slices.Contains(w.gone, door))
	}
	if a.door == cni.Uplink && slices.Contains(w.dead, a.dst) {
		return true // no receiver
	}
	return unjudged(w.probes[i].node, w.probes[i].door) || unjudged(a.node, a.door) || w.faults && (w.probes[i].astray(a) || w.inherited(i, a) || w.mistaken(i, a))
}

// inherited reports whether a pod has the address of a deleted one: until the agent receives that, it has that pod's lists.
func (w *watch) inherited(i int, a arrival) bool {
	return slices.Contains(w.dead, a.dst) || slices.Contains(w.dead, w.probes[i].packet.Src)
}

// astray reports whether no VPP translated a packet for a Service, so that it went to an outside host with that address, or
// to the node itself. If VPP refuses the list that closes the address, this lasts until the retry, and the Service is
// removed meanwhile.
func (p *probe) astray(a arrival) bool {
	return p.service && a.dst == p.packet.Dst && (a.door == cni.Uplink || a.door == "")
}

// mistaken reports whether a Service hides the client, and VPP refused a list or a mapping. After the translation the pod
// itself has the same address as the client. The list that distinguishes them comes before the mapping, and is removed after
// it, but neither waits for the other: until the retry the client may count as the pod.
func (w *watch) mistaken(i int, a arrival) bool {
	return w.n.refused && w.probes[i].service && a.src != w.probes[i].packet.Src
}

// look is called after each message to the node's VPP.
func (w *watch) look(r sim.Record) {
	w.messages = append(w.messages, r.String())
	if r.Name == "acl_interface_set_acl_list" && bothDirections(r.Text) {
		for name := range w.fresh {
			if strings.Contains(r.Text, "="+name+" ") { // from now on it counts as an old one
				delete(w.fresh, name)
				w.listed = max(w.listed, w.txns+1)
			}
		}
	}
	// A filter for ports of SCTP is hundreds of messages, of which only the last ones have an effect on other packets.
	light := isFilter(r.Name) && len(w.messages)%lightly != 0
	for i := range w.probes {
		if light && w.probes[i].packet.Proto != model.SCTP {
			continue
		}
		o := w.c.outcome(&w.probes[i])
		if !o.whole() {
			w.kept.lose(i, len(w.messages), o.lost)
		}
		for _, a := range o.at {
			s := sighting{probe: i, arrival: a}
			if !slices.Contains(w.before[i], a) && !w.seen[s] && !w.exempt(i, a) {
				w.seen[s] = true
				s.after, s.txns, s.overdue = len(w.messages), w.txns, w.faults && w.n.vpp.Now().Sub(w.start) >= held
				w.during = append(w.during, s)
			}
		}
	}
	for _, l := range w.lives {
		if !light || l.probe.packet.Proto == model.SCTP {
			l.look(w)
		}
	}
}

// lightly is how many messages of a filter are sent for one look at packets of other protocols.
const lightly = 16

// committed is called after each transaction.
func (w *watch) committed(*event.Committed) { w.txns++ }

// end stops the checks and returns the packets that passed only during the change.
func (w *watch) end() (holes []sighting) {
	w.n.vpp.After(nil)
	w.n.committed = nil
	for _, s := range w.during {
		switch {
		case slices.Contains(w.c.arrivals(&w.probes[s.probe]), s.arrival):
		case s.overdue:
			w.overdue++
		default:
			holes = append(holes, s)
		}
	}
	w.kept.end(w)
	return holes
}

// describe returns a hole with the messages around it.
func (w *watch) describe(s sighting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s arrives as %s, neither before nor afterwards; open after message %d of %d on %s:", w.probes[s.probe], s.arrival, s.after, len(w.messages), w.n.name)
	if o := w.c.outcome(&w.probes[s.probe]); len(o.lost) > 0 {
		fmt.Fprintf(&b, " afterwards %s", o.lost[0].text)
	}
	w.listMessages(&b, s.after)
	return b.String()
}

// finding returns the first hole, or the first drop that is no exception, in words, and its probe; "": none.
func (w *watch) finding() (text string, probe int) {
	if len(w.holes) > 0 {
		return w.describe(w.holes[0]), w.holes[0].probe
	}
	for _, l := range w.kept.drops {
		if d := l.drop(w); exceptionOf(d) == nil {
			return d.text(), l.probe
		}
	}
	return "", 0
}
