package sim

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/tapv2"

	"github.com/contiv-agent/contiv-agent/sim/frame"
)

// noIndex is VPP's ~0: no interface, no table, any address.
const noIndex = ^uint32(0)

// The two families, as indices.
const (
	ip4 = iota
	ip6
)

func family(a netip.Addr) int {
	if a.Is4() {
		return ip4
	}
	return ip6
}

// Interface is an interface that AddInterface makes, as a CNI would. It survives Restart and belongs to no API client.
type Interface struct {
	// Name is VPP's, e.g. "tap3"; it also selects the kind of device (tap, loop, memif, host-; anything else is hardware).
	Name string
	Tag  string
	// DevType is VPP's interface_dev_type, e.g. "af-packet"; "": the type that follows from Name.
	DevType string
	// Addresses have host bits: 10.1.0.1/24. An interface without addresses still accepts IPv4 and IPv6, as an unnumbered one.
	Addresses []netip.Prefix
	// Unnumbered names an existing interface whose addresses this one uses; "": none.
	Unnumbered string
	VRF        uint32 // table of both families; created if missing
	MTU        uint32 // 0: 9000
	MAC        [6]byte
	Down       bool
	Bridges    bool // it stands for the routed interface (BVI) of a bridge domain whose other members send and receive as it does
}

type kind uint8

const (
	kindHardware kind = iota
	kindLocal
	kindLoop
	kindTap
	kindAfPacket
	kindMemif
	kindVxlan
	kindSub
	kindPipe    // the parent
	kindPipeEnd // it has the addresses
)

// iface is one sw_interface.
type iface struct {
	index    uint32
	name     string
	tag      string
	devType  string
	kind     kind
	mac      [6]byte
	macGiven bool // not derived by VPP: part of the configuration
	up       bool
	mtu      [4]uint32 // L3, IP4, IP6, MPLS; 0: that of L3
	linkMTU  uint16
	table    [2]uint32 // table ids
	addrs    []netip.Prefix
	// ipOn: IPv4 and IPv6 are enabled without an address.
	ipOn       [2]bool
	unnumbered uint32 // index of the interface whose addresses it uses; noIndex: none
	foreign    bool
	id         uint32                        // instance of loop or tap
	tap        tapv2.SwInterfaceTapV2Details // its host side, as dumped
	host       string                        // af_packet: Linux interface
	memif      memifParams
	routed     bool // Interface.Bridges
	vxlan      vxlanParams
	parent     uint32    // of a sub-interface, whose VLAN is id
	pipe       [2]uint32 // of a pipe: its ends; of an end: the parent and the other end
}

// interfaces is the pool of sw_interfaces: the index freed last is used first.
type interfaces struct {
	list   []*iface // by index; nil: free
	free   []uint32
	byName map[string]*iface
}

func (s *interfaces) init() { *s = interfaces{byName: map[string]*iface{}} }

// get returns nil for a missing interface.
func (s *interfaces) get(i uint32) *iface {
	if uint64(i) < uint64(len(s.list)) {
		return s.list[i]
	}
	return nil
}

func (s *interfaces) addIface(f *iface) {
	if n := len(s.free); n > 0 {
		f.index, s.free = s.free[n-1], s.free[:n-1]
		s.list[f.index] = f
	} else {
		f.index = uint32(len(s.list))
		s.list = append(s.list, f)
	}
	if f.kind != kindLocal && f.kind != kindPipeEnd {
		f.mtu[0], f.linkMTU = cmp.Or(f.mtu[0], 9000), 9000
	}
	f.unnumbered = noIndex
	s.byName[f.name] = f
}

func (s *interfaces) removeIface(f *iface) {
	s.list[f.index] = nil
	s.free = append(s.free, f.index)
	delete(s.byName, f.name)
}

// rename is vnet_rename_interface.
func (s *interfaces) rename(f *iface, name string) int32 {
	if s.byName[name] != nil {
		return rvUnspecified
	}
	delete(s.byName, f.name)
	f.name = name
	s.byName[name] = f
	return 0
}

// all returns the interfaces by index.
func (s *interfaces) all() []*iface {
	return slices.DeleteFunc(slices.Clone(s.list), func(f *iface) bool { return f == nil })
}

// sorted returns the interfaces by name.
func (s *interfaces) sorted() []*iface {
	list := s.all()
	slices.SortFunc(list, func(a, b *iface) int { return cmp.Compare(a.name, b.name) })
	return list
}

// name returns the name for texts.
func (s *interfaces) name(i uint32) string {
	if f := s.get(i); f != nil {
		return f.name
	}
	if i == noIndex {
		return "none"
	}
	return fmt.Sprintf("deleted:%d", i)
}

// takes reports whether the interface processes packets of the family (ip4-not-enabled otherwise).
func (f *iface) takes(fam int) bool {
	return f.ipOn[fam] || f.unnumbered != noIndex || slices.ContainsFunc(f.addrs, func(p netip.Prefix) bool { return family(p.Addr()) == fam })
}

// links6 reports whether the interface is enabled for IPv6 itself and so has a link-local address. An unnumbered one takes packets without that.
func (f *iface) links6() bool {
	return f.ipOn[ip6] || slices.ContainsFunc(f.addrs, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// sourceAddr returns the source address of a packet that VPP makes for dst about the interface: the address with the longest common
// prefix (ip_sas.c). Unnumbered interfaces always borrow, even if they have addresses.
func (v *VPP) sourceAddr(f *iface, dst netip.Addr) (best netip.Addr, ok bool) {
	addrs := f.addrs
	if lender := v.ifs.get(f.unnumbered); lender != nil {
		addrs = lender.addrs
	}
	most := -1
	for _, p := range addrs {
		if a := p.Addr(); family(a) == family(dst) && frame.CommonBits(a, dst) > most {
			best, most = a, frame.CommonBits(a, dst)
		}
	}
	return best, most >= 0
}

// create adds an interface and sends the event.
func (v *VPP) create(f *iface) *iface {
	v.ifs.addIface(f)
	v.event(f, false)
	return f
}

// destroy removes an interface with its addresses, learnt neighbours and NAT roles. Routes through it stay, unresolved.
func (v *VPP) destroy(f *iface) {
	v.destroySubs(f)
	v.setUp(f, false)
	for _, p := range slices.Clone(f.addrs) {
		v.delAddress(f, p)
	}
	v.flushNeighbors(f.index)
	v.natInterfaceGone(f)
	v.forgetFeatures(f.index)
	v.l2.Gone(f.index)
	v.proxy.Deleted(f.index)
	v.features.policers.Deleted(f.index)
	v.acl.InterfaceDeleted(f.index)
	v.classify.InterfaceDeleted(f.index)
	v.probe.InterfaceDeleted(f.index)
	if f.kind == kindAfPacket && f.up { // as vnet_delete_hw_interface
		v.cfg.Wire.SetUp(f.index, false)
	}
	if f.kind == kindAfPacket || f.kind == kindTap || f.kind == kindMemif {
		v.cfg.Wire.Close(f.index)
	}
	for fam := range v.fib {
		v.bindTable(f, fam, 0)
	}
	for _, o := range v.ifs.all() {
		if o.unnumbered == f.index {
			o.unnumbered = noIndex
		}
	}
	v.ifs.removeIface(f)
	v.event(f, true)
}

// setUp changes the admin state, and adds or removes the routes of its addresses.
func (v *VPP) setUp(f *iface, up bool) {
	if f.up == up {
		return
	}
	if f.up = up; f.kind == kindAfPacket {
		v.cfg.Wire.SetUp(f.index, up)
	}
	if f.kind == kindPipe { // its ends follow
		for _, end := range f.pipe {
			v.setUp(v.ifs.get(end), up)
		}
	}
	if !up {
		v.flushNeighbors(f.index)
	}
	for _, p := range f.addrs {
		if up {
			v.addConnected(f, p)
		} else {
			v.delConnected(f, p)
		}
	}
	v.event(f, false)
}

// addAddress is ip4_add_del_interface_address and its IPv6 counterpart: overlapping subnets within a table are refused unless it is
// another address of the same subnet and length on the same interface. The same address twice is also refused as in use.
func (v *VPP) addAddress(f *iface, p netip.Prefix) int32 {
	for _, o := range v.ifs.all() {
		if o.table[family(p.Addr())] != f.table[family(p.Addr())] {
			continue
		}
		for _, q := range o.addrs {
			if family(q.Addr()) != family(p.Addr()) || !q.Overlaps(p) {
				continue
			}
			if o == f && q.Bits() == p.Bits() && q.Addr() != p.Addr() {
				continue
			}
			if p.Addr().Is6() {
				return rvDuplicateIfAddress
			}
			return rvAddressInUse
		}
	}
	f.addrs = append(f.addrs, p)
	if f.up {
		v.addConnected(f, p)
	}
	v.natAddressChanged(f, p, true)
	return 0
}

func (v *VPP) delAddress(f *iface, p netip.Prefix) int32 {
	i := slices.Index(f.addrs, p)
	if i < 0 {
		return rvAddressNotFound
	}
	f.addrs = slices.Delete(f.addrs, i, i+1)
	if f.up {
		v.delConnected(f, p)
	}
	v.natAddressChanged(f, p, false)
	return 0
}

// kindOf derives the device from VPP's naming.
func kindOf(name string) (kind, string) {
	switch {
	case strings.HasPrefix(name, "tap"):
		return kindTap, "virtio"
	case strings.HasPrefix(name, "loop"):
		return kindLoop, "Loopback"
	case strings.HasPrefix(name, "memif"):
		return kindMemif, "memif"
	case strings.HasPrefix(name, "host-"):
		return kindAfPacket, "af-packet"
	}
	return kindHardware, "dpdk"
}

// foreign holds the objects that a CNI made, in order; no API client configured them.
type foreign struct {
	ifs       []Interface
	routes    []Route
	neighbors []Neighbor
}

// AddInterface makes an interface as a CNI would and returns its sw_if_index. It does not change an existing interface of that name.
func (v *VPP) AddInterface(i Interface) uint32 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f := v.ifs.byName[i.Name]; f != nil {
		return f.index
	}
	i.Addresses = slices.Clone(i.Addresses)
	v.foreign.ifs = append(v.foreign.ifs, i)
	f := v.makeForeign(i)
	v.flushEvents()
	return f.index
}

func (v *VPP) makeForeign(i Interface) *iface {
	k, dev := kindOf(i.Name)
	if i.DevType != "" {
		dev = i.DevType
	}
	f := &iface{name: i.Name, tag: i.Tag, kind: k, devType: dev, mac: i.MAC, foreign: true}
	f.mtu[0] = i.MTU
	if f.mac == [6]byte{} {
		f.mac = frame.DerivedMAC(i.Name)
	}
	switch k {
	case kindLoop, kindTap:
		_, _ = fmt.Sscanf(strings.TrimLeft(i.Name, "aelopt"), "%d", &f.id) // no number: instance 0
	case kindAfPacket:
		f.host = strings.TrimPrefix(i.Name, "host-")
	case kindMemif:
		_, _ = fmt.Sscanf(i.Name, "memif%d/%d", &f.memif.socket, &f.memif.id)
	}
	v.create(f)
	f.ipOn, f.routed = [2]bool{true, true}, i.Bridges
	if lender := v.ifs.byName[i.Unnumbered]; lender != nil {
		f.unnumbered = lender.index
	}
	for fam := range v.fib {
		if i.VRF != 0 {
			v.fib[fam].lockOnce(i.VRF, srcAPI).mroutes[srcAPI] = 1
			v.bindTable(f, fam, i.VRF)
		}
	}
	v.setUp(f, !i.Down)
	for _, p := range i.Addresses {
		v.addAddress(f, p)
	}
	return f
}

// RemoveInterface reverts AddInterface, as a CNI does for a removed pod. It ignores an unknown name.
func (v *VPP) RemoveInterface(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.foreign.ifs = slices.DeleteFunc(v.foreign.ifs, func(i Interface) bool { return i.Name == name })
	v.foreign.neighbors = slices.DeleteFunc(v.foreign.neighbors, func(n Neighbor) bool { return n.Interface == name })
	if f := v.ifs.byName[name]; f != nil {
		for k := range v.neigh.byKey { // a CNI cleans up after itself
			if k.swIf == f.index {
				v.delNeighbor(k)
			}
		}
		v.destroy(f)
	}
	v.flushEvents()
}

// SetInterfaceUp changes the admin state as a CNI or an operator would, without the API. It does not survive Restart.
func (v *VPP) SetInterfaceUp(name string, up bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.ifs.byName[name]
	if f == nil {
		return fmt.Errorf("no interface %s", name)
	}
	v.setUp(f, up)
	v.flushEvents()
	return nil
}

// Interfaces returns the names of all interfaces, sorted.
func (v *VPP) Interfaces() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Sorted(maps.Keys(v.ifs.byName))
}

// applyForeign makes the CNI's objects again after a restart.
func (v *VPP) applyForeign() {
	for _, i := range v.foreign.ifs {
		v.makeForeign(i)
	}
	for _, r := range v.foreign.routes {
		_ = v.applyRoute(r) // its first call succeeded; a deleted interface leaves its routes behind
	}
	for _, n := range v.foreign.neighbors {
		_ = v.applyNeighbor(n)
	}
}
