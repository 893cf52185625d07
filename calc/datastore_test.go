package calc_test

import (
	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/recorded"
)

// feed applies changes of Felix's datastore to a graph.
type feed struct{ *datastore.Feed }

func newDatastore(g *calc.Graph) feed { return feed{datastore.NewFeed(g)} }

func (f feed) apply(c recorded.KV) error {
	u, err := datastore.Decode(c.Key, c.Bytes())
	f.Apply(u)
	return err
}
