package nat44ed

// target is the destination of a packet by a mapping.
type target struct {
	addr, table  uint32
	port         uint16
	m            *mapping
	lb, affinity bool
}

// matchExternal finds the mapping of an external end, address-only ones second, and for load balancing the backend. client is nil
// where VPP passes no client address: with affinity it dereferences that. probing: the caller only needs to know whether a mapping
// exists; VPP picks a backend nevertheless.
func (e *Engine) matchExternal(addr uint32, port uint16, proto uint8, client *uint32, probing bool) (target, bool) {
	m := e.byExternal(addr, port, proto)
	if m == nil {
		m = e.byExternal(addr, 0, 0)
	}
	if m == nil {
		return target{}, false
	}
	if m.flags&smLB == 0 {
		t := target{addr: m.local, table: m.vrf, port: m.lport, m: m}
		if m.flags&smAddrOnly != 0 {
			t.port = port
		}
		return t, true
	}
	return e.matchLB(m, affinityKey{service: addr, port: port, proto: proto}, client, probing)
}

func (e *Engine) matchLB(m *mapping, k affinityKey, client *uint32, probing bool) (target, bool) {
	if m.affinity != 0 {
		if client == nil {
			e.die("3.2 B12", "packet to %s:%d by an inside-only path: the mapping has affinity, no client address is passed",
				numAddr(m.ext), m.eport)
		}
		k.client = *client
		if slot, ok := e.affinityLock(k); ok {
			return m.target(uint32(slot)), true
		}
	}
	slot, ok := e.pickLocal(m, probing)
	if !ok {
		return target{}, false
	}
	if m.affinity != 0 {
		e.affinityCreate(k, slot, m.affinity, m.owner)
	}
	return m.target(slot), true
}

// target reads the slot even if it is free.
func (m *mapping) target(slot uint32) target {
	l := m.locals.slotAt(slot)
	return target{addr: l.addr, table: l.vrf, port: l.port, m: m, lb: true, affinity: m.affinity != 0}
}

// matchLocal finds the mapping of an inside end, in its table and then in those the plugin was enabled with.
func (e *Engine) matchLocal(addr uint32, port uint16, table uint32, proto uint8) *mapping {
	for _, t := range [...]uint32{table, e.insideVRF, e.outsideVRF} {
		if m := e.byLocal(addr, port, t, proto); m != nil {
			return m
		}
		if m := e.byLocal(addr, 0, t, 0); m != nil {
			return m
		}
	}
	return nil
}

// hairpin finds the destination of an in2out packet to a mapping's external end. Load-balancing mappings have no local end:
// 0.0.0.0:0 (vpp.md 3.2 B12).
func (e *Engine) hairpin(addr uint32, port uint16, proto uint8) (uint32, uint16, bool) {
	m := e.byExternal(addr, port, proto)
	if m == nil {
		m = e.byExternal(addr, 0, 0)
	}
	switch {
	case m == nil:
		return addr, port, false
	case m.flags&smAddrOnly != 0:
		return m.local, port, true
	}
	return m.local, m.lport, true
}

// classify decides the direction on an interface with both roles: by the session, else by whether the destination is a pool address
// or an external end of a mapping other than an identity mapping.
func (w *work) classify() direction {
	d := w.classified()
	name := "nat44-ed-in2out"
	if d == out2in {
		name = "nat44-ed-out2in"
	}
	w.hop("nat44-ed-classify", "next "+name)
	return d
}

func (w *work) classified() direction {
	e := w.e
	if w.proto != protoICMP {
		k := w.packetKey()
		if i, ok := e.flows[k]; ok {
			if e.sessions.slotAt(i).i2o.match == k {
				return in2out
			}
			return out2in
		}
	}
	if e.inPool(w.dst) {
		return out2in
	}
	m := e.byExternal(w.dst, 0, 0)
	if m == nil {
		m = e.byExternal(w.dst, w.dport, w.proto)
	}
	if m != nil && m.local != m.ext {
		return out2in
	}
	return in2out
}

// txTable returns the table by which a packet of an inside table leaves.
func (e *Engine) txTable(table, dst uint32) uint32 {
	if i, ok := e.findVRFTable(table); ok {
		routes := &e.vrfTables.slotAt(i).routes
		for r := range routes.usedSlots() {
			if _, ok := e.net.Resolve(*routes.slotAt(r), numAddr(dst)); ok {
				return *routes.slotAt(r)
			}
		}
		return table
	}
	for _, f := range e.outsideFIBs {
		if _, ok := e.net.Resolve(f.table, numAddr(dst)); ok {
			return f.table
		}
	}
	return e.outsideVRF
}

// reachableOutside reports whether the destination is behind a VRF route or an interface with the outside role.
func (e *Engine) reachableOutside(table, dst uint32) bool {
	if i, ok := e.findVRFTable(table); ok {
		routes := &e.vrfTables.slotAt(i).routes
		for r := range routes.usedSlots() {
			if _, ok := e.net.Resolve(*routes.slotAt(r), numAddr(dst)); ok {
				return true
			}
		}
		return false
	}
	for _, f := range e.outsideFIBs {
		swIf, ok := e.net.Resolve(f.table, numAddr(dst))
		if !ok {
			continue
		}
		if i, ok := findIface(&e.ifaces, swIf); ok && e.ifaces.slotAt(i).outside {
			return true
		}
	}
	return false
}

func (e *Engine) isInterfaceAddr(swIf, addr uint32) bool {
	for _, p := range e.net.Addrs(swIf) {
		if addrNum(p.Addr()) == addr {
			return true
		}
	}
	return false
}
