package trace

import (
	"context"

	"github.com/contiv-agent/contiv-agent/sim"
)

// Arrival is what became of one packet.
type Arrival struct {
	Sender string     // who sent it: pod:<ns>/<name>, node:<name>, or an address outside
	Node   string     // the node where it was sent
	Sent   sim.Packet // as it was sent; zero: the step had no packet
	At     string     // who got it, named as Sender; "": nobody
	AtNode string     // the node of whoever got it; outside: the node at whose uplink it left
	Packet sim.Packet // as it arrived; as it was last seen if it was lost
	Lost   string     // why nobody got it
}

// Inject does what Send does and nobody answers: it plays a step and follows its one packet. It is for those who judge many packets
// themselves: there are no hops, and no reasons of policies.
func (c *Cluster) Inject(ctx context.Context, s Step) (Arrival, error) {
	if err := c.before(ctx, &s); err != nil || s.Question == (Question{}) {
		return Arrival{}, err
	}
	return c.InjectNow(s)
}

// InjectNow is Inject for a step without anything that happens before. It may be called from sim.VPP's After while the cluster applies
// changes, restarts or advances.
func (c *Cluster) InjectNow(s Step) (Arrival, error) {
	from, p, err := c.packet(&s)
	if err != nil {
		return Arrival{}, err
	}
	a := Arrival{Sender: from.String(), Node: from.node.name, Sent: p.ForFamily()}
	j := journey{sent: p.Dst, quiet: true}
	c.walk(&j, from, p)
	a.Packet, a.Lost = j.packet, j.lost
	if j.lost == "" {
		a.At, a.AtNode = j.end.String(), j.end.node.name
	}
	return a, nil
}
