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

// Connection is a connection that stays open. Unlike an Answer it keeps its sessions in the VPPs on its path, so that tests
// can observe the effect of later changes on it.
type Connection struct {
	cluster *Cluster
	from    string
	first   sim.Packet
}

// Connect opens a connection from the client's port and returns the outcome. want is the address "ip:port" of the backend
// that the load balancers must choose; "": they choose themselves. It returns an error if the question is invalid, if no
// choice leads to that backend, or if the connection is not established.
func (c *Cluster) Connect(q Question, port uint16, want string) (*Connection, Outcome, error) {
	from, p, err := c.resolve(q)
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

// open sends the first packet and its answer with one choice of the load balancers after the other, until one leads to want.
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
		marks := c.beginTrace(choose)
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

// exchange sends one packet and its answer.
func (c *Cluster) exchange(from place, p sim.Packet) Outcome {
	var options []int
	a := c.attempt(&sending{from: from, packet: p}, &options)
	if a.outcome == nil {
		return Outcome{Verdict: a.verdict, Reason: a.reason}
	}
	return *a.outcome
}

// Send sends one more packet of the connection and its answer. It returns an error if the client no longer exists.
func (k *Connection) Send() (Outcome, error) {
	c := k.cluster
	c.world.refresh()
	from, err := c.origin(k.from, k.first.Dst)
	if err != nil {
		return Outcome{}, err
	}
	return c.exchange(from, k.first.GoingOn()), nil
}

// Advance advances the clock of every VPP and agent, and waits for the agents' work. It restores a lost connection first.
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

// maxReconnects bounds how often a connection may be lost while an agent does its due work.
const maxReconnects = 100

func (n *node) tick(ctx context.Context) error {
	generation := n.agent.Generation()
	for range maxReconnects {
		if err := n.connected(ctx, generation); err != nil {
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
