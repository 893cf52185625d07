package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/span"
)

// mirrorKey identifies a mirror, without its direction.
type mirrorKey struct {
	from, to uint32
	l2       bool
}

// proxies are the addresses for which VPP answers ARP, and the interfaces. The sim copies no packets and speaks no ARP.
type proxies struct {
	ranges []arp.ProxyArp
	// on has the indices on which VPP believes that it answers. It keeps the index of a deleted interface, although the feature is
	// off: false.
	on map[uint32]bool
}

// mirrorMessages: SPAN and proxy ARP.
func mirrorMessages(t *apiTable) {
	onWrite(t, func(q *call, m *span.SwInterfaceSpanEnableDisable) *span.SwInterfaceSpanEnableDisableReply {
		return &span.SwInterfaceSpanEnableDisableReply{Retval: q.spanSet(m)}
	})
	onDump(t, func(q *call, m *span.SwInterfaceSpanDump, send func(*span.SwInterfaceSpanDetails)) {
		for k, state := range q.mirrors {
			if k.l2 == m.IsL2 {
				send(&span.SwInterfaceSpanDetails{
					SwIfIndexFrom: interface_types.InterfaceIndex(k.from), SwIfIndexTo: interface_types.InterfaceIndex(k.to), State: state, IsL2: k.l2,
				})
			}
		}
	})
	onWrite(t, func(q *call, m *arp.ProxyArpAddDel) *arp.ProxyArpAddDelReply {
		return &arp.ProxyArpAddDelReply{Retval: q.proxyAddDel(m)}
	})
	onDump(t, func(q *call, _ *arp.ProxyArpDump, send func(*arp.ProxyArpDetails)) {
		for _, p := range q.proxy.ranges {
			if t := q.fib[ip4].findTable(p.TableID); t != nil && q.cfg.older(25, 10) {
				p.TableID = uint32(t.place) // fib_index for table_id
			}
			send(&arp.ProxyArpDetails{Proxy: p})
		}
	})
	onWrite(t, func(q *call, m *arp.ProxyArpIntfcEnableDisable) *arp.ProxyArpIntfcEnableDisableReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			if _, on := q.proxy.on[f.index]; !m.Enable {
				delete(q.proxy.on, f.index)
			} else if !on {
				q.proxy.on[f.index] = true
			}
			return 0
		})
		return &arp.ProxyArpIntfcEnableDisableReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *arp.ProxyArpIntfcDump, send func(*arp.ProxyArpIntfcDetails)) {
		for _, i := range slices.Sorted(maps.Keys(q.proxy.on)) {
			send(&arp.ProxyArpIntfcDetails{SwIfIndex: i})
		}
	})
}

// spanSet is span_add_delete_entry: it does not check that the interfaces exist.
func (v *VPP) spanSet(m *span.SwInterfaceSpanEnableDisable) int32 {
	k := mirrorKey{uint32(m.SwIfIndexFrom), uint32(m.SwIfIndexTo), m.IsL2}
	switch {
	case m.State > span.SPAN_STATE_API_RX_TX:
		return rvUnimplemented
	case k.from == noIndex, k.to == noIndex && m.State > 0, k.from == k.to:
		return rvInvalidInterface
	case m.State == 0:
		delete(v.mirrors, k)
	default:
		v.mirrors[k] = m.State
	}
	return 0
}

func (v *VPP) proxyAddDel(m *arp.ProxyArpAddDel) int32 {
	i := slices.Index(v.proxy.ranges, m.Proxy)
	switch {
	case v.fib[ip4].findTable(m.Proxy.TableID) == nil:
		return rvNoSuchFIB
	case m.IsAdd && i < 0:
		v.proxy.ranges = append(v.proxy.ranges, m.Proxy)
	case !m.IsAdd && i < 0:
		return rvNoSuchEntry
	case !m.IsAdd:
		v.proxy.ranges = slices.Delete(v.proxy.ranges, i, i+1)
	}
	return 0
}

func (v *VPP) dumpMirrors(b *strings.Builder) {
	var lines []string
	for k, state := range v.mirrors {
		lines = append(lines, fmt.Sprintf("span %s %s %s l2 %t\n", v.ifs.name(k.from), v.ifs.name(k.to), state, k.l2))
	}
	for _, p := range v.proxy.ranges {
		lines = append(lines, fmt.Sprintf("proxy-arp %d:%s-%s\n", p.TableID, p.Low, p.Hi))
	}
	for i, alive := range v.proxy.on {
		if !alive {
			continue
		}
		lines = append(lines, fmt.Sprintf("proxy-arp on %s\n", v.ifs.name(i)))
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
}
