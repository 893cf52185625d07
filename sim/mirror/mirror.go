// Package mirror models what a VPP keeps of mirrored interfaces (SPAN) and of proxy ARP. It turns requests into that state and back into text;
// no packet is copied, and no ARP request answered.
//
// Invariant: the state changes by requests only. It is not safe for concurrent use.
package mirror

import (
	"fmt"
	"slices"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/span"
)

// Return values of VPP 24.06 (vnet/error.h).
const (
	noSuchFIB        int32 = -3
	noSuchEntry      int32 = -6
	unimplemented    int32 = -9
	invalidInterface int32 = -71

	noIndex = ^uint32(0)
)

// Key identifies a mirror, without its direction.
type Key struct {
	From, To uint32
	L2       bool
}

// Mirrors are the mirrors of a VPP.
type Mirrors map[Key]span.SpanState

// Set is span_add_delete_entry: it does not check that the interfaces exist.
func (t Mirrors) Set(m *span.SwInterfaceSpanEnableDisable) (retval int32) {
	k := Key{uint32(m.SwIfIndexFrom), uint32(m.SwIfIndexTo), m.IsL2}
	switch {
	case m.State > span.SPAN_STATE_API_RX_TX:
		return unimplemented
	case k.From == noIndex, k.To == noIndex && m.State > 0, k.From == k.To:
		return invalidInterface
	case m.State == 0:
		delete(t, k)
	default:
		t[k] = m.State
	}
	return 0
}

// Proxies are the addresses for which VPP answers ARP, and the interfaces.
type Proxies struct {
	Ranges []arp.ProxyArp
	// On has the indices on which VPP believes that it answers. It keeps the index of a deleted interface, although the feature is
	// off: false.
	On map[uint32]bool
}

// Set is proxy_arp_add_del; table reports that the range's table exists.
func (p *Proxies) Set(m *arp.ProxyArpAddDel, table bool) (retval int32) {
	i := slices.Index(p.Ranges, m.Proxy)
	switch {
	case !table:
		return noSuchFIB
	case m.IsAdd && i < 0:
		p.Ranges = append(p.Ranges, m.Proxy)
	case !m.IsAdd && i < 0:
		return noSuchEntry
	case !m.IsAdd:
		p.Ranges = slices.Delete(p.Ranges, i, i+1)
	}
	return 0
}

// Enable makes VPP answer on an interface, or not.
func (p *Proxies) Enable(index uint32, on bool) {
	if _, has := p.On[index]; !on {
		delete(p.On, index)
	} else if !has {
		p.On[index] = true
	}
}

// Deleted notes that an interface is deleted.
func (p *Proxies) Deleted(index uint32) {
	if p.On[index] {
		p.On[index] = false
	}
}

// Lines describe the state, sorted.
func Lines(t Mirrors, p *Proxies, name func(index uint32) string) (lines []string) {
	for k, state := range t {
		lines = append(lines, fmt.Sprintf("span %s %s %s l2 %t\n", name(k.From), name(k.To), state, k.L2))
	}
	for _, r := range p.Ranges {
		lines = append(lines, fmt.Sprintf("proxy-arp %d:%s-%s\n", r.TableID, r.Low, r.Hi))
	}
	for i, alive := range p.On {
		if alive {
			lines = append(lines, fmt.Sprintf("proxy-arp on %s\n", name(i)))
		}
	}
	slices.Sort(lines)
	return lines
}
