package client

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// Change is a change of this client's configuration: items to put and items to delete, in one transaction. Use it from one
// goroutine. Send reports its problems.
type Change struct {
	client *Client
	all    bool // resync: the items are the whole configuration
	strict bool // all or nothing
	items  []proto.Message
	gone   []string        // keys
	left   []proto.Message // the messages behind gone, where messages were given
	last   string          // key of the last item that was put; "": none
	merges map[string]event.Merge
	labels map[string]map[string]string
	err    error
	// Results of Send.
	pending, unimplemented []string
}

// DataChange begins a change.
func (c *Client) DataChange() *Change {
	return &Change{client: c, merges: map[string]event.Merge{}, labels: map[string]map[string]string{}}
}

// DataResync begins a change that replaces this client's whole configuration: items that are not put are deleted.
func (c *Client) DataResync() *Put {
	change := c.DataChange()
	change.all = true
	return change.Put()
}

// Put returns the builder for items to create or replace.
func (c *Change) Put() *Put { return &Put{c} }

// Delete returns the builder for items to delete.
func (c *Change) Delete() *Delete { return &Delete{c} }

// AllOrNothing reverts the whole change if one item fails. Without it, items that VPP refuses for now stay in the desired
// state, and the agent retries them.
func (c *Change) AllOrNothing() *Change {
	c.strict = true
	return c
}

func (c *Change) failWith(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("client: %w", err)
	}
}

func (c *Change) putItem(m proto.Message) {
	if m == nil || !m.ProtoReflect().IsValid() {
		c.failWith(errors.New("an item is nil"))
		return
	}
	key := kv.Key(m)
	if err := kv.Check(key, m); err != nil {
		c.failWith(err)
		return
	}
	c.items, c.last = append(c.items, m), key
}

// del deletes the item with the key of m.
func (c *Change) del(m proto.Message) {
	if c.all {
		c.failWith(errors.New("a resync must not delete items: it deletes all that are not put"))
		return
	}
	key := kv.Key(m)
	if err := kv.Check(key, m); err != nil {
		c.failWith(err)
		return
	}
	c.gone, c.left = append(c.gone, key), append(c.left, m)
}

// Merge sets how the last put item is merged with other owners' values of its key; without Merge it is proto.Merge.
func (p *Put) Merge(m event.Merge) *Put {
	if p.last == "" {
		p.failWith(errors.New("merge: no item was put"))
		return p
	}
	p.merges[p.last] = m
	return p
}

// Labels attaches labels to the last put item, by which Config can select.
func (p *Put) Labels(labels map[string]string) *Put {
	if p.last == "" {
		p.failWith(errors.New("labels: no item was put"))
		return p
	}
	p.labels[p.last] = labels
	return p
}

// Pending returns the keys of a successfully sent change that wait for other values. It returns at most a hundred, unless
// the change was sent as a stream.
func (c *Change) Pending() []string { return c.pending }

// Unimplemented returns the keys that the agent keeps but cannot configure in VPP; limited as Pending.
func (c *Change) Unimplemented() []string { return c.unimplemented }
