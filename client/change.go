package client

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/keyed"
)

// Change is a change of what the client wants: items to put and items to delete, all in one transaction. It is for one goroutine.
// What is wrong with it is said when it is sent.
type Change struct {
	client *Client
	all    bool // resync: the items are everything
	strict bool // all or nothing
	items  []proto.Message
	gone   []string        // keys
	left   []proto.Message // what gone was made of, as far as it was messages
	last   string          // key of the item that was put last; "": none
	merges map[string]event.Merge
	labels map[string]map[string]string
	err    error
	// What SendFor found out.
	pending, unimplemented []string
}

// DataChange begins a change.
func (c *Client) DataChange() *Change {
	return &Change{client: c, merges: map[string]event.Merge{}, labels: map[string]map[string]string{}}
}

// DataResync begins a change that says all the client wants: what it wanted before and is not put goes.
func (c *Client) DataResync() *Put {
	change := c.DataChange()
	change.all = true
	return change.Put()
}

// Put goes on with items to create or replace.
func (c *Change) Put() *Put { return &Put{c} }

// Delete goes on with items to remove.
func (c *Change) Delete() *Delete { return &Delete{c} }

// AllOrNothing has the whole change taken back if one item fails. Without it, what VPP has refused for now stays wanted and is tried
// again.
func (c *Change) AllOrNothing() *Change {
	c.strict = true
	return c
}

func (c *Change) fail(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("client: %w", err)
	}
}

func (c *Change) put(m proto.Message) {
	if m == nil || !m.ProtoReflect().IsValid() {
		c.fail(errors.New("an item is nil"))
		return
	}
	key := keyed.Key(m)
	if err := keyed.Check(key, m); err != nil {
		c.fail(err)
		return
	}
	c.items, c.last = append(c.items, m), key
}

// del removes the value that has the key of m.
func (c *Change) del(m proto.Message) {
	if c.all {
		c.fail(errors.New("a resync says what stays, not what goes"))
		return
	}
	key := keyed.Key(m)
	if err := keyed.Check(key, m); err != nil {
		c.fail(err)
		return
	}
	c.gone, c.left = append(c.gone, key), append(c.left, m)
}

// Merge says how the item put last goes over what others want for its key; without it, by proto.Merge.
func (p *Put) Merge(m event.Merge) *Put {
	if p.last == "" {
		p.fail(errors.New("merge: no item was put"))
		return p
	}
	p.merges[p.last] = m
	return p
}

// Labels are kept with the item put last, for Config to choose by.
func (p *Put) Labels(labels map[string]string) *Put {
	if p.last == "" {
		p.fail(errors.New("labels: no item was put"))
		return p
	}
	p.labels[p.last] = labels
	return p
}

// Pending are the keys of the change that wait for other values, after it was sent and nothing failed; a hundred at most unless it went as
// a stream.
func (c *Change) Pending() []string { return c.pending }

// Unimplemented are the keys that are kept, but that nothing in the agent puts into VPP; as Pending.
func (c *Change) Unimplemented() []string { return c.unimplemented }
