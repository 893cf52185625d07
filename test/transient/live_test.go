package transient_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
)

// live is a connection that lives on over many changes. Its packets are sent for good: the sessions that they make, refresh and end stay.
//
// Whether policies and Services still allow it, its twin says: the same connection from another port, made anew, and undone.
type live struct {
	probe  probe
	twin   probe
	answer sim.Packet // from its receiver
	at     arrival
	rng    *rand.Rand
	habit  habit

	allowed bool  // before the change
	waits   int   // how often during the change the server's packets waited for the client's next one
	cuts    []cut // of the change
	dead    bool  // it does not pass at the end of the change either
}

// cut is a message after which a connection did not pass.
type cut struct {
	w       *watch
	message int
}

// habit is when the ends of a connection send.
type habit uint8

const (
	chatty habit = iota // both after each message, the client first
	pushed              // both after each message, the server first
	rare                // both after some messages, any of them first
	silent              // nobody until the end of the change
	habits
)

func (h habit) String() string { return [...]string{"chatty", "pushed", "rare", "silent"}[h] }

func (l *live) String() string { return fmt.Sprintf("%s (%s)", l.probe, l.habit) }

// connect opens a connection that stays.
func (c *cluster) connect(p probe, port uint16, rng *rand.Rand) *live {
	l := &live{probe: p, twin: p, rng: rng, habit: habit(rng.IntN(int(habits)))}
	l.probe.packet.SrcPort = port
	var ok bool
	var there sim.Packet
	if l.at, there, ok = c.walk(c.nodes[p.node], p.door, l.probe.packet); !ok {
		return nil
	}
	l.answer = there.Reply()
	if !l.answers(c) {
		return nil
	}
	l.probe.packet = l.probe.packet.GoingOn()
	there = there.GoingOn()
	l.answer = there.Reply()
	if !l.passes(c, false) || !l.isAllowed(c) {
		return nil
	}
	return l
}

// passes sends a packet of the connection in each direction. If the server is first, its packet may have to wait for one of the client.
func (l *live) passes(c *cluster, serverFirst bool) bool {
	if serverFirst && !l.answers(c) {
		l.waits++
	}
	a, _, ok := c.walk(c.nodes[l.probe.node], l.probe.door, l.probe.packet)
	return ok && a == l.at && l.answers(c)
}

// answers sends a packet of the server.
func (l *live) answers(c *cluster) bool {
	return c.comesHome(&l.probe, l.at, l.answer)
}

// comesHome reports whether a packet from where another one arrived reaches that one's sender, from the address that it dialled.
func (c *cluster) comesHome(p *probe, from arrival, answer sim.Packet) bool {
	door := from.door
	if door == "" {
		door = hostDoor
	}
	back, home, ok := c.walk(c.nodes[from.node], door, answer)
	at := p.door
	if at == hostDoor {
		at = ""
	}
	return ok && back.node == p.node && back.door == at && home.Dst == p.packet.Src && home.Src == p.packet.Dst && home.DstPort == p.packet.SrcPort
}

// isAllowed reports whether a new connection like this one reaches the same place, and is answered.
func (l *live) isAllowed(c *cluster) (found bool) {
	p := &l.twin
	c.choices(p, func() bool {
		a, there, ok := c.walk(c.nodes[p.node], p.door, p.packet)
		found = ok && a == l.at && c.comesHome(p, a, there.Reply())
		return found
	})
	return found
}

// begin is called before a change.
func (l *live) begin(c *cluster) { l.allowed, l.cuts, l.waits = l.isAllowed(c), nil, 0 }

// look is called after each message to a VPP.
func (l *live) look(w *watch) {
	first := l.habit == pushed
	switch l.habit {
	case silent:
		return
	case rare:
		if l.rng.IntN(3) > 0 {
			return
		}
		first = l.rng.IntN(2) == 0
	}
	if !l.passes(w.c, first) {
		l.cuts = append(l.cuts, cut{w, len(w.messages)})
	}
}

// end is called after a change. It reports whether the connection was allowed before and after it.
func (l *live) end(c *cluster) bool {
	if l.allowed = l.allowed && l.isAllowed(c); l.allowed {
		l.dead = !l.passes(c, l.habit == pushed)
	}
	return l.allowed
}

// keepLives ends a change for the connections, and lets go those that policies or Services do not allow any more, and those that are dead.
func (g *growth) keepLives(step int, looks []*watch, how manner) (ok bool) {
	ok = true
	g.lives = slices.DeleteFunc(g.lives, func(l *live) bool {
		if !l.end(g.c) {
			return true
		}
		g.sum.lives.Add(1)
		if l.dead && len(l.cuts) == 0 {
			l.cuts = append(l.cuts, lastMessage(looks))
		}
		if len(l.cuts) > 0 || l.waits > 0 {
			if text := g.sum.ledger.book(l.drop(looks)); text != "" {
				g.t.Errorf("seed %d step %d, %v: %s", g.seed, step, how, text)
				ok = false
			}
		}
		return l.dead
	})
	return ok
}

// lastMessage returns the last message of a change.
func lastMessage(looks []*watch) cut {
	for _, w := range slices.Backward(looks) {
		if len(w.messages) > 0 {
			return cut{w, len(w.messages)}
		}
	}
	return cut{looks[0], 0}
}

// drop returns what happened to a connection.
func (l *live) drop(looks []*watch) *drop {
	at := lastMessage(looks)
	if len(l.cuts) > 0 {
		at = l.cuts[0]
	}
	text := func() string {
		var b strings.Builder
		fmt.Fprintf(&b, "%s, to %s, is allowed before and after the change; cut after %d messages, the first of which is %d of %d on %s; waited %d times; dead in the end: %v",
			l, l.at, len(l.cuts), at.message, len(at.w.messages), at.w.n.name, l.waits, l.dead)
		at.w.listMessages(&b, at.message)
		return b.String()
	}
	return &drop{probe: l.probe, w: at.w, first: at.message, messages: len(l.cuts), live: true, dead: l.dead, waits: len(l.cuts) == 0, text: text}
}

// sctpLives reports whether connections that live on are also of SCTP. VPP's sessions do not distinguish its ports, so these connections would let new
// ones pass: such a world has no new ones.
func (g *growth) sctpLives() bool { return !g.faults && g.seed%4 == 0 }

// newOnes returns the probes that open connections.
func (g *growth) newOnes(asked []probe) []probe {
	if !g.sctpLives() {
		return asked
	}
	return slices.DeleteFunc(slices.Clone(asked), func(p probe) bool { return p.packet.Proto == model.SCTP })
}

// maxLives bounds the connections of a cluster at a time.
const maxLives = 24

// connections opens connections that stay, until there are enough.
func (g *growth) connections(asked []probe) {
	for _, i := range g.rng.Perm(len(asked)) {
		if len(g.lives) == maxLives {
			break
		}
		if p := asked[i]; p.packet.HasPorts() && (p.packet.Proto != model.SCTP || g.sctpLives()) {
			g.port++
			if l := g.c.connect(p, g.port, g.rng); l != nil {
				g.lives = append(g.lives, l)
			}
		}
	}
	for _, l := range g.lives {
		l.begin(g.c)
	}
}
