package l3

import (
	"errors"
	"net/netip"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// neighbour is an entry of the ARP or ND table.
type neighbour struct {
	iface    string
	addr     netip.Addr
	mac      [6]byte
	static   bool
	spelling string // of addr in the message: it is part of the key
}

// ARPEntry describes ligato's ARPEntry: a neighbour, IPv4 or IPv6.
//
// It follows the access lists: without a neighbour VPP sends no packet to the hosts behind an interface. VPP learns none by an interface that is
// not open yet (Unnumbered): it drops what these hosts say, and does not ask. The lists stay on the interface for as long as VPP refuses to remove the neighbour.
func ARPEntry() *descriptor.Descriptor {
	d := descriptor.Spec[*l3.ARPEntry, *neighbour]{
		Name: "arp", Prefix: "config/vpp/v2/arp/",
		Compile: func(_ string, m *l3.ARPEntry) (*neighbour, error) {
			n := &neighbour{iface: m.GetInterface(), static: m.GetStatic(), spelling: m.GetIpAddress()}
			var err error
			if n.iface == "" {
				return nil, errors.New("interface: empty")
			}
			if n.addr, err = descriptor.ParseAddr("ip_address", m.GetIpAddress()); err != nil {
				return nil, err
			}
			if m.GetPhysAddress() == "" {
				return nil, errors.New("phys_address: empty")
			}
			n.mac, err = descriptor.ParseMAC("phys_address", m.GetPhysAddress())
			return n, err
		},
		Message: func(n *neighbour) *l3.ARPEntry {
			return &l3.ARPEntry{Interface: n.iface, IpAddress: n.spelling, PhysAddress: descriptor.MACText(n.mac), Static: n.static}
		},
		Equal: func(have, want *neighbour) bool { return have.mac == want.mac && have.static == want.static },
		Dependencies: func(n *neighbour) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(n.iface)}, {Key: kv.InterfaceACLsKey(n.iface), Loose: true}}
		},
		Claims: func(n *neighbour) []string { return []string{"neighbour " + n.addr.String() + " of " + n.iface} },
		Create: func(w *descriptor.World, n *neighbour) ([]descriptor.Op, error) { return n.sendNeighbour(w, true) },
		Update: func(w *descriptor.World, have, want *neighbour) ([]descriptor.Op, error) {
			if have.static && !want.static { // an addition does not clear the flag
				del, err := have.sendNeighbour(w, false)
				if err != nil {
					return nil, err
				}
				add, err := want.sendNeighbour(w, true)
				return append(del, add...), err
			}
			return want.sendNeighbour(w, true) // replaces
		},
		Delete: func(w *descriptor.World, n *neighbour) ([]descriptor.Op, error) { return n.sendNeighbour(w, false) },
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{neighbourRequest(ip_types.ADDRESS_IP4), neighbourRequest(ip_types.ADDRESS_IP6)}
		},
		Retrieve: retrieveNeighbours,
	}.Descriptor()
	d.After = []string{"interface-acls"}
	return d
}

func neighbourRequest(af ip_types.AddressFamily) descriptor.Request {
	return descriptor.DumpRequest("ip_neighbor_dump "+af.String(), &ip_neighbor.IPNeighborDump{SwIfIndex: interface_types.InterfaceIndex(descriptor.None), Af: af})
}

func (n *neighbour) sendNeighbour(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	idx, err := w.Index(n.iface)
	if err != nil {
		return nil, err
	}
	m := &ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: ip_neighbor.IPNeighbor{SwIfIndex: idx, MacAddress: n.mac, IPAddress: descriptor.ToAddress(n.addr)}}
	if n.static {
		m.Neighbor.Flags = ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC
	}
	return []descriptor.Op{{Call: descriptor.Write(m), Gone: !add}}, nil
}

func retrieveNeighbours(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	type place struct {
		idx  uint32
		addr netip.Addr
	}
	inVPP := map[place]*ip_neighbor.IPNeighbor{}
	for _, af := range []ip_types.AddressFamily{ip_types.ADDRESS_IP4, ip_types.ADDRESS_IP6} {
		all, err := descriptor.Details[*ip_neighbor.IPNeighborDetails](d, neighbourRequest(af).ID)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			inVPP[place{uint32(m.Neighbor.SwIfIndex), descriptor.FromAddress(m.Neighbor.IPAddress)}] = &m.Neighbor
		}
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		n := state.(*neighbour)
		i, ok := w.Interface(n.iface)
		if !ok || (!wanted && c.Wanted(key) != nil) {
			return
		}
		if m := inVPP[place{i.Index, n.addr}]; m != nil {
			got := *n
			got.mac, got.static = m.MacAddress, m.Flags&ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC != 0
			out = append(out, descriptor.Found{Key: key, State: &got})
		}
	})
	return out, nil
}
