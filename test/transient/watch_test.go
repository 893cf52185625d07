package transient_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/sim"
)

// watch looks at a cluster while one node changes.
type watch struct {
	c        *cluster
	n        *node
	probes   []probe
	fresh    map[string]bool // interfaces of n that have no lists yet
	before   [][]arrival
	during   []sighting // what was not there before
	seen     map[sighting]bool
	messages []string
	lives    []*live
	holes    []sighting
}

// sighting is a packet that arrives after a message.
type sighting struct {
	probe   int
	arrival arrival
	after   int // how many messages; not part of its name
}

func newWatch(c *cluster, n *node, probes []probe, fresh []string, lives []*live) *watch {
	w := &watch{c: c, n: n, probes: probes, fresh: map[string]bool{}, seen: map[sighting]bool{}, lives: lives}
	for _, name := range fresh {
		w.fresh[name] = true
	}
	w.before = make([][]arrival, len(probes))
	for i := range probes {
		w.before[i] = slices.DeleteFunc(c.arrivals(&probes[i]), func(a arrival) bool { return w.unborn(i, a) })
	}
	n.vpp.After(w.look)
	return w
}

// unborn tells that a packet arrives, or comes in, by an interface that has no lists yet.
func (w *watch) unborn(i int, a arrival) bool {
	return w.probes[i].node == w.n.name && w.fresh[w.probes[i].door] || a.node == w.n.name && w.fresh[a.door]
}

// look is called after each message to the node's VPP.
func (w *watch) look(r sim.Record) {
	w.messages = append(w.messages, r.String())
	if r.Name == "acl_interface_set_acl_list" {
		for name := range w.fresh {
			if strings.Contains(r.Text, " "+name+" ") || strings.HasSuffix(r.Text, " "+name) {
				delete(w.fresh, name)
			}
		}
	}
	for i := range w.probes {
		if !w.probes[i].service && len(w.before[i]) > 0 {
			continue // it has one place to arrive at
		}
		for _, a := range w.c.arrivals(&w.probes[i]) {
			s := sighting{probe: i, arrival: a}
			if !slices.Contains(w.before[i], a) && !w.seen[s] && !w.unborn(i, a) {
				w.seen[s] = true
				s.after = len(w.messages)
				w.during = append(w.during, s)
			}
		}
	}
	for _, l := range w.lives {
		l.look(w)
	}
}

// end stops looking and tells what passed on the way only.
func (w *watch) end() (holes []sighting) {
	w.n.vpp.After(nil)
	for _, s := range w.during {
		if !slices.Contains(w.c.arrivals(&w.probes[s.probe]), s.arrival) {
			holes = append(holes, s)
		}
	}
	return holes
}

// tell is a hole with the messages around it.
func (w *watch) tell(s sighting) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s arrives as %s, neither before nor afterwards; open after message %d of %d on %s:", w.probes[s.probe], s.arrival, s.after, len(w.messages), w.n.name)
	for i, m := range w.messages {
		mark := "   "
		if i == s.after-1 {
			mark = "-> "
		}
		fmt.Fprintf(&b, "\n%s%3d %s", mark, i+1, m)
	}
	return b.String()
}

// live is a connection that was made before a change.
type live struct {
	probe  probe
	answer sim.Packet // of whom it reached
	at     arrival
	cut    int // messages after which it did not pass
}

// connect makes a connection that stays.
func (c *cluster) connect(p probe) *live {
	a, there, ok := c.walk(c.nodes[p.node], p.door, p.packet)
	if !ok {
		return nil
	}
	l := &live{probe: p, answer: there.Reply(), at: a}
	l.probe.packet = p.packet
	if !l.passes(c) {
		return nil
	}
	return l
}

// passes sends a packet of the connection there, and one back.
func (l *live) passes(c *cluster) bool {
	p := l.probe.packet
	if p.TCPFlags != 0 {
		p.TCPFlags = ackFlag
	}
	a, _, ok := c.walk(c.nodes[l.probe.node], l.probe.door, p)
	if !ok || a != l.at {
		return false
	}
	door := a.door
	if door == "" {
		door = hostDoor
	}
	_, home, ok := c.walk(c.nodes[a.node], door, l.answer)
	return ok && home.Dst == p.Src && home.Src == p.Dst
}

func (l *live) look(w *watch) {
	w.c.meanwhile(func() {
		if !l.passes(w.c) {
			l.cut++
		}
	})
}
