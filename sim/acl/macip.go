package acl

import (
	"net/netip"
	"slices"
)

// MACIPRule is one line of a MAC-IP ACL (acl_types.api: macip_acl_rule). VPP does not validate it.
type MACIPRule struct {
	Action       Action
	MAC, MACMask [6]byte
	Addr         netip.Addr
	Bits         uint8 // prefix length
}

// MACIP is one MAC-IP ACL. Its index is independent of those of other ACLs.
type MACIP struct {
	Index uint32
	Tag   string
	Rules []MACIPRule
}

type macips struct {
	used []bool
	list []MACIP
	free []uint32
	by   []uint32 // the ACL of each interface, None without; the length follows the highest interface that ever had one
}

func (m *macips) init() { *m = macips{} }

func (m *macips) hasIndex(i uint32) bool { return uint64(i) < uint64(len(m.used)) && m.used[i] }

func (m *macips) detach(swIf uint32) int32 {
	if uint64(swIf) >= uint64(len(m.by)) || m.by[swIf] == None {
		return rvNoSuchEntry
	}
	m.by[swIf] = None
	return 0
}

// MACIPAddReplace is macip_acl_add (i is None) and macip_acl_add_replace.
func (e *Engine) MACIPAddReplace(i uint32, tag string, rules []MACIPRule) (uint32, int32) {
	m := &e.macips
	switch {
	case len(tag) > maxTag:
		return i, rvInvalidValue
	case i != None && !m.hasIndex(i):
		return i, rvNoSuchEntry
	}
	if i == None {
		if n := len(m.free); n > 0 {
			i, m.free = m.free[n-1], m.free[:n-1]
		} else {
			i = uint32(len(m.list))
			m.list, m.used = append(m.list, MACIP{}), append(m.used, false)
		}
	}
	m.used[i] = true
	m.list[i] = MACIP{Index: i, Tag: tag, Rules: slices.Clone(rules)}
	return i, 0
}

// MACIPDel is macip_acl_del: interfaces lose it.
func (e *Engine) MACIPDel(i uint32) int32 {
	m := &e.macips
	if !m.hasIndex(i) {
		return rvNoSuchEntry
	}
	for swIf, has := range m.by {
		if has == i {
			m.by[swIf] = None
		}
	}
	m.used[i], m.list[i] = false, MACIP{}
	m.free = append(m.free, i)
	return 0
}

// MACIPAddDel is macip_acl_interface_add_del. An interface has at most one; a removal ignores which one is named.
func (e *Engine) MACIPAddDel(swIf uint32, add bool, i uint32) int32 {
	m := &e.macips
	if !add {
		return m.detach(swIf)
	}
	if !m.hasIndex(i) {
		return rvNoSuchEntry
	}
	for uint64(len(m.by)) <= uint64(swIf) {
		m.by = append(m.by, None)
	}
	m.by[swIf] = i
	return 0
}

// MACIPs returns all MAC-IP ACLs by index, or the requested one.
func (e *Engine) MACIPs(which uint32) []MACIP {
	var out []MACIP
	for i, a := range e.macips.list {
		if e.macips.used[i] && (which == None || which == uint32(i)) {
			out = append(out, a)
		}
	}
	return out
}

// MACIPInterfaces returns the ACL of each interface, None for those without, up to the highest one that ever had one.
func (e *Engine) MACIPInterfaces() []uint32 { return slices.Clone(e.macips.by) }
