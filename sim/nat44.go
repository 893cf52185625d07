package sim

import (
	"net/netip"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/nat44ed"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed/show"
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
	for i, h := range r.Hops {
		at := f.hop(h.Node, "%s", h.Text)
		if last = h.Node; r.Action == nat44ed.Drop && i == len(r.Hops)-1 {
			at.End()
		}
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

// dumpNAT is NAT44-ED's part of Dump.
func (v *VPP) dumpNAT(b *strings.Builder) { show.Write(b, v.nat, uint32(len(v.ifs.list)), v.ifs.name) }
