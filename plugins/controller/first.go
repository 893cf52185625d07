package controller

import (
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
)

// Portioned is a processor whose full resync takes long. The controller uses it for the first resync, when VPP's state is still
// unknown.
type Portioned interface {
	// Prepare does the part of the first Resync that needs no answer from VPP.
	Prepare()
	// ResyncInPortions is Resync, but it moves the work that can be done later into the calls it returns. The controller makes them
	// one after the other, before any other call of the processor.
	ResyncInPortions() (portions []func(), err error)
}

// first is the full resync that starts everything. Its long part is its Rest.
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
	txn := &event.Txn{Cause: "first sync", Resync: event.Full, Values: c.values.allValues(), Locate: c.locate()}
	if len(c.portions) > 0 {
		c.rest = make(chan map[string]proto.Message, len(c.portions)) // a full capacity, so that the writer never waits
		txn.Rest = c.rest
	}
	return c.sendTxn(txn)
}

// Meanwhile does work while VPP carries out the transaction that Step returned: the rest of a first sync, or its preparation while
// VPP looks up interfaces. It never waits.
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
		if changes := c.values.changedValues(nil); len(changes) > 0 {
			c.rest <- changes
		}
	}
	close(c.rest)
	c.portions, c.rest = nil, nil
}
