package ifaces

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// iface is a compiled Interface. Addresses and VRF are derived values.
type iface struct {
	name      string
	link      link // comparable; the kind of interface to create
	enabled   bool
	mac       [6]byte // zero: VPP's choice
	macChosen bool    // we chose it, not the message
	mtu       uint32  // of layer 3; 0: VPP's choice
	vrf       uint32
	addresses []netip.Prefix // sorted
	lender    string         // the interface whose addresses it uses; "": none
	// adopted: it existed before, without our tag, and equals the desired state: the agent never deletes it.
	adopted bool
	// untagged: the agent made it, but the connection ended before it had its tag.
	untagged bool
	// remains: VPP has no interface, but still the socket of a memif of ours, which no other interface uses.
	remains bool
}

// link is the kind-specific part of an interface; each kind of interface has a type.
type link interface {
	// create returns the request, and a pointer to the index in its reply.
	create(w *descriptor.World, i *iface) (descriptor.Op, error)
	delete(idx interface_types.InterfaceIndex) api.Message
	// claim returns the resource that only one interface can have; "": none.
	claim() string
	fill(*ligato.Interface)
}

// needer is a link that needs other objects in VPP.
type needer interface {
	needs() []descriptor.Dependency
}

// Interface describes ligato's Interface: loopback, tap, af_packet, memif, VXLAN tunnel and sub-interface.
//
// Interfaces that already exist need no value: their names are VPP's name and the tag, others may depend on them, and the agent
// never changes or deletes them.
func Interface() *descriptor.Descriptor {
	d := descriptor.Spec[*ligato.Interface, *iface]{
		Name: "interface", Prefix: "config/vpp/v2/interfaces/", Tagged: true,
		Compile: compileInterface, Message: (*iface).interfaceMessage,
		Equal: func(have, want *iface) bool { return len(diffInterface(have, want)) == 0 },
		Derived: func(i *iface) []descriptor.Derived {
			var out []descriptor.Derived
			v4, v6 := i.families()
			if v4 {
				out = append(out, descriptor.Derived{Key: kv.InterfaceVrfKey(i.name, i.vrf, false), State: &ifaceVRF{iface: i.name, vrf: i.vrf}})
			}
			if v6 {
				out = append(out, descriptor.Derived{Key: kv.InterfaceVrfKey(i.name, i.vrf, true), State: &ifaceVRF{iface: i.name, vrf: i.vrf, v6: true}})
			}
			for _, p := range i.addresses {
				out = append(out, descriptor.Derived{Key: kv.InterfaceAddressKey(i.name, p.String()), State: &address{iface: i.name, prefix: p, vrf: i.vrf}})
			}
			if i.lender != "" {
				out = append(out, descriptor.Derived{Key: kv.InterfaceUnnumberedKey(i.name, i.lender), State: &unnumbered{iface: i.name, lender: i.lender}})
			}
			return out
		},
		Dependencies: func(i *iface) []descriptor.Dependency {
			if l, ok := i.link.(needer); ok {
				return l.needs()
			}
			return nil
		},
		Claims: func(i *iface) []string {
			if c := i.link.claim(); c != "" {
				return []string{c}
			}
			return nil
		},
		Create: createInterface,
		Recreate: func(have, want *iface) bool {
			return have.remains || have.link != want.link || packetFrames(have) < packetFrames(want)
		},
		Update: func(w *descriptor.World, have, want *iface) ([]descriptor.Op, error) {
			idx, err := w.Index(want.name)
			if err != nil {
				return nil, err
			}
			return want.attributes(idx, diffInterface(have, want)), nil
		},
		Delete: deleteInterface,
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return slices.Concat(tapRequests(), memifRequests(), afPacketRequests(), vxlanRequests())
		},
		Retrieve: retrieveInterfaces,
	}.Descriptor()
	// VPP has no tag for the socket of a memif, which exists before the interface and after it.
	d.Unmarked = func(state any) bool { return state.(*iface).untagged || state.(*iface).socket() != "" }
	return d
}

func compileInterface(_ string, m *ligato.Interface) (*iface, error) {
	i := &iface{name: m.GetName(), enabled: m.GetEnabled(), mtu: m.GetMtu(), vrf: m.GetVrf()}
	var err error
	switch {
	case i.name == "":
		return nil, errors.New("name: empty")
	case len(descriptor.TagOwner)+len("i:")+len(i.name) > descriptor.MaxTag:
		return nil, fmt.Errorf("name: longer than %d bytes, it does not fit VPP's tag", descriptor.MaxTag-len(descriptor.TagOwner)-len("i:"))
	case m.GetSetDhcpClient():
		return nil, errors.New("set_dhcp_client: not supported")
	case m.GetIp6Nd() != nil:
		return nil, errors.New("ip6_nd: not supported")
	case m.GetUnnumbered() != nil && (m.GetUnnumbered().GetInterfaceWithIp() == "" || m.GetUnnumbered().GetInterfaceWithIp() == i.name):
		return nil, errors.New("unnumbered.interface_with_ip: names no other interface")
	case m.GetUnnumbered() != nil && (len(m.GetIpAddresses()) > 0 || i.vrf != 0):
		return nil, errors.New("unnumbered: the interface has ip_addresses or a vrf, too")
	case len(m.GetRxModes()) > 0:
		return nil, errors.New("rx_modes: not supported")
	case len(m.GetRxPlacements()) > 0:
		return nil, errors.New("rx_placements: not supported")
	case i.mtu > 65535:
		return nil, fmt.Errorf("mtu: %d is above 65535", i.mtu)
	}
	if i.mac, err = descriptor.ParseMAC("phys_address", m.GetPhysAddress()); err != nil {
		return nil, err
	}
	if m.GetPhysAddress() == "" && m.GetType() == ligato.Interface_SOFTWARE_LOOPBACK {
		i.mac, i.macChosen = loopbackMAC(i.name), true
	}
	for n, s := range m.GetIpAddresses() {
		p, err := descriptor.ParsePrefix(fmt.Sprintf("ip_addresses[%d]", n), s)
		if err != nil {
			return nil, err
		}
		i.addresses = append(i.addresses, p)
	}
	slices.SortFunc(i.addresses, descriptor.ComparePrefixes)
	for n := 1; n < len(i.addresses); n++ {
		if i.addresses[n] == i.addresses[n-1] {
			return nil, fmt.Errorf("ip_addresses: %s twice", i.addresses[n])
		}
	}
	i.lender = m.GetUnnumbered().GetInterfaceWithIp()
	if i.link, err = compileLink(m); err != nil {
		return nil, err
	}
	return i, nil
}

// loopbackMAC is the address of a loopback without a wanted one. It follows from the name, so that the agent recognises a
// loopback that it made just before the connection ended, and that has no tag yet.
func loopbackMAC(name string) [6]byte {
	sum := sha256.Sum256([]byte("loopback " + name))
	return [6]byte{0x02, 0xca, sum[0], sum[1], sum[2], sum[3]}
}

// families returns the address families for which the interface has to be put into a VRF.
func (i *iface) families() (v4, v6 bool) {
	if i.vrf == 0 {
		return false, false
	}
	for _, p := range i.addresses {
		v4, v6 = v4 || p.Addr().Is4(), v6 || p.Addr().Is6()
	}
	return v4 || !v6, v6
}

func (i *iface) interfaceMessage() *ligato.Interface {
	m := &ligato.Interface{Name: i.name, Enabled: i.enabled, Mtu: i.mtu, Vrf: i.vrf}
	if i.mac != [6]byte{} && !i.macChosen {
		m.PhysAddress = descriptor.MACText(i.mac)
	}
	for _, p := range i.addresses {
		m.IpAddresses = append(m.IpAddresses, p.String())
	}
	if i.lender != "" {
		m.Unnumbered = &ligato.Interface_Unnumbered{InterfaceWithIp: i.lender}
	}
	i.link.fill(m)
	return m
}

// diffInterface returns the names of the attributes that differ. An attribute that the value does not set (no MAC, no MTU) never differs.
func diffInterface(have, want *iface) (diff []string) {
	if have.link != want.link {
		diff = append(diff, "link")
	}
	if want.mac != [6]byte{} && have.mac != want.mac {
		diff = append(diff, "mac")
	}
	if want.mtu != 0 && have.mtu != want.mtu {
		diff = append(diff, "mtu")
	}
	if have.enabled != want.enabled {
		diff = append(diff, "enabled")
	}
	if have.untagged || have.remains {
		diff = append(diff, "tag")
	}
	return diff
}

// attributes returns the requests that set the named attributes.
func (i *iface) attributes(idx interface_types.InterfaceIndex, names []string) (ops []descriptor.Op) {
	for _, n := range names {
		switch n {
		case "mac":
			ops = append(ops, descriptor.Op{Call: descriptor.Write(&interfaces.SwInterfaceSetMacAddress{SwIfIndex: idx, MacAddress: i.mac})})
		case "tag":
			ops = append(ops, descriptor.Op{Call: descriptor.Write(&interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: idx, Tag: i.tag()})})
		case "mtu":
			ops = append(ops, descriptor.Op{Call: descriptor.Write(&interfaces.SwInterfaceSetMtu{SwIfIndex: idx, Mtu: []uint32{i.mtu, 0, 0, 0}})})
		case "enabled":
			var flags interface_types.IfStatusFlags
			if i.enabled {
				flags = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
			}
			ops = append(ops, descriptor.Op{Call: descriptor.Write(&interfaces.SwInterfaceSetFlags{SwIfIndex: idx, Flags: flags})})
		}
	}
	return ops
}

func (i *iface) tag() string { return descriptor.NewTag("i", "", i.name) }

// createInterface makes the interface, tags it at once, and sets the other attributes. The tag comes first, so that an agent that
// ends in between finds its interface.
func createInterface(w *descriptor.World, i *iface) ([]descriptor.Op, error) {
	op, err := i.link.create(w, i)
	if err != nil {
		return nil, err
	}
	op.Takes.Name = i.link.claim()
	if op.Takes.Name != "" {
		linksOf(w).tried[op.Takes.Name] = true
	}
	return []descriptor.Op{op}, nil
}

// created returns the requests that follow when VPP has made the interface.
func (i *iface) created(w *descriptor.World, idx interface_types.InterfaceIndex, tagged bool) (ops []descriptor.Op) {
	made := &descriptor.Iface{Index: uint32(idx), Name: i.name, Tag: i.tag(), Ours: true}
	switch l := i.link.(type) {
	case afPacketLink:
		made.VPPName = l.vppName()
	case memifLink:
		made.VPPName = l.vppName(w)
	}
	w.AddInterface(made)
	if !tagged {
		ops = append(ops, descriptor.Op{Call: descriptor.Write(&interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: idx, Tag: i.tag()})})
	}
	var names []string
	if i.mac != [6]byte{} && !i.macAtCreation() {
		names = append(names, "mac")
	}
	if i.mtu != 0 {
		names = append(names, "mtu")
	}
	if _, up := i.link.(vxlanLink); up || i.enabled { // VPP makes tunnels that are up
		names = append(names, "enabled")
	}
	return append(ops, i.attributes(idx, names)...)
}

// macAtCreation reports whether the creation can set the MAC: always, except for a memif in IP mode and a tunnel.
func (i *iface) macAtCreation() bool {
	switch l := i.link.(type) {
	case memifLink:
		return l.mode == 0
	case vxlanLink:
		return false
	}
	return true
}

func deleteInterface(w *descriptor.World, i *iface) ([]descriptor.Op, error) {
	if i.remains {
		return i.link.(memifLink).dropSocket(w), nil
	}
	known, ok := w.Interface(i.name)
	if !ok || i.adopted {
		return nil, nil
	}
	return []descriptor.Op{{
		Call: descriptor.Write(i.link.delete(interface_types.InterfaceIndex(known.Index))), Gone: true, Frees: descriptor.Claim{Name: i.link.claim()},
		Then: func(vpp.Reply) []descriptor.Op {
			w.RemoveInterface(known)
			if l, ok := i.link.(memifLink); ok {
				return l.dropSocket(w)
			}
			return nil
		},
	}}, nil
}

func retrieveInterfaces(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	links, err := dumpedLinks(w, d)
	if err != nil {
		return nil, err
	}
	candidates, facts := map[string]*iface{}, linksOf(w) // by name
	var all []*iface                                     // two of a name whose link has changed
	c.Each(func(_ string, state any, want bool) {
		i := state.(*iface)
		if !want && !facts.looked { // from the journal: an earlier agent asked VPP to make it, and ended before VPP had its tag
			facts.tried[i.link.claim()] = true
		}
		all = append(all, i)
		if candidates[i.name] == nil || want {
			candidates[i.name] = i
		}
	})
	facts.looked = true
	var out []descriptor.Found
	for _, known := range w.Interfaces() {
		l, ok := links[known.Index]
		if !ok {
			continue
		}
		i := &iface{name: known.Name, enabled: known.Up, mtu: known.MTU, mac: known.MAC, link: l}
		if !known.Ours {
			want := i.orphanOf(w, known, all)
			if want == nil {
				continue
			}
			// The interface existed before, or the agent made it and did not tag it yet: VPP cannot make it twice, so the agent takes it.
			i.untagged = want.link.claim() == "" || facts.tried[want.link.claim()]
			i.adopted = !i.untagged
			i.name, known.Name, known.Ours = want.name, want.name, i.untagged
			w.AddInterface(known)
		}
		if cand := candidates[i.name]; cand != nil {
			i.link = spelledAs(w, i.link, cand.link)
			i.correlate(cand)
		}
		out = append(out, descriptor.Found{Key: kv.InterfaceKey(i.name), State: i, Ours: known.Ours})
	}
	out = append(out, remainingSockets(w, c)...)
	slices.SortFunc(out, func(a, b descriptor.Found) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// orphanOf returns the candidate that an untagged interface matches; nil: none. It matches by the host interface or the socket,
// which only one can have, or by the MAC of a loopback.
func (i *iface) orphanOf(w *descriptor.World, known *descriptor.Iface, candidates []*iface) *iface {
	if known.Tag != "" {
		return nil
	}
	var found *iface
	for _, c := range candidates {
		is := spelledAs(w, i.link, c.link)
		if c.link.claim() != is.claim() || correlate(is, c.link) != c.link {
			continue
		}
		if c.link.claim() == "" && (c.mac != i.mac || i.link != link(loopbackLink{})) {
			continue
		}
		if _, exists := w.Interface(c.name); !exists && (found == nil || c.name < found.name) {
			found = c
		}
	}
	return found
}

// correlate copies from a candidate the fields that dumps do not show or that the candidate does not set.
func (i *iface) correlate(cand *iface) {
	i.link = correlate(i.link, cand.link)
	i.vrf, i.addresses, i.lender, i.macChosen = cand.vrf, cand.addresses, cand.lender, cand.macChosen
	if cand.mac == [6]byte{} {
		i.mac = cand.mac
	}
	if cand.mtu == 0 {
		i.mtu = 0
	}
}
