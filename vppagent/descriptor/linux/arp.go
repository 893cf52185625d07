package linux

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"go.fd.io/govpp/api"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// PutNeighbour makes or replaces a permanent neighbour, or removes it; the removal of an absent neighbour succeeds.
type PutNeighbour struct {
	Message
	Add       bool   `binapi:"bool,name=is_add"`
	Namespace string `binapi:"string,name=namespace"`
	Link      string `binapi:"string,name=link"`
	Address   string `binapi:"string,name=address"`
	MAC       string `binapi:"string,name=mac"`
}

// GetMessageName is "neighbour_put".
func (*PutNeighbour) GetMessageName() string { return "neighbour_put" }

func (r *PutNeighbour) do(h *handles) ([]api.Message, error) {
	nl, l, err := h.link(r.Namespace, r.Link)
	if err != nil {
		if none(err) && !r.Add {
			err = nil
		}
		return nil, err
	}
	addr, err := netip.ParseAddr(r.Address)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(r.MAC)
	if err != nil {
		return nil, err
	}
	n := &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: unix.AF_INET, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac}
	if addr.Is6() {
		n.Family = unix.AF_INET6
	}
	if r.Add {
		return nil, Wrap("add the neighbour "+r.Address, nl.NeighSet(n))
	}
	if err = nl.NeighDel(n); errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return nil, Wrap("remove the neighbour "+r.Address, err)
}

// ListNeighbours asks for the permanent neighbours of a namespace. An absent namespace has none.
type ListNeighbours struct {
	Message
	Namespace string `binapi:"string,name=namespace"`
}

// GetMessageName is "neighbour_list".
func (*ListNeighbours) GetMessageName() string { return "neighbour_list" }

func (r *ListNeighbours) do(h *handles) ([]api.Message, error) {
	nl, err := h.handleOf(r.Namespace)
	if none(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := nl.names()
	if err != nil {
		return nil, err
	}
	all, err := nl.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	var out []api.Message
	for _, n := range all {
		if a, ok := netip.AddrFromSlice(n.IP); ok && n.State&netlink.NUD_PERMANENT != 0 {
			out = append(out, &PutNeighbour{Namespace: r.Namespace, Link: names[n.LinkIndex], Address: a.Unmap().String(), MAC: n.HardwareAddr.String()})
		}
	}
	return out, nil
}

// neighbour is a permanent neighbour of the host.
type neighbour struct {
	iface, mac string
	addr       netip.Addr
	text       [2]string // addresses in the message's form
}

// ARPEntry describes ligato's ARPEntry of the host, for IPv6 too. The kernel keeps no mark on neighbours: the journal has ours.
func ARPEntry() *descriptor.Descriptor {
	return descriptor.Spec[*l3.ARPEntry, *neighbour]{
		Name: "linux-arp", Prefix: "config/linux/l3/v2/arp/",
		Compile: compileNeighbour,
		Message: func(n *neighbour) *l3.ARPEntry {
			return &l3.ARPEntry{Interface: n.iface, IpAddress: n.text[0], HwAddress: n.text[1]}
		},
		Equal: func(have, want *neighbour) bool { return have.mac == want.mac },
		Dependencies: func(n *neighbour) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.LinuxInterfaceKey(n.iface)}}
		},
		Create: func(w *descriptor.World, n *neighbour) ([]descriptor.Op, error) { return n.putNeighbour(w, true) },
		Update: func(w *descriptor.World, _, want *neighbour) ([]descriptor.Op, error) {
			return want.putNeighbour(w, true)
		},
		Delete: func(w *descriptor.World, n *neighbour) ([]descriptor.Op, error) { return n.putNeighbour(w, false) },
		Dumps: func(w *descriptor.World, c descriptor.Candidates) []descriptor.Request {
			return perNamespace(w, c, func(s any) string { return s.(*neighbour).iface }, neighboursOf)
		},
		Retrieve: retrieveNeighbours,
	}.Descriptor()
}

func neighboursOf(namespace string) descriptor.Request {
	return descriptor.Request{ID: "neighbour_list " + namespace, Call: vpp.Call{Dump: true, Msg: &ListNeighbours{Namespace: namespace}}}
}

func compileNeighbour(_ string, m *l3.ARPEntry) (*neighbour, error) {
	n := &neighbour{iface: m.GetInterface(), text: [2]string{m.GetIpAddress(), m.GetHwAddress()}}
	if n.iface == "" {
		return nil, errors.New("interface: empty")
	}
	var err error
	if n.addr, err = netip.ParseAddr(m.GetIpAddress()); err != nil {
		return nil, fmt.Errorf("ip_address: %q is no address", m.GetIpAddress())
	}
	mac, err := net.ParseMAC(m.GetHwAddress())
	if err != nil || len(mac) != 6 {
		return nil, fmt.Errorf("hw_address: %q is no MAC address", m.GetHwAddress())
	}
	n.mac = mac.String()
	return n, nil
}

func (n *neighbour) putNeighbour(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	l, ok := hostLinksOf(w)[n.iface]
	if !ok {
		return nil, fmt.Errorf("interface %q is not on the host", n.iface)
	}
	return []descriptor.Op{{Call: vpp.Call{Msg: &PutNeighbour{Add: add, Namespace: l.namespace, Link: l.name, Address: n.addr.String(), MAC: n.mac}}}}, nil
}

func retrieveNeighbours(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, err error) {
	c.Each(func(key string, state any, wanted bool) {
		n := state.(*neighbour)
		l, ok := hostLinksOf(w)[n.iface]
		if !ok || !wanted && c.Wanted(key) != nil && found(out, key) {
			return
		}
		all, failed := descriptor.Details[*PutNeighbour](d, neighboursOf(l.namespace).ID)
		if failed != nil {
			err = failed
			return
		}
		for _, m := range all {
			if m.Link == l.name && m.Address == n.addr.String() {
				out = append(out, descriptor.Found{Key: key, State: &neighbour{iface: n.iface, mac: m.MAC, addr: n.addr, text: [2]string{n.text[0], m.MAC}}})
			}
		}
	})
	return out, err
}
