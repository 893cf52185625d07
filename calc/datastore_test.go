package calc_test

import (
	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/datastore"
)

// kv is a change of Felix's datastore, in its own encoding.
type kv struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Deleted bool   `json:"deleted"`
}

// feed gives a graph changes of Felix's datastore.
type feed struct{ *datastore.Feed }

func newDatastore(g *calc.Graph) feed { return feed{datastore.NewFeed(g)} }

func (f feed) apply(c kv) error {
	value := []byte(c.Value)
	if c.Deleted {
		value = nil
	}
	u, err := datastore.Decode(c.Key, value)
	f.Apply(u)
	return err
}
