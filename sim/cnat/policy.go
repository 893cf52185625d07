package cnat

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// Policy selects the packets that leave with another source.
type Policy uint8

// The policies. The API calls SNATAll, VPP's initial one, "none".
const (
	SNATAll        Policy = 0
	SNATByPrefix   Policy = 1 // from interfaces of the include tables, unless to an excluded prefix
	SNATKubernetes Policy = 2
)

// Table is a set of interfaces. It outlives them.
type Table uint8

// The tables.
const (
	IncludeV4 Table = iota
	IncludeV6
	Pod
	Host
	tableCount
)

// SetSNATPolicy is cnat_set_snat_policy.
func (e *Engine) SetSNATPolicy(p Policy) int32 {
	if p > SNATKubernetes {
		return Refused
	}
	e.policy = p
	return OK
}

// SNATPolicyInterface is cnat_snat_policy_add_del_if.
func (e *Engine) SNATPolicyInterface(swIf uint32, add bool, t Table) int32 {
	if t >= tableCount {
		return InvalidValue
	}
	if delete(e.tables[t], swIf); add {
		e.tables[t][swIf] = true
	}
	return OK
}

// SNATExcludePrefix is cnat_snat_policy_add_del_exclude_pfx.
func (e *Engine) SNATExcludePrefix(p netip.Prefix, add bool) int32 {
	p = p.Masked()
	_, known := e.excluded[p]
	switch {
	case add:
		e.excluded[p] = struct{}{}
	case !known:
		return Refused
	default:
		delete(e.excluded, p)
	}
	return OK
}

// SetSNATAddresses is cnat_set_snat_addresses; for an interface other than None, its first addresses, while it has some.
func (e *Engine) SetSNATAddresses(v4, v6 netip.Addr, swIf uint32) int32 {
	for i, a := range []netip.Addr{v4, v6} {
		e.snat[i] = Endpoint{Addr: a, SwIf: swIf, resolved: e.snat[i].resolved}
		e.resolve(&e.snat[i])
	}
	return OK
}

// SNATAddresses is cnat_get_snat_addresses.
func (e *Engine) SNATAddresses() (v4, v6 netip.Addr, swIf uint32) {
	return e.snat[0].Addr, e.snat[1].Addr, e.snat[1].SwIf
}

// Excluded returns the prefixes for which sources are kept, sorted.
func (e *Engine) Excluded() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(e.excluded), netip.Prefix.Compare)
}

// InTable returns the interfaces of a table, sorted, deleted ones included.
func (e *Engine) InTable(t Table) []uint32 { return slices.Sorted(maps.Keys(e.tables[t])) }

func (e *Engine) snatChanged(swIf uint32, a netip.Addr, add bool) {
	end := &e.snat[af(a)]
	if end.SwIf == swIf && swIf != 0 {
		e.followInterface(end, a, add)
	}
}

func af(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}

// wanted evaluates the policy for a packet with this key.
func (e *Engine) wanted(k *sessionKey, rx, tx uint32) bool {
	v6 := af(k.Src)
	switch src, dst := k.Src.As16(), k.Dst.As16(); e.policy {
	case SNATByPrefix:
		return e.tables[v6][rx] && !e.isExcluded(k.Dst)
	case SNATKubernetes:
		switch {
		case e.tables[Host][tx]:
			return false
		case e.tables[v6][rx] && !e.isExcluded(k.Dst):
			return true
		case !e.tables[Pod][rx] && !e.tables[Pod][tx]:
			return k.Src != e.snat[v6].Addr
		}
		return k.Src == k.Dst || e.anew && [4]byte(src[12:]) == [4]byte(dst[12:])
	}
	return true
}

func (e *Engine) isExcluded(a netip.Addr) bool {
	for p := range e.excluded {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// portKinds are the protocols with allocated ports: TCP, UDP, ICMP and ICMPv6.
const portKinds = 4

type portMap [1 << 16 / 64]uint64

func (m *portMap) taken(p uint16) bool { return m[p/64]>>(p%64)&1 > 0 }

func (m *portMap) setPort(p uint16, taken bool) {
	m[p/64] &^= 1 << (p % 64)
	if taken {
		m[p/64] |= 1 << (p % 64)
	}
}

func portKind(proto model.Protocol) (int, bool) {
	i := slices.Index([]model.Protocol{model.TCP, model.UDP, model.ICMP, model.ICMPv6}, proto)
	return i, i >= 0
}

// allocate is cnat_allocate_port: the lowest free port, whatever the destination; false: none is free.
func (e *Engine) allocate(proto model.Protocol) (uint16, bool) {
	kind, ok := portKind(proto)
	if !ok {
		return 0, false
	}
	m := &e.ports[kind]
	for p := FirstPort; p < 1<<16-1; p++ {
		if p%64 == 0 && m[p/64] == 1<<64-1 {
			p += 63
			continue
		}
		if !m.taken(p) {
			m.setPort(p, true)
			e.undo(func() { m.setPort(p, false) })
			return p, true
		}
	}
	return 0, false
}

// freePort is cnat_free_port, which swaps the bytes of the port: it frees another port, if any.
func (e *Engine) freePort(p uint16, proto uint8) {
	kind, ok := portKind(model.Protocol(proto))
	if !ok {
		return
	}
	m, p := &e.ports[kind], bits.ReverseBytes16(p)
	if m.taken(p) {
		m.setPort(p, false)
		e.undo(func() { m.setPort(p, true) })
	}
}

// snatLines returns the policy as text, as far as it differs from VPP's initial one.
func (e *Engine) snatLines(ifName func(uint32) string) []string {
	var out []string
	if e.policy != SNATAll {
		out = append(out, fmt.Sprintf("cnat snat-policy %s", map[Policy]string{SNATByPrefix: "if-pfx", SNATKubernetes: "k8s"}[e.policy]))
	}
	for i, s := range e.snat {
		if s.SwIf != 0 && s.SwIf != None || !s.Addr.IsUnspecified() {
			text := s.Addr.String()
			if s.SwIf != None {
				text = ifName(s.SwIf)
			}
			out = append(out, fmt.Sprintf("cnat snat ip%d %s", 4+2*i, text))
		}
	}
	for t, name := range []string{"include-v4", "include-v6", "pod", "host"} {
		var names []string
		for _, i := range sortedSwIfs(e.tables[t]) {
			names = append(names, fmt.Sprintf("cnat snat-policy %s %s", name, ifName(i)))
		}
		slices.Sort(names)
		out = append(out, names...)
	}
	var prefixes []string
	for p := range e.excluded {
		prefixes = append(prefixes, "cnat snat-policy exclude "+p.String())
	}
	slices.Sort(prefixes)
	return append(out, prefixes...)
}
