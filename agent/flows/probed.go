package flows

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/vpp/flowprobe"
)

// Probe is VPP's flowprobe, where VPP has that plugin.
type Probe struct {
	flowprobe.Target
	Collector *flowprobe.Collector

	ensure      time.Time // when to look for new interfaces next
	connections map[ends]*probed
}

const (
	ensureEvery = 10 * time.Second
	// bothWithin is the time in which VPP reports both directions of a connection: its records of the two differ by a step of its timer, and a
	// buffer that is sent when it is full, or once in 5 s.
	bothWithin = 6 * time.Second
	// keptIdle is how long a connection without packets is known: afterwards it is another one.
	keptIdle = time.Minute
	// mostProbed is how many connections are known at a time.
	mostProbed = 150_000
)

// ends are the two ends of a connection, the lesser one first.
type ends struct {
	low, high netip.AddrPort
	protocol  uint8
}

// endsOf returns the ends; direction 1: the source is the greater one.
func endsOf(source, destination netip.AddrPort, protocol uint8) (e ends, direction int) {
	if destination.Compare(source) < 0 {
		return ends{destination, source, protocol}, 1
	}
	return ends{source, destination, protocol}, 0
}

// probed is what is known of a connection.
type probed struct {
	start       [2]uint64 // of the direction from low to high, and back; 0: not seen
	first, last time.Time // records
	shown       bool
	back        bool // high opened it; once it was shown
	counts      flows.Counts
}

var (
	errLost = errors.New("messages of flowprobe were lost: net.core.rmem_max may be small, or VPP has not sent its templates yet")
	errMany = errors.New("more connections than the agent keeps: some are not shown")
)

// readProbed returns the connections of which records came, when both directions are known, or one of them for some time.
func (w *Watcher) readProbed(ctx context.Context, l Loop) ([]observation, error) {
	p, now := w.Probe, w.Now()
	var problem error
	if !now.Before(p.ensure) {
		p.ensure = now.Add(ensureEvery)
		if problem = p.Ensure(ctx, l.Do); errors.Is(problem, flowprobe.ErrAbsent) || errors.Is(problem, flowprobe.ErrForeign) {
			return nil, problem
		}
	}
	got := p.Collector.Take(ctx)
	problem = errors.Join(problem, got.Err)
	if got.Lost > 0 {
		problem = errors.Join(problem, errLost)
	}
	if lost := p.join(got.Records, now); lost+got.Dropped > 0 {
		problem = errors.Join(problem, errMany)
	}
	return p.ripe(now), problem
}

// join adds records to their connections, and returns the number of those that had no room.
func (p *Probe) join(records []flowprobe.Record, now time.Time) (lost uint64) {
	if p.connections == nil {
		p.connections = map[ends]*probed{}
	}
	for i := range records {
		r := &records[i]
		e, direction := endsOf(netip.AddrPortFrom(r.Src, r.SrcPort), netip.AddrPortFrom(r.Dst, r.DstPort), r.Protocol)
		c := p.connections[e]
		if c == nil {
			if len(p.connections) >= mostProbed {
				lost++
				continue
			}
			c = &probed{first: now}
			p.connections[e] = c
		}
		if c.last = now; c.start[direction] == 0 {
			c.start[direction] = r.Start
		}
		c.counts.Packets += r.Packets
		c.counts.Bytes += r.Bytes
	}
	return lost
}

// ripe returns what was counted since the last call for connections whose direction is known, and forgets idle ones.
func (p *Probe) ripe(now time.Time) (out []observation) {
	for e, c := range p.connections {
		twoWay := c.start[0] != 0 && c.start[1] != 0
		switch {
		case c.counts.Packets == 0:
			if now.Sub(c.last) > keptIdle {
				delete(p.connections, e)
			}
			continue
		case !c.shown && !twoWay && now.Sub(c.first) < bothWithin:
			continue
		case !c.shown:
			c.shown, c.counts.Connections = true, 1
			c.back = c.start[0] == 0 || twoWay && c.start[1] < c.start[0]
		}
		o := observation{source: e.low, destination: e.high, protocol: e.protocol, twoWay: twoWay, counts: c.counts, seenBy: ByProbe}
		if c.back {
			o.source, o.destination = e.high, e.low
		}
		c.counts = flows.Counts{}
		out = append(out, o)
	}
	return out
}

// explainProbed adds a flow for each pod of this node at an end of a connection, or one without a decision. flowprobe may count packets before the
// access list of the interface where they leave VPP: what only one end sent, and a list denies, is no connection. The capture shows it.
func (w *Watcher) explainProbed(l *Loop, o *observation, out []flows.Flow) []flows.Flow {
	at, denied := len(out), false
	for _, o.input = range []bool{true, false} {
		if l.isRepeated(o) {
			continue
		}
		f := w.nameEnds(o)
		denied = denied || w.findDecision(l, o, &f)
		out = append(out, f)
	}
	switch {
	case denied && !o.twoWay:
		return out[:at]
	case len(out) == at:
		out = append(out, w.nameEnds(o))
	}
	for i := range out[at:] {
		w.meter.countFlow(&out[at+i])
	}
	return out
}
