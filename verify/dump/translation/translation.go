// Package translation turns the answers of a running VPP into what it translates for Services: the mappings of NAT44-ED and the translations of
// cnat with the share of each target, the graph nodes of interfaces, and routes.
//
// Invariant: it only reads, in several batches of requests. VPP may change between them. It shares no code with the descriptors' readers.
package translation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/serving"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/draw"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// State is what VPP reports.
type State struct {
	Mappings []Mapping
	// NAT44: the plugin is enabled. Forwarding: packets without a mapping pass.
	NAT44, Forwarding bool
	Timeouts          serving.Timeouts
	// Exempt are addresses and ports that NAT44 does not translate.
	Exempt []serving.At
	// Loopbacks are the addresses of twice-NAT; Sources those that senders get where packets leave. SNAT4 and SNAT6 are cnat's.
	Loopbacks, Sources []netip.Addr
	SNAT4, SNAT6       netip.Addr
	// Roles and Nodes are by interface. Nodes counts the graph nodes of NAT44 and cnat; it lacks interfaces that were not asked for.
	Roles map[uint32]Role
	Nodes map[uint32]map[string]int
	// Routes are the answers to lookups.
	Routes map[Lookup]Route
	// Hairpins are the names of the interfaces from which cnat gives packets to themselves another source.
	Hairpins map[string]bool
}

// Role is what an interface is for NAT44-ED.
type Role struct{ Inside, Outside, Output bool }

// Mapping is one frontend as VPP has it.
type Mapping struct {
	serving.At // port and protocol 0: all of the address
	Engine     serving.Engine
	Targets    []Target
	// Ends: VPP ends with the next connection, because the weights add up to 0.
	Ends bool
	Tag  string
	// Of nat44: packets of the targets themselves keep their source (out2in only); the client's address is replaced; only that of a client that
	// reaches itself is.
	OneWay, Hides, Loops bool
	// Maglev is cnat's choice by Maglev's table.
	Maglev bool
}

// Target is where VPP sends packets of a mapping.
type Target struct {
	At netip.AddrPort
	// Share is how many of all draws choose the target.
	Share int
	// Odd is why the target is not a plain endpoint: another table, a source, no translation. "": it is one.
	Odd string
}

// Pad: NAT44 keeps a place by it, and no packet may go there.
func (t Target) Pad() bool {
	return t.At.Addr() == netip.AddrFrom4(draw.PadAddr) || slices.Contains(oldPads, t.At.Addr())
}

var oldPads = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")} // read only

// Total is the sum of shares.
func (m *Mapping) Total() (n int) {
	for _, t := range m.Targets {
		n += t.Share
	}
	return n
}

// optional reports that VPP lacks the plugin of a request, or has it disabled.
func optional(err error) bool {
	var missing *vpp.MissingError
	return errors.As(err, &missing) || errors.Is(err, api.FEATURE_DISABLED) || errors.Is(err, api.UNSUPPORTED)
}

// Read reads the state of VPP. The interfaces are those of state.
func Read(ctx context.Context, do dump.Do, state *dump.State, node *serving.Node) (*State, error) {
	s := &State{
		Roles: map[uint32]Role{}, Nodes: map[uint32]map[string]int{}, Routes: map[Lookup]Route{}, Hairpins: map[string]bool{},
	}
	calls := []vpp.Call{
		{Dump: true, Msg: &nat44_ed.Nat44LbStaticMappingDump{}},
		{Dump: true, Msg: &nat44_ed.Nat44StaticMappingDump{}},
		{Dump: true, Msg: &nat44_ed.Nat44IdentityMappingDump{}},
		{Dump: true, Msg: &nat44_ed.Nat44AddressDump{}},
		{Dump: true, Msg: &nat44_ed.Nat44InterfaceDump{}},
		{Msg: &nat44_ed.Nat44EdOutputInterfaceGet{}},
		{Msg: &nat44_ed.Nat44ShowRunningConfig{}},
		{Dump: true, Msg: &cnat.CnatTranslationDump{}},
		{Msg: &cnat.CnatGetSnatAddresses{}},
	}
	for i, r := range do(ctx, calls...) {
		if r.Err != nil && !optional(r.Err) {
			return nil, fmt.Errorf("read vpp: %s: %w", calls[i].Msg.GetMessageName(), r.Err)
		}
		if r.Err != nil {
			continue
		}
		for _, m := range append(slices.Clone(r.Details), r.Msg) {
			s.recordDetails(m)
		}
	}
	slices.SortStableFunc(s.Mappings, func(a, b Mapping) int { return a.At.Compare(b.At) })
	if err := s.lookUp(ctx, do, node); err != nil {
		return nil, err
	}
	return s, s.showNodes(ctx, do, state, node)
}

func (s *State) recordDetails(m api.Message) {
	switch m := m.(type) {
	case *nat44_ed.Nat44LbStaticMappingDetails:
		s.Mappings = append(s.Mappings, balanced(m))
	case *nat44_ed.Nat44StaticMappingDetails:
		s.Mappings = append(s.Mappings, single(m))
	case *nat44_ed.Nat44IdentityMappingDetails:
		at := serving.At{Addr: netip.AddrFrom4(m.IPAddress), Port: m.Port, Protocol: model.Protocol(m.Protocol)}
		if m.Flags&nat_types.NAT_IS_ADDR_ONLY != 0 {
			at.Port, at.Protocol = 0, 0
		}
		s.Exempt = append(s.Exempt, at)
	case *nat44_ed.Nat44AddressDetails:
		if a := netip.AddrFrom4(m.IPAddress); m.Flags&nat_types.NAT_IS_TWICE_NAT != 0 {
			s.Loopbacks = append(s.Loopbacks, a)
		} else {
			s.Sources = append(s.Sources, a)
		}
	case *nat44_ed.Nat44InterfaceDetails:
		r := s.Roles[uint32(m.SwIfIndex)]
		r.Inside, r.Outside = m.Flags&nat_types.NAT_IS_INSIDE != 0, m.Flags&nat_types.NAT_IS_OUTSIDE != 0
		s.Roles[uint32(m.SwIfIndex)] = r
	case *nat44_ed.Nat44EdOutputInterfaceDetails:
		r := s.Roles[uint32(m.SwIfIndex)]
		r.Output = true
		s.Roles[uint32(m.SwIfIndex)] = r
	case *nat44_ed.Nat44ShowRunningConfigReply:
		s.NAT44, s.Forwarding = true, m.ForwardingEnabled
		s.Timeouts = serving.Timeouts{UDP: m.Timeouts.UDP, TCPEstablished: m.Timeouts.TCPEstablished, TCPTransitory: m.Timeouts.TCPTransitory, ICMP: m.Timeouts.ICMP}
	case *cnat.CnatTranslationDetails:
		s.Mappings = append(s.Mappings, translated(&m.Translation))
	case *cnat.CnatGetSnatAddressesReply:
		s.SNAT4, s.SNAT6 = netip.AddrFrom4(m.SnatIP4), netip.AddrFrom16(m.SnatIP6)
	}
}

// balanced reads a mapping with several locals. Shares are VPP's, of its sums in 8 bits.
func balanced(m *nat44_ed.Nat44LbStaticMappingDetails) Mapping {
	out := Mapping{
		At: serving.At{Addr: netip.AddrFrom4(m.ExternalAddr), Port: m.ExternalPort, Protocol: model.Protocol(m.Protocol)}, Engine: serving.NAT44,
		Tag: strings.TrimRight(m.Tag, "\x00"),
	}
	out.readFlags(m.Flags)
	weights := make([]uint8, len(m.Locals))
	for i, l := range m.Locals {
		weights[i] = l.Probability
	}
	drawn := draw.Of(nil, weights)
	out.Ends = drawn.Total == 0
	for i, l := range m.Locals {
		t := Target{At: netip.AddrPortFrom(netip.AddrFrom4(l.Addr), l.Port), Share: drawn.Shares[i]}
		if l.VrfID != 0 {
			t.Odd = fmt.Sprintf("in table %d", l.VrfID)
		}
		out.Targets = append(out.Targets, t)
	}
	return out
}

func (m *Mapping) readFlags(f nat_types.NatConfigFlags) {
	m.OneWay = f&nat_types.NAT_IS_OUT2IN_ONLY != 0
	m.Hides, m.Loops = f&nat_types.NAT_IS_TWICE_NAT != 0, f&nat_types.NAT_IS_SELF_TWICE_NAT != 0
}

// single reads a mapping with one local.
func single(m *nat44_ed.Nat44StaticMappingDetails) Mapping {
	out := Mapping{
		At: serving.At{Addr: netip.AddrFrom4(m.ExternalIPAddress), Port: m.ExternalPort, Protocol: model.Protocol(m.Protocol)}, Engine: serving.NAT44,
		Tag: strings.TrimRight(m.Tag, "\x00"), Targets: []Target{{At: netip.AddrPortFrom(netip.AddrFrom4(m.LocalIPAddress), m.LocalPort), Share: 1}},
	}
	if m.Flags&nat_types.NAT_IS_ADDR_ONLY != 0 {
		out.Port, out.Protocol = 0, 0
	}
	out.readFlags(m.Flags)
	return out
}

// noNAT is the flag of a path whose packets keep their destination (CNAT_TRK_FLAG_NO_NAT of cnat_types.h, VPP 24.06 to 25.10).
const noNAT = 2

// translated reads a translation. Each path counts once, and equal paths add up.
func translated(m *cnat.CnatTranslation) Mapping {
	out := Mapping{
		At: serving.At{Addr: descriptor.FromAddress(m.Vip.Addr), Port: m.Vip.Port, Protocol: model.Protocol(m.IPProto)}, Engine: serving.CNAT,
		OneWay: true, Maglev: m.LbType == cnat.CNAT_LB_TYPE_MAGLEV, Ends: len(m.Paths) == 0,
	}
	for _, p := range m.Paths {
		t := Target{At: netip.AddrPortFrom(descriptor.FromAddress(p.DstEp.Addr), p.DstEp.Port), Share: 1}
		switch {
		case p.Flags&noNAT != 0:
			t.Odd = "without translation"
		case uint32(p.DstEp.SwIfIndex) != descriptor.None:
			t.Odd = fmt.Sprintf("an address of interface %d", p.DstEp.SwIfIndex)
		case !descriptor.FromAddress(p.SrcEp.Addr).IsUnspecified() || p.SrcEp.Port != 0:
			t.Odd = fmt.Sprintf("from source %s", netip.AddrPortFrom(descriptor.FromAddress(p.SrcEp.Addr), p.SrcEp.Port))
		}
		if at := slices.IndexFunc(out.Targets, func(o Target) bool { return o.At == t.At && o.Odd == t.Odd }); at >= 0 {
			out.Targets[at].Share++
			continue
		}
		out.Targets = append(out.Targets, t)
	}
	return out
}
