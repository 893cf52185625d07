// Package dump turns the answers of a running VPP into its access lists, where they are attached, and which interface leads to which pod.
//
// Invariant: it only reads, and reads everything in two batches of requests. VPP may change between them.
package dump

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/describe"
	"github.com/contiv-agent/contiv-agent/vpp/visit"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Verdicts of rules.
const (
	Permit  uint8 = 1 // lets the packet pass
	Reflect uint8 = 2 // lets it pass, and makes a session by which answers pass
	Deny    uint8 = 3
)

// State is what VPP reports.
type State struct {
	Lists      map[uint32]*List
	Interfaces map[uint32]*Interface
	// Behind is the interface that the route of a pod's address leads to.
	Behind map[netip.Addr]uint32
	// NAT44 says that nat44 translates on some interface; Pool is the addresses that it gives to senders.
	NAT44 bool
	Pool  []netip.Addr
}

// List is an access list.
type List struct {
	Index uint32
	Name  string // its tag, without what the agent puts before the name
	Space []space.Rule
	Rules []acl_types.ACLRule // as VPP has them, at the same indices
}

// Text is the rule at an index of Space, as in trace and diff.
func (l *List) Text(i int) string { return describe.ACLRule(&l.Rules[i]) }

// Interface is an interface with the access lists of both directions, in order. Without a list, everything passes.
type Interface struct {
	Name, Tag     string
	Input, Output []uint32
}

// Do sends requests to VPP.
type Do func(context.Context, ...vpp.Call) []vpp.Reply

// Read reads the state of VPP. Addrs are the addresses of the node's pods.
func Read(ctx context.Context, do Do, addrs []netip.Addr) (*State, error) {
	s := &State{Lists: map[uint32]*List{}, Interfaces: map[uint32]*Interface{}, Behind: map[netip.Addr]uint32{}}
	all := ^interface_types.InterfaceIndex(0)
	calls := []vpp.Call{
		{Dump: true, Msg: &interfaces.SwInterfaceDump{SwIfIndex: all}},
		{Dump: true, Msg: &acl.ACLDump{ACLIndex: ^uint32(0)}},
		{Dump: true, Msg: &acl.ACLInterfaceListDump{SwIfIndex: all}},
		{Dump: true, Msg: &nat44_ed.Nat44InterfaceDump{}},
		{Dump: true, Msg: &nat44_ed.Nat44AddressDump{}},
	}
	var missing *vpp.MissingError
	for i, r := range do(ctx, calls...) {
		if errors.As(r.Err, &missing) && i > 2 {
			continue // this VPP has no nat44
		}
		if r.Err != nil {
			return nil, fmt.Errorf("read vpp: %w", r.Err)
		}
		for _, m := range r.Details {
			s.recordDetails(m)
		}
	}
	return s, s.lookUp(ctx, do, addrs)
}

func (s *State) recordDetails(m api.Message) {
	switch m := m.(type) {
	case *interfaces.SwInterfaceDetails:
		i := s.at(uint32(m.SwIfIndex))
		i.Name, i.Tag = m.InterfaceName, m.Tag
	case *acl.ACLDetails:
		s.Lists[m.ACLIndex] = newList(m)
	case *acl.ACLInterfaceListDetails:
		i, n := s.at(uint32(m.SwIfIndex)), min(int(m.NInput), len(m.Acls))
		i.Input, i.Output = slices.Clone(m.Acls[:n]), slices.Clone(m.Acls[n:])
	case *nat44_ed.Nat44InterfaceDetails:
		s.NAT44 = true
	case *nat44_ed.Nat44AddressDetails:
		s.Pool = append(s.Pool, netip.AddrFrom4(m.IPAddress))
	}
}

// at returns an interface; the dump of attachments may name it before its own details.
func (s *State) at(index uint32) *Interface {
	if s.Interfaces[index] == nil {
		s.Interfaces[index] = &Interface{}
	}
	return s.Interfaces[index]
}

// lookUp finds the interfaces of addresses by their routes: only a route for the address alone is the pod's.
func (s *State) lookUp(ctx context.Context, do Do, addrs []netip.Addr) error {
	calls := make([]vpp.Call, len(addrs))
	for i, a := range addrs {
		calls[i].Msg = &ip.IPRouteLookup{Prefix: descriptor.ToPrefix(netip.PrefixFrom(a, a.BitLen())), Exact: 1}
	}
	for i, r := range do(ctx, calls...) {
		var refused *vpp.Retval
		if errors.As(r.Err, &refused) {
			continue // no such route
		}
		if r.Err != nil {
			return fmt.Errorf("look up %s in vpp: %w", addrs[i], r.Err)
		}
		m, ok := r.Msg.(*ip.IPRouteLookupReply)
		if !ok {
			continue
		}
		for _, path := range m.Route.Paths {
			if path.SwIfIndex != ^uint32(0) {
				s.Behind[addrs[i]] = path.SwIfIndex
				break
			}
		}
	}
	return nil
}

// Tagged returns the interface whose tag is a pod's "namespace/name".
func (s *State) Tagged(pod string) (index uint32, ok bool) {
	for i, n := range s.Interfaces {
		if n.Tag == pod || strings.HasPrefix(n.Tag, pod+"-") && n.Tag[len(pod)+1:] == "eth0" {
			return i, true
		}
	}
	return 0, false
}

func newList(m *acl.ACLDetails) *List {
	tag := descriptor.FixedText(m.Tag)
	l := &List{Index: m.ACLIndex, Name: tag, Space: make([]space.Rule, 0, len(m.R)), Rules: m.R}
	if _, name, ours := descriptor.ParseTag(tag, "a", true); ours {
		l.Name = name
	}
	for i := range m.R {
		r := &m.R[i]
		rule := space.Rule{Verdict: Deny}
		switch r.IsPermit {
		case 1:
			rule.Verdict = Permit
		case 2:
			rule.Verdict = Reflect
		}
		src, dst := descriptor.FromPrefix(r.SrcPrefix), descriptor.FromPrefix(r.DstPrefix)
		if rule.Box = space.All4(); src.Addr().Is6() {
			rule.Box = space.All6()
		}
		rule.Src, rule.Dst = src, dst
		sports := space.Span{First: r.SrcportOrIcmptypeFirst, Last: r.SrcportOrIcmptypeLast}
		dports := space.Span{First: r.DstportOrIcmpcodeFirst, Last: r.DstportOrIcmpcodeLast}
		switch proto := uint16(r.Proto); proto {
		case 0: // VPP compares neither the protocol nor ports
		case space.TCP:
			rule.FlagMask, rule.FlagBits = r.TCPFlagsMask, r.TCPFlagsValue
			fallthrough
		case space.UDP, space.ICMP, space.ICMPv6:
			rule.Protocols, rule.SrcPorts, rule.DstPorts = space.One(proto), sports, dports
		default: // VPP reads no ports of other protocols: they count as 0
			rule.Protocols = space.One(proto)
			if sports.First > 0 || dports.First > 0 {
				rule.SrcPorts = space.Span{First: 1}
			}
		}
		l.Space = append(l.Space, rule)
	}
	return l
}

// Open connects to VPP, by its socket or by dial. The function that it returns ends the connection.
func Open(ctx context.Context, socket string, dial func(context.Context) (net.Conn, error)) (Do, func(), error) {
	conn, stop, err := visit.Open(ctx, vpp.Config{Socket: socket, Dial: dial, ClientName: "contiv-verify", Needs: needs()})
	if err != nil {
		return nil, nil, err
	}
	return conn.Do, stop, nil
}

func needs() []api.Message {
	return []api.Message{
		&interfaces.SwInterfaceDump{}, &acl.ACLDump{}, &acl.ACLInterfaceListDump{}, &nat44_ed.Nat44InterfaceDump{}, &nat44_ed.Nat44AddressDump{}, &ip.IPRouteLookup{},
	}
}
