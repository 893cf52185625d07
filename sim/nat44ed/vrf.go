package nat44ed

type vrfTable struct {
	table  uint32
	routes pool[uint32]
}

func (e *Engine) findVRFTable(table uint32) (uint32, bool) {
	for i := range e.vrfTables.usedSlots() {
		if e.vrfTables.slotAt(i).table == table {
			return i, true
		}
	}
	return 0, false
}

// AddDelVRFTable is nat44_ed_add_del_vrf_table. It does not check whether the plugin is enabled.
func (e *Engine) AddDelVRFTable(add bool, table uint32) int32 {
	i, ok := e.findVRFTable(table)
	switch {
	case ok && add:
		return ValueExist
	case !ok && !add:
		return NoSuchEntry
	case !add:
		e.unlockVRFTable(i)
		e.vrfTables.freeSlot(i)
		return OK
	}
	*e.vrfTables.slotAt(e.vrfTables.takeSlot()) = vrfTable{table: table}
	e.fib.LockTable(table)
	return OK
}

func (e *Engine) unlockVRFTable(i uint32) {
	t := e.vrfTables.slotAt(i)
	for _, r := range t.routes.copyUsed() {
		e.fib.UnlockTable(r)
	}
	e.fib.UnlockTable(t.table)
}

func (e *Engine) delVRFTables() {
	for i := range e.vrfTables.usedSlots() {
		e.unlockVRFTable(i)
	}
	e.vrfTables = pool[vrfTable]{}
}

// AddDelVRFRoute is nat44_ed_add_del_vrf_route: packets of table may leave by vrf.
func (e *Engine) AddDelVRFRoute(add bool, table, vrf uint32) int32 {
	i, ok := e.findVRFTable(table)
	if !ok {
		return NoSuchEntry
	}
	routes := &e.vrfTables.slotAt(i).routes
	for r := range routes.usedSlots() {
		if *routes.slotAt(r) != vrf {
			continue
		}
		if add {
			return ValueExist
		}
		e.fib.UnlockTable(vrf)
		routes.freeSlot(r)
		return OK
	}
	if !add {
		return NoSuchEntry
	}
	*routes.slotAt(routes.takeSlot()) = vrf
	e.fib.LockTable(vrf)
	return OK
}

// VRFTables is nat44_ed_vrf_tables_v2_dump.
func (e *Engine) VRFTables() []VRFTable {
	var out []VRFTable
	for i := range e.vrfTables.usedSlots() {
		t := e.vrfTables.slotAt(i)
		out = append(out, VRFTable{Table: t.table, Routes: t.routes.copyUsed()})
	}
	return out
}
