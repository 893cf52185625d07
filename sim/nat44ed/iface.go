package nat44ed

import "slices"

// node is one of the nodes NAT44-ED puts on an interface's arcs, in arc order.
type node uint8

const (
	nodeClassify node = iota
	nodePreOut2In
	nodePreIn2Out
	nodePreIn2OutOutput
	nodeCount
)

// Arc counts how often each node is on the interface's arcs. VPP's feature arcs accept the same node twice and run it twice;
// removing a missing node has no effect.
type Arc [nodeCount]uint8

// Arc returns the nodes on the interface's arcs.
func (e *Engine) Arc(swIf uint32) Arc { return e.arcs[swIf] }

func (e *Engine) feature(swIf uint32, n node, on bool) {
	a := e.arcs[swIf]
	if on {
		a[n]++
	} else if a[n] > 0 {
		a[n]--
	}
	e.arcs[swIf] = a
}

// SwitchNode is feature_enable_disable of one of NAT44-ED's nodes; false: it has none of that name. No record of NAT44-ED follows. With
// workers the nodes have other names.
func (e *Engine) SwitchNode(swIf uint32, name string, on bool) bool {
	for n, names := range nodeNames() {
		if slices.Contains(names[:], name) {
			e.feature(swIf, node(n), on)
			return true
		}
	}
	return false
}

func nodeNames() [nodeCount][2]string {
	return [nodeCount][2]string{
		{"nat44-ed-classify", "nat44-handoff-classify"},
		{"nat-pre-out2in", "nat44-out2in-worker-handoff"},
		{"nat-pre-in2out", "nat44-in2out-worker-handoff"},
		{"nat-pre-in2out-output", "nat44-in2out-output-worker-handoff"},
	}
}

// OnInput reports whether a packet that arrives on the interface meets NAT44-ED; OnOutput whether one that leaves does.
func (a Arc) OnInput() bool { return a[nodeClassify]+a[nodePreOut2In]+a[nodePreIn2Out] > 0 }

// OnOutput is OnInput for the output arc.
func (a Arc) OnOutput() bool { return a[nodePreIn2OutOutput] > 0 }

// Reassembles reports whether shallow reassembly is on the interface's input arc.
func (e *Engine) Reassembles(swIf uint32) bool { return e.reass[swIf] > 0 }

// Nodes names the nodes as "show interface features" does without workers, input and output arc, in order.
func (a Arc) Nodes() (input, output []string) {
	for n, names := range nodeNames() {
		input = append(input, slices.Repeat(names[:1], int(a[n]))...)
	}
	at := len(input) - int(a[nodePreIn2OutOutput])
	return input[:at:at], input[at:]
}

type iface struct {
	swIf            uint32
	inside, outside bool
}

func preNode(inside bool) node {
	if inside {
		return nodePreIn2Out
	}
	return nodePreOut2In
}

func findIface(p *pool[iface], swIf uint32) (uint32, bool) {
	for i := range p.usedSlots() {
		if p.slotAt(i).swIf == swIf {
			return i, true
		}
	}
	return 0, false
}

// InterfaceAddDelFeature is nat44_interface_add_del_feature: Flags Inside means the inside role, anything else the outside role. The
// caller has checked that the interface exists (-2 otherwise).
//
// Deleting a role that the interface does not have removes the whole record. The node of the interface's actual role then stays on
// the arc for ever, but without reassembly: it sees all ports as 0 (vpp.md 3.2 B11).
func (e *Engine) InterfaceAddDelFeature(add bool, swIf uint32, flags Flags) int32 {
	if !e.enabled {
		return Unsupported
	}
	if add {
		return e.addInterface(swIf, flags&Inside != 0)
	}
	return e.delInterface(swIf, flags&Inside != 0)
}

func (e *Engine) addInterface(swIf uint32, inside bool) int32 {
	if _, ok := findIface(&e.outIfaces, swIf); ok {
		return ValueExist
	}
	i, ok := findIface(&e.ifaces, swIf)
	switch {
	case ok:
		f := e.ifaces.slotAt(i)
		if f.inside && inside || f.outside && !inside {
			return OK
		}
		e.reass[swIf]++
		e.feature(swIf, preNode(!inside), false)
		e.feature(swIf, nodeClassify, true)
	default:
		e.reass[swIf]++
		e.feature(swIf, preNode(inside), true)
		i = e.ifaces.takeSlot()
		*e.ifaces.slotAt(i) = iface{swIf: swIf}
	}
	table := e.net.Table(swIf)
	e.refFIB(table)
	if inside {
		e.ifaces.slotAt(i).inside = true
		return OK
	}
	e.ifaces.slotAt(i).outside = true
	e.becomeOutside(table, swIf)
	return OK
}

// becomeOutside and leaveOutside do the common part of the outside role and the output feature.
func (e *Engine) becomeOutside(table, swIf uint32) {
	e.refOutsideFIB(table, true)
	e.receiveAll(swIf, true)
	e.bindAddresses(swIf)
}

func (e *Engine) leaveOutside(table, swIf uint32) {
	e.refOutsideFIB(table, false)
	e.receiveAll(swIf, false)
}

func (e *Engine) delInterface(swIf uint32, inside bool) int32 {
	i, ok := findIface(&e.ifaces, swIf)
	if !ok {
		return NoSuchEntry
	}
	e.reass[swIf] = max(0, e.reass[swIf]-1)
	if f := e.ifaces.slotAt(i); f.inside && f.outside {
		e.feature(swIf, nodeClassify, false)
		e.feature(swIf, preNode(!inside), true)
		if inside {
			f.inside = false
		} else {
			f.outside = false
		}
	} else {
		e.feature(swIf, preNode(inside), false)
		e.ifaces.freeSlot(i)
	}
	table := e.net.Table(swIf)
	e.unrefFIB(table)
	if !inside {
		e.leaveOutside(table, swIf)
	}
	return OK
}

// AddDelOutputInterface is nat44_ed_add_del_output_interface: source NAT of packets that leave by the interface. It excludes the
// interface roles, and puts nat-pre-out2in on the input arc too.
func (e *Engine) AddDelOutputInterface(add bool, swIf uint32) int32 {
	if !e.enabled {
		return Unsupported
	}
	table := e.net.Table(swIf)
	i, ok := findIface(&e.outIfaces, swIf)
	if !add {
		if !ok {
			return NoSuchEntry
		}
		e.reass[swIf] = max(0, e.reass[swIf]-1)
		e.feature(swIf, nodePreOut2In, false)
		e.feature(swIf, nodePreIn2OutOutput, false)
		e.outIfaces.freeSlot(i)
		e.unrefFIB(table)
		e.leaveOutside(table, swIf)
		return OK
	}
	if _, role := findIface(&e.ifaces, swIf); ok || role {
		return ValueExist
	}
	e.reass[swIf]++
	e.feature(swIf, nodePreOut2In, true)
	e.feature(swIf, nodePreIn2OutOutput, true)
	i = e.outIfaces.takeSlot()
	*e.outIfaces.slotAt(i) = iface{swIf: swIf, inside: true, outside: true}
	e.refFIB(table)
	e.becomeOutside(table, swIf)
	return OK
}

// InterfaceDeleted must be called before an interface goes away. VPP removes all its nodes, also those that no role put on its arcs
// (vnet_feature_add_del_sw_interface).
func (e *Engine) InterfaceDeleted(swIf uint32) {
	if e.enabled {
		e.dropRoles(swIf)
		if _, ok := findIface(&e.outIfaces, swIf); ok {
			e.AddDelOutputInterface(false, swIf)
		}
	}
	delete(e.arcs, swIf)
}

func (e *Engine) dropRoles(swIf uint32) {
	i, ok := findIface(&e.ifaces, swIf)
	if !ok {
		return
	}
	f := *e.ifaces.slotAt(i)
	if f.inside {
		e.delInterface(swIf, true)
	}
	if f.outside {
		e.delInterface(swIf, false)
	}
}

func (e *Engine) delAllInterfaces() {
	for _, f := range e.ifaces.copyUsed() {
		e.dropRoles(f.swIf)
	}
	e.ifaces = pool[iface]{}
	for _, f := range e.outIfaces.copyUsed() {
		e.AddDelOutputInterface(false, f.swIf)
	}
	e.outIfaces = pool[iface]{}
}

// Interfaces is nat44_interface_dump: interfaces with roles, in VPP's order.
func (e *Engine) Interfaces() []Interface {
	var out []Interface
	for _, f := range e.ifaces.copyUsed() {
		d := Interface{SwIf: f.swIf}
		if f.inside {
			d.Flags |= Inside
		}
		if f.outside {
			d.Flags |= Outside
		}
		out = append(out, d)
	}
	return out
}

// OutputInterfaces is nat44_ed_output_interface_get.
func (e *Engine) OutputInterfaces() []uint32 {
	var out []uint32
	for _, f := range e.outIfaces.copyUsed() {
		out = append(out, f.swIf)
	}
	return out
}

// fibRef counts the interfaces of a table.
type fibRef struct {
	table uint32
	count uint32
}

func dropRef(refs []fibRef, i int) []fibRef { // VPP's vec_del1: the last one fills the gap
	refs[i] = refs[len(refs)-1]
	return refs[:len(refs)-1]
}

func (e *Engine) refOutsideFIB(table uint32, add bool) {
	for i := range e.outsideFIBs {
		if r := &e.outsideFIBs[i]; r.table == table {
			if add {
				r.count++
			} else if r.count--; r.count == 0 {
				e.outsideFIBs = dropRef(e.outsideFIBs, i)
			}
			return
		}
	}
	if add {
		e.outsideFIBs = append(e.outsideFIBs, fibRef{table, 1})
	}
}

// refFIB has a bug of VPP: it appends an entry even when it has incremented one, so that a table has several entries.
func (e *Engine) refFIB(table uint32) {
	for i := range e.fibs {
		if e.fibs[i].table == table {
			e.fibs[i].count++
		}
	}
	e.fibs = append(e.fibs, fibRef{table, 1})
}

// unrefFIB ends the sessions of a table whose first entry has no users: they count as expired when they are next used.
func (e *Engine) unrefFIB(table uint32) {
	for i := range e.fibs {
		if e.fibs[i].table != table {
			continue
		}
		if e.fibs[i].count--; e.fibs[i].count == 0 {
			e.fibs = dropRef(e.fibs, i)
			e.expireTable(table)
		}
		return
	}
}

// TableBound must be called after an interface was bound to another table.
func (e *Engine) TableBound(swIf, oldTable, newTable uint32) {
	if !e.enabled || oldTable == newTable || len(e.outsideFIBs) == 0 {
		return
	}
	outside := false
	if i, ok := findIface(&e.ifaces, swIf); ok {
		if !e.ifaces.slotAt(i).outside {
			return
		}
		outside = true
	}
	if _, ok := findIface(&e.outIfaces, swIf); ok {
		outside = true
	}
	if outside {
		e.refOutsideFIB(oldTable, false)
		e.refOutsideFIB(newTable, true)
	}
}

// TableDeleted must be called when a FIB table is deleted: sessions in it expire.
func (e *Engine) TableDeleted(table uint32) { e.expireTable(table) }
