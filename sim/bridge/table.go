package bridge

import (
	"bytes"
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/l2"
)

// None is VPP's ~0: no interface.
const None = ^uint32(0)

// MAC is an Ethernet address.
type MAC = [6]byte

// Domain is a bridge domain.
type Domain struct {
	ID      uint32 // bd_id
	Index   int    // VPP's index; the index of a deleted one is used again
	Flags   l2.BdFlags
	Age     uint8
	Tag     string
	Members []uint32 // by sw_if_index, in order of joining
	BVI     uint32   // sw_if_index; None: none
	MACs    map[netip.Addr]MAC
	bviMAC  MAC
}

// Mode is the role of an interface at layer 2; zero: none.
type Mode uint8

// The roles.
const (
	Member Mode = iota + 1
	CrossConnect
)

// Port is the layer 2 side of an interface.
type Port struct {
	Mode   Mode
	Domain *Domain // of a member
	Group  uint8   // of split horizon
	Peer   uint32  // of a cross-connect
}

// Key is an address in a bridge domain.
type Key struct {
	Bridge int // Domain.Index
	MAC    MAC
}

// Entry is an entry of the L2 FIB.
type Entry struct {
	Interface           uint32
	Static, Filter, BVI bool
}

// Table holds bridge domains, the L2 FIB and the roles of interfaces.
type Table struct {
	Domains []*Domain // by index; 0 is VPP's internal one, nil: free
	FIB     map[Key]Entry
	ports   map[uint32]Port
}

// New returns the table of a VPP that has just started.
func New() *Table {
	return &Table{Domains: []*Domain{{BVI: None}}, FIB: map[Key]Entry{}, ports: map[uint32]Port{}}
}

// Find returns the domain with a bd_id; nil: none.
func (t *Table) Find(id uint32) *Domain {
	for _, d := range t.Domains {
		if d != nil && d.ID == id {
			return d
		}
	}
	return nil
}

// All returns the bridge domains that API clients made.
func (t *Table) All() []*Domain {
	return slices.DeleteFunc(slices.Clone(t.Domains[1:]), func(d *Domain) bool { return d == nil })
}

// Add gives a domain the next index.
func (t *Table) Add(d *Domain) *Domain {
	d.BVI, d.MACs = None, map[netip.Addr]MAC{}
	d.Index = len(t.Domains)
	if i := slices.Index(t.Domains, nil); i >= 0 {
		d.Index = i
		t.Domains[i] = d
		return d
	}
	t.Domains = append(t.Domains, d)
	return d
}

// FreeID returns the lowest bd_id that no domain has.
func (t *Table) FreeID() uint32 {
	for id := uint32(1); ; id++ {
		if t.Find(id) == nil {
			return id
		}
	}
}

// Port returns the role of an interface.
func (t *Table) Port(index uint32) Port { return t.ports[index] }

// IsBVI reports whether an interface is the routed one of its domain.
func (t *Table) IsBVI(index uint32) bool {
	d := t.ports[index].Domain
	return d != nil && d.BVI == index
}

// Set is set_int_l2_mode: it reverts the role of an interface, then gives it that of port. False: the domain has a BVI already; the
// interface stays a port that is no member.
func (t *Table) Set(index uint32, mac MAC, port Port, bvi bool) bool {
	if d := t.ports[index].Domain; d != nil {
		d.Members = slices.DeleteFunc(d.Members, func(i uint32) bool { return i == index })
		if d.BVI == index {
			d.BVI = None
			delete(t.FIB, Key{d.Index, d.bviMAC})
		}
	}
	delete(t.ports, index)
	if port.Mode == 0 {
		return true
	}
	t.ports[index] = port
	if port.Mode != Member {
		return true
	}
	d := port.Domain
	if bvi {
		if d.BVI != None {
			return false
		}
		d.BVI, d.bviMAC = index, mac
		t.FIB[Key{d.Index, mac}] = Entry{Interface: index, Static: true, BVI: true}
	}
	d.Members = append(d.Members, index)
	return true
}

// MACChanged moves the FIB entry of a BVI.
func (t *Table) MACChanged(index uint32, mac MAC) {
	if t.IsBVI(index) {
		d := t.ports[index].Domain
		delete(t.FIB, Key{d.Index, d.bviMAC})
		d.bviMAC = mac
		t.FIB[Key{d.Index, mac}] = Entry{Interface: index, Static: true, BVI: true}
	}
}

// Gone is l2_input_interface_add_del: it removes the other end of a cross-connect as well, whatever its role.
func (t *Table) Gone(index uint32) {
	if p := t.ports[index]; p.Mode == CrossConnect {
		t.Set(p.Peer, MAC{}, Port{}, false)
	}
	t.Set(index, MAC{}, Port{}, false)
}

// Keys returns the keys of the FIB, sorted.
func (t *Table) Keys() []Key {
	return slices.SortedFunc(maps.Keys(t.FIB), func(x, y Key) int {
		return cmp.Or(cmp.Compare(x.Bridge, y.Bridge), bytes.Compare(x.MAC[:], y.MAC[:]))
	})
}
