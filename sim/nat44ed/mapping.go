package nat44ed

import "net/netip"

// Mapping flags; the API's flags translate into some of them.
const (
	smSelfTwice uint16 = 1 << iota
	smTwice
	smIdentity
	smAddrOnly
	smExact
	smOut2InOnly
	smLB
	smSwitch // follows the address of an interface
)

func smFlags(f Flags) uint16 {
	var out uint16
	for _, p := range [...]struct {
		api Flags
		sm  uint16
	}{{TwiceNAT, smTwice}, {SelfTwiceNAT, smSelfTwice}, {Out2InOnly, smOut2InOnly}, {AddrOnly, smAddrOnly}} {
		if f&p.api != 0 {
			out |= p.sm
		}
	}
	return out
}

// mapping is a static, identity or load-balancing mapping. One pool and one table of external ends serve all three kinds.
type mapping struct {
	local, ext   uint32
	lport, eport uint16
	proto        uint8
	flags        uint16
	vrf          uint32
	poolAddr     uint32
	tag          string
	affinity     uint32 // seconds
	owner        uint32 // of affinity records
	locals       pool[lbLocal]
	picks        []uint32 // slots a random pick can yield, nil: not known
}

// smKey finds a mapping by one of its ends. The external end has table 0 always: one VIP and port per VPP, not per VRF.
type smKey struct {
	addr  uint32
	port  uint16
	table uint32
	proto uint8
}

type smResolve struct {
	local    uint32
	lport    uint16
	eport    uint16
	proto    uint8
	vrf      uint32
	swIf     uint32
	flags    uint16
	pool     uint32
	tag      string
	resolved bool
}

func (e *Engine) clearLookups() {
	e.smI2O = map[smKey]uint32{}
	e.smO2I = map[smKey]uint32{}
}

func (e *Engine) byExternal(addr uint32, port uint16, proto uint8) *mapping {
	if i, ok := e.smO2I[smKey{addr, port, 0, proto}]; ok {
		return e.mappings.slotAt(i)
	}
	return nil
}

func (e *Engine) byLocal(addr uint32, port uint16, table uint32, proto uint8) *mapping {
	if i, ok := e.smI2O[smKey{addr, port, table, proto}]; ok {
		return e.mappings.slotAt(i)
	}
	return nil
}

// cutTag truncates a tag to the 64 bytes of the message, the last of which VPP sets to zero.
func cutTag(s string) string {
	if len(s) > 63 {
		return s[:63]
	}
	return s
}

// validMapping refuses mappings that NAT44-ED does not support.
func validMapping(f uint16) int32 {
	if f&smIdentity != 0 && f&smOut2InOnly != 0 {
		return Unsupported
	}
	if f&(smTwice|smSelfTwice) != 0 && f&(smAddrOnly|smIdentity) != 0 {
		return Unsupported
	}
	return OK
}

// AddDelStaticMapping is nat44_add_del_static_mapping_v2; without Pool it is the first version of the message as well. Deleting a
// load-balancing mapping with it returns 0 and deletes nothing (vpp.md 3.2 A4).
func (e *Engine) AddDelStaticMapping(add bool, m StaticMapping) int32 {
	f := smFlags(m.Flags)
	if addrNum(m.Pool) != 0 {
		f |= smExact
	}
	if m.Flags&AddrOnly != 0 {
		m.LocalPort, m.ExternalPort = 0, 0
	}
	if m.ExternalIf != None {
		f |= smSwitch
	}
	return e.addDelSingle(add, smResolve{
		local: addrNum(m.Local), lport: m.LocalPort, eport: m.ExternalPort, proto: m.Proto, vrf: m.VRF, swIf: m.ExternalIf,
		flags: f, pool: addrNum(m.Pool), tag: cutTag(m.Tag),
	}, addrNum(m.External))
}

// AddDelIdentityMapping is nat44_add_del_identity_mapping: packets of this address and port are not translated.
func (e *Engine) AddDelIdentityMapping(add bool, m IdentityMapping) int32 {
	f := smIdentity | smFlags(m.Flags&AddrOnly)
	if m.Flags&AddrOnly != 0 {
		m.Port, m.Proto = 0, 0
	}
	addr := addrNum(m.Addr)
	if m.SwIf != None {
		f, addr = f|smSwitch, 0
	}
	return e.addDelSingle(add, smResolve{
		local: addr, lport: m.Port, eport: m.Port, proto: m.Proto, vrf: m.VRF, swIf: m.SwIf, flags: f, tag: cutTag(m.Tag),
	}, addr)
}

func (e *Engine) addDelSingle(add bool, r smResolve, ext uint32) int32 {
	if !e.enabled {
		return Unsupported
	}
	if rv := validMapping(r.flags); rv != OK {
		return rv
	}
	at := -1
	if r.flags&smSwitch != 0 {
		at = e.findResolve(r)
		switch {
		case add && at >= 0:
			return ValueExist
		case add:
			e.resolve = append(e.resolve, r)
			at = len(e.resolve) - 1
		case at < 0:
			return NoSuchEntry
		default:
			e.dropResolve(at)
		}
		first := e.firstAddr(r.swIf)
		if !first.IsValid() {
			return OK
		}
		ext = addrNum(first)
	}
	if !add {
		return e.delStaticInternal(r.local, ext, r.lport, r.eport, r.proto, r.vrf, r.flags)
	}
	rv := e.addStaticInternal(r, ext)
	switch {
	case at >= 0 && rv == OK:
		e.resolve[at].resolved = true
	case at >= 0:
		e.dropResolve(at)
	}
	return rv
}

func (e *Engine) findResolve(r smResolve) int {
	for i, o := range e.resolve {
		if o.swIf != r.swIf || o.vrf != r.vrf {
			continue
		}
		identity := o.flags&r.flags&smIdentity != 0
		if !identity && o.local != r.local {
			continue
		}
		if o.flags&r.flags&smAddrOnly == 0 && (o.eport != r.eport || o.proto != r.proto || !identity && o.lport != r.lport) {
			continue
		}
		return i
	}
	return -1
}

func (e *Engine) dropResolve(i int) {
	e.resolve[i] = e.resolve[len(e.resolve)-1] // VPP's vec_del1
	e.resolve = e.resolve[:len(e.resolve)-1]
}

// mappingsFollow adds and removes the mappings that follow an interface's address.
func (e *Engine) mappingsFollow(swIf uint32, addr netip.Addr, add bool) {
	for i := range e.resolve {
		r := &e.resolve[i]
		if r.swIf != swIf || r.resolved == add {
			continue
		}
		rv := OK
		if add {
			rv = e.addStaticInternal(*r, addrNum(addr))
		} else {
			rv = e.delStaticInternal(r.local, addrNum(addr), r.lport, r.eport, r.proto, r.vrf, r.flags)
		}
		if rv == OK {
			r.resolved = add
		}
	}
}

func (e *Engine) addStaticInternal(r smResolve, ext uint32) int32 {
	if r.flags&smAddrOnly != 0 {
		r.lport, r.eport, r.proto = 0, 0, 0
	}
	if r.flags&smIdentity != 0 {
		r.lport, r.local = r.eport, ext
	}
	if i, ok := e.smO2I[smKey{ext, r.eport, 0, r.proto}]; ok {
		return e.addIdentityVRF(i, r.vrf)
	}
	if r.vrf == None {
		r.vrf = e.insideVRF
	}
	e.fib.LockTable(r.vrf)
	if r.flags&(smOut2InOnly|smIdentity) == 0 && e.byLocal(r.local, r.lport, r.vrf, r.proto) != nil {
		return ValueExist
	}
	i := e.mappings.takeSlot()
	m := e.mappings.slotAt(i)
	*m = mapping{
		local: r.local, ext: ext, lport: r.lport, eport: r.eport, proto: r.proto,
		flags: r.flags, vrf: r.vrf, poolAddr: r.pool, tag: r.tag,
	}
	if r.flags&smIdentity != 0 {
		*m.locals.slotAt(m.locals.takeSlot()) = lbLocal{vrf: r.vrf}
		m.vrf = 0
	}
	if r.flags&smOut2InOnly == 0 {
		e.smI2O[smKey{r.local, r.lport, r.vrf, r.proto}] = i
	}
	e.smO2I[smKey{ext, r.eport, 0, r.proto}] = i
	e.receiveEverywhere(ext, true)
	return OK
}

// addIdentityVRF makes an existing mapping valid in one more VRF, whatever the kind of the request.
func (e *Engine) addIdentityVRF(i, vrf uint32) int32 {
	m := e.mappings.slotAt(i)
	if m.flags&smIdentity == 0 {
		return ValueExist
	}
	for l := range m.locals.usedSlots() {
		if m.locals.slotAt(l).vrf == vrf {
			return ValueExist
		}
	}
	m.locals.slotAt(m.locals.takeSlot()).vrf = vrf
	e.fib.LockTable(vrf)
	e.smI2O[smKey{m.local, m.lport, vrf, m.proto}] = i
	return OK
}

func (e *Engine) delStaticInternal(local, ext uint32, lport, eport uint16, proto uint8, vrf uint32, flags uint16) int32 {
	if flags&smAddrOnly != 0 {
		lport, eport, proto = 0, 0, 0
	}
	if flags&smIdentity != 0 {
		lport, local = eport, ext
	}
	i, ok := e.smO2I[smKey{ext, eport, 0, proto}]
	if !ok {
		return NoSuchEntry
	}
	m := e.mappings.slotAt(i)
	table := m.vrf
	if flags&smIdentity != 0 {
		if vrf == None {
			vrf = e.insideVRF
		}
		found := false
		for l := range m.locals.usedSlots() {
			if m.locals.slotAt(l).vrf == vrf {
				m.locals.freeSlot(l)
				table, found = vrf, true
			}
		}
		if !found {
			return NoSuchEntry
		}
	}
	if flags&smOut2InOnly == 0 {
		delete(e.smI2O, smKey{local, lport, table, proto})
	}
	e.purgeStatic(m, table, flags&smAddrOnly != 0, ext, eport)
	e.fib.UnlockTable(table)
	if m.locals.len() > 0 {
		return OK
	}
	delete(e.smO2I, smKey{ext, eport, 0, proto})
	e.mappings.freeSlot(i)
	e.receiveEverywhere(ext, false)
	return OK
}

// purgeStatic ends sessions of a single mapping: all of them for an address-only one, otherwise the first one found
// (vpp.md 3.2 C20).
func (e *Engine) purgeStatic(m *mapping, table uint32, addrOnly bool, ext uint32, eport uint16) {
	for i := range e.sessions.usedSlots() {
		s := e.sessions.slotAt(i)
		switch {
		case s.in2out.table != table || s.in2out.addr != m.local:
			continue
		case !addrOnly && (s.out2in.addr != ext || s.out2in.port != eport || s.in2out.port != m.lport || s.proto != m.proto):
			continue
		case s.flags&sessLB != 0 || s.flags&sessStatic == 0:
			continue
		}
		e.freeSession(i)
		if !addrOnly {
			return
		}
	}
}

func apiFlags(f uint16) Flags {
	var out Flags
	for _, p := range [...]struct {
		sm  uint16
		api Flags
	}{{smTwice, TwiceNAT}, {smSelfTwice, SelfTwiceNAT}, {smOut2InOnly, Out2InOnly}, {smAddrOnly, AddrOnly}} {
		if f&p.sm != 0 {
			out |= p.api
		}
	}
	return out
}

// StaticMappings is nat44_static_mapping_dump: no identity and no load-balancing mappings. A mapping that follows an interface is
// listed twice while its address is known, the second time with some of its flags only and without external address.
func (e *Engine) StaticMappings() []StaticMapping {
	var out []StaticMapping
	for i := range e.mappings.usedSlots() {
		m := e.mappings.slotAt(i)
		if m.flags&(smIdentity|smLB) != 0 {
			continue
		}
		out = append(out, StaticMapping{
			Local: numAddr(m.local), External: numAddr(m.ext), LocalPort: m.lport, ExternalPort: m.eport, Proto: m.proto,
			ExternalIf: None, VRF: m.vrf, Flags: apiFlags(m.flags), Tag: m.tag,
		})
	}
	for _, r := range e.resolve {
		if r.flags&smIdentity != 0 {
			continue
		}
		d := StaticMapping{
			Local: numAddr(r.local), External: numAddr(0), ExternalIf: r.swIf, VRF: r.vrf,
			Flags: apiFlags(r.flags) & (TwiceNAT | AddrOnly), Tag: r.tag,
		}
		if r.flags&smAddrOnly == 0 {
			d.Proto, d.LocalPort, d.ExternalPort = r.proto, r.lport, r.eport
		}
		out = append(out, d)
	}
	return out
}

// IdentityMappings is nat44_identity_mapping_dump: one entry per mapping and VRF.
func (e *Engine) IdentityMappings() []IdentityMapping {
	var out []IdentityMapping
	for i := range e.mappings.usedSlots() {
		m := e.mappings.slotAt(i)
		if m.flags&smIdentity == 0 || m.flags&smLB != 0 {
			continue
		}
		for l := range m.locals.usedSlots() {
			out = append(out, IdentityMapping{
				Addr: numAddr(m.local), Port: m.lport, Proto: m.proto, SwIf: None, VRF: m.locals.slotAt(l).vrf,
				Flags: apiFlags(m.flags) & AddrOnly, Tag: m.tag,
			})
		}
	}
	for _, r := range e.resolve {
		if r.flags&smIdentity != 0 {
			out = append(out, IdentityMapping{
				Addr: numAddr(0), Port: r.lport, Proto: r.proto, SwIf: r.swIf, VRF: r.vrf,
				Flags: apiFlags(r.flags) & AddrOnly, Tag: r.tag,
			})
		}
	}
	return out
}
