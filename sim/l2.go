package sim

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/l2"
)

// bridge is a bridge domain. The sim does not switch frames: it drops a packet on a member with a reason.
type bridge struct {
	id      uint32 // bd_id
	index   int    // VPP's index; the index of a deleted one is used again
	flags   l2.BdFlags
	age     uint8
	tag     string
	members []uint32 // by sw_if_index, in order of joining
	bvi     uint32   // sw_if_index; noIndex: none
	macs    map[netip.Addr][6]byte
}

// l2Mode is the role of an interface at layer 2; zero: none.
type l2Mode uint8

const (
	l2Bridge l2Mode = iota + 1
	l2Xconnect
)

// l2Port is the layer 2 side of an interface.
type l2Port struct {
	mode   l2Mode
	bridge *bridge
	group  uint8
	peer   uint32 // of a cross-connect
	routed bool   // Interface.Bridges
}

type l2Key struct {
	bridge int // index
	mac    [6]byte
}

type l2Entry struct {
	swIf                uint32
	static, filter, bvi bool
}

// layer2 holds bridge domains and the L2 FIB.
type layer2 struct {
	bridges []*bridge // by index; 0 is VPP's internal one, nil: free
	fib     map[l2Key]l2Entry
}

func (s *layer2) init() {
	*s = layer2{bridges: []*bridge{{bvi: noIndex}}, fib: map[l2Key]l2Entry{}}
}

func (s *layer2) findBridge(id uint32) *bridge {
	for _, b := range s.bridges {
		if b != nil && b.id == id {
			return b
		}
	}
	return nil
}

// allBridges returns the bridge domains that API clients made.
func (s *layer2) allBridges() []*bridge {
	return slices.DeleteFunc(slices.Clone(s.bridges[1:]), func(b *bridge) bool { return b == nil })
}

func (s *layer2) addBridge(b *bridge) *bridge {
	b.bvi, b.macs = noIndex, map[netip.Addr][6]byte{}
	b.index = len(s.bridges)
	if i := slices.Index(s.bridges, nil); i >= 0 {
		b.index = i
		s.bridges[i] = b
		return b
	}
	s.bridges = append(s.bridges, b)
	return b
}

func (s *layer2) freeID() uint32 {
	for id := uint32(1); ; id++ {
		if s.findBridge(id) == nil {
			return id
		}
	}
}

// setL2 is set_int_l2_mode: it reverts the interface's role, then gives it that of port.
func (v *VPP) setL2(f *iface, port l2Port, bvi bool) int32 {
	if b := f.l2.bridge; b != nil {
		b.members = slices.DeleteFunc(b.members, func(i uint32) bool { return i == f.index })
		if b.bvi == f.index {
			b.bvi = noIndex
			delete(v.l2.fib, l2Key{b.index, f.mac})
		}
	}
	f.l2 = port
	if port.mode != l2Bridge {
		return 0
	}
	b := port.bridge
	if bvi {
		if b.bvi != noIndex {
			return rvBDHasBVI // the interface stays a bridge port that is no member
		}
		b.bvi = f.index
		v.l2.fib[l2Key{b.index, f.mac}] = l2Entry{swIf: f.index, static: true, bvi: true}
	}
	b.members = append(b.members, f.index)
	return 0
}

// l2MACChanged moves the FIB entry of a BVI.
func (v *VPP) l2MACChanged(f *iface, mac [6]byte) {
	if b := f.l2.bridge; b != nil && b.bvi == f.index {
		delete(v.l2.fib, l2Key{b.index, f.mac})
		v.l2.fib[l2Key{b.index, mac}] = l2Entry{swIf: f.index, static: true, bvi: true}
	}
}

// l2Gone is l2_input_interface_add_del: it removes the other end of a cross-connect as well, whatever its role.
func (v *VPP) l2Gone(f *iface) {
	if peer := v.ifs.get(f.l2.peer); f.l2.mode == l2Xconnect && peer != nil {
		v.setL2(peer, l2Port{}, false)
	}
	v.setL2(f, l2Port{}, false)
}

// roleText returns the role of the interface as text.
func (p l2Port) roleText(v *VPP) string {
	if p.mode == l2Xconnect {
		return "cross-connected to " + v.ifs.name(p.peer)
	}
	return "in bridge domain " + p.bridge.name()
}

func (b *bridge) name() string {
	if b.tag != "" {
		return fmt.Sprintf("%q", b.tag)
	}
	return fmt.Sprint(b.id)
}

func (v *VPP) dumpL2(b *strings.Builder) {
	bridges := v.l2.allBridges()
	slices.SortFunc(bridges, func(x, y *bridge) int { return cmp.Compare(x.name(), y.name()) })
	for _, d := range bridges {
		fmt.Fprintf(b, "bridge %s %s age %d\n", d.name(), d.flags, d.age)
		var members []string
		for _, i := range d.members {
			s := fmt.Sprintf("  member %s group %d", v.ifs.name(i), v.ifs.get(i).l2.group)
			if i == d.bvi {
				s += " bvi"
			}
			members = append(members, s+"\n")
		}
		slices.Sort(members)
		b.WriteString(strings.Join(members, ""))
		for _, a := range slices.SortedFunc(maps.Keys(d.macs), netip.Addr.Compare) {
			mac := d.macs[a]
			fmt.Fprintf(b, "  arp %s %s\n", a, net.HardwareAddr(mac[:]))
		}
		v.dumpL2FIB(b, d)
	}
	for _, f := range v.ifs.sorted() {
		if f.l2.mode == l2Xconnect {
			fmt.Fprintf(b, "xconnect %s %s\n", f.name, v.ifs.name(f.l2.peer))
		}
	}
}

// dumpL2FIB omits the address of a BVI, which follows from its role.
func (v *VPP) dumpL2FIB(b *strings.Builder, d *bridge) {
	for _, k := range v.l2.keys() {
		e := v.l2.fib[k]
		if k.bridge == d.index && (!e.bvi || e.swIf != d.bvi) {
			fmt.Fprintf(b, "  fib %s %s static %t filter %t bvi %t\n", net.HardwareAddr(k.mac[:]), v.ifs.name(e.swIf), e.static, e.filter, e.bvi)
		}
	}
}

func (s *layer2) keys() []l2Key {
	return slices.SortedFunc(maps.Keys(s.fib), func(x, y l2Key) int {
		return cmp.Or(cmp.Compare(x.bridge, y.bridge), bytes.Compare(x.mac[:], y.mac[:]))
	})
}
