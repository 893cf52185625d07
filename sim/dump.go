package sim

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Dump returns the configuration as text. It is sorted by name and prefix, without indices and other handles that VPP assigns, so
// equal configurations give equal bytes, whatever requests led to them. It has the configuration from requests and from AddInterface
// and similar calls. It omits routes and other state that follows from it (connected subnets, NAT's receive routes, neighbours' host
// routes), and all dynamic state.
func (v *VPP) Dump() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	for _, f := range v.ifs.sorted() {
		if f.kind != kindLocal {
			v.dumpInterface(&b, f)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(v.memif.sockets)) {
		if id != 0 {
			fmt.Fprintf(&b, "memif-socket %d %s\n", id, v.memif.sockets[id].filename)
		}
	}
	for fam := range v.fib {
		v.dumpTables(&b, fam)
	}
	v.dumpNeighbors(&b)
	v.l2.Dump(&b, v.ifs.name)
	v.dumpMirrors(&b)
	if v.sessionLayer {
		b.WriteString("session-layer on\n")
	}
	v.dumpNAT(&b)
	v.dumpACL(&b)
	v.dumpCNAT(&b)
	v.dumpABF(&b)
	v.dumpPolicers(&b)
	v.dumpClassify(&b)
	v.dumpPunt(&b)
	return b.String()
}

func (v *VPP) dumpInterface(b *strings.Builder, f *iface) {
	state := "down"
	if f.up {
		state = "up"
	}
	fmt.Fprintf(b, "interface %s %s mtu %d", f.name, state, f.mtu[0])
	for i, name := range []string{"", "ip4-mtu", "ip6-mtu", "mpls-mtu"} {
		if i > 0 && f.mtu[i] != 0 {
			fmt.Fprintf(b, " %s %d", name, f.mtu[i])
		}
	}
	if f.macGiven {
		fmt.Fprintf(b, " mac %s", net.HardwareAddr(f.mac[:]))
	}
	if f.table[ip4] != 0 || f.table[ip6] != 0 {
		fmt.Fprintf(b, " vrf %d/%d", f.table[ip4], f.table[ip6])
	}
	if lender := v.ifs.get(f.unnumbered); lender != nil {
		fmt.Fprintf(b, " unnumbered %s", lender.name)
	}
	if f.tag != "" {
		fmt.Fprintf(b, " tag %q", f.tag)
	}
	b.WriteString(f.device())
	b.WriteByte('\n')
	addrs := slices.SortedFunc(slices.Values(f.addrs), func(a, c netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(c.Addr()), cmp.Compare(a.Bits(), c.Bits()))
	})
	for _, p := range addrs {
		fmt.Fprintf(b, "  address %s\n", p)
	}
}

// device returns the properties of this kind of interface only.
func (f *iface) device() string {
	switch f.kind {
	case kindTap:
		h := &f.tap
		s := fmt.Sprintf(" rings %d/%d flags %d", h.RxRingSz, h.TxRingSz, h.TapFlags)
		if f.foreign {
			return ""
		}
		if h.HostIfName != "" {
			s += " host-if " + h.HostIfName
		}
		if h.HostNamespace != "" {
			s += " host-ns " + h.HostNamespace
		}
		return s
	case kindVxlan:
		return f.vxlan.tunnelText()
	case kindMemif:
		if f.foreign {
			return ""
		}
		return fmt.Sprintf(" role %d mode %d ring %d buffer %d", f.memif.role, f.memif.mode, f.memif.ring, f.memif.buffer)
	}
	return ""
}

func (v *VPP) dumpTables(b *strings.Builder, fam int) {
	tables := slices.SortedFunc(slices.Values(v.fib[fam].tables), func(a, c *table) int { return cmp.Compare(a.id, c.id) })
	for _, t := range tables {
		if t.locks[srcAPI] > 0 && t.id != 0 {
			fmt.Fprintf(b, "table ip%d %d", 4+2*fam, t.id)
			if t.name != "" {
				fmt.Fprintf(b, " %q", t.name)
			}
			b.WriteByte('\n')
		}
		for _, e := range t.sorted() {
			s := e.source(srcAPI)
			if s == nil {
				continue
			}
			fmt.Fprintf(b, "route %d:%s", t.id, e.prefix)
			for _, p := range slices.SortedFunc(slices.Values(s.paths), func(x, y path) int {
				return cmp.Or(cmp.Compare(x.pref, y.pref), cmp.Compare(x.pathText(v.ifs.name), y.pathText(v.ifs.name)))
			}) {
				fmt.Fprintf(b, " [%s]", p.pathText(v.ifs.name))
			}
			b.WriteByte('\n')
		}
	}
}

func (v *VPP) dumpNeighbors(b *strings.Builder) {
	var lines []string
	for k, n := range v.neigh.byKey {
		s := fmt.Sprintf("neighbor %s %s %s", v.ifs.name(k.swIf), k.addr, net.HardwareAddr(n.mac[:]))
		if n.static {
			s += " static"
		}
		lines = append(lines, s+"\n")
	}
	for fam, c := range v.neigh.config {
		if c != (neighborConfig{limit: 50000}) {
			lines = append(lines, fmt.Sprintf("neighbors ip%d limit %d age %d recycle %t\n", 4+2*fam, c.limit, c.age, c.recycle))
		}
	}
	slices.Sort(lines)
	b.WriteString(strings.Join(lines, ""))
}
