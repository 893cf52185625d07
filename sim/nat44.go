package sim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed"
)

// natNet is the NAT engine's view of the rest of VPP. The engine runs under v.mu.
type natNet struct{ v *VPP }

func (n natNet) Table(swIf uint32) uint32 {
	if f := n.v.ifs.get(swIf); f != nil {
		return f.table[ip4]
	}
	return 0
}

func (n natNet) HasTable(id uint32) bool { return n.v.fib[ip4].findTable(id) != nil }

func (n natNet) Addrs(swIf uint32) []netip.Prefix {
	f := n.v.ifs.get(swIf)
	if f == nil {
		return nil
	}
	var list []netip.Prefix
	for _, p := range f.addrs {
		if p.Addr().Is4() {
			list = append(list, p)
		}
	}
	return list
}

func (n natNet) Resolve(id uint32, dst netip.Addr) (uint32, bool) { return n.v.attached(id, dst) }

func (n natNet) LockTable(id uint32) { n.v.fib[ip4].lock(id, srcNAT) }

func (n natNet) UnlockTable(id uint32) { n.v.fib[ip4].unlock(id, srcNAT) }

// Receive is the side effect of vpp.md 3.2 B15: VPP answers ARP for the address and takes its packets.
func (n natNet) Receive(id uint32, a netip.Addr, swIf uint32, add bool) {
	t := n.v.fib[ip4].findTable(id)
	if t == nil {
		return
	}
	p := netip.PrefixFrom(a, 32)
	if !add {
		t.unset(p, srcNAT)
		return
	}
	t.setRoute(p, srcNAT, []path{{typ: PathLocal, swIf: swIf, weight: 1}})
}

// bootNAT returns a disabled NAT44-ED.
func (v *VPP) bootNAT() {
	c := nat44ed.Config{Net: natNet{v}, FIB: natNet{v}, Now: func() time.Duration { return v.now.Sub(v.booted) }}
	if v.cfg.Seed != 0 {
		c.Rand = v.rand
	}
	v.nat = nat44ed.New(c)
	v.nat.SetChoice(v.choice)
}

// rand is splitmix64: its state is one word of a Mark.
func (v *VPP) rand() uint32 {
	v.random += 0x9e3779b97f4a7c15
	z := v.random
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return uint32((z ^ z>>31) >> 32)
}

// Lookups of the NAT in the rest of VPP.

func (v *VPP) natAddressChanged(f *iface, p netip.Prefix, add bool) {
	v.cnat.AddressChanged(f.index, p.Addr(), add)
	if p.Addr().Is4() {
		v.nat.AddressChanged(f.index, p, add)
	}
}

func (v *VPP) natInterfaceGone(f *iface) { v.nat.InterfaceDeleted(f.index) }

// natInput and natOutput are the places of NAT44-ED on the arcs.
func (f *flow) natInput() bool {
	return f.translated(f.v.nat.Input(&f.p, f.rx, nat44ed.Meta{First: f.first, Pause: f.pause}))
}

func (f *flow) natOutput() bool {
	return f.translated(f.v.nat.Output(&f.p, f.rx, f.tx, nat44ed.Meta{First: f.first, Pause: f.pause}))
}

func (f *flow) translated(r nat44ed.Result) bool {
	last := "nat44-ed"
	for _, h := range r.Hops {
		f.hop(h.Node, "%s", h.Text)
		last = h.Node
	}
	f.badChecksum = f.badChecksum || r.BadChecksum
	if r.Table != noIndex {
		f.table = r.Table
	}
	switch r.Action {
	case nat44ed.TimeExceeded:
		f.complain(last, timeExceeded())
		return false
	case nat44ed.Drop:
		return false // the last hop has the reason
	}
	return true
}

// Sessions returns the NAT sessions in the order of their text.
func (v *VPP) Sessions() []nat44ed.Session {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.nat.Sessions()
}

// dumpNAT is NAT44-ED's part of Dump: kinds in order, lines of a kind sorted.
func (v *VPP) dumpNAT(b *strings.Builder) {
	if !v.nat.Enabled() {
		return
	}
	c := v.nat.RunningConfig()
	fmt.Fprintf(b, "nat44 enabled sessions %d vrf %d/%d forwarding %v timeouts %d/%d/%d/%d", c.Sessions, c.InsideVRF, c.OutsideVRF, c.Forwarding,
		c.Timeouts.UDP, c.Timeouts.TCPEstablished, c.Timeouts.TCPTransitory, c.Timeouts.ICMP)
	if mss := v.nat.MSSClamping(); mss != 0 {
		fmt.Fprintf(b, " mss %d", mss)
	}
	b.WriteByte('\n')
	for _, list := range [][]string{v.natInterfaceLines(), v.natPoolLines(), v.natSingleLines(), v.natLBLines()} {
		slices.Sort(list)
		for _, l := range list {
			b.WriteString(l + "\n")
		}
	}
}

func (v *VPP) natInterfaceLines() []string {
	var list []string
	for _, i := range v.nat.Interfaces() {
		list = append(list, fmt.Sprintf("nat44 interface %s%s", v.ifs.name(i.SwIf), flagText(i.Flags)))
	}
	for _, i := range v.nat.OutputInterfaces() {
		list = append(list, fmt.Sprintf("nat44 output-feature %s", v.ifs.name(i)))
	}
	for _, f := range v.ifs.all() {
		if input, output := v.nat.Arc(f.index).Nodes(); len(input)+len(output) > 0 {
			list = append(list, fmt.Sprintf("nat44 nodes %s %v %v", f.name, input, output))
		}
	}
	return list
}

func (v *VPP) natPoolLines() []string {
	var list []string
	for _, a := range v.nat.Addresses() {
		list = append(list, fmt.Sprintf("nat44 pool %s%s%s", a.Addr, flagText(a.Flags), vrfText(a.VRF)))
	}
	for _, a := range v.nat.InterfaceAddrs() {
		list = append(list, fmt.Sprintf("nat44 pool of %s%s", v.ifs.name(a.SwIf), flagText(a.Flags)))
	}
	for _, t := range v.nat.VRFTables() {
		list = append(list, fmt.Sprintf("nat44 vrf-table %d routes %v", t.Table, slices.Sorted(slices.Values(t.Routes))))
	}
	return list
}

func (v *VPP) natSingleLines() []string {
	var list []string
	for _, m := range v.nat.StaticMappings() {
		ext := m.External.String()
		if m.ExternalIf != noIndex {
			ext = v.ifs.name(m.ExternalIf)
		}
		s := fmt.Sprintf("nat44 static %s %s:%d -> %s:%d%s%s", model.Protocol(m.Proto), ext, m.ExternalPort, m.Local, m.LocalPort, flagText(m.Flags), vrfText(m.VRF))
		if m.Flags&nat44ed.AddrOnly != 0 {
			s = fmt.Sprintf("nat44 static %s -> %s%s%s", ext, m.Local, flagText(m.Flags), vrfText(m.VRF))
		}
		list = append(list, s+tagText(m.Tag))
	}
	for _, m := range v.nat.IdentityMappings() {
		at := m.Addr.String()
		if m.SwIf != noIndex {
			at = v.ifs.name(m.SwIf)
		}
		list = append(list, fmt.Sprintf("nat44 identity %s %s:%d%s%s%s", model.Protocol(m.Proto), at, m.Port, flagText(m.Flags), vrfText(m.VRF), tagText(m.Tag)))
	}
	return list
}

func (v *VPP) natLBLines() []string {
	var list []string
	for _, m := range v.nat.LBStaticMappings() {
		var b strings.Builder
		fmt.Fprintf(&b, "nat44 lb %s %s:%d%s%s", model.Protocol(m.Proto), m.External, m.Port, flagText(m.Flags), tagText(m.Tag))
		slices.SortFunc(m.Locals, func(x, y nat44ed.Local) int {
			return cmp.Or(x.Addr.Compare(y.Addr), cmp.Compare(x.Port, y.Port), cmp.Compare(x.VRF, y.VRF), cmp.Compare(x.Probability, y.Probability))
		})
		for _, l := range m.Locals {
			fmt.Fprintf(&b, "\n  local %s:%d weight %d%s", l.Addr, l.Port, l.Probability, vrfText(l.VRF))
		}
		list = append(list, b.String())
	}
	return list
}

func flagText(f nat44ed.Flags) string {
	var s string
	for i, name := range []string{"twice-nat", "self-twice-nat", "out2in-only", "addr-only", "outside", "inside"} {
		if f&(1<<i) != 0 {
			s += " " + name
		}
	}
	return s
}

func vrfText(id uint32) string {
	if id == 0 || id == noIndex {
		return ""
	}
	return fmt.Sprintf(" vrf %d", id)
}

func tagText(tag string) string {
	if tag == "" {
		return ""
	}
	return fmt.Sprintf(" tag %q", tag)
}
