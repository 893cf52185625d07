package nat44ed

import "net/netip"

type poolAddr struct {
	addr  uint32
	table uint32 // None: any
	// The interface of the same table, with an outside role, that has the address; bits -1: none.
	swIf uint32
	net  uint32
	bits int
}

type addrResolve struct {
	swIf     uint32
	twice    bool
	resolved bool
}

func (e *Engine) pools(twice bool) *[]poolAddr {
	if twice {
		return &e.twiceAddrs
	}
	return &e.addrs
}

// AddDelAddressRange is nat44_add_del_address_range; it stops at the first error and keeps the changes up to then.
func (e *Engine) AddDelAddressRange(add bool, r AddressRange) int32 {
	first, last := addrNum(r.First), addrNum(r.Last)
	twice := r.Flags&TwiceNAT != 0
	for n := int32(last-first) + 1; n > 0; n-- {
		rv := OK
		if add {
			rv = e.addAddress(first, r.VRF, twice)
		} else {
			rv = e.delAddress(first, twice)
		}
		if rv != OK {
			return rv
		}
		first++
	}
	return OK
}

func (e *Engine) addAddress(addr, vrf uint32, twice bool) int32 {
	if !e.enabled {
		return Unsupported
	}
	list := e.pools(twice)
	for _, a := range *list {
		if a.addr == addr {
			return ValueExist
		}
	}
	if vrf != None {
		e.fib.LockTable(vrf)
	}
	*list = append(*list, poolAddr{addr: addr, table: vrf, bits: -1})
	if !twice {
		e.receiveEverywhere(addr, true)
		e.findAddress(&(*list)[len(*list)-1])
	}
	return OK
}

// delAddress ends the dynamic sessions that use the address.
func (e *Engine) delAddress(addr uint32, twice bool) int32 {
	list := e.pools(twice)
	at := -1
	for i, a := range *list {
		if a.addr == addr {
			at = i
			break
		}
	}
	if at < 0 {
		return NoSuchEntry
	}
	for i := range e.sessions.usedSlots() {
		if s := e.sessions.slotAt(i); s.flags&sessStatic == 0 && s.out2in.addr == addr {
			e.freeSession(i)
		}
	}
	if !twice {
		e.receiveEverywhere(addr, false)
	}
	if t := (*list)[at].table; t != None {
		e.fib.UnlockTable(t)
	}
	(*list)[at] = (*list)[len(*list)-1] // VPP's vec_del1
	*list = (*list)[:len(*list)-1]
	return OK
}

func (e *Engine) delAllAddresses() {
	for _, twice := range []bool{false, true} {
		for _, a := range append([]poolAddr(nil), *e.pools(twice)...) {
			e.delAddress(a.addr, twice)
		}
	}
	e.addrs, e.twiceAddrs, e.addrResolve = nil, nil, nil
}

// Addresses is nat44_address_dump: the pool, then the twice-nat pool.
func (e *Engine) Addresses() []Address {
	var out []Address
	for _, a := range e.addrs {
		out = append(out, Address{numAddr(a.addr), a.table, 0})
	}
	for _, a := range e.twiceAddrs {
		out = append(out, Address{numAddr(a.addr), a.table, TwiceNAT})
	}
	return out
}

// findAddress binds a pool address to the outside interface that has it, interfaces with roles first.
func (e *Engine) findAddress(a *poolAddr) {
	for _, p := range []*pool[iface]{&e.ifaces, &e.outIfaces} {
		for i := range p.usedSlots() {
			if f := p.slotAt(i); f.outside && e.bindAddress(a, f.swIf) {
				return
			}
		}
	}
}

func (e *Engine) bindAddress(a *poolAddr, swIf uint32) bool {
	if e.net.Table(swIf) != a.table {
		return false
	}
	for _, p := range e.net.Addrs(swIf) {
		if addrNum(p.Addr()) == a.addr {
			a.swIf, a.bits, a.net = swIf, p.Bits(), a.addr&maskOf(p.Bits())
			return true
		}
	}
	return false
}

// bindAddresses binds the first pool address the interface has.
func (e *Engine) bindAddresses(swIf uint32) {
	for i := range e.addrs {
		if e.bindAddress(&e.addrs[i], swIf) {
			return
		}
	}
}

// AddDelInterfaceAddr is nat44_add_del_interface_addr: the pool follows the interface's first address.
func (e *Engine) AddDelInterfaceAddr(add bool, swIf uint32, flags Flags) int32 {
	if !e.enabled {
		return Unsupported
	}
	twice := flags&TwiceNAT != 0
	i := e.findAddrResolve(swIf, twice)
	first := e.firstAddr(swIf)
	if !add {
		if i < 0 {
			return NoSuchEntry
		}
		e.dropAddrResolve(i)
		if !first.IsValid() {
			return OK
		}
		return e.delAddress(addrNum(first), twice)
	}
	if i >= 0 {
		return ValueExist
	}
	e.addrResolve = append(e.addrResolve, addrResolve{swIf: swIf, twice: twice})
	i = len(e.addrResolve) - 1
	if first.IsValid() {
		if rv := e.addAddress(addrNum(first), None, twice); rv != OK {
			e.dropAddrResolve(i)
			return rv
		}
		e.addrResolve[i].resolved = true
	}
	return OK
}

func (e *Engine) dropAddrResolve(i int) {
	e.addrResolve[i] = e.addrResolve[len(e.addrResolve)-1]
	e.addrResolve = e.addrResolve[:len(e.addrResolve)-1]
}

func (e *Engine) findAddrResolve(swIf uint32, twice bool) int {
	for i, r := range e.addrResolve {
		if r.swIf == swIf && r.twice == twice {
			return i
		}
	}
	return -1
}

func (e *Engine) firstAddr(swIf uint32) netip.Addr {
	for _, p := range e.net.Addrs(swIf) {
		return p.Addr()
	}
	return netip.Addr{}
}

// InterfaceAddrs is nat44_interface_addr_dump.
func (e *Engine) InterfaceAddrs() []InterfaceAddr {
	var out []InterfaceAddr
	for _, r := range e.addrResolve {
		d := InterfaceAddr{SwIf: r.swIf}
		if r.twice {
			d.Flags = TwiceNAT
		}
		out = append(out, d)
	}
	return out
}

// AddressChanged must be called after an IPv4 address was added to an interface or removed from it.
func (e *Engine) AddressChanged(swIf uint32, p netip.Prefix, add bool) {
	if !e.enabled {
		return
	}
	e.poolFollows(swIf, p, add)
	e.mappingsFollow(swIf, p.Addr(), add)
}

// poolFollows uses the record for the pool first; that for twice-nat counts only without one.
func (e *Engine) poolFollows(swIf uint32, p netip.Prefix, add bool) {
	i := e.findAddrResolve(swIf, false)
	if i < 0 {
		i = e.findAddrResolve(swIf, true)
	}
	if i < 0 {
		e.rebind(swIf, p, add)
		return
	}
	r := &e.addrResolve[i]
	switch {
	case add && !r.resolved:
		r.resolved = e.addAddress(addrNum(p.Addr()), None, r.twice) == OK
	case !add && r.resolved:
		r.resolved = e.delAddress(addrNum(p.Addr()), r.twice) != OK
	}
}

func (e *Engine) rebind(swIf uint32, p netip.Prefix, add bool) {
	for i := range e.addrs {
		a := &e.addrs[i]
		if a.addr != addrNum(p.Addr()) || a.table != e.net.Table(swIf) {
			continue
		}
		a.bits = -1
		if add {
			a.swIf, a.bits, a.net = swIf, p.Bits(), a.addr&maskOf(p.Bits())
		}
		return
	}
}

// receive adds or removes a route of type receive for addr at swIf, with the number of its owners.
type receive struct {
	addr, swIf, count uint32
}

func (e *Engine) receiveRef(addr, swIf uint32, add bool) {
	for i := range e.receives {
		r := &e.receives[i]
		if r.addr != addr || r.swIf != swIf {
			continue
		}
		if add {
			r.count++
			return
		}
		if r.count--; r.count == 0 {
			e.fib.Receive(e.net.Table(swIf), numAddr(addr), swIf, false)
			e.receives[i] = e.receives[len(e.receives)-1]
			e.receives = e.receives[:len(e.receives)-1]
		}
		return
	}
	if add {
		e.fib.Receive(e.net.Table(swIf), numAddr(addr), swIf, true)
		e.receives = append(e.receives, receive{addr, swIf, 1})
	}
}

// receiveEverywhere does so for one address at every outside interface.
func (e *Engine) receiveEverywhere(addr uint32, add bool) {
	for _, p := range []*pool[iface]{&e.ifaces, &e.outIfaces} {
		for i := range p.usedSlots() {
			if f := p.slotAt(i); f.outside {
				e.receiveRef(addr, f.swIf, add)
			}
		}
	}
}

// receiveAll does so for every pool address and every mapping's external address at one interface, load-balancing mappings included:
// creating these adds no route, and deleting them removes none (vpp.md 3.2 B15).
func (e *Engine) receiveAll(swIf uint32, add bool) {
	for _, a := range e.addrs {
		e.receiveRef(a.addr, swIf, add)
	}
	for i := range e.mappings.usedSlots() {
		e.receiveRef(e.mappings.slotAt(i).ext, swIf, add)
	}
}
