package l2

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idBridges      = "bridge_domain_dump"
	idTerminations = "bd_ip_mac_dump"
)

// bridge is a bridge domain. VPP chooses its bd_id; its tag has our name. Members are derived values.
type bridge struct {
	name         string
	flags        l2.BdFlags
	age          uint8           // minutes; 0: never
	terminations []termination   // sorted by address, each once
	members      []*bridgeMember // wanted; a dump shows them as separate values
}

// termination is an address that ARP termination answers for.
type termination struct {
	addr     netip.Addr
	mac      [6]byte
	spelling string // of addr in the message
}

// BridgeDomain describes ligato's BridgeDomain. Every field changes in place: VPP continues to switch frames meanwhile.
func BridgeDomain() *descriptor.Descriptor {
	return descriptor.Spec[*ligato.BridgeDomain, *bridge]{
		Name: "bridge-domain", Prefix: "config/vpp/l2/v2/bridge-domain/", Tagged: true,
		Compile: compileBridge, Message: (*bridge).bridgeMessage,
		Equal: func(have, want *bridge) bool {
			return have.flags == want.flags && have.age == want.age && slices.EqualFunc(have.terminations, want.terminations, termination.sameEntry)
		},
		Derived: func(b *bridge) []descriptor.Derived {
			out := make([]descriptor.Derived, 0, len(b.members))
			for _, m := range b.members {
				out = append(out, descriptor.Derived{Key: kv.BridgeDomainInterfaceKey(b.name, m.iface), State: m})
			}
			return out
		},
		Create: createBridge, Update: updateBridge, Delete: deleteBridge,
		Dumps:    func(*descriptor.World, descriptor.Candidates) []descriptor.Request { return bridgeRequests() },
		Retrieve: retrieveBridges,
	}.Descriptor()
}

func bridgeRequests() []descriptor.Request {
	return []descriptor.Request{
		descriptor.DumpRequest(idBridges, &l2.BridgeDomainDump{BdID: descriptor.None, SwIfIndex: interface_types.InterfaceIndex(descriptor.None)}),
		descriptor.DumpRequest(idTerminations, &l2.BdIPMacDump{BdID: descriptor.None}),
	}
}

func compileBridge(_ string, m *ligato.BridgeDomain) (*bridge, error) {
	b := &bridge{name: m.GetName(), age: uint8(m.GetMacAge())}
	switch {
	case b.name == "":
		return nil, errors.New("name: empty")
	case len(descriptor.TagOwner)+len("b:")+len(b.name) > descriptor.MaxTag:
		return nil, fmt.Errorf("name: longer than %d bytes, it does not fit VPP's tag", descriptor.MaxTag-len(descriptor.TagOwner)-len("b:"))
	case m.GetMacAge() > 255:
		return nil, fmt.Errorf("mac_age: %d is above 255", m.GetMacAge())
	}
	for flag, on := range map[l2.BdFlags]bool{
		l2.BRIDGE_API_FLAG_FLOOD: m.GetFlood(), l2.BRIDGE_API_FLAG_UU_FLOOD: m.GetUnknownUnicastFlood(), l2.BRIDGE_API_FLAG_FWD: m.GetForward(),
		l2.BRIDGE_API_FLAG_LEARN: m.GetLearn(), l2.BRIDGE_API_FLAG_ARP_TERM: m.GetArpTermination(),
	} {
		if on {
			b.flags |= flag
		}
	}
	if err := b.compileMembers(m.GetInterfaces()); err != nil {
		return nil, err
	}
	return b, b.compileTerminations(m.GetArpTerminationTable())
}

// compileMembers refuses a second BVI: VPP would execute half of the request, and add it as a plain member (set_int_l2_mode, VPP 24.06).
func (b *bridge) compileMembers(list []*ligato.BridgeDomain_Interface) error {
	seen := map[string]bool{}
	bvi := ""
	for n, i := range list {
		switch {
		case i.GetName() == "":
			return fmt.Errorf("interfaces[%d].name: empty", n)
		case seen[i.GetName()]:
			return fmt.Errorf("interfaces[%d].name: %q twice", n, i.GetName())
		case i.GetSplitHorizonGroup() > 255:
			return fmt.Errorf("interfaces[%d].split_horizon_group: %d is above 255", n, i.GetSplitHorizonGroup())
		case i.GetBridgedVirtualInterface() && bvi != "":
			return fmt.Errorf("interfaces[%d].bridged_virtual_interface: %q is it already", n, bvi)
		case i.GetBridgedVirtualInterface():
			bvi = i.GetName()
		}
		seen[i.GetName()] = true
		b.members = append(b.members, &bridgeMember{
			domain: b.name, iface: i.GetName(), bvi: i.GetBridgedVirtualInterface(), group: uint8(i.GetSplitHorizonGroup()),
		})
	}
	return nil
}

func (b *bridge) compileTerminations(list []*ligato.BridgeDomain_ArpTerminationEntry) error {
	for n, e := range list {
		addr, err := descriptor.ParseAddr(fmt.Sprintf("arp_termination_table[%d].ip_address", n), e.GetIpAddress())
		if err != nil {
			return err
		}
		if e.GetPhysAddress() == "" {
			return fmt.Errorf("arp_termination_table[%d].phys_address: empty", n)
		}
		mac, err := descriptor.ParseMAC(fmt.Sprintf("arp_termination_table[%d].phys_address", n), e.GetPhysAddress())
		if err != nil {
			return err
		}
		b.terminations = append(b.terminations, termination{addr, mac, e.GetIpAddress()})
	}
	slices.SortFunc(b.terminations, termination.compare)
	for n := 1; n < len(b.terminations); n++ {
		if b.terminations[n].addr == b.terminations[n-1].addr {
			return fmt.Errorf("arp_termination_table: %s twice", b.terminations[n].addr)
		}
	}
	return nil
}

func (t termination) compare(o termination) int { return t.addr.Compare(o.addr) }

func (t termination) sameEntry(o termination) bool { return t.addr == o.addr && t.mac == o.mac }

func (b *bridge) bridgeMessage() *ligato.BridgeDomain {
	has := func(f l2.BdFlags) bool { return b.flags&f != 0 }
	m := &ligato.BridgeDomain{
		Name: b.name, Flood: has(l2.BRIDGE_API_FLAG_FLOOD), UnknownUnicastFlood: has(l2.BRIDGE_API_FLAG_UU_FLOOD), Forward: has(l2.BRIDGE_API_FLAG_FWD),
		Learn: has(l2.BRIDGE_API_FLAG_LEARN), ArpTermination: has(l2.BRIDGE_API_FLAG_ARP_TERM), MacAge: uint32(b.age),
	}
	for _, i := range b.members {
		m.Interfaces = append(m.Interfaces, &ligato.BridgeDomain_Interface{
			Name: i.iface, BridgedVirtualInterface: i.bvi, SplitHorizonGroup: uint32(i.group),
		})
	}
	for _, t := range b.terminations {
		m.ArpTerminationTable = append(m.ArpTerminationTable, &ligato.BridgeDomain_ArpTerminationEntry{IpAddress: t.spelling, PhysAddress: descriptor.MACText(t.mac)})
	}
	return m
}

func (b *bridge) tag() string { return descriptor.NewTag("b", "", b.name) }

// createBridge makes the domain with its tag and flags, then fills its table.
func createBridge(w *descriptor.World, b *bridge) ([]descriptor.Op, error) {
	has := func(f l2.BdFlags) bool { return b.flags&f != 0 }
	m := &l2.BridgeDomainAddDelV2{
		IsAdd: true, BdID: descriptor.None, BdTag: b.tag(), MacAge: b.age,
		Flood: has(l2.BRIDGE_API_FLAG_FLOOD), UuFlood: has(l2.BRIDGE_API_FLAG_UU_FLOOD), Forward: has(l2.BRIDGE_API_FLAG_FWD),
		Learn: has(l2.BRIDGE_API_FLAG_LEARN), ArpTerm: has(l2.BRIDGE_API_FLAG_ARP_TERM),
	}
	return []descriptor.Op{{Call: descriptor.Write(m), Then: func(r vpp.Reply) []descriptor.Op {
		id := r.Msg.(*l2.BridgeDomainAddDelV2Reply).BdID
		bridgesOf(w)[b.name] = id
		return terminate(id, nil, b.terminations)
	}}}, nil
}

// updateBridge fills the table before ARP termination relies on it.
func updateBridge(w *descriptor.World, have, want *bridge) ([]descriptor.Op, error) {
	id, err := bridgeID(w, want.name)
	if err != nil {
		return nil, err
	}
	ops := terminate(id, have.terminations, want.terminations)
	if f := want.flags &^ have.flags; f != 0 {
		ops = append(ops, descriptor.Op{Call: descriptor.Write(&l2.BridgeFlags{BdID: id, IsSet: true, Flags: f})})
	}
	if f := have.flags &^ want.flags; f != 0 {
		ops = append(ops, descriptor.Op{Call: descriptor.Write(&l2.BridgeFlags{BdID: id, Flags: f})})
	}
	if have.age != want.age {
		ops = append(ops, descriptor.Op{Call: descriptor.Write(&l2.BridgeDomainSetMacAge{BdID: id, MacAge: want.age})})
	}
	return ops, nil
}

// terminate changes the table of addresses. An added entry replaces an older one; a removal must name the exact entry
// (bd_add_del_ip_mac, VPP 24.06).
func terminate(id uint32, have, want []termination) (ops []descriptor.Op) {
	send := func(t termination, add bool) {
		ops = append(ops, descriptor.Op{Gone: !add, Call: descriptor.Write(&l2.BdIPMacAddDel{IsAdd: add, Entry: l2.BdIPMac{BdID: id, IP: descriptor.ToAddress(t.addr), Mac: t.mac}})})
	}
	for _, t := range want {
		if !slices.ContainsFunc(have, t.sameEntry) {
			send(t, true)
		}
	}
	for _, t := range have {
		if _, stays := slices.BinarySearchFunc(want, t, termination.compare); !stays {
			send(t, false)
		}
	}
	return ops
}

func deleteBridge(w *descriptor.World, b *bridge) ([]descriptor.Op, error) {
	id, err := bridgeID(w, b.name)
	if err != nil {
		return nil, err
	}
	return []descriptor.Op{{
		Call: descriptor.Write(&l2.BridgeDomainAddDelV2{BdID: id}), Gone: true,
		Then: func(vpp.Reply) []descriptor.Op { delete(bridgesOf(w), b.name); return nil },
	}}, nil
}

// bridgeID returns the bd_id of a bridge domain of ours.
func bridgeID(w *descriptor.World, name string) (uint32, error) {
	id, ok := bridgesOf(w)[name]
	if !ok {
		return 0, fmt.Errorf("bridge domain %q is not in VPP", name)
	}
	return id, nil
}

func retrieveBridges(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*l2.BridgeDomainDetails](d, idBridges)
	if err != nil {
		return nil, err
	}
	entries, err := descriptor.Details[*l2.BdIPMacDetails](d, idTerminations)
	if err != nil {
		return nil, err
	}
	tables := map[uint32][]termination{}
	for _, e := range entries {
		a := descriptor.FromAddress(e.Entry.IP)
		tables[e.Entry.BdID] = append(tables[e.Entry.BdID], termination{a, e.Entry.Mac, a.String()})
	}
	clear(bridgesOf(w))
	var out []descriptor.Found
	for _, m := range all {
		_, name, ours := descriptor.ParseTag(descriptor.FixedText(m.BdTag), "b", false)
		if !ours {
			continue
		}
		bridgesOf(w)[name] = m.BdID
		b := &bridge{name: name, age: m.MacAge, terminations: tables[m.BdID]}
		slices.SortFunc(b.terminations, termination.compare)
		for flag, on := range map[l2.BdFlags]bool{
			l2.BRIDGE_API_FLAG_FLOOD: m.Flood, l2.BRIDGE_API_FLAG_UU_FLOOD: m.UuFlood, l2.BRIDGE_API_FLAG_FWD: m.Forward,
			l2.BRIDGE_API_FLAG_LEARN: m.Learn, l2.BRIDGE_API_FLAG_ARP_TERM: m.ArpTerm,
		} {
			if on {
				b.flags |= flag
			}
		}
		out = append(out, descriptor.Found{Key: kv.BridgeDomainKey(name), State: b, Ours: true})
	}
	return out, nil
}

// bridges are the bridge domains of ours: bd_id by name.
type bridges map[string]uint32

func bridgesOf(w *descriptor.World) bridges {
	return descriptor.FactsOf(w, func() bridges { return bridges{} })
}

// Clone implements Facts.
func (b bridges) Clone() descriptor.Facts { return maps.Clone(b) }
