package interim

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Owner is the prefix of the renderer's owners at the sink: "acl/table/<name>", "acl/interface/<name>", "acl/ports/<name>" (the
// filter beside an interface's lists).
const Owner = "acl/"

// delivered is what the sink has.
type delivered struct {
	sink renderer.Sink
	sent map[string]lists.Lists  // by interface
	acls map[string]*table.Table // by name
	// uses is the number of places in sent lists that have a table at interfaces with some served ports. there has the tables in the sink.
	uses  map[string]map[string]int
	there map[string]map[string]*law.Ports
	// open are the interfaces that were sent without lists, although they are evaluated.
	open map[string]bool
}

func newDelivered(sink renderer.Sink) delivered {
	return delivered{
		sink: sink, sent: map[string]lists.Lists{}, acls: map[string]*table.Table{},
		uses: map[string]map[string]int{}, there: map[string]map[string]*law.Ports{}, open: map[string]bool{},
	}
}

// Sent returns the lists of an interface that were sent; false: none.
func (d *delivered) Sent(iface string) (lists.Lists, bool) {
	l, ok := d.sent[iface]
	return l, ok
}

// Table returns a table that was sent; nil: none.
func (d *delivered) Table(name string) *table.Table { return d.acls[name] }

// Resync sends everything to the sink again.
func (d *delivered) Resync() {
	for _, name := range slices.Sorted(maps.Keys(d.acls)) {
		for _, key := range slices.Sorted(maps.Keys(d.there[name])) {
			d.send(d.acls[name], nil, d.there[name][key])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.sent)) {
		if l := d.sent[name]; l.Filter != nil {
			d.sendFilter(name, l.Filter)
		}
		d.sendLists(name, d.sent[name], false)
	}
	for _, name := range slices.Sorted(maps.Keys(d.open)) {
		d.sendLists(name, lists.Lists{}, true)
	}
}

// use adds to the uses of the tables of lists that the sink has.
func (d *delivered) use(l lists.Lists, by int, moved map[string]struct{}) {
	for _, list := range [2][]lists.Place{l.In, l.Out} {
		for _, p := range list {
			key := l.ServedAt(p).Key()
			if table.Lawless(p.Table) {
				key = ""
			}
			if d.uses[p.Table] == nil {
				d.uses[p.Table] = map[string]int{}
			}
			before := d.uses[p.Table][key]
			if d.uses[p.Table][key] = before + by; before+by == 0 {
				delete(d.uses[p.Table], key)
			}
			if len(d.uses[p.Table]) == 0 {
				delete(d.uses, p.Table)
			}
			if before == 0 || before+by == 0 {
				moved[p.Table] = struct{}{}
			}
		}
	}
}

// stale returns the served ports for which the sink has a table that no list has any more, sorted. A table that is kept although
// no list has it now stays unchanged.
func (d *delivered) stale(table string) []string {
	if d.acls[table] != nil && len(d.uses[table]) == 0 {
		return nil
	}
	var out []string
	for key := range d.there[table] {
		if d.acls[table] == nil || d.uses[table][key] == 0 {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// sendTable sends the missing parts of a table: for all served ports of the lists that have it. Old is the table before; nil:
// none.
func (d *delivered) sendTable(now, old *table.Table, served map[string]*law.Ports) {
	keys := map[string]struct{}{}
	for key := range d.uses[now.Name] {
		keys[key] = struct{}{}
	}
	if len(keys) == 0 {
		for key := range d.there[now.Name] {
			keys[key] = struct{}{}
		}
	}
	if len(keys) == 0 { // no list has it yet
		keys[""] = struct{}{}
	}
	if d.there[now.Name] == nil {
		d.there[now.Name] = map[string]*law.Ports{}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		p, has := d.there[now.Name][key]
		if !has {
			p = served[key]
		}
		if !has || old == nil || !now.Same(old) {
			d.there[now.Name][key] = p
			d.send(now, old, p)
		}
	}
}

// commitLists sends the lists of an interface, and the filter beside them; open: it has no lists, and passes everything.
func (d *delivered) commitLists(name string, now lists.Lists, open bool) {
	old := d.sent[name]
	if !now.Filter.Same(old.Filter) {
		d.sendFilter(name, now.Filter)
	}
	if !lists.SameTables(now, old) || open != d.open[name] {
		d.sendLists(name, now, open)
	}
	if len(now.In)+len(now.Out) == 0 {
		delete(d.sent, name)
	} else {
		d.sent[name] = now
	}
}

// send sends a table for interfaces with these served ports; nil: no old one.
func (d *delivered) send(t, old *table.Table, served *law.Ports) {
	v := t.Value(old, served)
	d.sink.Set(Owner+"table/"+v.GetName(), map[string]proto.Message{kv.ACLKey(v.GetName()): v}, nil)
}

// sendLists sends the lists of an interface; without lists, and not open, it removes the value.
func (d *delivered) sendLists(iface string, l lists.Lists, open bool) {
	if delete(d.open, iface); open {
		d.open[iface] = true
	}
	if len(l.In)+len(l.Out) == 0 && !open {
		d.sink.Set(Owner+"interface/"+iface, nil, nil)
		return
	}
	v := &contivacl.InterfaceACLs{Interface: iface, Input: l.WireNames(l.In), Output: l.WireNames(l.Out)}
	d.sink.Set(Owner+"interface/"+iface, map[string]proto.Message{kv.InterfaceACLsKey(iface): v}, nil)
}

// sendFilter sends a filter; nil removes it.
func (d *delivered) sendFilter(iface string, f *table.Filter) {
	if f == nil {
		d.sink.Set(Owner+"ports/"+iface, nil, nil)
		return
	}
	d.sink.Set(Owner+"ports/"+iface, map[string]proto.Message{kv.SCTPPortsKey(iface): f.Value(iface)}, nil)
}

// RuleOf returns the rule of the table at a place that became the given rule of VPP's.
func (d *delivered) RuleOf(l lists.Lists, output bool, place, rule int) (int, bool) {
	list := l.Direction(output)
	if rule < 0 || place < 0 || place >= len(list) {
		return rule, rule < 0 || place == dataplane.PortsPlace
	}
	t := d.acls[list[place].Table]
	if t == nil {
		return 0, false
	}
	return t.RuleOf(rule, l.ServedAt(list[place]))
}

// CauseIn returns the cause of a rule of lists.
func (d *delivered) CauseIn(l lists.Lists, output bool, place, rule int) (dataplane.Cause, bool) {
	if rule < 0 {
		return dataplane.Cause{Kind: dataplane.CauseNoMatch, Denied: true}, true
	}
	if place == dataplane.PortsPlace {
		list := l.Filter.Direction(match.InOut(output))
		if rule >= len(list) {
			return dataplane.Cause{}, false
		}
		return *list[rule].Cause, true
	}
	list := l.Direction(output)
	if place < 0 || place >= len(list) {
		return dataplane.Cause{}, false
	}
	t := d.acls[list[place].Table]
	if t == nil || rule >= len(t.Causes) {
		return dataplane.Cause{}, false
	}
	if list[place].Cause != nil {
		return *list[place].Cause, true
	}
	if _, beside := kv.NeedsSCTPPorts(t.Name); beside && t.Rules[rule].Verb == match.Deny {
		if c := l.Filter.DeniesPair(match.InOut(output), &t.Rules[rule]); c != nil {
			return *c, true
		}
	}
	return *t.Causes[rule], true
}
