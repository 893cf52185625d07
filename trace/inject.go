package trace

import (
	"context"

	"github.com/contiv-agent/contiv-agent/sim"
)

// Arrival is the fate of one packet.
type Arrival struct {
	Sender string     // the sender: pod:<ns>/<name>, node:<name>, or an address outside
	Node   string     // the sender's node
	Sent   sim.Packet // the packet as sent, whole; zero: the step had no packet
	At     string     // the receiver, named as Sender; "": none
	AtNode string     // the receiver's node; outside: the node whose uplink sent it out
	Packet sim.Packet // the packet as it arrived, or as last seen if it was lost
	Lost   string     // why it did not arrive
	// Pieces and Whole are about a packet in fragments: how many arrived without making a datagram whole, and whether one became whole.
	// The fields above are then those of the first fragment alone.
	Pieces int
	Whole  bool
	// Identification is that of the fragments; 0: the packet was sent whole.
	Identification uint16
}

// Inject runs a step like Send and follows its single packet, without a reply. It is for callers that evaluate many packets
// themselves: it returns no hops and no reasons of policies.
func (c *Cluster) Inject(ctx context.Context, s Step) (Arrival, error) {
	if err := c.before(ctx, &s); err != nil || s.Question == (Question{}) {
		return Arrival{}, err
	}
	return c.InjectNow(s)
}

// InjectNow is Inject for a step with nothing to do before its packet. sim.VPP's After may call it while the cluster applies
// changes, restarts or advances.
func (c *Cluster) InjectNow(s Step) (Arrival, error) {
	sent, err := c.packet(&s)
	if err != nil {
		return Arrival{}, err
	}
	from, p := sent.from, sent.packet
	a := Arrival{Sender: from.String(), Node: from.node.name, Sent: p.ForFamily()}
	j := journey{sent: p.Dst, quiet: true}
	deliver(c, &j, &sent)
	if a.Pieces, a.Whole = j.pieces, j.whole; len(sent.parts) > 0 {
		a.Identification = sent.parts[0].Fragment.ID
	}
	if j.first != nil {
		j = *j.first
	} else if s.Fragments > 0 {
		j.lost = "the first fragment was not sent"
	}
	a.Packet, a.Lost = j.packet, j.lost
	if j.lost == "" {
		a.At, a.AtNode = j.end.String(), j.end.node.name
	}
	return a, nil
}
