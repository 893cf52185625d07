package vpp

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
)

const (
	protoICMP = 1
	protoTCP  = 6
	protoUDP  = 17
)

// anyMapping has the common fields of the messages that make and delete mappings of all kinds.
type anyMapping struct {
	kind     mappingKind
	add      bool
	flags    nat_types.NatConfigFlags
	addr     [4]byte
	port     uint16
	proto    uint8
	tag      string
	external bool // the address is given, not an interface's
}

// noInterface is VPP's "none" for an optional sw_if_index.
const noInterface = ^interface_types.InterfaceIndex(0)

// storedKey returns the key under which VPP stores the mapping: an address-only mapping has port and protocol 0.
func (m anyMapping) storedKey() mappingKey {
	if m.kind != lbMapping && m.flags&nat_types.NAT_IS_ADDR_ONLY != 0 {
		return mappingKey{addr: m.addr}
	}
	return mappingKey{m.addr, m.port, m.proto}
}

func mappingMessages() []string {
	return []string{lbMessage, "nat44_add_del_static_mapping", "nat44_add_del_static_mapping_v2", "nat44_add_del_identity_mapping"}
}

func viewMapping(msg api.Message) anyMapping {
	switch m := msg.(type) {
	case *nat44_ed.Nat44AddDelLbStaticMapping:
		return anyMapping{lbMapping, m.IsAdd, m.Flags, m.ExternalAddr, m.ExternalPort, m.Protocol, m.Tag, true}
	case *nat44_ed.Nat44AddDelStaticMapping:
		return anyMapping{singleMapping, m.IsAdd, m.Flags, m.ExternalIPAddress, m.ExternalPort, m.Protocol, m.Tag, m.ExternalSwIfIndex == noInterface}
	case *nat44_ed.Nat44AddDelStaticMappingV2:
		return anyMapping{singleMapping, m.IsAdd, m.Flags, m.ExternalIPAddress, m.ExternalPort, m.Protocol, m.Tag, m.ExternalSwIfIndex == noInterface}
	case *nat44_ed.Nat44AddDelIdentityMapping:
		return anyMapping{identityMapping, m.IsAdd, m.Flags, m.IPAddress, m.Port, m.Protocol, m.Tag, m.SwIfIndex == noInterface}
	}
	return anyMapping{}
}

// mappingAdd makes a rule of a check of any mapping to be made.
func mappingAdd(name, source, harm string, judge func(m anyMapping) string) Rule {
	return Rule{
		Name: name, Messages: mappingMessages(), Source: source, Harm: harm,
		judge: func(_ *Guard, msg api.Message) string {
			if m := viewMapping(msg); m.add {
				return judge(m)
			}
			return ""
		},
	}
}

func mappingRules() []Rule {
	const twice = nat_types.NAT_IS_TWICE_NAT | nat_types.NAT_IS_SELF_TWICE_NAT
	return []Rule{
		mappingAdd("mapping-protocol", "nat44_ed_out2in.c nat44_ed_out2in_slowpath_unknown_proto, VPP 24.06",
			"accepted, and never matches: it looks up port 0 and protocol 0 only", func(m anyMapping) string {
				return when(m.flags&nat_types.NAT_IS_ADDR_ONLY == 0 && m.proto != protoTCP && m.proto != protoUDP && m.proto != protoICMP, "protocol %d with a port: only TCP and UDP have ports here", m.proto)
			}),
		mappingAdd("mapping-icmp", "nat44_ed_out2in.c icmp_out2in_ed_slow_path (bad ICMP type), VPP 24.06",
			"accepted, and echo requests to it are dropped", func(m anyMapping) string {
				return when(m.flags&nat_types.NAT_IS_ADDR_ONLY == 0 && m.proto == protoICMP, "ICMP with port %d: only an address-only mapping carries ICMP", m.port)
			}),
		mappingAdd("mapping-twice-both", "nat44_ed_api.c vl_api_nat44_add_del_lb_static_mapping_t_handler, VPP 24.06",
			"VPP ignores SELF_TWICE_NAT without an error: clients lose their address", func(m anyMapping) string {
				return when(m.flags&twice == twice, "TWICE_NAT and SELF_TWICE_NAT together")
			}),
		mappingAdd("mapping-twice-address", "nat44_ed.c nat44_ed_validate_sm_input, VPP 24.06",
			"refused (-126): the mapping would be missing", func(m anyMapping) string {
				return when(m.flags&twice != 0 && (m.flags&nat_types.NAT_IS_ADDR_ONLY != 0 || m.kind == identityMapping), "twice-nat of an address-only or identity mapping")
			}),
		mappingAdd("mapping-tag", "nat44_ed_api.c (tag[63] = 0), VPP 24.06",
			"VPP truncates the tag, which names the mapping's owner, without an error", func(m anyMapping) string {
				return longTag(m.tag)
			}),
		{
			Name: "mapping-delete-kind", Messages: mappingMessages()[1:], Stateful: true,
			Source: "nat44_ed.c nat44_ed_del_static_mapping_internal, VPP 24.06",
			Harm: "deleted as another kind than it was made: VPP answers 0 and deletes nothing but a FIB lock (LB through single), or " +
				"takes locals out without adding weights up again (LB through identity)",
			judge: judgeDeleteKind,
			hinges: func(g *Guard, msg api.Message) bool {
				m := viewMapping(msg)
				_, ops := g.mappings.flying(g.view.key)
				return !m.add && m.external && len(ops) > 0
			},
		},
	}
}

func judgeDeleteKind(g *Guard, msg api.Message) string {
	m := viewMapping(msg)
	if m.add || !m.external {
		return ""
	}
	key, have := g.view.key, g.view.before
	switch {
	case have.kind == lbMapping:
		return key.String() + " is an LB mapping: use " + lbMessage
	case have.kind == identityMapping && m.kind == singleMapping:
		return key.String() + " is an identity mapping: use nat44_add_del_identity_mapping"
	case have.doubt || have.kind == unknownMapping && !g.allLB:
		return "mapping " + key.String() + " is not known: dump the LB mappings first"
	}
	return ""
}
