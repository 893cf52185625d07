package acl

import (
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/conflict"
	"github.com/contiv-agent/contiv-agent/renderer/acl/law"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Owner is the prefix of the renderer's owners at the sink: "acl/table/<name>", "acl/interface/<name>", "acl/ports/<name>" (the
// filter beside an interface's lists), "acl/note/<object>".
const Owner = "acl/"

// output has the wanted lists, and the state of the sink.
type output struct {
	want map[string]lists // by interface
	refs map[string]int   // by table: in how many lists of want
	sent map[string]lists
	acls map[string]*table // sent
	// uses is the number of places in sent lists that have a table at interfaces with some served ports. there has the tables in the sink.
	uses  map[string]map[string]int
	there map[string]map[string]*law.Ports
	// open are the interfaces that were sent without lists: see Config.Evaluated.
	open map[string]bool
	// dirty are the interfaces whose lists may differ.
	dirty map[string]struct{}
	// pending is the rest of changes that VPP has an interim state of; nil: none. more: other changes wait.
	pending *change
	more    bool
	// behind: VPP may lack a part of the sent changes. late has their closings.
	behind bool
	late   conflict.Log
}

func newOutput() output {
	return output{
		want: map[string]lists{}, refs: map[string]int{}, sent: map[string]lists{}, acls: map[string]*table{}, dirty: map[string]struct{}{},
		uses: map[string]map[string]int{}, there: map[string]map[string]*law.Ports{}, open: map[string]bool{},
	}
}

// enlist sets the lists of an interface.
func (r *Renderer) enlist(name string, now lists) {
	o := &r.out
	r.count(o.want[name], -1)
	r.count(now, 1)
	if len(now.in)+len(now.out) == 0 {
		delete(o.want, name)
	} else {
		o.want[name] = now
	}
	o.dirty[name] = struct{}{}
}

// unlist removes the lists of an interface.
func (r *Renderer) unlist(name string) { r.enlist(name, lists{}) }

// count adds to the uses of the tables of lists.
func (r *Renderer) count(l lists, by int) {
	for _, list := range [2][]place{l.in, l.out} {
		for _, p := range list {
			before := r.out.refs[p.table]
			if r.out.refs[p.table] = before + by; r.out.refs[p.table] == 0 {
				delete(r.out.refs, p.table)
			}
			if before == 0 || before+by == 0 {
				r.dirty.tables[p.table] = struct{}{}
			}
		}
	}
}

// table returns the wanted table; nil: none.
func (r *Renderer) table(name string) *table {
	if r.out.refs[name] == 0 {
		return nil
	}
	return r.lookup(name)
}

// lookup returns a table, whether lists have it or not.
func (r *Renderer) lookup(name string) *table {
	if t := r.fixed[name]; t != nil {
		return t
	}
	return r.tables[name]
}

// changes returns the differences between the wanted state and the sink's.
func (r *Renderer) changes() change {
	c := newChange()
	for name := range r.dirty.tables {
		c.tables[name] = r.table(name)
	}
	for name := range r.out.dirty {
		c.lists[name] = r.out.want[name]
	}
	clear(r.dirty.tables)
	clear(r.out.dirty)
	return c
}

// commit sends a change: tables before the lists that name them, and their removal after. An interim state (torn) opens no interface.
func (r *Renderer) commit(c *change, torn map[string]bool) {
	names := slices.Sorted(maps.Keys(c.lists))
	moved := map[string]struct{}{}
	served := map[string]*law.Ports{} // by key
	for _, name := range names {
		r.out.use(r.out.sent[name], -1, moved)
		r.out.use(c.lists[name], 1, moved)
		served[c.lists[name].served.Key()] = c.lists[name].served
		for _, p := range c.lists[name].in {
			if p.served != nil {
				served[p.served.Key()] = p.served
			}
		}
	}
	for name := range c.tables {
		moved[name] = struct{}{}
	}
	var gone []string
	for _, name := range slices.Sorted(maps.Keys(moved)) {
		now, changes := c.tables[name]
		old := r.out.acls[name]
		if !changes {
			now = old
		}
		switch {
		case now == nil && old != nil:
			delete(r.out.acls, name)
		case now == nil:
			continue
		default:
			if old != nil && now != old && now.same(old) {
				now.wire = old.wire
			}
			r.out.acls[name] = now
			r.sendTable(now, old, served)
		}
		if len(r.out.stale(name)) > 0 {
			gone = append(gone, name)
		}
	}
	for _, name := range names {
		r.commitLists(name, c.lists[name], r.open(name, c.lists[name], torn[name]))
	}
	for _, name := range gone {
		for _, key := range r.out.stale(name) {
			r.sink.Set(Owner+"table/"+wireName(name, r.out.there[name][key]), nil, nil)
			delete(r.out.there[name], key)
		}
		if len(r.out.there[name]) == 0 {
			delete(r.out.there, name)
		}
	}
}

// use adds to the uses of the tables of lists that the sink has.
func (o *output) use(l lists, by int, moved map[string]struct{}) {
	for _, list := range [2][]place{l.in, l.out} {
		for _, p := range list {
			key := l.servedAt(p).Key()
			if lawless(p.table) {
				key = ""
			}
			if o.uses[p.table] == nil {
				o.uses[p.table] = map[string]int{}
			}
			before := o.uses[p.table][key]
			if o.uses[p.table][key] = before + by; before+by == 0 {
				delete(o.uses[p.table], key)
			}
			if len(o.uses[p.table]) == 0 {
				delete(o.uses, p.table)
			}
			if before == 0 || before+by == 0 {
				moved[p.table] = struct{}{}
			}
		}
	}
}

// stale returns the served ports for which the sink has a table that no list has any more, sorted. A table that is kept although
// no list has it now stays unchanged.
func (o *output) stale(table string) []string {
	if o.acls[table] != nil && len(o.uses[table]) == 0 {
		return nil
	}
	var out []string
	for key := range o.there[table] {
		if o.acls[table] == nil || o.uses[table][key] == 0 {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// sendTable sends the missing parts of a table: for all served ports of the lists that have it. Old is the table before; nil:
// none.
func (r *Renderer) sendTable(now, old *table, served map[string]*law.Ports) {
	o := &r.out
	keys := map[string]struct{}{}
	for key := range o.uses[now.name] {
		keys[key] = struct{}{}
	}
	if len(keys) == 0 {
		for key := range o.there[now.name] {
			keys[key] = struct{}{}
		}
	}
	if len(keys) == 0 { // no list has it yet
		keys[""] = struct{}{}
	}
	if o.there[now.name] == nil {
		o.there[now.name] = map[string]*law.Ports{}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		p, has := o.there[now.name][key]
		if !has {
			p = served[key]
		}
		if !has || old == nil || !now.same(old) {
			o.there[now.name][key] = p
			r.send(now, old, p)
		}
	}
}

// commitLists sends the lists of an interface, and the filter beside them; open: it has no lists, and passes everything.
func (r *Renderer) commitLists(name string, now lists, open bool) {
	old := r.out.sent[name]
	if !now.filter.same(old.filter) {
		r.sendFilter(name, now.filter)
	}
	if !sameTables(now, old) || open != r.out.open[name] {
		r.sendLists(name, now, open)
	}
	if len(now.in)+len(now.out) == 0 {
		delete(r.out.sent, name)
	} else {
		r.out.sent[name] = now
	}
}

// send sends a table for interfaces with these served ports; nil: no old one.
func (r *Renderer) send(t, old *table, served *law.Ports) {
	v := t.value(old, served)
	r.sink.Set(Owner+"table/"+v.GetName(), map[string]proto.Message{kv.ACLKey(v.GetName()): v}, nil)
}

// open reports that an interface with these lists has a value although it has no lists: it was evaluated.
func (r *Renderer) open(iface string, l lists, onWay bool) bool {
	switch {
	case len(l.in)+len(l.out) > 0:
		return false
	case onWay:
		return r.out.open[iface]
	}
	return r.cfg.Evaluated && r.ifaces[iface] != nil
}

// sendLists sends the lists of an interface; without lists, and not open, it removes the value.
func (r *Renderer) sendLists(iface string, l lists, open bool) {
	if delete(r.out.open, iface); open {
		r.out.open[iface] = true
	}
	if len(l.in)+len(l.out) == 0 && !open {
		r.sink.Set(Owner+"interface/"+iface, nil, nil)
		return
	}
	v := &contivacl.InterfaceACLs{Interface: iface, Input: l.wireNames(l.in), Output: l.wireNames(l.out)}
	r.sink.Set(Owner+"interface/"+iface, map[string]proto.Message{kv.InterfaceACLsKey(iface): v}, nil)
}

// sendFilter sends a filter; nil removes it.
func (r *Renderer) sendFilter(iface string, f *filter) {
	if f == nil {
		r.sink.Set(Owner+"ports/"+iface, nil, nil)
		return
	}
	r.sink.Set(Owner+"ports/"+iface, map[string]proto.Message{kv.SCTPPortsKey(iface): f.value(iface)}, nil)
}

func names(list []place) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.table
	}
	return out
}

// servedAt returns the served ports under whose law a list has a table.
func (l *lists) servedAt(p place) *law.Ports {
	if p.served != nil {
		return p.served
	}
	return l.served
}

// wireNames returns VPP's names of the tables of a list.
func (l *lists) wireNames(list []place) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = wireName(p.table, l.servedAt(p))
	}
	return out
}

func sameTables(a, b lists) bool {
	same := func(a, b place) bool { return a.table == b.table && a.served.Key() == b.served.Key() }
	return a.served.Key() == b.served.Key() && slices.EqualFunc(a.in, b.in, same) && slices.EqualFunc(a.out, b.out, same)
}

// Resync sends everything to the sink again.
func (r *Renderer) Resync() {
	for _, name := range slices.Sorted(maps.Keys(r.out.acls)) {
		for _, key := range slices.Sorted(maps.Keys(r.out.there[name])) {
			r.send(r.out.acls[name], nil, r.out.there[name][key])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.out.sent)) {
		if l := r.out.sent[name]; l.filter != nil {
			r.sendFilter(name, l.filter)
		}
		r.sendLists(name, r.out.sent[name], false)
	}
	for _, name := range slices.Sorted(maps.Keys(r.out.open)) {
		r.sendLists(name, lists{}, true)
	}
	r.notes.resend()
	r.flush()
}

// Cause returns the cause of a rule in the sink: the rule with that number in the table at a place of the interface's list
// (output: of packets that leave VPP there); -1 is the end of the list. False: no such rule exists.
func (r *Renderer) Cause(iface string, output bool, place, rule int) (dataplane.Cause, bool) {
	l, ok := r.out.sent[iface]
	if !ok {
		return dataplane.Cause{}, false
	}
	if rule, ok = r.ruleOf(l, output, place, rule); !ok {
		return dataplane.Cause{}, false
	}
	c, ok := r.causeIn(l, output, place, rule)
	if !ok {
		return c, false
	}
	if c.Host { // of an exit
		return c, true
	}
	if h := r.hooks[iface]; h != nil && !output && c.Kind != dataplane.CauseStatic && !l.repeats(place) {
		c.Endpoint, c.Host, c.Egress = h.endpoint, true, h.egress
		return c, true
	}
	if c.Kind != dataplane.CauseStatic && rule >= 0 {
		if src, ok := r.elsewhere(iface, l, output, place, rule, &c); ok {
			c.Endpoint = r.workloadAt(src)
			return c, true
		}
	}
	if i := r.ifaces[iface]; i != nil && c.Kind != dataplane.CauseStatic && c.Endpoint == "" && len(i.work) == 1 {
		c.Endpoint, c.Egress = i.work[0].id.workload, !output
	}
	return c, true
}

// repeats reports whether a place of the input list repeats what the packet's receiver decides.
func (l *lists) repeats(place int) bool {
	return place >= 0 && place < len(l.in) && l.in[place].repeats
}

// direction returns the list for packets that enter VPP, or that leave it (output).
func (l *lists) direction(output bool) []place {
	if output {
		return l.out
	}
	return l.in
}

// ruleOf returns the rule of the table at a place that became the given rule of VPP's.
func (r *Renderer) ruleOf(l lists, output bool, place, rule int) (int, bool) {
	list := l.direction(output)
	if rule < 0 || place < 0 || place >= len(list) {
		return rule, rule < 0 || place == dataplane.PortsPlace
	}
	t := r.out.acls[list[place].table]
	if t == nil {
		return 0, false
	}
	served := l.servedAt(list[place])
	if lawless(t.name) {
		served = nil
	}
	w := t.written(served.Key())
	if w == nil {
		w = t.write(nil, served)
	}
	return w.of(rule)
}

// causeIn returns the cause of a rule of lists.
func (r *Renderer) causeIn(l lists, output bool, place, rule int) (dataplane.Cause, bool) {
	if rule < 0 {
		return dataplane.Cause{Kind: dataplane.CauseNoMatch, Denied: true}, true
	}
	if place == dataplane.PortsPlace {
		list := l.filter.direction(match.InOut(output))
		if rule >= len(list) {
			return dataplane.Cause{}, false
		}
		return *list[rule].cause, true
	}
	list := l.direction(output)
	if place < 0 || place >= len(list) {
		return dataplane.Cause{}, false
	}
	t := r.out.acls[list[place].table]
	if t == nil || rule >= len(t.causes) {
		return dataplane.Cause{}, false
	}
	if list[place].cause != nil {
		return *list[place].cause, true
	}
	if _, beside := kv.NeedsSCTPPorts(t.name); beside && t.rules[rule].Verb == match.Deny {
		if c := l.filter.deniesPair(match.InOut(output), &t.rules[rule]); c != nil {
			return *c, true
		}
	}
	return *t.causes[rule], true
}

// elsewhere reports whether a rule belongs to another pod's program, and to which pod's.
func (r *Renderer) elsewhere(iface string, l lists, output bool, place, rule int, c *dataplane.Cause) (src netip.Addr, ok bool) {
	i := r.ifaces[iface]
	if place == dataplane.PortsPlace {
		return l.filter.direction(match.InOut(output))[rule].src.Addr(), i == nil
	}
	table := l.direction(output)[place].table
	g := r.groups[table]
	if i == nil {
		t := r.out.acls[table]
		if !output && l.repeats(place) {
			return t.rules[rule].Dst.Addr(), true
		}
		return t.rules[rule].Src.Addr(), r.fixed[table] == nil
	}
	if g == nil {
		return r.refuser.cause(i, table, rule, c)
	}
	n := 0
	g.each(r, func(s netip.Addr, _ rect, p *program, line, k int) {
		if res := i.residues[p]; n == rule && res != nil && line < len(res.lines) && k < len(res.lines[line].rects) {
			src, ok = s, true
			*c = *res.lines[line].rects[k].cause // equal rules may have other causes elsewhere
		}
		n++
	})
	return src, ok
}

// workloadAt returns the workload with an address, "" if none has it.
func (r *Renderer) workloadAt(a netip.Addr) string {
	if i := r.ifaces[r.node.Interfaces[a]]; i != nil && len(i.work) == 1 {
		return i.work[0].id.workload
	}
	return ""
}
