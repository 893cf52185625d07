package controller

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// Portioned is a processor whose resync takes long. It is used for the first, when there is nothing to be compared with yet.
type Portioned interface {
	// Prepare does what of the first Resync needs no answer of VPP.
	Prepare()
	// ResyncInPortions is Resync, but leaves to the calls it returns what may come later. They are made one after the other,
	// before anything else is asked of the processor.
	ResyncInPortions() (portions []func(), err error)
}

// ahead is what is left to do of the first sync.
type ahead struct {
	prepared bool
	portions []func()
	rest     chan map[string]proto.Message // nil: nothing is left
}

// first is the full resync that starts everything. What takes long of it is its Rest.
func (c *Controller) first() *event.Txn {
	c.phase = running
	c.report(c.each(func(p Processor) error {
		l, ok := p.(Portioned)
		if !ok {
			return p.Resync()
		}
		portions, err := l.ResyncInPortions()
		c.portions = append(c.portions, portions...)
		return err
	}))
	c.causes = causes{}
	c.carry()
	txn := &event.Txn{Cause: "first sync", Resync: event.Full, Values: c.values.all(), Locate: c.locate()}
	if len(c.portions) > 0 {
		c.rest = make(chan map[string]proto.Message, len(c.portions)) // whoever fills it never waits
		txn.Rest = c.rest
	}
	return c.send(txn)
}

// Meanwhile does what can be done while the transaction that Step returned is carried out: the rest of a first sync, or what
// it begins with while VPP is asked where things are. It waits for nothing.
func (c *Controller) Meanwhile() {
	if c.phase == locating && !c.prepared {
		c.prepared = true
		for _, p := range c.processors {
			if l, ok := p.(Portioned); ok {
				l.Prepare()
			}
		}
	}
	if c.rest == nil {
		return
	}
	for _, do := range c.portions {
		do()
		if changes := c.values.changes(nil); len(changes) > 0 {
			c.rest <- changes
		}
	}
	close(c.rest)
	c.portions, c.rest = nil, nil
}
