package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// Connection is a conversation that goes on. Unlike an Answer it leaves sessions behind in the VPPs it passes, so that one can
// see what later changes do to it.
type Connection struct {
	cluster *Cluster
	from    string
	first   sim.Packet
}

// Connect opens a connection from the client's port and returns what became of it. Want is the address "ip:port" of the
// backend that the load balancers shall choose; "": they choose by themselves. It is an error if the question cannot be
// asked, if no choice leads to that backend, or if the connection is not established.
func (c *Cluster) Connect(q Question, port uint16, want string) (*Connection, Outcome, error) {
	from, p, err := c.ask(q)
	if err != nil {
		return nil, Outcome{}, err
	}
	if p.HasPorts() {
		p.SrcPort = port
	}
	k := &Connection{cluster: c, from: q.From, first: p}
	o, err := c.open(from, p, want)
	if err != nil {
		return nil, o, err
	}
	if p.Proto == model.TCP {
		o, err = k.Send()
	}
	return k, o, err
}

// open sends the first packet and its answer, with one decision of the load balancers after the other until they meet want.
func (c *Cluster) open(from place, p sim.Packet, want string) (Outcome, error) {
	for decision := 0; ; decision++ {
		most := 0
		choose := func(n int) int {
			most = max(most, n)
			return min(decision, n-1)
		}
		if want == "" {
			choose = nil
		}
		marks := c.begin(choose)
		o := c.exchange(from, p)
		switch {
		case o.Verdict == Delivered && (want == "" || o.Address == want):
			c.chooseFreely()
			return o, nil
		case want == "":
			return o, fmt.Errorf("%s: %s", o.Verdict, o.Reason)
		}
		c.rollback(marks)
		if decision+1 >= most {
			return o, fmt.Errorf("no choice of %d reaches %s; the last one: %s %s: %s", most, want, o.Address, o.Verdict, o.Reason)
		}
	}
}

func (c *Cluster) chooseFreely() {
	for _, n := range c.nodes {
		n.sim.SetChoice(nil)
	}
}

// exchange sends one packet and the answer to it.
func (c *Cluster) exchange(from place, p sim.Packet) Outcome {
	var options []int
	a := c.attempt(from, p, &options, false)
	if a.outcome == nil {
		return Outcome{Verdict: a.verdict, Reason: a.reason}
	}
	return *a.outcome
}

// Send sends one more packet of the connection and the answer to it. It is an error if the client is gone.
func (k *Connection) Send() (Outcome, error) {
	c := k.cluster
	c.world.refresh()
	from, err := c.origin(k.from, k.first.Dst)
	if err != nil {
		return Outcome{}, err
	}
	return c.exchange(from, k.first.GoingOn()), nil
}

// Advance lets time pass for every VPP and every agent, and waits for what agents then do. A connection that was lost comes
// back first.
func (c *Cluster) Advance(ctx context.Context, d time.Duration) error {
	var errs []error
	for _, name := range c.names {
		n := c.nodes[name]
		n.sim.Advance(d)
		if n.away {
			continue
		}
		if err := n.tick(ctx); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// maxReconnects bounds how often a connection may be lost while an agent works off what is due.
const maxReconnects = 100

func (n *node) tick(ctx context.Context) error {
	generation := n.agent.Generation()
	for range maxReconnects {
		if err := n.agent.WaitConnected(ctx, generation); err != nil {
			return err
		}
		generation = n.agent.Generation()
		err := n.agent.Feed(ctx, &event.Tick{Now: n.sim.Now()})
		if !errors.Is(err, vpp.ErrDisconnected) {
			return err
		}
		generation++
	}
	return fmt.Errorf("the connection to VPP was lost %d times in a row", maxReconnects)
}
