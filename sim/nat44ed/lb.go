package nat44ed

import (
	"fmt"
	"net/netip"
)

// lbLocal is a backend; prefix is the sum of the probabilities up to it, in VPP's 8 bits.
type lbLocal struct {
	addr                uint32
	port                uint16
	probability, prefix uint8
	vrf                 uint32
}

func (e *Engine) newOwner() uint32 {
	e.owners++
	return e.owners
}

// AddDelLBStaticMapping is nat44_add_del_lb_static_mapping. 256 backends and more crash VPP, in a delete request too.
func (e *Engine) AddDelLBStaticMapping(add bool, m LBMapping) int32 {
	if len(m.Locals) > 255 {
		e.die("3.2 A6", "%d locals in nat44_add_del_lb_static_mapping: the 8-bit counter never gets there, memory runs out", len(m.Locals))
	}
	if !e.enabled {
		return Unsupported
	}
	f := smFlags(m.Flags & (TwiceNAT | SelfTwiceNAT | Out2InOnly))
	if f&smTwice != 0 {
		f &^= smSelfTwice
	}
	if add {
		return e.addLB(m, f)
	}
	return e.delLB(addrNum(m.External), m.Port, m.Proto, f)
}

func (e *Engine) addLB(in LBMapping, f uint16) int32 {
	ext := addrNum(in.External)
	if e.byExternal(ext, in.Port, in.Proto) != nil {
		return ValueExist
	}
	if len(in.Locals) < 2 {
		return InvalidValue
	}
	if f&smOut2InOnly == 0 && !e.inPool(ext) {
		return NoSuchEntry
	}
	i := e.mappings.takeSlot()
	m := e.mappings.slotAt(i)
	*m = mapping{
		ext: ext, eport: in.Port, proto: in.Proto, flags: f | smLB, tag: cutTag(in.Tag), affinity: in.Affinity,
	}
	if in.Affinity != 0 {
		m.owner = e.newOwner()
	}
	e.smO2I[smKey{ext, in.Port, 0, in.Proto}] = i
	for _, l := range in.Locals {
		e.fib.LockTable(l.VRF)
		if f&smOut2InOnly == 0 { // always table 0, whatever the local's VRF; it overwrites an older owner of the end
			e.smI2O[smKey{addrNum(l.Addr), l.Port, 0, in.Proto}] = i
		}
		*m.locals.slotAt(m.locals.takeSlot()) = lbLocal{addr: addrNum(l.Addr), port: l.Port, probability: l.Probability, vrf: l.VRF}
	}
	m.sum()
	return OK
}

func (e *Engine) inPool(addr uint32) bool {
	for _, a := range e.addrs {
		if a.addr == addr {
			return true
		}
	}
	return false
}

// sum computes the prefixes, in pool order.
func (m *mapping) sum() {
	var total uint8
	for i := range m.locals.usedSlots() {
		l := m.locals.slotAt(i)
		total += l.probability
		l.prefix = total
	}
	m.picks = nil
}

// delLB uses the flags of the request, not those of the mapping.
func (e *Engine) delLB(ext uint32, eport uint16, proto uint8, f uint16) int32 {
	i, ok := e.smO2I[smKey{ext, eport, 0, proto}]
	if !ok {
		return NoSuchEntry
	}
	m := e.mappings.slotAt(i)
	if m.flags&smLB == 0 {
		return InvalidValue
	}
	delete(e.smO2I, smKey{ext, eport, 0, proto})
	for l := range m.locals.usedSlots() {
		local := m.locals.slotAt(l)
		e.fib.UnlockTable(local.vrf)
		if f&smOut2InOnly == 0 {
			delete(e.smI2O, smKey{local.addr, local.port, local.vrf, proto})
		}
		e.purgeLB(local.addr, local.port)
	}
	if m.affinity != 0 {
		e.affinityFlush(m.owner)
	}
	e.mappings.freeSlot(i)
	return OK
}

// purgeLB ends the load-balanced sessions to a backend, of all mappings and protocols (vpp.md 3.2 C20).
func (e *Engine) purgeLB(addr uint32, port uint16) {
	for i := range e.sessions.usedSlots() {
		if s := e.sessions.slotAt(i); s.flags&sessLB != 0 && s.in2out.addr == addr && s.in2out.port == port {
			e.freeSession(i)
		}
	}
}

// LBStaticMappingAddDelLocal is nat44_lb_static_mapping_add_del_local: it adds or removes one backend; the slot removed last is used
// first.
func (e *Engine) LBStaticMappingAddDelLocal(add bool, ext netip.Addr, eport uint16, proto uint8, local Local) int32 {
	if !e.enabled {
		return Unsupported
	}
	i, ok := e.smO2I[smKey{addrNum(ext), eport, 0, proto}]
	if !ok {
		return NoSuchEntry
	}
	m := e.mappings.slotAt(i)
	if m.flags&smLB == 0 {
		return InvalidValue
	}
	addr := addrNum(local.Addr)
	at, found := m.findLocal(addr, local.Port, local.VRF)
	if add {
		if found {
			return ValueExist
		}
		*m.locals.slotAt(m.locals.takeSlot()) = lbLocal{addr: addr, port: local.Port, probability: local.Probability, vrf: local.VRF}
		e.fib.LockTable(local.VRF)
		if m.flags&smOut2InOnly == 0 {
			e.smI2O[smKey{addr, local.Port, local.VRF, proto}] = i
		}
		m.sum()
		return OK
	}
	if !found {
		return NoSuchEntry
	}
	if m.locals.len() < 3 {
		return Unspecified
	}
	e.fib.UnlockTable(local.VRF)
	if m.flags&smOut2InOnly == 0 {
		delete(e.smI2O, smKey{addr, local.Port, local.VRF, proto})
	}
	e.purgeLB(addr, local.Port)
	m.locals.freeSlot(at)
	m.sum()
	return OK
}

func (m *mapping) findLocal(addr uint32, port uint16, vrf uint32) (uint32, bool) {
	for i := range m.locals.usedSlots() {
		if l := m.locals.slotAt(i); l.addr == addr && l.port == port && l.vrf == vrf {
			return i, true
		}
	}
	return 0, false
}

// LBStaticMappings is nat44_lb_static_mapping_dump, which never fills affinity.
func (e *Engine) LBStaticMappings() []LBMapping {
	var out []LBMapping
	for i := range e.mappings.usedSlots() {
		m := e.mappings.slotAt(i)
		if m.flags&smLB == 0 {
			continue
		}
		d := LBMapping{
			External: numAddr(m.ext), Port: m.eport, Proto: m.proto, Tag: m.tag,
			Flags: apiFlags(m.flags) & (TwiceNAT | SelfTwiceNAT | Out2InOnly),
		}
		for l := range m.locals.usedSlots() {
			x := m.locals.slotAt(l)
			d.Locals = append(d.Locals, Local{numAddr(x.addr), x.port, x.probability, x.vrf})
		}
		out = append(out, d)
	}
	return out
}

// search is VPP's binary search for the first backend whose prefix reaches r; with prefixes that wrapped the result is arbitrary, or
// nothing.
func (m *mapping) search(slots []uint32, r uint32) (uint32, bool) {
	lo, hi := 0, len(slots)-1
	for lo < hi {
		mid := lo + (hi-lo)/2
		if r > uint32(m.locals.slotAt(slots[mid]).prefix) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return slots[lo], uint32(m.locals.slotAt(slots[lo]).prefix) >= r
}

func (m *mapping) slots() []uint32 {
	out := make([]uint32, 0, m.locals.len())
	for i := range m.locals.usedSlots() {
		out = append(out, i)
	}
	return out
}

// reachable returns the slots that some random number selects, in mapping order.
func (m *mapping) reachable() []uint32 {
	if m.picks != nil {
		return m.picks
	}
	slots := m.slots()
	hit := map[uint32]bool{}
	for r := uint32(1); r <= uint32(m.locals.slotAt(slots[len(slots)-1]).prefix); r++ {
		if i, ok := m.search(slots, r); ok {
			hit[i] = true
		}
	}
	for _, i := range slots {
		if hit[i] {
			m.picks = append(m.picks, i)
		}
	}
	return m.picks
}

// pickLocal chooses a backend at random by weight. ok is false when VPP finds none. probing: the result is not used for a session,
// so an external choice function is not called.
func (e *Engine) pickLocal(m *mapping, probing bool) (slot uint32, ok bool) {
	slots := m.slots()
	total := uint32(m.locals.slotAt(slots[len(slots)-1]).prefix)
	if total == 0 {
		e.die("3.2 A5", "load-balancing mapping %s:%d with weights that sum up to 0 modulo 256: division by zero",
			numAddr(m.ext), m.eport)
	}
	if e.pick == nil || probing {
		return m.search(slots, 1+e.rand()%total)
	}
	eligible := m.reachable()
	n := e.pick(len(eligible))
	if n < 0 || n >= len(eligible) {
		panic(fmt.Sprintf("nat44ed: choice %d of %d", n, len(eligible)))
	}
	return eligible[n], true
}
