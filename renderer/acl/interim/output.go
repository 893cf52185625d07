package interim

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Pods are facts about interfaces.
type Pods interface {
	// Addrs returns the addresses of a local pod's interface; false: it is no pod's.
	Addrs(iface string) (addrs []netip.Addr, pod bool)
	// Isolated returns the lists of an interface that nothing may pass.
	Isolated() lists.Lists
	// Node returns the present state of the node.
	Node() *dataplane.Node
}

// Output has the wanted lists, and brings the sink to them. A zero Most is no limit.
type Output struct {
	delivered
	store *table.Store
	pods  Pods
	most  int                    // ACLs of an interface
	valid bool                   // an interface of a pod that needs no lists has a value
	want  map[string]lists.Lists // by interface
	refs  map[string]int         // by table: in how many lists of want
	// dirty are the interfaces whose lists may differ. listed are pods' interfaces whose lists were sent at least once.
	dirty, listed map[string]struct{}
	// pending is the rest of changes that VPP has an interim state of; nil: none. more: other changes wait.
	pending *change
	more    bool
	// behind: VPP may lack a part of the sent changes. late has their closings.
	behind bool
	late   conflict.Log
	resent bool                            // the translated addresses were sent again
	ending func() (now, late []netip.Addr) // nil: no connection ends
}

// NewOutput returns an output that has sent its sink nothing. Most is the most ACLs of an interface. Evaluated: an interface of a pod that needs
// no lists has a value without any.
func NewOutput(sink renderer.Sink, store *table.Store, pods Pods, most int, evaluated bool) *Output {
	return &Output{
		delivered: newDelivered(sink), store: store, pods: pods, most: most, valid: evaluated,
		want: map[string]lists.Lists{}, refs: map[string]int{}, dirty: map[string]struct{}{}, listed: map[string]struct{}{},
	}
}

// Wanted returns the wanted lists of an interface.
func (o *Output) Wanted(iface string) lists.Lists { return o.want[iface] }

// Uses reports whether a wanted list has a table.
func (o *Output) Uses(name string) bool { return o.refs[name] > 0 }

// Resent records that translated addresses were sent again: until the next change that opens, no address proves that two interfaces do not concern
// one packet.
func (o *Output) Resent() { o.resent = true }

// More reports whether changes wait.
func (o *Output) More() bool { return o.more }

// Behind takes how far VPP is. Between reports whether the sink has an interim state whose rest follows.
func (o *Output) Behind(p dataplane.Progress) (between bool) {
	if o.behind, o.ending = p.Behind, p.Ending; p.Acknowledged {
		o.late.Age()
	}
	return o.pending != nil
}

// ends returns the frontends and endpoints of connections that end: now, with the next changes, and late, with earlier ones that VPP may lack.
func (o *Output) ends() (now, late []netip.Addr) {
	if o.ending == nil {
		return nil, nil
	}
	return o.ending()
}

// Remove removes the lists of an interface that exists no more.
func (o *Output) Remove(name string) {
	o.Enlist(name, lists.Lists{})
	delete(o.listed, name)
}

// Enlist sets the lists of an interface.
func (o *Output) Enlist(name string, now lists.Lists) {
	o.count(o.want[name], -1)
	o.count(now, 1)
	if len(now.In)+len(now.Out) == 0 {
		delete(o.want, name)
	} else {
		o.want[name] = now
	}
	o.dirty[name] = struct{}{}
}

// count adds to the uses of the tables of lists.
func (o *Output) count(l lists.Lists, by int) {
	for _, list := range [2][]lists.Place{l.In, l.Out} {
		for _, p := range list {
			before := o.refs[p.Table]
			if o.refs[p.Table] = before + by; o.refs[p.Table] == 0 {
				delete(o.refs, p.Table)
			}
			if before == 0 || before+by == 0 {
				o.store.Touch(p.Table)
			}
		}
	}
}

// wantedTable returns the wanted table; nil: none.
func (o *Output) wantedTable(name string) *table.Table {
	if o.refs[name] == 0 {
		return nil
	}
	return o.store.Lookup(name)
}

// changes returns the differences between the wanted state and the sink's.
func (o *Output) changes() change {
	c := newChange()
	for name := range o.store.Changed() {
		c.tables[name] = o.wantedTable(name)
	}
	for name := range o.dirty {
		c.lists[name] = o.want[name]
	}
	o.store.Settled()
	clear(o.dirty)
	return c
}

// commit sends a change: tables before the lists that name them, and their removal after. An interim state (torn) opens no interface.
func (o *Output) commit(c *change, torn map[string]bool) {
	names := slices.Sorted(maps.Keys(c.lists))
	moved := map[string]struct{}{}
	served := map[string]*law.Ports{} // by key
	for _, name := range names {
		o.use(o.sent[name], -1, moved)
		o.use(c.lists[name], 1, moved)
		served[c.lists[name].Served.Key()] = c.lists[name].Served
		for _, p := range c.lists[name].In {
			if p.Served != nil {
				served[p.Served.Key()] = p.Served
			}
		}
	}
	for name := range c.tables {
		moved[name] = struct{}{}
	}
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		now, changes := c.tables[name]
		old := o.acls[name]
		if !changes {
			now = old
		}
		switch {
		case now == nil && old != nil:
			delete(o.acls, name)
		case now == nil:
			continue
		default:
			if old != nil && now != old && now.Same(old) {
				now.KeepWire(old)
			}
			o.acls[name] = now
			o.sendTable(now, old, served)
		}
		if len(o.stale(name)) > 0 {
			gone = append(gone, name)
		}
	}
	for _, name := range names {
		o.commitLists(name, c.lists[name], o.openWithout(name, c.lists[name], torn[name]))
	}
	for _, name := range gone {
		for _, key := range o.stale(name) {
			o.sink.Set(Owner+"table/"+table.WireName(name, o.there[name][key]), nil, nil)
			delete(o.there[name], key)
		}
		if len(o.there[name]) == 0 {
			delete(o.there, name)
		}
	}
}

// openWithout reports that an interface with these lists has a value although it has no lists: it was evaluated.
func (o *Output) openWithout(iface string, l lists.Lists, onWay bool) bool {
	switch {
	case len(l.In)+len(l.Out) > 0:
		return false
	case onWay:
		return o.open[iface]
	}
	_, pod := o.pods.Addrs(iface)
	return o.valid && pod
}
