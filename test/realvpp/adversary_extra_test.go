package realvpp

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/adversary"
	"github.com/contiv-agent/contiv-agent/trace"
)

// extras plays the packets that follow an event: fragments, and what outsiders send under addresses of the cluster.
func (g *adversaryGame) extras() error {
	for _, s := range g.attacker.Extras(g.current) {
		before := g.law.Packets
		if err := g.one(adversary.Event{Step: s, Extra: true}); err != nil {
			return err
		}
		g.did["extra packets"] += g.law.Packets - before
	}
	return nil
}

// identifications is more than an attacker's fragments have.
const identifications = 1 << 9

// pieces sends a packet in fragments. The journey is that of the first one; a has what arrived.
func (g *adversaryGame) pieces(e *adversary.Event, from place, f flight, a *trace.Arrival) (first journey, err error) {
	first.lost = "the first fragment was not sent"
	id := e.Identification + g.passed*identifications
	a.Identification = id
	sims, known := packet.Pick(packet.Split(&f.sim, e.Fragments, id), e.Only)
	reals, _ := packet.Pick(packet.Split(&f.real, e.Fragments, id), e.Only)
	if !known {
		return first, fmt.Errorf("fragments: %q", e.Only)
	}
	for i := range sims {
		ends, err := g.travelAll(from, flight{sims[i], reals[i]})
		if err != nil {
			return first, err
		}
		for _, j := range ends {
			if sims[i].Fragment.Offset == 0 && !j.sim.Fragment.Later() {
				first = j
			}
			if j.lost == "" && !j.real.IsICMPError() {
				a.Pieces++
				g.join(&j, a)
			}
		}
	}
	if a.Whole {
		a.Pieces = 0
	}
	return first, nil
}

// join gives a fragment to the kernel of its receiver.
func (g *adversaryGame) join(j *journey, a *trace.Arrival) {
	p := &j.real
	k := fmt.Sprint(g.who(j.end), j.end.node, p.Src, p.Dst, p.Proto, p.Fragment.ID)
	var done bool
	g.parts[k], _, done = g.parts[k].Add(*p)
	a.Whole = a.Whole || done
}

// travelAll follows a fragment, and those that waited for it in a VPP, over the nodes: the end of each.
func (g *adversaryGame) travelAll(from place, f flight) (ends []journey, err error) {
	type leg struct {
		at place
		flight
	}
	for todo := []leg{{from, f}}; len(todo) > 0; todo = todo[1:] {
		l := todo[0]
		w := g.nodes[l.at.node]
		if w.reportsMany(l.at.door, &l.sim) {
			g.did["fragments not sent: VPP would report several that waited, between different addresses"]++
			ends = append(ends, journey{flight: l.flight, lost: l.at.node + ": not sent"})
			continue
		}
		out, err := w.send(l.at.door, l.flight)
		if err != nil {
			return ends, fmt.Errorf("node %s: %w", l.at.node, err)
		}
		if len(out) == 0 {
			ends = append(ends, journey{flight: flight{sim: w.seen, real: w.seen}, lost: l.at.node + ": " + w.hop})
		}
		for _, o := range out {
			if end, next := g.onward(l.at.node, o); next != nil {
				todo = append(todo, leg{*next, o.flight})
			} else {
				ends = append(ends, end)
			}
		}
	}
	return ends, nil
}
